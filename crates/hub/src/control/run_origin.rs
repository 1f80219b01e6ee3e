//! Work that is passed on: where a new run comes from, and what everybody who passed it on may reach in common.
//!
//! An agent that calls while it holds a claim works on that claim, whether or not it says so; otherwise it could do for
//! somebody what they may not do themselves. If it holds several, the call has the rights that all of them have in common;
//! naming one of them, or a run that it asked for and that has not ended, says where the call belongs and takes nothing
//! away. With the token of a run it is that run and no other. People decide for themselves: a run that a person makes below another has that person's rights.

use std::time::Duration;

use attache_protocol::{
    AgentId, Code, RunId,
    rules::{
        quota::{QuotaBudget, Spend, usd},
        run::RunStatus,
    },
    wire::{
        account::Callers,
        run::{CreateRunRequest, Sandbox},
        usage::ReportedUsage,
    },
};
use attache_store::record::{AccountRecord, ConversationRecord, Pagination, RunFilter, RunRecord};

use super::create_run::WHAT;
use crate::{
    Error, Handle, Principal, Result,
    control::check,
    error::about,
    identity::{
        ANONYMOUS, Action, PrincipalKind, RoleColumn,
        access::{Visibility, has_part, holds},
    },
};

/// More than any chain can have: every hop takes one of a run's hops, which the hub limits.
const MAX_CHAIN: usize = 64;
/// So many parts of a run are added up.
const MAX_PARTS: usize = 10_000;

/// What a part counts for that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Live {
    /// What it said that it used so far.
    Reported,
    /// All that it may use.
    Reserved,
}

/// What a new run is a part of.
#[derive(Debug, Default)]
pub(super) struct RunOrigin {
    /// The run that it belongs to: the one that is named, or the only one that its caller holds.
    parent: Option<RunId>,
    /// The chains of runs that limit it, each from the nearest upwards.
    chains: Vec<Vec<RunRecord>>,
    /// How long runs of its agent may take unless told.
    timeout: Option<Duration>,
}

// === impl RunOrigin ===

impl RunOrigin {
    pub(super) fn parent(&self) -> Option<RunId> {
        self.parent
    }

    /// How long the agent's runs may take when their caller does not say.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// The limits of everybody above hold for it too.
    pub(super) fn sandbox(&self, wanted: Option<Sandbox>) -> Option<Sandbox> {
        let above = self.chains.iter().filter_map(|chain| chain.first()).filter_map(|run| run.sandbox);
        above.fold(wanted, |wanted, above| Some(wanted.unwrap_or_default().and(above)))
    }

    /// How many hops are left to those above.
    pub(super) fn hops_left(&self) -> Option<i64> {
        self.chains.iter().filter_map(|chain| chain.first()).map(|run| run.ttl).min()
    }
}

// === impl Handle ===

