//! Steps around runs: create, claim, work, end, sweep and remove.

use std::time::Duration;

use attache_protocol::{
    AgentId, ArtifactId, EventKind, RunId, RuntimeId, UserId, WorkspaceId,
    rules::{
        permission_mode::PermissionMode,
        run::{FailureCode, RunLimits, RunStatus, WorkerRef},
    },
    secret::SecretHash,
    wire::{
        conversation::MessageRole,
        run::{Sandbox, SandboxLimit},
    },
};

use uuid::Uuid;

use super::{DAY, HOUR, StepGenerator};
use crate::{
    Store,
    conformance::{
        generator_state::{GRACE, LEASE, SILENCE_TIMEOUT},
        step::{ListToRead, StoreStep},
    },
    memory::MemoryStore,
    record::{
        AgentRef, KeyKind, LeaseTimes, NewArtifact, NewConversation, NewEvent, NewMessage, NewRun, Pagination,
        RetentionLimits, RunDetail, RunFilter, RunRecord, RunResult, RunSpec, TokenChange,
    },
};

const KINDS: [EventKind; 5] = [
    EventKind::TaskProgress,
    EventKind::TaskChunk,
    EventKind::TaskThought,
    EventKind::TaskLog,
    EventKind::TaskToolCall,
];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) fn runtime(&self) -> RuntimeId {
        let unknown = self.draw.env.runtime_id();
        if self.draw.percent(4) { unknown } else { self.draw.recent(&self.known.runtimes).unwrap_or(unknown) }
    }

    pub(super) async fn heartbeat(&self, model: &MemoryStore) -> StoreStep {
        let runtime = self.some_runtime(model).await;
        let running = if self.draw.percent(25) {
            None
        } else {
            let held = self.held_by(model, runtime).await;
            let mut named: Vec<RunId> = held.into_iter().filter(|_| self.draw.percent(75)).collect();
            if self.draw.percent(15) {
                named.push(self.run());
            }
            Some(named)
        };
        StoreStep::Heartbeat { runtime, running, leases: LeaseTimes { lease: LEASE, grace: GRACE }, at: self.at() }
    }

    pub(super) async fn change_token(&self, model: &MemoryStore) -> StoreStep {
        let runtime = self.some_runtime(model).await;
        let offered = self.draw.recent(&self.known.offered_tokens).filter(|_| !self.draw.percent(10));
        let (runtime, change) = match (self.draw.below(3), offered) {
            (0, _) => (runtime, TokenChange::Reuse),
            // Most offers are accepted by their recipient.
            (1, Some((of, token))) => (if self.draw.percent(90) { of } else { runtime }, TokenChange::Adopt(token)),
            _ => (runtime, TokenChange::Offer(SecretHash(self.draw.bytes()))),
        };
        StoreStep::ChangeToken(runtime, change, self.at())
    }

    pub(super) async fn create_run(&self, model: &MemoryStore) -> StoreStep {
        // Usually for an agent that works, so that it is claimed.
        let active = if self.draw.percent(75) { self.draw.one_of(&self.active(model).await) } else { None };
        let agent = active.map_or_else(|| self.agent_ref(), |(_, agent)| AgentRef::Id(agent));
        let (key, digest) = self.idempotency();
        let limits = RunLimits {
            max_attempts: self.draw.one_of(&[1, 1, 2, 3]).unwrap_or(1),
            timeout: self.millis(&[5_000, HOUR, HOUR, DAY]),
            queue_ttl: self.millis(&[0, 1_000, 600_000, 600_000, DAY, DAY]),
        };
        let opens_conversation = self.draw.percent(5);
        let new = NewRun {
            push: self.draw.percent(20).then(|| self.push_config()),
            follow: self.follow(),
            id: self.draw.env.run_id(),
            agent,
            conversation: match opens_conversation {
                true => Some(self.draw.env.conversation_id()),
                false => self
                    .draw
                    .percent(if self.known.conversations.is_empty() { 3 } else { 35 })
                    .then(|| self.conversation()),
            },
            opens_conversation,
            payer: self.draw.percent(10).then(|| self.user()),
            limits,
            approval: self.draw.percent(15).then(|| self.draw.recent(&self.known.permissions)).flatten(),
            idempotency_key: key,
            request_digest: digest,
            spec: RunSpec {
                callback: self.callback(),
                budget: self.budget(),
                ttl: self.draw.one_of(&[8, 8, 1, 0]).unwrap_or(8),
                parent: self.draw.percent(if self.known.runs.is_empty() { 3 } else { 25 }).then(|| self.run()),
                in_person: self.draw.percent(50),
                task_type: self.draw.text(),
                input: self.draw.json(),
                context_fragments: self.draw.maybe_json(),
                allowed_tools: self.draw.maybe_json(),
                workspace_root: self.draw.maybe_text(),
                sandbox: sandbox(digest),
                fallback: (digest[1] % 4 == 0).then(|| AgentId::from_uuid(Uuid::from_bytes(digest))),
                continues: (digest[2] % 4 == 0).then(|| RunId::from_uuid(Uuid::from_bytes(digest))),
                permission_mode: permission_mode(digest),
                worktree: digest[0] % 4 == 1,
                priority: self.draw.one_of(&[0, 0, 0, 1, -1, 7, i64::MAX, i64::MIN]).unwrap_or(0),
                trace_id: self.draw.maybe_text(),
            },
        };
        StoreStep::CreateRun(self.context(), Box::new(new))
    }

    pub(super) async fn claim(&self, model: &MemoryStore) -> StoreStep {
        // Usually a runtime that has something to claim.
        let filter = RunFilter { status: Some(RunStatus::Pending), ..RunFilter::default() };
        let pending = model.runs(self.tenant, filter, Pagination { limit: 1, cursor: None }).await;
        let agent = pending.ok().and_then(|listed| listed.items.first().map(|run| run.agent));
        let active = self.active(model).await;
        let fitting = active.iter().find(|(_, works_for)| Some(*works_for) == agent).map(|(runtime, _)| *runtime);
        let runtime = match fitting.filter(|_| self.draw.percent(70)) {
            Some(runtime) => runtime,
            None => self.some_runtime(model).await,
        };
        let via = self.channel_to(model, runtime).await;
        // Derived from the time: another draw would change every following sequence.
        let at = self.at();
        let enforces = if at.millis() % 8 == 0 { Vec::new() } else { SandboxLimit::ALL.to_vec() };
        StoreStep::Claim { runtime, via, enforces, lease: LEASE, at }
    }

    pub(super) async fn progress(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        let events = (0..self.draw.below(4)).map(|_| self.event()).collect();
        let report = self.report(model, run).await;
        StoreStep::Progress { by, run, events, usage: self.usage(), report, lease: LEASE, at: self.at() }
    }

    pub(super) async fn finish(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        // Only a few outcomes, so that they repeat.
        let outcome = if self.draw.percent(65) {
            RunResult::Completed { output: self.draw.json(), artifacts: self.artifacts_for(model, run).await }
        } else {
            let code = match self.draw.percent(if self.lists_tasks() { 70 } else { 30 }) {
                true => FailureCode::Rejected,
                false => self.draw.one_of(&FailureCode::ALL).unwrap_or(FailureCode::TaskFailed),
            };
            RunResult::Failed { code, result: self.failure(code) }
        };
        let (usage, at) = (self.usage(), self.at());
        // Derived from the code: another draw would change every following sequence.
        let outcome = match outcome {
            RunResult::Failed { code: FailureCode::UsageLimit | FailureCode::ModelUnreachable, .. } => {
                RunResult::Deferred { until: at.plus(LEASE) }
            }
            other => other,
        };
        // Also derived, from the outcome.
        let inputs_taken = match &outcome {
            RunResult::Completed { .. } => Some(Vec::new()),
            RunResult::Failed { .. } | RunResult::Deferred { .. } => None,
        };
        StoreStep::Finish { by, run, outcome, usage, inputs_taken, at }
    }

    pub(super) async fn cancel(&self, model: &MemoryStore) -> StoreStep {
        let run = self.some_run(model).await.map_or_else(|| self.run(), |run| run.id);
        StoreStep::CancelRun(self.context(), run, self.draw.maybe_text())
    }

    pub(super) async fn release(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        StoreStep::Release { by, run, at: self.at() }
    }

    pub(super) fn sweep(&self) -> StoreStep {
        StoreStep::Sweep { silence: SILENCE_TIMEOUT, at: self.at() }
    }

    pub(super) fn advance_clock(&self) -> StoreStep {
        StoreStep::AdvanceClock { step: self.millis(&[60_000, HOUR, DAY, 30 * DAY]), at: self.now() }
    }

    pub(super) fn retain(&self) -> StoreStep {
        let before = |ages: &[u64]| self.now().minus(self.millis(ages));
        StoreStep::Retain(RetentionLimits {
            at: self.now(),
            max_rows: match self.draw.below(3) {
                0 => 1,
                1 => 7,
                _ => 1_000,
            },
            chunks_before: before(&[0, 1_000, 60_000, HOUR, DAY]),
            log_before: before(&[0, 1_000, HOUR, DAY, 30 * DAY]),
            streams_before: before(&[0, 1_000, HOUR, DAY]),
            channels_before: before(&[0, 1_000, HOUR, DAY, 30 * DAY]),
            runs_before: before(&[0, HOUR, DAY, 30 * DAY, 30 * DAY]),
            conversations_before: before(&[0, 60_000, HOUR, DAY, 30 * DAY]),
            artifacts_before: before(&[0, 60_000, HOUR, DAY]),
            credentials_before: before(&[0, DAY, 30 * DAY, 30 * DAY]),
        })
    }

    /// Usually one that has ended.
    pub(super) async fn delete_run(&self, model: &MemoryStore) -> StoreStep {
        let page = Pagination { limit: 500, cursor: None };
        let runs = model.runs(self.tenant, RunFilter::default(), page).await.map(|listed| listed.items);
        let ended = runs.unwrap_or_default().into_iter().filter(|run| run.state.status().is_terminal());
        let ended = self.draw.one_of(&ended.map(|run| run.id).collect::<Vec<_>>());
        StoreStep::DeleteRun(self.context(), ended.filter(|_| self.draw.percent(85)).unwrap_or_else(|| self.run()))
    }

    pub(super) fn delete_conversation(&self) -> StoreStep {
        StoreStep::DeleteConversation(self.context(), self.conversation())
    }

    pub(super) fn create_conversation(&self) -> StoreStep {
        let new = NewConversation {
            id: self.draw.env.conversation_id(),
            title: self.draw.maybe_text(),
            metadata: self.draw.maybe_json(),
            agent: self.draw.percent(30).then(|| self.agent()),
        };
        StoreStep::CreateConversation(self.context(), new)
    }

    pub(super) fn add_message(&self) -> StoreStep {
        let new = NewMessage {
            id: self.draw.env.message_id(),
            conversation: self.conversation(),
            role: if self.draw.percent(50) { MessageRole::User } else { MessageRole::Agent },
            text: self.draw.text(),
            metadata: self.draw.maybe_json(),
        };
        StoreStep::AddMessage(self.context(), new)
    }

    /// Usually into the workspace of a live run, so that the run can name it.
    pub(super) async fn add_artifact(&self, model: &MemoryStore) -> StoreStep {
        let of_run = if self.draw.percent(70) { self.some_run(model).await } else { None };
        let workspace = of_run.map_or_else(|| self.conversation(), |run| run.conversation).workspace();
        let shared = self.draw.recent(&self.known.blobs).filter(|_| self.draw.percent(30));
        let new = NewArtifact {
            id: self.draw.env.artifact_id(),
            workspace,
            name: self.draw.text(),
            media_type: self.draw.text(),
            size: self.draw.one_of(&[0, 17, i64::MAX.unsigned_abs()]).unwrap_or(0),
            blake3: shared.unwrap_or_else(|| self.draw.bytes()),
        };
        StoreStep::AddArtifact(self.context(), new)
    }

    pub(super) fn run(&self) -> RunId {
        let unknown = self.draw.env.run_id();
        if self.draw.percent(4) { unknown } else { self.draw.recent(&self.known.runs).unwrap_or(unknown) }
    }

    /// An explicit conversation, a run's own, the one a run would have had, or a nonexistent one.
    pub(super) fn conversation(&self) -> attache_protocol::ConversationId {
        match self.draw.below(100) {
            0..93 => self.draw.recent(&self.known.conversations),
            93..97 => self.draw.recent(&self.known.runs).map(RunId::own_conversation),
            _ => None,
        }
        .unwrap_or_else(|| self.draw.env.conversation_id())
    }

    /// Who works on which run: usually the holder, sometimes someone with a wrong epoch or identity.
    pub(super) async fn worker(&self, model: &MemoryStore) -> (WorkerRef, RunId) {
        let Some(RunRecord { id, runtime, state, .. }) = self.some_run(model).await else {
            return (WorkerRef { runtime: self.runtime(), epoch: Some(1) }, self.run());
        };
        let runtime = runtime.unwrap_or_else(|| self.runtime());
        let by = match self.draw.below(100) {
            0..72 => WorkerRef { runtime, epoch: Some(state.epoch) },
            72..82 => WorkerRef { runtime, epoch: None },
            82..87 => WorkerRef { runtime, epoch: Some(state.epoch - 1) },
            87..90 => WorkerRef { runtime, epoch: Some(state.epoch + 1) },
            90..95 => WorkerRef { runtime: self.runtime(), epoch: Some(state.epoch) },
            _ => WorkerRef { runtime: self.runtime(), epoch: None },
        };
        (by, if self.draw.percent(2) { self.run() } else { id })
    }

    /// Artifacts a run may name, and sometimes one that it may not.
    async fn artifacts_for(&self, model: &MemoryStore, run: RunId) -> Vec<ArtifactId> {
        let Ok(record) = model.run(self.tenant, run).await else { return Vec::new() };
        let own = self.artifacts_of(model, record.conversation.workspace()).await;
        let mut named: Vec<ArtifactId> = own.into_iter().filter(|_| self.draw.percent(70)).collect();
        if self.draw.percent(10) {
            named.push(self.artifact());
        }
        named
    }

    async fn artifacts_of(&self, model: &MemoryStore, workspace: WorkspaceId) -> Vec<ArtifactId> {
        let page = Pagination { limit: 3, cursor: None };
        let listed = model.artifacts(self.tenant, workspace, page).await;
        listed.map(|listed| listed.items.iter().map(|artifact| artifact.id).collect()).unwrap_or_default()
    }

    pub(super) fn artifact(&self) -> ArtifactId {
        let unknown = self.draw.env.artifact_id();
        if self.draw.percent(10) { unknown } else { self.draw.recent(&self.known.artifacts).unwrap_or(unknown) }
    }

    pub(super) async fn held_by(&self, model: &MemoryStore, runtime: RuntimeId) -> Vec<RunId> {
        let page = Pagination { limit: 20, cursor: None };
        let runs = model.runs(self.tenant, RunFilter::default(), page).await.map(|listed| listed.items);
        let holds = |run: &RunRecord| run.state.claim().is_some_and(|claim| claim.runtime == runtime);
        runs.unwrap_or_default().iter().filter(|run| holds(run)).map(|run| run.id).collect()
    }

    /// A key and the digest of its request: usually none, or a new key, a repeated one, or one used for another
    /// request.
    fn idempotency(&self) -> (Option<[u8; 16]>, [u8; 16]) {
        let fresh = self.draw.bytes();
        match (self.draw.below(100), self.draw.recent(&self.known.idempotency)) {
            (0..25, _) => (Some(self.draw.bytes()), fresh),
            (25..40, Some((key, digest))) => (Some(key), digest),
            (40..46, Some((key, _))) => (Some(key), fresh),
            _ => (None, fresh),
        }
    }

    fn event(&self) -> NewEvent {
        NewEvent { kind: self.draw.one_of(&KINDS).unwrap_or(EventKind::TaskLog), data: self.draw.json() }
    }

    pub(super) fn millis(&self, of: &[u64]) -> Duration {
        Duration::from_millis(self.draw.one_of(of).unwrap_or(0))
    }

    pub(super) fn any_list(&self) -> ListToRead {
        match self.draw.below(13) {
            12 => ListToRead::Tasks(self.task_filter()),
            10 => ListToRead::Users,
            11 => ListToRead::Deliveries(self.delivery_filter()),
            7 => ListToRead::Channels(self.channel_filter()),
            8 => ListToRead::Permissions(self.permission_filter()),
            9 => ListToRead::Grants,
            0 => ListToRead::Accounts,
            1 => ListToRead::Runtimes(self.draw.percent(50).then(|| self.agent())),
            2 => {
                let kind = if self.draw.percent(50) { KeyKind::Api } else { KeyKind::Session };
                ListToRead::Keys(kind, self.draw.percent(30).then(|| self.user()))
            }
            3 => ListToRead::Runs(self.filter()),
            4 => ListToRead::Conversations,
            5 => ListToRead::Messages(self.conversation()),
            _ => ListToRead::Artifacts(self.conversation().workspace()),
        }
    }

    fn filter(&self) -> RunFilter {
        let user = self.draw.percent(20).then(|| self.user());
        let mut filter = RunFilter {
            // Not drawn: another draw would change every following sequence.
            detail: if user.is_some() { RunDetail::Excerpt } else { RunDetail::Whole },
            user,
            status: if self.draw.percent(40) { self.draw.one_of(&RunStatus::ALL) } else { None },
            agent: self.draw.percent(25).then(|| self.agent()),
            conversation: self.draw.percent(25).then(|| self.conversation()),
            parent: self.draw.percent(15).then(|| self.run()),
            since: None,
            before: None,
            min_micro_usd: None,
            text: None,
        };
        // Not drawn either: chosen by what was.
        let chosen = |id: Option<Uuid>, of: usize| id.map(|id| usize::from(id.as_bytes()[15]) % of);
        filter.text = chosen(filter.agent.map(AgentId::uuid), WORDS.len()).map(|place| WORDS[place].to_owned());
        match chosen(filter.user.map(UserId::uuid), 4) {
            Some(0) => filter.min_micro_usd = Some(10_000),
            Some(1) => filter.since = Some(self.now().minus(Duration::from_millis(HOUR))),
            Some(2) => filter.before = Some(self.now().minus(Duration::from_millis(HOUR))),
            _ => {}
        }
        // So that the words are looked for everywhere, too.
        if filter.text.is_some() && filter.user.is_some() {
            filter.agent = None;
        }
        filter
    }
}

/// What runs are searched for: parts of tasks, ids, callers and names, of every length that an index treats differently.
const WORDS: [&str; 12] =
    ["e4", "hi", "\"text\"", "run_", "日本", "語", "é 🦀", "system", "a", "user", "\\ \"", "no such"];

/// For some requests, as with their limits.
fn permission_mode([.., first, second]: [u8; 16]) -> Option<PermissionMode> {
    (first % 4 == 0).then(|| PermissionMode::ALL[usize::from(second) % PermissionMode::ALL.len()])
}

/// For some requests, chosen by digest: another draw would change every following sequence.
fn sandbox(digest: [u8; 16]) -> Option<Sandbox> {
    let limit = |byte: u8| [None, Some(true), Some(false)][usize::from(byte % 3)];
    let [first, second, third, fourth, ..] = digest;
    let drawn = Sandbox { cwd_only: limit(second), allow_network: limit(third), allow_exec: limit(fourth) };
    (first % 8 == 0).then_some(drawn)
}
