//! The origin of a new run: its parent, and the rights shared by everyone in its call chain.
//!
//! An agent that makes a call while it holds a claim does so for that claim, whether or not it says so. Otherwise it
//! could do things for a caller that the caller may not do. If it holds several claims, the call gets only the rights
//! they share. Naming one of them, or a live run that it created, sets the parent and does not add rights. With a run's
//! token, the parent is that run. Such a call counts towards the quotas of the person for whom the work is done. People
//! act on their own: a child run created by a person has that person's rights.

use std::time::Duration;

use attache_protocol::{
    Actor, AgentId, Code, ConversationId, RunId, UserId,
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
use attache_store::record::{AccountRecord, ConversationRecord, RunFilter, RunRecord};

use super::create_run::WHAT;
use crate::{
    Error, Handle, Principal, Result, check,
    error::about,
    identity::{
        Action, Permit, PrincipalKind, RoleColumn,
        access::{Visibility, has_part, holds},
    },
};

/// More than any chain can have, because the hub limits a run's hops.
const MAX_CHAIN: usize = 64;
/// How many child runs are added up.
const MAX_PARTS: usize = 10_000;

/// How to count a live child run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LiveRunCost {
    /// The usage it has reported so far.
    Reported,
    /// Its complete budget.
    Reserved,
}

/// The parent and limits of a new run.
#[derive(Debug, Default)]
pub(super) struct RunOrigin {
    /// The parent run: the named one, or the only one its caller holds.
    parent: Option<RunId>,
    /// The chains of runs that limit it, each from the nearest ancestor up.
    chains: Vec<Vec<RunRecord>>,
    /// Whose quotas it counts towards, if not those of the agent's owner: the person whose work is passed on.
    payer: Option<UserId>,
    /// The agent that gets it. `None` if it was archived.
    target: Option<AccountRecord>,
}

// === impl RunOrigin ===

impl RunOrigin {
    pub(super) fn parent(&self) -> Option<RunId> {
        self.parent
    }

    pub(super) fn payer(&self) -> Option<UserId> {
        self.payer
    }

    /// The agent's default time limit for runs.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.target.as_ref()?.run_timeout
    }

    pub(super) fn target(&self) -> Option<&AccountRecord> {
        self.target.as_ref()
    }

    /// Adds the limits of all ancestors.
    pub(super) fn sandbox(&self, wanted: Option<Sandbox>) -> Option<Sandbox> {
        let above = self.chains.iter().filter_map(|chain| chain.first()).filter_map(|run| run.spec.sandbox);
        above.fold(wanted, |wanted, above| Some(wanted.unwrap_or_default().and(above)))
    }

    pub(super) fn has_budget(&self) -> bool {
        self.chains.iter().filter_map(|chain| chain.first()).any(|run| run.spec.budget != QuotaBudget::default())
    }

    /// How many hops the ancestors have left.
    pub(super) fn hops_left(&self) -> Option<i64> {
        self.chains.iter().filter_map(|chain| chain.first()).map(|run| run.spec.ttl).min()
    }
}

// === impl Handle ===

impl Handle {
    /// Determines the origin and checks that the caller and everyone before it may create the run. `new` is the
    /// conversation created with the run if its id does not exist yet.
    pub(super) async fn origin_of(
        &self,
        permit: &Permit<'_>,
        request: &CreateRunRequest,
        new: Option<&ConversationRecord>,
    ) -> Result<RunOrigin> {
        let by = permit.by();
        if let PrincipalKind::Anonymous { agent } = by.who {
            // An anonymous caller may reach only the agent that allows anonymous callers.
            let target = check::agent_ref("agent_id", &request.agent_id)?;
            let target = self.store().account(by.tenant, target).await.map_err(about(WHAT))?;
            return match target.id == agent && request.parent_task_run_id.is_none() {
                true => Ok(RunOrigin { target: Some(target), ..RunOrigin::default() }),
                false => Err(Error::not_found(WHAT)),
            };
        }
        if !matches!(by.column(), RoleColumn::AgentKey | RoleColumn::Run) {
            let chains = match request.parent_task_run_id {
                Some(parent) => vec![vec![self.find_run(permit, parent).await.map_err(unknown_parent)?]],
                None => Vec::new(),
            };
            if let Some(conversation) = request.conversation_id.filter(|_| new.is_none()) {
                self.check_kept(by, conversation, WHAT).await?;
            }
            let target = check::agent_ref("agent_id", &request.agent_id)?;
            let target = match self.store().account(by.tenant, target).await {
                Ok(target) => {
                    self.check_caller(by, &target).await?;
                    if let Some(conversation) = request.conversation_id.filter(|_| new.is_none()) {
                        self.check_private_place(by, &target, conversation).await?;
                    }
                    Some(target)
                }
                // A repeated request may name an agent that has been archived since. The store knows the run it
                // created.
                Err(attache_store::Error::NotFound) => None,
                Err(error) => return Err(Error::from_store(WHAT, error)),
            };
            return Ok(RunOrigin { parent: request.parent_task_run_id, chains, payer: None, target });
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
                self.check_conversation(&by.may(Action::SeeConversations)?, conversation, WHAT).await?;
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
            // A caller who created the named run is above it in the chain. A caller who holds it is below.
            let above = usize::from(!holds(by, &chain[0]));
            refuse_circles(&chain[above..], &target)?;
            if by.column() == RoleColumn::Run {
                refuse_anonymous(chain)?;
            }
            refuse_others(chain, &target)?;
            if let Some(run) = chain.get(above) {
                self.refuse_while_planning(run).await?;
            }
            self.check_rights(by, chain, &target, (request, new)).await?;
        }
        Ok(RunOrigin {
            parent: request.parent_task_run_id.or(only),
            payer: payer(&chains),
            chains,
            target: Some(target),
        })
    }