impl Handle {
    /// Where the run comes from, and whether its caller, and everybody before, may make it.
    /// `new` is the conversation that is made with the run, if there is none of its id yet.
    pub(super) async fn origin_of(
        &self,
        by: &Principal,
        request: &CreateRunRequest,
        new: Option<&ConversationRecord>,
    ) -> Result<RunOrigin> {
        if let PrincipalKind::Anonymous { agent } = by.who {
            // Whoever lets everybody ask an agent gives them that agent alone.
            let target = check::agent_ref("agent_id", &request.agent_id)?;
            let target = self.store().account(by.tenant, target).await.map_err(about(WHAT))?;
            return match target.id == agent && request.parent_task_run_id.is_none() {
                true => Ok(RunOrigin { timeout: target.run_timeout, ..RunOrigin::default() }),
                false => Err(Error::not_found(WHAT)),
            };
        }
        if !matches!(by.column(), RoleColumn::AgentKey | RoleColumn::Run) {
            let chains = match request.parent_task_run_id {
                Some(parent) => vec![vec![self.open_run(by, parent).await.map_err(unknown_parent)?]],
                None => Vec::new(),
            };
            if let Some(conversation) = request.conversation_id.filter(|_| new.is_none()) {
                self.check_kept(by, conversation, WHAT).await?;
            }
            let target = check::agent_ref("agent_id", &request.agent_id)?;
            let timeout = match self.store().account(by.tenant, target).await {
                Ok(target) => {
                    self.check_caller(by, &target).await?;
                    target.run_timeout
                }
                // A repeated request may name an agent that is archived by now; the store knows what it made.
                Err(attache_store::Error::NotFound) => None,
                Err(error) => return Err(Error::from_store(WHAT, error)),
            };
            return Ok(RunOrigin { parent: request.parent_task_run_id, chains, timeout });
        }
        let target = check::agent_ref("agent_id", &request.agent_id)?;
        let target = self.store().account(by.tenant, target).await.map_err(about(WHAT))?;
        let mut reach = self.caller_access(by).await?;
        if !reach.agent(&target).await? {
            return Err(Error::not_found(WHAT));
        }
        match (request.conversation_id, new) {
            (Some(_), Some(new))
                if by.column() == RoleColumn::AgentKey && reach.conversation(new).await? == Visibility::Yes => {}
            (Some(_), Some(_)) => return Err(Error::not_found(WHAT)),
            (Some(conversation), None) => {
                self.check_conversation(by, Action::SeeConversations, conversation, WHAT).await?;
            }
            (None, _) => {}
        }
        let mut chains = Vec::new();
        let parents = self.parents(by, request.parent_task_run_id).await?;
        let only = match parents.as_slice() {
            [only] => Some(only.id),
            _ => None,
        };
        for parent in parents {
            chains.push(self.chain(by, parent).await?);
        }
        for chain in &chains {
            // Whoever asked for a run, and asks again, stands above it; whoever holds it stands below.
            let above = usize::from(!holds(by, &chain[0]));
            refuse_circles(&chain[above..], &target)?;
            if by.column() == RoleColumn::Run {
                refuse_strangers(chain)?;
            }
            refuse_others(chain, &target)?;
            self.check_rights(by, chain, &target, (request, new)).await?;
        }
        Ok(RunOrigin { parent: request.parent_task_run_id.or(only), chains, timeout: target.run_timeout })
    }

    /// The most that a new run may use: what it wants, and no more than is left to those above.
    pub(super) async fn part_of_budget(
        &self,
        by: &Principal,
        origin: &RunOrigin,
        wanted: QuotaBudget,
    ) -> Result<QuotaBudget> {
        let mut part = wanted;
        for run in origin.chains.iter().filter_map(|chain| chain.first()) {
            if run.budget != QuotaBudget::default() {
                let below = self.used_below(by, run.id, Live::Reserved).await?;
                part = part_of(part, run, ReportedUsage::spend(run.usage.as_ref()).plus(below))?;
            }
        }
        Ok(part)
    }

    /// What a run with a budget, or one that it is a part of, has used together with the work that it passed on, in words,
    /// when that is more than the budget; none while something is left. What it used alone is the store's to judge.
    pub(super) async fn over_budget_with_parts(&self, by: &Principal, run: RunId) -> Result<Option<String>> {
        let record = self.store().run(by.tenant, run).await.map_err(about(WHAT))?;
        for run in self.chain(by, record).await? {
            if let Some(used) = self.over_budget(by, &run).await? {
                return Ok(Some(used));
            }
        }
        Ok(None)
    }

    async fn over_budget(&self, by: &Principal, record: &RunRecord) -> Result<Option<String>> {
        if record.budget == QuotaBudget::default() || record.state.status().is_terminal() {
            return Ok(None);
        }
        let below = self.used_below(by, record.id, Live::Reported).await?;
        if below == Spend::default() {
            return Ok(None);
        }
        let all = ReportedUsage::spend(record.usage.as_ref()).plus(below);
        let over = |limit: Option<u64>, used: u64| limit.filter(|limit| used > *limit);
        Ok(match (over(record.budget.tokens, all.tokens), over(record.budget.micro_usd, all.micro_usd)) {
            (Some(limit), _) => Some(format!("{} tokens of {limit}", all.tokens)),
            (None, Some(limit)) => Some(format!("{} of {} dollars", usd(all.micro_usd), usd(limit))),
            (None, None) => None,
        })
    }

