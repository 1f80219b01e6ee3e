//! Work that is passed on: where a new run comes from, and what everybody who passed it on may reach in common.
//!
//! An agent that calls while it holds a claim works on that claim, whether or not it says so; otherwise it could do for
//! somebody what they may not do themselves. If it holds several and does not say which one it means, the call has the
//! rights that all of them have in common, and belongs to none. People decide for themselves: a run that a person makes
//! below another has that person's rights.

use attache_protocol::{AgentId, Code, RunId, rules::run::Status, wire::run::CreateRunRequest};
use attache_store::record::{Account, Page, RunFilter, RunRecord};

use super::create_run::WHAT;
use crate::{
    Error, Handle, Principal, Result,
    control::check,
    error::about,
    identity::{Action, Column, Who, access::holds},
};

/// More than any chain can have: every hop takes one of a run's hops, which the hub limits.
const LONGEST: usize = 64;

/// What a new run is a part of.
#[derive(Debug, Default)]
pub(super) struct Origin {
    /// The chains of runs above it, each from its parent upwards. Several only where the caller does not say which.
    chains: Vec<Vec<RunRecord>>,
}

// === impl Origin ===

impl Origin {
    pub(super) fn parent(&self) -> Option<RunId> {
        match self.chains.as_slice() {
            [chain] => chain.first().map(|run| run.id),
            _ => None,
        }
    }

    /// How many hops are left to those above.
    pub(super) fn hops_left(&self) -> Option<i64> {
        self.chains.iter().filter_map(|chain| chain.first()).map(|run| run.ttl).min()
    }
}

// === impl Handle ===

impl Handle {
    /// Where the run comes from, and whether its caller, and everybody before, may make it.
    pub(super) async fn origin_of(&self, by: &Principal, request: &CreateRunRequest) -> Result<Origin> {
        if by.column() != Column::AgentKey {
            let chains = match request.parent_task_run_id {
                Some(parent) => vec![vec![self.store().run(by.tenant, parent).await.map_err(about(WHAT))?]],
                None => Vec::new(),
            };
            return Ok(Origin { chains });
        }
        let target = check::agent_ref("agent_id", &request.agent_id)?;
        let target = self.store().account(by.tenant, target).await.map_err(about(WHAT))?;
        if !self.reach(by).await?.agent(&target).await? {
            return Err(Error::not_found(WHAT));
        }
        if let Some(conversation) = request.conversation_id {
            self.check_conversation(by, Action::SeeConversations, conversation, WHAT).await?;
        }
        let mut chains = Vec::new();
        for parent in self.parents(by, request.parent_task_run_id).await? {
            chains.push(self.chain(by, parent).await?);
        }
        let is_named = request.parent_task_run_id.is_some();
        for chain in &chains {
            // Whoever asked for a run, and asks again, stands above it; whoever holds it stands below.
            let above = usize::from(!holds(by, &chain[0]));
            refuse_circles(&chain[above..], &target, is_named)?;
            self.check_rights(by, chain, &target, request).await?;
        }
        Ok(Origin { chains })
    }

    /// The run that the agent names, which it must hold or have asked for, or those that it holds.
    async fn parents(&self, by: &Principal, named: Option<RunId>) -> Result<Vec<RunRecord>> {
        if let Some(parent) = named {
            let run = self.store().run(by.tenant, parent).await.map_err(about(WHAT))?;
            let is_own = holds(by, &run) || run.caller == by.actor();
            return if is_own { Ok(vec![run]) } else { Err(Error::not_found(WHAT)) };
        }
        let Who::Runtime { agent, .. } = by.who else { return Ok(Vec::new()) };
        let filter = RunFilter { agent: Some(agent), status: Some(Status::Running), ..RunFilter::default() };
        let page = Page { limit: check::MAX_PAGE, cursor: None };
        let held = self.store().runs(by.tenant, filter, page).await.map_err(about(WHAT))?;
        Ok(held.items.into_iter().filter(|run| holds(by, run)).collect())
    }

    async fn chain(&self, by: &Principal, parent: RunRecord) -> Result<Vec<RunRecord>> {
        let mut above = parent.parent;
        let mut chain = vec![parent];
        while let Some(run) = above {
            if chain.len() >= LONGEST {
                return Err(Error::new(Code::LoopRefused, "The work was passed on too many times."));
            }
            let run = self.store().run(by.tenant, run).await.map_err(about(WHAT))?;
            above = run.parent;
            chain.push(run);
        }
        Ok(chain)
    }

    /// Everybody who passed the work on must reach the agent, and the conversation unless the work came from there.
    async fn check_rights(
        &self,
        by: &Principal,
        chain: &[RunRecord],
        target: &Account,
        request: &CreateRunRequest,
    ) -> Result<()> {
        let links = links(by, chain);
        let mut reach = self.reach(by).await?;
        let Some(mut rights) = reach.chain(&links).await? else { return Ok(()) };
        let denied = |why: String| Error::new(Code::AccessDenied, why);
        rights.reaches(target).await?.map_err(denied)?;
        let from_there = |conversation| chain.iter().any(|run| run.conversation == conversation);
        if let Some(conversation) = request.conversation_id.filter(|conversation| !from_there(*conversation)) {
            let conversation = self.store().conversation(by.tenant, conversation).await.map_err(about(WHAT))?;
            rights.converses(&conversation).await?.map_err(denied)?;
        }
        Ok(())
    }
}

/// The agents that asked and those that were asked, each once, without the caller, who is looked at already.
fn links(by: &Principal, chain: &[RunRecord]) -> Vec<AgentId> {
    let mut links = Vec::new();
    for run in chain {
        let caller = run.caller.strip_prefix("agent:").and_then(|id| id.parse().ok());
        for agent in [Some(run.agent), caller].into_iter().flatten() {
            let is_caller = matches!(by.who, Who::Runtime { agent: own, .. } if own == agent);
            if !is_caller && !links.contains(&agent) {
                links.push(agent);
            }
        }
    }
    links
}

/// An agent that has a part in the work already is not asked again: it would wait for itself.
fn refuse_circles(chain: &[RunRecord], target: &Account, is_named: bool) -> Result<()> {
    let asks = |run: &RunRecord| run.caller == format!("agent:{}", target.id);
    if !chain.iter().any(|run| run.agent == target.id || asks(run)) {
        return Ok(());
    }
    let mut names: Vec<&str> = chain.iter().rev().map(|run| run.agent_name.as_str()).collect();
    if !chain.iter().any(|run| run.agent == target.id) {
        names.insert(0, &target.name);
    }
    names.push(&target.name);
    let message = format!("The work would go round in a circle: {}.", names.join(" → "));
    let hint = match is_named {
        true => "Do it yourself, or ask an agent that has no part in this work yet.",
        false => {
            "The agent works on something that came from there. If the call is for something else, name the run that it \
             is for: X-Attache-Parent-Run."
        }
    };
    Err(Error::new(Code::LoopRefused, message).hint(hint))
}