    /// The budget of a new run: the requested one, limited by what its ancestors have left.
    pub(super) async fn part_of_budget(
        &self,
        by: &Principal,
        origin: &RunOrigin,
        wanted: QuotaBudget,
    ) -> Result<QuotaBudget> {
        let mut part = wanted;
        for run in origin.chains.iter().filter_map(|chain| chain.first()) {
            if run.spec.budget != QuotaBudget::default() {
                let below = self.used_below(by, run.id, LiveRunCost::Reserved).await?;
                part = part_of(part, run, ReportedUsage::spend(run.usage.as_ref()).plus(below))?;
            }
        }
        Ok(part)
    }

    /// Describes the usage of a run or an ancestor, including child runs, if it exceeds its budget. `None` while budget
    /// is left. The store checks the run's own usage.
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
        if record.spec.budget == QuotaBudget::default() {
            return Ok(None);
        }
        let below = self.used_below(by, record.id, LiveRunCost::Reported).await?;
        if below == Spend::default() {
            return Ok(None);
        }
        let all = ReportedUsage::spend(record.usage.as_ref()).plus(below);
        let over = |limit: Option<u64>, used: u64| limit.filter(|limit| used > *limit);
        Ok(match (over(record.spec.budget.tokens, all.tokens), over(record.spec.budget.micro_usd, all.micro_usd)) {
            (Some(limit), _) => Some(format!("{} tokens of {limit}", all.tokens)),
            (None, Some(limit)) => Some(format!("{} of {} dollars", usd(all.micro_usd), usd(limit))),
            (None, None) => None,
        })
    }

    /// The usage of a run's other child runs.
    async fn used_below(&self, by: &Principal, run: RunId, live: LiveRunCost) -> Result<Spend> {
        let (mut used, mut above, mut looked_at) = (Spend::default(), vec![run], 0);
        while let Some(parent) = above.pop() {
            let filter = RunFilter { parent: Some(parent), ..RunFilter::default() };
            let mut parts = check::all_pages(WHAT, |page| self.store().runs(by.tenant, filter.clone(), page));
            while let Some(part) = parts.next().await? {
                let reported = ReportedUsage::spend(part.usage.as_ref());
                if part.state.status().is_terminal() || live == LiveRunCost::Reported {
                    used = used.plus(reported);
                    above.push(part.id);
                } else {
                    // Its own child runs are covered by its budget.
                    used.tokens = used.tokens.saturating_add(part.spec.budget.tokens.unwrap_or(reported.tokens));
                    let cost = part.spec.budget.micro_usd.unwrap_or(reported.micro_usd);
                    used.micro_usd = used.micro_usd.saturating_add(cost);
                }
                looked_at += 1;
                if looked_at >= MAX_PARTS {
                    let message = "The run has too many child runs to check its budget.";
                    return Err(Error::new(Code::QuotaExceeded, message));
                }
            }
        }
        Ok(used)
    }

    /// The runs the agent holds, plus the named one, which it must hold or have created.
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
        // An agent that only makes calls never opened a channel and has no claims.
        let worker = self.store().runtime(by.tenant, runtime).await.map_err(about("runtime"))?;
        if worker.last_heartbeat_at.is_none() {
            return Ok(parents);
        }
        let filter = RunFilter { agent: Some(agent), status: Some(RunStatus::Running), ..RunFilter::default() };
        let held = check::all_pages(WHAT, |page| self.store().runs(by.tenant, filter.clone(), page)).collect().await?;
        parents.extend(held.into_iter().filter(|run| holds(by, run) && Some(run.id) != named));
        Ok(parents)
    }

    /// The parent run named by a call.
    async fn parent_of(&self, by: &Principal, parent: RunId) -> Result<RunRecord> {
        let run = self.store().run(by.tenant, parent).await.map_err(about(WHAT))?;
        if !has_part(by, &run) {
            return Err(Error::not_found(WHAT));
        }
        if run.state.status().is_terminal() {
            let message = "The parent run of this call has ended.";
            return Err(Error::new(Code::RunEnded, message).hint("Name a run that the agent is working on, or none."));
        }
        Ok(run)
    }

    async fn chain(&self, by: &Principal, parent: RunRecord) -> Result<Vec<RunRecord>> {
        let mut above = parent.spec.parent;
        let mut chain = vec![parent];
        while let Some(run) = above {
            if chain.len() >= MAX_CHAIN {
                return Err(Error::new(Code::LoopRefused, "The work was passed on too many times."));
            }
            let run = self.store().run(by.tenant, run).await.map_err(about(WHAT))?;
            above = run.spec.parent;
            chain.push(run);
        }
        Ok(chain)
    }

    /// The work of a private agent hides its conversation from everyone else, so it stays out of other people's.
    async fn check_private_place(
        &self,
        by: &Principal,
        target: &AccountRecord,
        conversation: ConversationId,
    ) -> Result<()> {
        if target.callers == Callers::Everyone {
            return Ok(());
        }
        let user = self.store().conversation(by.tenant, conversation).await.map_err(about(WHAT))?.user;
        if user.is_none() || user == by.user {
            return Ok(());
        }
        let message = format!("The agent `{}` is private, and this conversation belongs to someone else.", target.name);
        Err(Error::new(Code::Forbidden, message).hint("Start a new conversation."))
    }

    /// Everyone in the chain must be able to reach the agent, and the conversation unless the work came from it.
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

