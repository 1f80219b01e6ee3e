//! Creates a run for an agent.

use std::{ops::RangeInclusive, time::Duration};

use attache_protocol::{
    Code, Json, PermissionId, RunId,
    digest::half,
    rules::{permission_mode::PermissionMode, quota::QuotaBudget, run::RunLimits},
    wire::{
        awcp,
        run::{CreateRunRequest, Run},
    },
};
use attache_store::{
    Error as StoreError,
    record::{ConversationRecord, NewRun, RunCreation, RunRecord, RunSpec, channel::NewFollow},
};

use crate::{
    Error, Handle, Principal, Result, check,
    control::{
        PushSubscription, agent_endpoint::declared, approval::CallApproval, quota::budget, run_origin::RunOrigin,
    },
    error::about,
    identity::{Action, Permit, RoleColumn},
    nodes::ClusterLock,
    render,
};

const SECOND: Duration = Duration::from_secs(1);
const MONTH: Duration = Duration::from_secs(30 * 24 * 60 * 60);
pub(super) const DURATIONS: RangeInclusive<Duration> = SECOND..=MONTH;
const MAX_PART: usize = 1 << 20;
/// How often one run may repeat the same call to an agent that does not ask for approval.
const MAX_REPETITIONS: usize = 100;
pub(super) const WHAT: &str = "agent, conversation or parent run";

/// Call parameters outside the body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallHeaders {
    /// `Idempotency-Key`. Same as the body member.
    pub idempotency_key: Option<String>,
    /// Decides whether two requests with one key are the same, if comparing their text can't.
    pub sameness: Option<[u8; 16]>,
    /// W3C `traceparent`. An invalid value is ignored, as the standard requires.
    pub traceparent: Option<String>,
    /// The caller's own trace id, if there is no `traceparent`.
    pub trace_id: Option<String>,
    /// How many more hops the caller allows. A parent run limits it further.
    pub ttl: Option<i64>,
    /// The parent run. Same as the body member.
    pub parent: Option<RunId>,
    /// The channel that is notified about the run.
    pub follow: Option<NewFollow>,
    /// Who is notified about the run, from its first change.
    pub push: Option<PushSubscription>,
    /// Creates the named conversation together with the run if it does not exist.
    pub opens_conversation: bool,
    /// The earlier run that this one repeats, edited or not: the new one has its limits, and is inside walls if that was.
    pub repeats: Option<RunId>,
    /// The approval of this exact request, for a run's token that had to wait for one.
    pub approval: Option<PermissionId>,
}

/// What is decided of a new run by its caller, its agent and its place.
#[derive(Debug)]
pub(super) struct RunTerms {
    pub(super) origin: RunOrigin,
    pub(super) mode: Option<PermissionMode>,
}

/// Whether the call created the run or found it by its idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CreatedRun {
    New(Run),
    Existing(Run),
}