    /// What the other parts of a run used.
    async fn used_below(&self, by: &Principal, run: RunId, live: Live) -> Result<Spend> {
        let (mut used, mut above, mut looked_at) = (Spend::default(), vec![run], 0);
        while let Some(parent) = above.pop() {
            let filter = RunFilter { parent: Some(parent), ..RunFilter::default() };
            let mut cursor = None;
            loop {
                let page = Pagination { limit: check::MAX_PAGE, cursor };
                let listed = self.store().runs(by.tenant, filter.clone(), page).await.map_err(about(WHAT))?;
                for part in listed.items {
                    let reported = ReportedUsage::spend(part.usage.as_ref());
                    if part.state.status().is_terminal() || live == Live::Reported {
                        used = used.plus(reported);
                        above.push(part.id);
                    } else {
                        // What it passes on itself is within its own budget.
                        used.tokens = used.tokens.saturating_add(part.budget.tokens.unwrap_or(reported.tokens));
                        let cost = part.budget.micro_usd.unwrap_or(reported.micro_usd);
                        used.micro_usd = used.micro_usd.saturating_add(cost);
                    }
                    looked_at += 1;
                }
                cursor = listed.next.filter(|_| looked_at < MAX_PARTS);
                if cursor.is_none() {
                    break;
                }
            }
            if looked_at >= MAX_PARTS {
                let message = "The work was cut into more parts than can be counted against its budget.";
                return Err(Error::new(Code::QuotaExceeded, message));
            }
        }
        Ok(used)
    }