/// The person for whom all of these runs work.
fn payer(chains: &[Vec<RunRecord>]) -> Option<UserId> {
    let mut payers = chains.iter().filter_map(|chain| chain.first()).map(|run| run.payer);
    let first = payers.next().flatten();
    first.filter(|_| payers.all(|payer| payer == first))
}

fn unknown_parent(error: Error) -> Error {
    if error.code == Code::NotFound { Error::not_found(WHAT) } else { error }
}

/// The calling and called agents in the chain, without duplicates and without the caller, which is checked separately.
fn links(by: &Principal, chain: &[RunRecord]) -> Vec<AgentId> {
    let mut links = Vec::new();
    for run in chain {
        let caller = match run.caller {
            Actor::Agent(agent) => Some(agent),
            _ => None,
        };
        for agent in [Some(run.agent), caller].into_iter().flatten() {
            if by.agent() != Some(agent) && !links.contains(&agent) {
                links.push(agent);
            }
        }
    }
    links
}

/// The budget of a child run: at most what the run and its other children have left.
fn part_of(wanted: QuotaBudget, run: &RunRecord, used: Spend) -> Result<QuotaBudget> {
    let part =
        |budget: Option<u64>, used: u64, wanted: Option<u64>| match budget.map(|budget| budget.saturating_sub(used)) {
            None => Ok(wanted),
            Some(0) => {
                let message = "The parent run's budget is used up.";
                Err(Error::new(Code::QuotaExceeded, message).remedy(attache_protocol::error::Remedy::RaiseBudget))
            }
            Some(left) => Ok(Some(wanted.map_or(left, |wanted| wanted.min(left)))),
        };
    Ok(QuotaBudget {
        tokens: part(run.spec.budget.tokens, used.tokens, wanted.tokens)?,
        micro_usd: part(run.spec.budget.micro_usd, used.micro_usd, wanted.micro_usd)?,
    })
}

/// An anonymous caller may reach only the agent that allows anonymous callers, not the agents it could call.
fn refuse_anonymous(chain: &[RunRecord]) -> Result<()> {
    if chain.iter().all(|run| run.caller != Actor::Anonymous) {
        return Ok(());
    }
    let message = "The original caller had no credential, so this work can't be passed on to other agents.";
    Err(Error::new(Code::AccessDenied, message))
}

/// A private agent works only for its owner, no matter who passes the work on.
fn refuse_others(chain: &[RunRecord], target: &AccountRecord) -> Result<()> {
    if target.callers == Callers::Everyone || chain.iter().all(|run| run.user.is_some() && run.user == target.owner) {
        return Ok(());
    }
    let message =
        format!("The agent `{}` is private, and the work comes from someone other than its owner.", target.name);
    Err(Error::new(Code::AccessDenied, message))
}

/// An agent already in the chain is not called again: it would wait for itself.
fn refuse_circles(chain: &[RunRecord], target: &AccountRecord) -> Result<()> {
    let asks = |run: &RunRecord| run.caller == Actor::Agent(target.id);
    if !chain.iter().any(|run| run.agent == target.id || asks(run)) {
        return Ok(());
    }
    let mut names: Vec<&str> = chain.iter().rev().map(|run| run.agent_name.as_str()).collect();
    if !chain.iter().any(|run| run.agent == target.id) {
        names.insert(0, &target.name);
    }
    names.push(&target.name);
    let message = format!("This call would create a loop: {}.", names.join(" → "));
    let hint = "Do the work yourself, call an agent outside this chain, or finish the run that came from there first.";
    Err(Error::new(Code::LoopRefused, message).hint(hint))
}