impl Handle {
    pub async fn create_run(
        &self,
        by: &Principal,
        mut request: CreateRunRequest,
        headers: CallHeaders,
    ) -> Result<CreatedRun> {
        let permit = by.may(Action::CreateRun)?;
        if !self.takes_runs() {
            return Err(Error::new(Code::Draining, "The hub is shutting down and accepts no new runs."));
        }
        check_within_run(by, &request, &headers)?;
        let parts = [&request.input, &request.context_fragments];
        let size = parts.into_iter().flatten().map(|part| part.get().len()).sum();
        self.check_space(size)?;
        self.admit_anonymous(by, size).await?;
        request.parent_task_run_id = parent(request.parent_task_run_id, headers.parent)?;
        let new = match request.conversation_id.filter(|_| headers.opens_conversation) {
            Some(conversation) => self.unopened(by, conversation).await?,
            None => None,
        };
        let repeated = match headers.repeats {
            Some(run) => Some(self.find_run(&permit, run).await?),
            None => None,
        };
        if let Some(old) = &repeated {
            carry_over(&mut request, old, by);
        }
        let before = repeated.as_ref().and_then(|old| old.spec.permission_mode);
        let RunTerms { origin, mode } = self.run_terms(&permit, &request, new.as_ref(), before).await?;
        let fallback = self.fallback_of(&permit, &request, new.as_ref()).await?;
        self.check_collaborator(by, &request).await?;
        let ttl = ttl(origin.hops_left(), headers.ttl.unwrap_or(self.options().hops))?;
        let key = idempotency_key(request.idempotency_key.take(), headers.idempotency_key)?;
        let request_digest = headers.sameness.unwrap_or_else(|| digest(&request));
        let callback = self.callback(request.callback_url.take(), request.callback_events.take()).await?;
        // Facts that the hub derived are not part of the request: a repeated request may derive fewer.
        request.parent_task_run_id = origin.parent();
        let step = self.task_to_approve(by, &request, key.as_deref()).await?;
        let mut run = self.new_run(by, &origin, request, headers.traceparent.as_deref(), key, request_digest)?;
        (run.spec.ttl, run.follow, run.spec.callback) = (ttl, headers.follow, callback);
        run.spec.fallback = fallback;
        run.opens_conversation = headers.opens_conversation;
        if let Some(old) = &repeated {
            if run.spec.budget == QuotaBudget::default() {
                run.spec.budget = old.spec.budget;
            }
            // Somebody else's text, or an agent's, stays theirs.
            run.spec.in_person &= old.spec.in_person && old.spec.parent.is_none() && old.user == by.user;
        }
        run.spec.sandbox = origin.sandbox(run.spec.sandbox);
        run.spec.permission_mode = mode;
        if let Some(push) = headers.push {
            by.may_subscribe()?;
            run.push = Some(self.checked_push(run.id, push).await?);
        }
        if let Some(trace) = headers.trace_id {
            check::line("trace_id", &trace, 1..=200)?;
            run.spec.trace_id = Some(trace);
        }
        // Until it is stored, another child could be promised the same part of the budget.
        let _lock = match origin.has_budget() {
            true => Some(self.cluster_lock(ClusterLock::SharingBudget).await?),
            false => None,
        };
        run.spec.budget = self.part_of_budget(by, &origin, run.spec.budget).await?;
        let created = match step {
            Some(step) => self.make_approved_run(by, run, &step, headers.approval).await?,
            None => self.make_run(by, run).await?,
        };
        match created {
            RunCreation::New(run) => {
                self.metrics().runs_created.add(1);
                Ok(CreatedRun::New(render::run(run)))
            }
            RunCreation::Existing(run) => self.show_run(run).await.map(CreatedRun::Existing),
        }
    }

    /// Where a new run comes from and the mode that it has, checked against what its caller may do now. `before` is the mode
    /// of the run that it repeats or continues. Every new run goes through this.
    pub(super) async fn run_terms(
        &self,
        permit: &Permit<'_>,
        request: &CreateRunRequest,
        new: Option<&ConversationRecord>,
        before: Option<PermissionMode>,
    ) -> Result<RunTerms> {
        let origin = self.origin_of(permit, request, new).await?;
        if let Some(target) = origin.target() {
            self.check_continues(permit.by(), target, request).await?;
            if request.worktree {
                self.check_worktree(permit.by(), target, request).await?;
            }
        }
        let mode = match origin.target() {
            Some(target) => self.mode_of_new_run(permit.by(), target, request, before).await?,
            None => request.permission_mode,
        };
        Ok(RunTerms { origin, mode })
    }

    async fn make_run(&self, by: &Principal, run: NewRun) -> Result<RunCreation> {
        let budget = run.spec.budget;
        let created = self.store().create_run(self.context(by), run).await;
        self.made_run(by, created, budget).await
    }

    async fn made_run(
        &self,
        by: &Principal,
        created: attache_store::Result<RunCreation>,
        budget: QuotaBudget,
    ) -> Result<RunCreation> {
        match created {
            Err(StoreError::QuotaExceeded { target, exceeded }) => {
                Err(self.quota_exceeded(by, target, exceeded, budget).await)
            }
            other => other.map_err(about(WHAT)),
        }
    }

    /// Only an agent whose runtime says so works in delegated folders.
    async fn check_collaborator(&self, by: &Principal, request: &CreateRunRequest) -> Result<()> {
        if request.task_type.as_deref() != Some(awcp::TASK_TYPE) {
            return Ok(());
        }
        let agent = check::agent_ref("agent_id", &request.agent_id)?;
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        match account.runtime.map(declared).unwrap_or_default().iter().any(|uri| uri == awcp::EXTENSION) {
            true => Ok(()),
            false => Err(Error::invalid("task_type", "is for agents that accept folders, which this one does not")
                .hint("Its owner can allow it: `attache runtime start --collaborator`.")),
        }
    }