    /// The runs that the agent holds, and the one that it names, which it must hold or have asked for.
    async fn parents(&self, by: &Principal, named: Option<RunId>) -> Result<Vec<RunRecord>> {
        let (agent, runtime) = match by.who {
            PrincipalKind::Runtime { agent, runtime, .. } => (agent, runtime),
            PrincipalKind::Run { run, .. } if named.is_none_or(|named| named == run) => {
                return Ok(vec![self.store().run(by.tenant, run).await.map_err(about(WHAT))?]);
            }
            PrincipalKind::Run { .. } => return Err(Error::not_found(WHAT)),
            PrincipalKind::Outside { .. } => {
                let Some(parent) = named else { return Ok(Vec::new()) };
                return Ok(vec![self.parent_of(by, parent).await?]);
            }
            PrincipalKind::Key { .. } | PrincipalKind::Anonymous { .. } => return Ok(Vec::new()),
        };
        let mut parents = Vec::new();
        if let Some(parent) = named {
            parents.push(self.parent_of(by, parent).await?);
        }
        // An agent that only calls never opened a channel, and has claimed nothing.
        let worker = self.store().runtime(by.tenant, runtime).await.map_err(about("runtime"))?;
        if worker.last_heartbeat_at.is_none() {
            return Ok(parents);
        }
        let filter = RunFilter { agent: Some(agent), status: Some(RunStatus::Running), ..RunFilter::default() };
        let mut cursor = None;
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.store().runs(by.tenant, filter.clone(), page).await.map_err(about(WHAT))?;
            parents.extend(listed.items.into_iter().filter(|run| holds(by, run) && Some(run.id) != named));
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(parents);
            }
        }
    }

    /// The run that a call says it is a part of.
    async fn parent_of(&self, by: &Principal, parent: RunId) -> Result<RunRecord> {
        let run = self.store().run(by.tenant, parent).await.map_err(about(WHAT))?;
        if !has_part(by, &run) {
            return Err(Error::not_found(WHAT));
        }
        if run.state.status().is_terminal() {
            let message = "The run that this call says it is a part of has ended.";
            return Err(Error::new(Code::RunEnded, message).hint("Name a run that the agent works on, or none."));
        }
        Ok(run)
    }

    async fn chain(&self, by: &Principal, parent: RunRecord) -> Result<Vec<RunRecord>> {
        let mut above = parent.parent;
        let mut chain = vec![parent];
        while let Some(run) = above {
            if chain.len() >= MAX_CHAIN {
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
        target: &AccountRecord,
        (request, new): (&CreateRunRequest, Option<&ConversationRecord>),
    ) -> Result<()> {
        let links = links(by, chain);
        let mut reach = self.caller_access(by).await?;
        let Some(mut rights) = reach.chain(&links).await? else { return Ok(()) };
        let denied = |why: String| Error::new(Code::AccessDenied, why);
        rights.reaches(target).await?.map_err(denied)?;
        let from_there = |conversation| chain.iter().any(|run| run.conversation == conversation);
        if let Some(conversation) = request.conversation_id.filter(|conversation| !from_there(*conversation)) {
            let conversation = match new {
                Some(new) => new.clone(),
                None => self.store().conversation(by.tenant, conversation).await.map_err(about(WHAT))?,
            };
            rights.converses(&conversation).await?.map_err(denied)?;
        }
        Ok(())
    }
}

fn unknown_parent(error: Error) -> Error {
    if error.code == Code::NotFound { Error::not_found(WHAT) } else { error }
}

/// The agents that asked and those that were asked, each once, without the caller, who is looked at already.
fn links(by: &Principal, chain: &[RunRecord]) -> Vec<AgentId> {
    let mut links = Vec::new();
    for run in chain {
        let caller = run.caller.strip_prefix("agent:").and_then(|id| id.parse().ok());
        for agent in [Some(run.agent), caller].into_iter().flatten() {
            let is_caller = matches!(by.who, PrincipalKind::Runtime { agent: own, .. } | PrincipalKind::Outside { agent: own, .. } | PrincipalKind::Run { agent: own, .. } if own == agent);
            if !is_caller && !links.contains(&agent) {
                links.push(agent);
            }
        }
    }
    links
}

/// What a part of the run may use: what neither the run nor its other parts have used of its budget, or less.
fn part_of(wanted: QuotaBudget, run: &RunRecord, used: Spend) -> Result<QuotaBudget> {
    let part =
        |budget: Option<u64>, used: u64, wanted: Option<u64>| match budget.map(|budget| budget.saturating_sub(used)) {
            None => Ok(wanted),
            Some(0) => {
                let message = "The run that this is a part of has a budget, and nothing is left of it.";
                Err(Error::new(Code::QuotaExceeded, message).hint("Give the first run a larger `budget`."))
            }
            Some(left) => Ok(Some(wanted.map_or(left, |wanted| wanted.min(left)))),
        };
    Ok(QuotaBudget {
        tokens: part(run.budget.tokens, used.tokens, wanted.tokens)?,
        micro_usd: part(run.budget.micro_usd, used.micro_usd, wanted.micro_usd)?,
    })
}

/// Whoever lets everybody ask an agent gives them that agent alone, and not those that it could ask.
fn refuse_strangers(chain: &[RunRecord]) -> Result<()> {
    if chain.iter().all(|run| run.caller != ANONYMOUS) {
        return Ok(());
    }
    let message = "The work was asked for without a credential, so it stays with the agent that was asked.";
    Err(Error::new(Code::AccessDenied, message))
}

/// An agent that is its owner's alone works for its owner alone, whoever passes the work on.
fn refuse_others(chain: &[RunRecord], target: &AccountRecord) -> Result<()> {
    if target.callers == Callers::Everyone || chain.iter().all(|run| run.user.is_some() && run.user == target.owner) {
        return Ok(());
    }
    let message = format!("The work comes from somebody else, and the agent `{}` is its owner's alone.", target.name);
    Err(Error::new(Code::AccessDenied, message))
}

/// An agent that has a part in the work already is not asked again: it would wait for itself.
fn refuse_circles(chain: &[RunRecord], target: &AccountRecord) -> Result<()> {
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
    let hint = "Do it yourself, ask an agent that has no part in this work, or end first what came from there.";
    Err(Error::new(Code::LoopRefused, message).hint(hint))
}
