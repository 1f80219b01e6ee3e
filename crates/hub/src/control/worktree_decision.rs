//! What the owner of an agent decides about the worktree of a run, and what the device makes of it.
//!
//! On the device itself, `attache worktrees` does the same. So only the agent's owner in person decides here, with a device
//! that they paired themselves. A decision is durable, but doesn't wait for a device that is offline: what it would be applied
//! to may have changed by then.

use std::time::Duration;

use attache_protocol::{
    Code, RunId,
    wire::{
        runtime::{WORKTREE_DECISIONS, WORKTREES},
        worktree::{
            DecideWorktreeRequest, DecidedWorktree, PendingWorktreeDecision, PendingWorktreeDecisionList,
            SettleWorktreeRequest, WORKTREE_DECISION_TIMEOUT, WorktreeDecision, WorktreeDecisionState,
        },
    },
};
use attache_store::{
    Error as StoreError,
    record::{
        AccountRecord, AgentRef, RunRecord,
        worktree::{NewWorktreeDecision, WorktreeDecisionRecord},
    },
};

use super::agent_endpoint::declared;
use crate::{Error, Handle, Principal, Result, bus::Topic, check, error::about, identity::Action, waiter::Waiter};

const WHAT: &str = "worktree";
const MAX_MESSAGE: usize = 16 * 1024;
const MAX_NAMES: usize = 1000;
/// All names of files together.
const MAX_NAME_BYTES: usize = 64 * 1024;

impl Handle {
    /// What was decided about a run's worktree last, for the agent's owner in person. Waits up to `wait` (at most a minute) for
    /// the device's answer.
    pub async fn worktree_decision(&self, by: &Principal, run: RunId, wait: Duration) -> Result<DecidedWorktree> {
        let _slot = self.wait_slot(by, wait)?;
        let mut waiter = Waiter::new(self, by, Topic::Tenant(by.tenant), Some(wait.min(Waiter::MAX_WAIT)));
        loop {
            self.own_worktree(waiter.principal(), run).await?;
            let decision = self.store().worktree_decision(by.tenant, run).await.map_err(about(WHAT))?;
            let is_pending = decision.as_ref().is_some_and(|decision| decision.is_pending(self.now()));
            if !is_pending || !waiter.changed().await? {
                return Ok(self.show_worktree(run, decision));
            }
        }
    }

    /// Has the agent's device commit, apply or discard a worktree. Returns before the device has.
    pub async fn decide_worktree(
        &self,
        by: &Principal,
        run: RunId,
        request: DecideWorktreeRequest,
    ) -> Result<DecidedWorktree> {
        let (record, account) = self.own_worktree(by, run).await?;
        if let Some(message) = &request.message {
            check::text("message", message, 1..=MAX_MESSAGE)?;
            if message.contains('\0') {
                return Err(Error::invalid("message", "must not contain null characters"));
            }
        }
        if !record.state.status().is_terminal() {
            let hint = format!("Wait until it ends, or cancel it: `attache runs cancel {run}`.");
            return Err(Error::new(Code::InUse, "The run is still working in its worktree.").hint(hint));
        }
        check_device(&account)?;
        let decision = NewWorktreeDecision {
            run,
            action: request.action,
            message: request.message,
            expires_at: self.now().plus(WORKTREE_DECISION_TIMEOUT),
        };
        match self.store().decide_worktree(self.context(by), decision).await {
            Ok(decision) => Ok(self.show_worktree(run, Some(decision))),
            Err(StoreError::VersionChanged) => {
                let message = "The device hasn't carried out the previous decision about this worktree yet.";
                let hint = "Wait for its answer. A decision expires after ten minutes.";
                Err(Error::new(Code::InUse, message).hint(hint))
            }
            Err(error) => Err(Error::from_store("run", error)),
        }
    }

    /// The decisions that a device is to carry out, in order.
    pub async fn pending_worktree_decisions(&self, by: &Principal) -> Result<PendingWorktreeDecisionList> {
        let (_, agent) = by.may(Action::Work)?.device()?;
        let pending = self.store().pending_worktrees(agent, self.now()).await.map_err(about(WHAT))?;
        let told = |decision: WorktreeDecisionRecord| {
            let WorktreeDecisionRecord { run, number, action, message, .. } = decision;
            PendingWorktreeDecision { task_run_id: run, number, action, message }
        };
        Ok(PendingWorktreeDecisionList { worktree_decisions: pending.into_iter().map(told).collect() })
    }

