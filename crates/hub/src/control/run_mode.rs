//! The permission mode of a run: what its caller chose, what its conversation says, or its agent's; and the plan of a run
//! that plans first.

use attache_protocol::{
    Code, Json,
    rules::{
        permission::PermissionState,
        permission_mode::{PLAN_TOOL, PermissionMode, PlanState},
    },
    wire::{account::Callers, run::CreateRunRequest, runtime::PLANS},
};
use attache_store::record::{AccountRecord, RunRecord, worker_request::PermissionFilter};
use serde::Deserialize;

use super::{account::policy_of, agent_endpoint::declared, create_run::WHAT};
use crate::{Error, Handle, Principal, Result, check, identity::Action};

/// The member of a conversation's metadata that applies to its runs.
#[derive(Deserialize)]
struct ModeMetadata {
    permission_mode: Option<Json>,
}

// === impl Handle ===

impl Handle {
    /// The mode of a new run that replaces its agent's. `None` if the agent's applies. `repeated` is the mode of the run
    /// that it repeats.
    pub(super) async fn mode_of_new_run(
        &self,
        by: &Principal,
        target: &AccountRecord,
        request: &CreateRunRequest,
        repeated: Option<PermissionMode>,
    ) -> Result<Option<PermissionMode>> {
        let agents = policy_of(target).mode.unwrap_or_default();
        let chosen = match request.permission_mode {
            Some(mode) if mode.is_within(agents) => Some(mode),
            Some(mode) => {
                self.check_mode_choice(by, target).await?;
                Some(mode)
            }
            // Nobody chose it for this run, so it can only make the agent stricter.
            None => {
                let said = [repeated, self.mode_of_conversation(by, request).await?];
                said.into_iter().flatten().find(|mode| mode.is_within(agents))
            }
        };
        let mode = chosen.or((agents == PermissionMode::PlanFirst).then_some(agents));
        if mode == Some(PermissionMode::PlanFirst) {
            check_plans(target)?;
        }
        Ok(mode)
    }

    async fn mode_of_conversation(&self, by: &Principal, request: &CreateRunRequest) -> Result<Option<PermissionMode>> {
        let Some(conversation) = request.conversation_id else { return Ok(None) };
        match self.store().conversation(by.tenant, conversation).await {
            Ok(found) => Ok(found.metadata.as_ref().and_then(|metadata| stated_mode(metadata).ok().flatten())),
            // It is created with the run, or the run is refused.
            Err(attache_store::Error::NotFound) => Ok(None),
            Err(error) => Err(Error::from_store(WHAT, error)),
        }
    }

    /// Approving steps of one run in advance takes the same rights as doing so for all runs of the agent.
    async fn check_mode_choice(&self, by: &Principal, target: &AccountRecord) -> Result<()> {
        let may_decide = by.may_all(Action::DecidePermission).is_ok();
        if may_decide && self.may_change(by, target).await {
            return Ok(());
        }
        let message = format!(
            "Only people who may change the permission mode of `{}` can start a run with one that isn't stricter.",
            target.name
        );
        Err(Error::new(Code::Forbidden, message)
            .hint("Leave out `permission_mode`, or choose a stricter one such as `plan_first`."))
    }

    /// Whether somebody may change how an agent works.
    pub(super) async fn may_change(&self, by: &Principal, target: &AccountRecord) -> bool {
        let may_edit = by.may(Action::EditAgent).is_ok_and(|permit| permit.covers_user(target.owner));
        let is_kept = target.callers == Callers::Owner && !by.is_owner(target.owner);
        may_edit && !is_kept && self.check_owner(by, target.owner).await.is_ok()
    }

    /// Whether the run still has to get its plan approved. A later attempt makes a plan of its own.
    pub(super) async fn plan_state(&self, run: &RunRecord) -> Result<PlanState> {
        let mode = run.spec.permission_mode.unwrap_or_default();
        if PlanState::of(mode, false) == PlanState::Settled {
            return Ok(PlanState::Settled);
        }
        let filter = PermissionFilter { state: Some(PermissionState::Approved), run: Some(run.id), agent: None };
        let what = "permission request";
        let mut approved = check::all_pages(what, |page| self.store().permissions(run.tenant, filter.clone(), page));
        while let Some(approved) = approved.next().await? {
            if approved.tool == PLAN_TOOL && approved.epoch == run.state.epoch {
                return Ok(PlanState::of(mode, true));
            }
        }
        Ok(PlanState::of(mode, false))
    }

    /// Other agents could change what this one may not yet.
    pub(super) async fn refuse_while_planning(&self, run: &RunRecord) -> Result<()> {
        match self.plan_state(run).await? {
            PlanState::Settled => Ok(()),
            PlanState::Open => Err(Error::forbidden("This run plans first, and nobody has approved its plan yet.")
                .hint("Present the plan. Once a person has approved it, the run can call other agents.")),
        }
    }
}

/// The mode in a conversation's metadata, if any.
pub(super) fn stated_mode(metadata: &Json) -> Result<Option<PermissionMode>> {
    let Ok(ModeMetadata { permission_mode: Some(mode) }) = metadata.parse() else { return Ok(None) };
    let wrong = |_| Error::invalid("metadata.permission_mode", &format!("must be one of {}", PermissionMode::CHOICES));
    mode.parse::<Option<PermissionMode>>().map_err(wrong)
}

/// Only some agents can be held to a plan, as their devices declare.
fn check_plans(target: &AccountRecord) -> Result<()> {
    let plans = target.runtime.clone().map(declared).unwrap_or_default().iter().any(|uri| uri == PLANS);
    match plans {
        true => Ok(()),
        false => {
            let message = format!("The agent `{}` can't be made to plan first.", target.name);
            Err(Error::new(Code::InvalidRequest, message)
                .hint("Its device doesn't declare support for it. Claude Code supports it with a current runtime."))
        }
    }
}