    /// Each approval creates one run, no matter who repeats the request.
    async fn make_approved_run(
        &self,
        by: &Principal,
        run: NewRun,
        step: &CallApproval,
        approval: Option<PermissionId>,
    ) -> Result<RunCreation> {
        let under = |approval: PermissionId| {
            let key = key_hash(by, &format!("approval:{approval}"));
            NewRun { approval: Some(approval), idempotency_key: Some(key), ..run.clone() }
        };
        if let Some(approval) = approval {
            let approval = self.approved_before(by, step, approval).await?;
            return self.make_run(by, under(approval)).await;
        }
        for time in 0..MAX_REPETITIONS {
            let approval = self.approved(by, step, time).await?;
            match self.store().create_run(self.context(by), under(approval)).await {
                // The same task again is a new task and needs its own approval.
                Ok(RunCreation::Existing(_)) if run.idempotency_key.is_none() => {}
                // Its idempotency key has expired since.
                Err(StoreError::ApprovalUsed) => {}
                created => return self.made_run(by, created, run.spec.budget).await,
            }
        }
        Err(Error::new(Code::TooManyRequests, "The run has repeated this call too many times."))
    }

    fn new_run(
        &self,
        by: &Principal,
        origin: &RunOrigin,
        request: CreateRunRequest,
        traceparent: Option<&str>,
        key: Option<String>,
        request_digest: [u8; 16],
    ) -> Result<NewRun> {
        let agent = check::agent_ref("agent_id", &request.agent_id)?;
        let task_type = request.task_type.unwrap_or_else(|| "prompt".to_owned());
        check::token("task_type", &task_type, 1..=64)?;
        let input = request.input.unwrap_or_else(Json::empty_object);
        check::object("input", &input, MAX_PART)?;
        if let Some(fragments) = &request.context_fragments {
            check::array("context_fragments", fragments, MAX_PART)?;
        }
        if let Some(tools) = &request.allowed_tools {
            check::array("allowed_tools", tools, MAX_PART)?;
        }
        if let Some(root) = &request.workspace_root {
            check::line("workspace_root", root, 1..=4096)?;
        }
        Ok(NewRun {
            follow: None,
            push: None,
            id: self.env().run_id(),
            agent,
            conversation: request.conversation_id,
            opens_conversation: false,
            payer: origin.payer(),
            limits: self.limits(origin, request.max_attempts, request.timeout_ms, request.queue_ttl_ms)?,
            approval: None,
            idempotency_key: key.map(|key| key_hash(by, &key)),
            request_digest,
            spec: RunSpec {
                ttl: self.options().hops,
                callback: None,
                budget: budget(request.budget.as_ref())?,
                sandbox: request.sandbox,
                permission_mode: request.permission_mode,
                worktree: request.worktree,
                parent: request.parent_task_run_id,
                in_person: by.is_in_person(),
                task_type,
                input,
                context_fragments: request.context_fragments,
                allowed_tools: request.allowed_tools,
                workspace_root: request.workspace_root,
                priority: check::range("priority", request.priority.unwrap_or(0), -100..=100)?,
                trace_id: Some(traceparent.and_then(trace_id).unwrap_or_else(|| self.new_trace_id())),
                fallback: None,
                continues: None,
            },
        })
    }

    /// The caller's value, else the agent owner's, else the hub's.
    fn limits(
        &self,
        origin: &RunOrigin,
        attempts: Option<i64>,
        timeout: Option<u64>,
        queue_ttl: Option<u64>,
    ) -> Result<RunLimits> {
        Ok(RunLimits {
            max_attempts: check::range("max_attempts", attempts.unwrap_or(1), 1..=10)?,
            timeout: match timeout {
                Some(millis) => check::millis("timeout_ms", millis, DURATIONS)?,
                None => origin.timeout().unwrap_or(self.options().run_timeout),
            },
            queue_ttl: match queue_ttl {
                Some(millis) => check::millis("queue_ttl_ms", millis, DURATIONS)?,
                None => self.options().queue_ttl,
            },
        })
    }

    fn new_trace_id(&self) -> String {
        self.env().random_hex::<16>()
    }
}