    /// A device reports what it made of a decision. Safe to repeat.
    pub async fn settle_worktree(&self, by: &Principal, run: RunId, request: SettleWorktreeRequest) -> Result<()> {
        let (runtime, _) = by.may(Action::Work)?.device()?;
        let SettleWorktreeRequest { number, mut outcome } = request;
        let mut bytes = 0;
        outcome.files.truncate(MAX_NAMES);
        outcome.files.retain(|file| {
            bytes += file.len();
            bytes <= MAX_NAME_BYTES
        });
        for (field, text) in [
            ("outcome.branch", &outcome.branch),
            ("outcome.commit", &outcome.commit),
            ("outcome.folder", &outcome.folder),
            ("outcome.message", &outcome.message),
        ] {
            if let Some(text) = text {
                check::text(field, text, 0..=MAX_MESSAGE)?;
            }
        }
        let settled = self.store().settle_worktree(runtime, run, number, outcome, self.now()).await;
        settled.map(drop).map_err(about("decision"))
    }

    /// Whether decisions wait for a device.
    pub(crate) async fn has_pending_worktrees(&self, agent: attache_protocol::AgentId) -> Result<bool> {
        Ok(!self.store().pending_worktrees(agent, self.now()).await.map_err(about(WHAT))?.is_empty())
    }

    /// The run and its agent, if the run has a worktree and both it and the device are the caller's, in person.
    async fn own_worktree(&self, by: &Principal, run: RunId) -> Result<(RunRecord, AccountRecord)> {
        let permit = by.may(Action::DecideWorktree)?;
        let record = self.visible_run(by, run).await?;
        let account = self.store().account(by.tenant, AgentRef::Id(record.agent)).await.map_err(about("agent"))?;
        if !by.is_in_person() || by.user.is_none() || !permit.covers_user(account.owner) {
            let message =
                format!("Only the owner of `{}`, in person, can decide about worktrees on its device.", account.name);
            let hint = "Sign in as its owner, or use a key of theirs without scopes.";
            return Err(Error::new(Code::Forbidden, message).hint(hint));
        }
        if !record.spec.worktree {
            return Err(Error::not_found(WHAT).hint("This run worked in the agent's folder, without a worktree."));
        }
        let paired_by = account.runtime.as_ref().and_then(|device| device.paired_by);
        if account.runtime.is_some() && paired_by != by.user {
            // Somebody else's files.
            return Err(Error::forbidden("Someone else paired this agent's device, so its worktrees belong to them.")
                .hint("Only they can decide, here or with `attache worktrees` on the device."));
        }
        Ok((record, account))
    }

    fn show_worktree(&self, run: RunId, decision: Option<WorktreeDecisionRecord>) -> DecidedWorktree {
        let decision = decision.map(|decision| {
            let state = match &decision.outcome {
                Some(_) => WorktreeDecisionState::Settled,
                None if decision.is_pending(self.now()) => WorktreeDecisionState::Pending,
                None => WorktreeDecisionState::Unanswered,
            };
            let (outcome, settled_at) = decision.outcome.unzip();
            WorktreeDecision {
                action: decision.action,
                state,
                decided_by: decision.decided_by.to_string(),
                decided_at: decision.decided_at,
                settled_at,
                outcome,
            }
        });
        DecidedWorktree { task_run_id: run, decision }
    }
}

/// The device must be able to carry it out, and online.
fn check_device(account: &AccountRecord) -> Result<()> {
    let Some(device) = &account.runtime else {
        return Err(Error::new(Code::DeviceOffline, format!("The agent `{}` no longer has a device.", account.name))
            .hint("Use `attache worktrees` on the machine that has the worktree."));
    };
    if !device.online {
        let message = format!("The device of `{}` is offline, so nothing was decided.", account.name);
        return Err(Error::new(Code::DeviceOffline, message));
    }
    let declared = declared(device.clone());
    match declared.iter().any(|uri| uri == WORKTREE_DECISIONS) {
        true => Ok(()),
        false if declared.iter().any(|uri| uri == WORKTREES) => Err(Error::new(
            Code::InvalidRequest,
            "The agent's device doesn't support decisions about worktrees from here.",
        )
        .hint("Update Attaché there, or use `attache worktrees` on the device.")),
        false => Err(Error::new(Code::InvalidRequest, "The agent's folder is no longer in a git repository.")
            .hint("Put it back, or use `attache worktrees` on the device.")),
    }
}