/// Everything that the request for a repeated run leaves open is as it was, except for what only its own caller knows.
fn carry_over(request: &mut CreateRunRequest, old: &RunRecord, by: &Principal) {
    let RunSpec { task_type, context_fragments, allowed_tools, workspace_root, priority, sandbox, .. } = &old.spec;
    request.task_type.get_or_insert_with(|| task_type.clone());
    request.max_attempts = request.max_attempts.or(Some(old.state.limits.max_attempts));
    request.priority = request.priority.or(Some(*priority));
    if by.user.is_some() && by.user == old.user {
        request.context_fragments = request.context_fragments.take().or_else(|| context_fragments.clone());
    }
    request.allowed_tools = request.allowed_tools.take().or_else(|| allowed_tools.clone());
    // A folder of one agent's device means nothing to another.
    if request.agent_id == old.agent.to_string() {
        request.workspace_root = request.workspace_root.take().or_else(|| workspace_root.clone());
    }
    request.worktree |= old.spec.worktree;
    if request.fallback_agent_id.is_none() {
        request.fallback_agent_id = old.spec.fallback.map(|agent| agent.to_string());
    }
    request.sandbox = sandbox.map_or(request.sandbox, |old| Some(request.sandbox.unwrap_or_default().and(old)));
}

/// A request with a run's token notifies only that run and can't delegate folders: its rights end with the run.
fn check_within_run(by: &Principal, request: &CreateRunRequest, headers: &CallHeaders) -> Result<()> {
    if by.column() != RoleColumn::Run {
        return Ok(());
    }
    if request.callback_url.is_some() || headers.push.is_some() {
        return Err(Error::forbidden("A run's token can't set up notifications for others.")
            .remedy(attache_protocol::error::Remedy::OmitCallback));
    }
    match request.task_type.as_deref() {
        Some(awcp::TASK_TYPE) => Err(Error::forbidden("A run's token can't delegate folders.")),
        Some(_) | None => Ok(()),
    }
}

/// Every hop from agent to agent uses one, so that work can't circulate forever.
fn ttl(left: Option<i64>, given: i64) -> Result<i64> {
    let ttl = left.map_or(given, |left| given.min(left - 1));
    if ttl < 0 {
        return Err(Error::new(Code::LoopRefused, "This task was passed between agents too many times."));
    }
    Ok(ttl)
}

fn parent(body: Option<RunId>, header: Option<RunId>) -> Result<Option<RunId>> {
    match (body, header) {
        (Some(body), Some(header)) if body != header => {
            Err(Error::invalid("parent_task_run_id", "differs from the header X-Attache-Parent-Run"))
        }
        (body, header) => Ok(body.or(header)),
    }
}

fn idempotency_key(body: Option<String>, header: Option<String>) -> Result<Option<String>> {
    if let (Some(body), Some(header)) = (&body, &header)
        && body != header
    {
        return Err(Error::invalid("idempotency_key", "differs from the header Idempotency-Key"));
    }
    let key = body.or(header);
    if let Some(key) = &key {
        check::token("idempotency_key", key, 1..=200)?;
    }
    Ok(key)
}

fn key_hash(by: &Principal, key: &str) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(by.tenant.uuid().as_bytes());
    // All keys of a person count as that person. No one finds a run that someone else created.
    match by.user.filter(|_| !matches!(by.column(), RoleColumn::AgentKey | RoleColumn::Run)) {
        Some(user) => hasher.update(user.uuid().as_bytes()),
        None => hasher.update(by.actor().to_string().as_bytes()),
    };
    hasher.update(key.as_bytes());
    half(hasher.finalize())
}

/// Over the canonical form of the request: known members in order, absent ones omitted, without the key itself.
fn digest(request: &CreateRunRequest) -> [u8; 16] {
    half(blake3::hash(&serde_json::to_vec(request).expect("our own types serialise to JSON")))
}

/// The trace id of `00-<32 hex>-<16 hex>-<2 hex>`. All zeros is invalid.
fn trace_id(traceparent: &str) -> Option<String> {
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let mut parts = traceparent.trim().split('-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let well_formed = hex(version, 2) && version != "ff" && hex(trace, 32) && hex(parent, 16) && hex(flags, 2);
    let closed = version != "00" || parts.next().is_none();
    (well_formed && closed && trace.bytes().any(|byte| byte != b'0')).then(|| trace.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_well_formed_traceparent_is_used() {
        let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(trace_id(&format!("00-{trace}-00f067aa0ba902b7-01")).as_deref(), Some(trace));
        assert_eq!(
            trace_id(&format!("cc-{trace}-00f067aa0ba902b7-01-what-the-future-will-be-like")).as_deref(),
            Some(trace)
        );
        for bad in [
            String::new(),
            format!("00-{trace}-00f067aa0ba902b7"),
            format!("00-{trace}-00f067aa0ba902b7-01-more"),
            format!("ff-{trace}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", trace.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
        ] {
            assert_eq!(trace_id(&bad), None, "{bad}");
        }
    }
}
