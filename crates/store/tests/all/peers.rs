//! Channels and questions by example, on both engines: what their rows, frames and hints say, spelled out.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_protocol::{
    Actor, AgentId, ChannelId, EventKind, Json, RunId, RuntimeId, TenantId,
    env::Env,
    rules::{
        permission::{ApprovalDecision, DecisionScope, OnTimeout, PermissionState, PermissionSubject},
        permission_mode::PlanState,
        run::{RunLimits, RunStatus, WaitReason, WorkerRef},
    },
    secret::SecretHash,
    wire::{
        account::{ApprovalConfirmation, Callers, OnLimit},
        channel::{PeerRole, Transport},
        run::{Sandbox, SandboxLimit},
    },
};
use attache_store::{
    Error, MAX_FRAMES, Store, WakeHint, WriteContext,
    memory::MemoryStore,
    record::{
        AgentRef, ArchivedNames, NewAccount, NewEvent, NewProgress, NewRun, NewRuntime, PairingProof, RunResult,
        RunSpec, RuntimeKind,
        channel::{ChannelConnection, ChannelResume, NewChannel, NewFollow, OutboxFrame, ReportKey},
        delivery::RunCallback,
        worker_request::{
            GrantMaker, InputTarget, NewDecision, NewInput, NewPermission, NewWorkerRequest, WorkerRequestKind,
        },
    },
    sql::SqlStore,
};
use tempfile::TempDir;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A tenant with an agent, its runtime, the channel of its worker, and the channel of an engine that calls it.
pub(crate) struct World {
    pub(crate) store: Box<dyn Store>,
    pub(crate) env: Env,
    pub(crate) tenant: TenantId,
    pub(crate) agent: AgentId,
    pub(crate) runtime: RuntimeId,
    pub(crate) worker: ChannelId,
    engine: ChannelId,
    _folder: TempDir,
}

// === impl World ===

impl World {
    /// The same world on every engine.
    pub(crate) async fn all() -> Vec<Self> {
        let folder = || TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
        let database = folder();
        let sqlite = SqlStore::open(&database.path().join("hub.db")).unwrap();
        vec![Self::on(Box::new(MemoryStore::new()), folder()).await, Self::on(Box::new(sqlite), database).await]
    }

    async fn on(store: Box<dyn Store>, folder: TempDir) -> Self {
        let env = Env::seeded(1);
        let tenant = store.ensure_tenant(env.tenant_id(), "home", env.now()).await.unwrap();
        let account = NewAccount {
            archived_names: ArchivedNames::Own,
            author: None,
            approvals: None,
            id: env.agent_id(),
            name: "builder".to_owned(),
            description: None,
            instructions: None,
            skills: json("[]"),
            a2a: None,
            callers: Callers::Everyone,
            run_timeout: None,
            on_limit: OnLimit::default(),
            confirm_approvals: ApprovalConfirmation::default(),
        };
        let context = WriteContext::new(tenant, "key:owner", env.now());
        let agent = store.create_account(context, account).await.unwrap().id;
        let new = NewRuntime {
            kind: RuntimeKind::AgentKey,
            id: env.runtime_id(),
            token: SecretHash([2; 32]),
            proof: PairingProof::Owner { tenant, agent },
            paired_by: None,
            device_name: None,
            labels: json("{}"),
        };
        let runtime = store.attach_runtime(new, env.now()).await.unwrap().id;
        let (worker, engine) = (env.channel_id(), env.channel_id());
        let world = Self { store, env, tenant, agent, runtime, worker, engine, _folder: folder };
        world.open(worker, Some(runtime), SecretHash([3; 32])).await;
        world.open(engine, None, SecretHash([4; 32])).await;
        world
    }

    pub(crate) fn context(&self, actor: &str) -> WriteContext {
        WriteContext::new(self.tenant, actor, self.env.now())
    }

    pub(crate) fn by(&self) -> WorkerRef {
        WorkerRef { runtime: self.runtime, epoch: Some(1) }
    }

    /// The worker's connection.
    pub(crate) fn worker(&self) -> ChannelConnection {
        ChannelConnection { channel: self.worker, resume: SecretHash([3; 32]) }
    }

    /// The engine's connection that got this token.
    fn engine(&self, token: [u8; 32]) -> ChannelConnection {
        ChannelConnection { channel: self.engine, resume: SecretHash(token) }
    }

    async fn open(&self, id: ChannelId, runtime: Option<RuntimeId>, resume: SecretHash) {
        let new = NewChannel {
            id,
            node: None,
            transport: Transport::Websocket,
            peer_role: if runtime.is_some() { PeerRole::Worker } else { PeerRole::Client },
            account_ref: format!("agent:{}", self.agent),
            runtime,
            capabilities: json("[]"),
            native_protocol: None,
            tools: json("[]"),
            device_info: None,
            address: None,
            resume,
            running: None,
        };
        let actor = if runtime.is_some() { "runtime:me" } else { "key:engine" };
        self.store.open_channel(self.context(actor), new).await.unwrap();
    }

    /// A run that the engine follows.
    pub(crate) fn new_run(&self) -> NewRun {
        NewRun {
            push: None,
            follow: Some(NewFollow { channel: self.engine, message: "msg".to_owned() }),
            id: self.env.run_id(),
            agent: AgentRef::Id(self.agent),
            conversation: None,
            opens_conversation: false,
            payer: None,
            limits: RunLimits {
                max_attempts: 1,
                timeout: Duration::from_secs(60),
                queue_ttl: Duration::from_secs(600),
            },
            approval: None,
            idempotency_key: None,
            request_digest: [0; 16],
            spec: RunSpec::new("prompt", json("{}")),
        }
    }

    /// The same, with a callback.
    pub(crate) fn new_run_calling(&self, callback: Option<RunCallback>) -> NewRun {
        let new = self.new_run();
        NewRun { spec: RunSpec { callback, ..new.spec }, ..new }
    }

    /// A run that the engine follows, claimed over the worker's channel.
    async fn claimed(&self) -> RunId {
        let new = self.new_run();
        let run = new.id;
        self.store.create_run(self.context("key:engine"), new).await.unwrap();
        let claimed = self
            .store
            .claim(self.runtime, Some(self.worker()), Vec::new(), LEASE, self.env.now())
            .await
            .unwrap()
            .unwrap();
        assert_eq!((claimed.run.id, claimed.run.channel), (run, Some(self.worker)));
        run
    }

    pub(crate) fn permission(&self, run: RunId, tool: &str) -> NewPermission {
        let input = json(r#"{"command":"rm -rf build"}"#);
        NewPermission {
            notify: None,
            id: self.env.permission_id(),
            run,
            tool: tool.to_owned(),
            subject: PermissionSubject::of(tool, &input, None, &[]),
            input,
            cwd: None,
            paths: Vec::new(),
            reason: None,
            risk: None,
            diff: None,
            undisclosed: Vec::new(),
            private_agent: false,
            request: None,
            channel: Some(self.worker),
            expires_at: Some(self.env.now().plus(Duration::from_secs(20))),
            on_timeout: OnTimeout::DenyAndHalt,
            speaker: None,
            trusted: None,
            plan: PlanState::Settled,
        }
    }

    fn decision(&self, approved: bool, scope: DecisionScope) -> NewDecision {
        let decision = ApprovalDecision {
            approved,
            scope,
            tool_pattern: None,
            until: None,
            this_channel_only: false,
            comment: None,
        };
        NewDecision {
            decision,
            grant: self.env.grant_id(),
            maker: GrantMaker::default(),
            via: "rest".to_owned(),
            from: None,
        }
    }

    pub(crate) async fn frames(&self, channel: ChannelId) -> Vec<OutboxFrame> {
        let frames = self.store.frames(channel, 0, usize::MAX).await.unwrap().frames;
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    /// Rows of the log after a seq, without actors that every test knows.
    pub(crate) async fn log(&self, after: i64) -> Vec<String> {
        let page = self.store.log(self.tenant, after, 100).await.unwrap();
        page.rows.iter().map(|row| format!("{} {} {}", row.actor, row.kind, row.data.get())).collect()
    }

    pub(crate) async fn head(&self) -> i64 {
        self.store.log(self.tenant, 0, 1).await.unwrap().head
    }
}

pub(crate) fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

#[tokio::test]
async fn a_risky_step_waits_for_one_person_and_the_next_is_covered() {
    for world in World::all().await {
        let (run, worker, runtime) = (world.claimed().await, world.worker, world.runtime);
        let head = world.head().await;
        let new = world.permission(run, "bash");
        let prm = new.id;
        let asked = world.store.request_permission(world.by(), new.clone(), LEASE, world.env.now()).await.unwrap();
        assert_eq!((asked.id, asked.state, asked.epoch), (prm, PermissionState::Pending, 1));
        // Asked again without a name: the same question.
        let again = NewPermission { id: world.env.permission_id(), ..new.clone() };
        assert_eq!(world.store.request_permission(world.by(), again, LEASE, world.env.now()).await.unwrap(), asked);
        let waiting = world.store.run(world.tenant, run).await.unwrap();
        assert_eq!(waiting.state.waiting(), Some(WaitReason::Approval));
        assert_eq!(world.store.pending_permissions(world.tenant).await, Ok(1));

        world.env.advance(Duration::from_secs(10));
        let decision = world.decision(true, DecisionScope::Run);
        let context = world.context("key:owner");
        let decided = world.store.decide_permission(context.clone(), prm, decision.clone()).await.unwrap();
        assert_eq!(world.store.decide_permission(context, prm, decision.clone()).await.unwrap(), decided);
        let late = world.store.decide_permission(world.context("key:other"), prm, decision.clone()).await;
        assert_eq!(late, Err(Error::AlreadyDecided(Box::new(decided))));
        assert_eq!(
            world.log(head).await,
            [
                format!(
                    r#"runtime:{runtime} permission.requested {{"permission_request_id":"{prm}","tool":"bash","input":{{"command":"rm -rf build"}},"cwd":null,"paths":[],"reason":null,"risk":null}}"#
                ),
                format!(
                    r#"runtime:{runtime} channel.permission_forwarded {{"channel_id":"{worker}","permission_request_id":"{prm}","task_run_id":"{run}"}}"#
                ),
                format!(r#"runtime:{runtime} action.required {{"kind":"approval","permission_request_id":"{prm}"}}"#),
                format!(r#"runtime:{runtime} task.waiting {{"waiting":"approval"}}"#),
                format!(
                    r#"key:owner permission.decided {{"permission_request_id":"{prm}","state":"approved","approved":true,"source":"user","by":"key:owner","via":"rest","from":null,"scope":"run","tool_pattern":null,"until":null,"this_channel_only":false,"comment":null,"grant_id":"{}"}}"#,
                    decision.grant
                ),
                format!(
                    r#"key:owner channel.permission_returned {{"channel_id":"{worker}","permission_request_id":"{prm}","task_run_id":"{run}","approved":true}}"#
                ),
                r#"key:owner task.waiting {"waiting":null}"#.to_owned(),
                format!(
                    r#"key:other permission.late {{"permission_request_id":"{prm}","approved":true,"state":"approved"}}"#
                ),
            ]
        );
        let covered = NewPermission { id: world.env.permission_id(), ..new };
        let covered = world.store.request_permission(world.by(), covered, LEASE, world.env.now()).await.unwrap();
        let by = covered.settled.map(|settled| settled.by);
        assert_eq!((covered.state, by), (PermissionState::Approved, Some(Actor::Grant(decision.grant))));
        assert_eq!(
            world.frames(worker).await,
            [
                OutboxFrame::Execute { run, epoch: 1 },
                OutboxFrame::Permission { permission: prm },
                OutboxFrame::Permission { permission: covered.id },
            ]
        );
        // Ten seconds of waiting do not count.
        let claim = world.store.run(world.tenant, run).await.unwrap().state.claim().cloned().unwrap();
        assert_eq!((claim.waits.waited, claim.waits.waiting()), (Duration::from_secs(10), None));
    }
}

#[tokio::test]
async fn nobody_answers_in_time_and_the_run_ends() {
    for world in World::all().await {
        let run = world.claimed().await;
        let (first, second) = (world.permission(run, "bash"), world.permission(run, "fs.write"));
        let second = NewPermission { expires_at: None, on_timeout: OnTimeout::KeepWaiting, ..second };
        let (first_id, second_id) = (first.id, second.id);
        for new in [first, second] {
            world.store.request_permission(world.by(), new, LEASE, world.env.now()).await.unwrap();
        }
        let head = world.head().await;
        world.env.advance(Duration::from_secs(20));
        let swept = world.store.sweep(Duration::from_secs(120), world.env.now()).await.unwrap();
        assert_eq!(swept.runs, [run]);
        let kinds: Vec<String> =
            world.log(head).await.iter().map(|row| row.split(' ').nth(1).unwrap().to_owned()).collect();
        assert_eq!(kinds, ["permission.decided", "channel.permission_returned", "permission.decided", "task.failed"]);
        assert_eq!(
            world.frames(world.worker).await,
            [
                OutboxFrame::Execute { run, epoch: 1 },
                OutboxFrame::Permission { permission: first_id },
                OutboxFrame::Cancel { run },
            ]
        );
        let cancelled = world.store.permission(world.tenant, second_id).await.unwrap();
        assert_eq!(cancelled.state, PermissionState::Cancelled);
        let failed = world.store.run(world.tenant, run).await.unwrap();
        assert_eq!(
            failed.result.unwrap().get(),
            r#"{"error":"An approval request was not answered in time.","code":"permission_denied"}"#
        );
    }
}

#[tokio::test]
async fn a_worker_asks_its_engine_and_its_caller() {
    for world in World::all().await {
        let run = world.claimed().await;
        let what = WorkerRequestKind::Tool { tool: "search".to_owned(), arguments: json(r#"{"q":"x"}"#) };
        let new = NewWorkerRequest { id: world.env.worker_request_id(), run, what, request: None, expires_at: None };
        let call = world.store.create_worker_request(world.by(), new, LEASE, world.env.now()).await.unwrap().id;
        let what = WorkerRequestKind::Input { prompt: "Which one?".to_owned(), parts: None };
        let new = NewWorkerRequest {
            id: world.env.worker_request_id(),
            run,
            what,
            request: Some("q".to_owned()),
            expires_at: None,
        };
        let question = world.store.create_worker_request(world.by(), new, LEASE, world.env.now()).await.unwrap().id;

        let stranger = world.store.answer_tool_call(world.context("key:other"), call, json("1")).await;
        assert_eq!(stranger, Err(Error::NotFound));
        let answered =
            world.store.answer_tool_call(world.context("key:engine"), call, json(r#"{"ok":true}"#)).await.unwrap();
        assert_eq!(answered.answer, Some(json(r#"{"ok":true}"#)));
        let parts = json(r#"[{"text":"the first"}]"#);
        let input = |key| NewInput {
            id: world.env.input_id(),
            run,
            parts: parts.clone(),
            message: None,
            target: InputTarget::OldestQuestion,
            key,
        };
        let given = world.store.add_input(world.context("key:engine"), input(Some([1; 16]))).await.unwrap();
        assert_eq!((given.ask, given.status), (Some(question), RunStatus::Running));
        let again = world.store.add_input(world.context("key:engine"), input(Some([1; 16]))).await.unwrap();
        assert_eq!(again, given);
        let more = world.store.add_input(world.context("key:engine"), input(None)).await.unwrap();
        assert_eq!(
            world.frames(world.worker).await,
            [
                OutboxFrame::Execute { run, epoch: 1 },
                OutboxFrame::Answer { ask: call },
                OutboxFrame::Answer { ask: question },
                OutboxFrame::Input { run, input: more.id },
            ]
        );
        assert_eq!(world.frames(world.engine).await, [OutboxFrame::ToolCall { ask: call }]);
        let stream = world.store.run_events(world.tenant, run, 2, 100).await.unwrap();
        let kinds: Vec<&str> = stream.events.iter().map(|event| event.kind.as_str()).collect();
        assert_eq!(
            kinds,
            [
                "task.tool_call",
                "task.input_required",
                "action.required",
                "task.waiting",
                "task.tool_call",
                "task.input_received",
                "task.waiting",
                "task.input_received",
            ]
        );
    }
}

#[tokio::test]
async fn a_report_that_comes_twice_is_heard_once() {
    for world in World::all().await {
        let run = world.claimed().await;
        let progress = |source, seq| NewProgress {
            events: vec![NewEvent { kind: EventKind::TaskChunk, data: json(r#""x""#) }],
            usage: None,
            report: Some(ReportKey { source, seq }),
        };
        let over = Some(world.worker);
        for (source, seq, last_seq) in
            [(over, 1, 3), (over, 1, 3), (over, 3, 4), (over, 2, 4), (None, 1, 5), (None, 1, 5), (over, 3, 6)]
        {
            world.store.progress(world.by(), run, progress(source, seq), LEASE, world.env.now()).await.unwrap();
            assert_eq!(world.store.run(world.tenant, run).await.unwrap().last_seq, last_seq, "{source:?} {seq}");
        }
    }
}

#[tokio::test]
async fn a_new_channel_takes_over_what_its_worker_knows_of() {
    for world in World::all().await {
        let (known, unknown) = (world.claimed().await, world.claimed().await);
        let progress = NewProgress {
            events: vec![NewEvent { kind: EventKind::TaskChunk, data: json("1") }],
            ..NewProgress::default()
        };
        world.store.progress(world.by(), known, progress, LEASE, world.env.now()).await.unwrap();
        world.store.cancel_run(world.context("key:owner"), known, None).await.unwrap();
        let next = world.env.channel_id();
        world.open(next, Some(world.runtime), SecretHash([5; 32])).await;
        // The cancellation is told on the new channel; nobody knows of the other run, so it waits again.
        assert_eq!(
            world.frames(next).await,
            [OutboxFrame::Cancel { run: known }, OutboxFrame::Cancel { run: unknown }]
        );
        let back = world.store.run(world.tenant, unknown).await.unwrap();
        assert_eq!((back.state.status(), back.state.attempt, back.channel), (RunStatus::Pending, 0, Some(next)));
        let old = ChannelResume {
            channel: world.worker,
            node: None,
            token: SecretHash([3; 32]),
            fresh: SecretHash([6; 32]),
            last_seq: 0,
            address: None,
        };
        let refused = world.store.resume_channel(world.context("runtime:me"), old).await;
        assert_eq!(refused, Err(Error::ResumeRefused));
        let claimed = world.store.claim(world.runtime, Some(world.worker()), Vec::new(), LEASE, world.env.now()).await;
        assert_eq!(claimed, Err(Error::NotFound));
    }
}

/// Nothing is told of it to a worker that would ignore the limit: there is no moment at which it holds such a run.
#[tokio::test]
async fn a_run_whose_limits_the_worker_does_not_enforce_is_never_claimed() {
    for world in World::all().await {
        let sandbox = Some(Sandbox { allow_exec: Some(false), ..Sandbox::default() });
        let refused = NewRun { spec: RunSpec { sandbox, ..RunSpec::new("prompt", json("{}")) }, ..world.new_run() };
        let run = refused.id;
        world.store.create_run(world.context("key:engine"), refused).await.unwrap();
        let claim = async |enforces| {
            world.store.claim(world.runtime, Some(world.worker()), enforces, LEASE, world.env.now()).await.unwrap()
        };
        assert_eq!(claim(vec![SandboxLimit::NoNetwork]).await, None);
        assert_eq!(world.frames(world.worker).await, []);
        let ended = world.store.run(world.tenant, run).await.unwrap();
        assert_eq!((ended.state.status(), ended.state.epoch, ended.runtime), (RunStatus::Failed, 0, None));
        let result = ended.result.unwrap();
        assert!(result.get().contains("(allow_exec: false)), so nothing was started"), "{}", result.get());
        assert!(result.get().contains(r#""code":"refused""#), "{}", result.get());
        // Whoever enforces it is given it.
        let kept = NewRun { spec: RunSpec { sandbox, ..RunSpec::new("prompt", json("{}")) }, ..world.new_run() };
        let run = kept.id;
        world.store.create_run(world.context("key:engine"), kept).await.unwrap();
        assert_eq!(claim(vec![SandboxLimit::NoExec]).await.unwrap().run.id, run);
        assert_eq!(world.frames(world.worker).await, [OutboxFrame::Execute { run, epoch: 1 }]);
    }
}

#[tokio::test]
async fn a_peer_that_is_away_too_long_is_told_what_it_missed() {
    const MORE: usize = 5;
    let events = usize::try_from(MAX_FRAMES).unwrap() + MORE;
    for world in World::all().await {
        let run = world.claimed().await;
        let chunk = NewEvent { kind: EventKind::TaskChunk, data: json("1") };
        // The run has two events already.
        let progress = NewProgress { events: vec![chunk; events - 2], ..NewProgress::default() };
        world.store.progress(world.by(), run, progress, LEASE, world.env.now()).await.unwrap();
        let pushed = world.store.push_events(world.engine([4; 32]), run, i64::MAX, usize::MAX).await.unwrap();
        assert_eq!(pushed.pushed, MAX_FRAMES + 5);
        let frames = world.store.frames(world.engine, 0, usize::MAX).await.unwrap();
        assert_eq!((frames.floor, frames.head), (5, MAX_FRAMES + 5));
        assert_eq!(frames.frames.first(), Some(&(6, OutboxFrame::Event { run, seq: 6 })));
        assert_eq!(i64::try_from(frames.frames.len()), Ok(MAX_FRAMES));

        let resume = ChannelResume {
            channel: world.engine,
            node: None,
            token: SecretHash([4; 32]),
            fresh: SecretHash([7; 32]),
            last_seq: 2,
            address: None,
        };
        let resumed = world.store.resume_channel(world.context("key:engine"), resume.clone()).await.unwrap();
        assert_eq!(resumed.missing, Some((3, 5)));
        let twice = world.store.resume_channel(world.context("key:engine"), resume).await;
        assert_eq!(twice, Err(Error::ResumeRefused));
        world.store.acknowledge(world.engine([7; 32]), i64::MAX).await.unwrap();
        let channel = world.store.channel(world.tenant, world.engine).await.unwrap();
        assert_eq!((channel.floor, channel.head), (MAX_FRAMES + 5, MAX_FRAMES + 5));

        let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
        world.store.finish(world.by(), run, outcome, None, None, world.env.now()).await.unwrap();
        assert_eq!(world.store.follows(world.engine).await.unwrap().len(), 1);
        world.store.push_events(world.engine([7; 32]), run, i64::MAX, 10).await.unwrap();
        assert_eq!(world.store.follows(world.engine).await, Ok(Vec::new()));
        let last = world.store.run(world.tenant, run).await.unwrap().last_seq;
        assert_eq!(world.frames(world.engine).await, [OutboxFrame::Event { run, seq: last }]);
    }
}

#[tokio::test]
async fn hints_name_channels_and_runs_whose_questions_were_settled() {
    for world in World::all().await {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&heard);
        world.store.on_wake(Box::new(move |woken| listener.lock().unwrap().extend_from_slice(woken)));
        // Hints follow the answer, and everything of one write comes before the next one.
        let take = async || {
            world.store.ping().await.unwrap();
            std::mem::take(&mut *heard.lock().unwrap())
        };

        let run = world.claimed().await;
        assert!(take().await.contains(&WakeHint::Channel(world.worker)));
        let new = world.permission(run, "bash");
        let prm = new.id;
        world.store.request_permission(world.by(), new, LEASE, world.env.now()).await.unwrap();
        let tenant = WakeHint::Tenant(world.tenant);
        assert_eq!(take().await, [WakeHint::Run(run), tenant, WakeHint::Channel(world.worker)]);
        let decision = world.decision(false, DecisionScope::Once);
        world.store.decide_permission(world.context("key:owner"), prm, decision).await.unwrap();
        assert_eq!(take().await, [WakeHint::Run(run), tenant, WakeHint::Channel(world.worker), WakeHint::Asked(run)]);
        let close = world.store.close_channel(world.context("key:engine"), world.engine, "gone");
        assert_eq!(close.await.unwrap().reason.as_deref(), Some("gone"));
        assert_eq!(take().await, [tenant, WakeHint::Channel(world.engine)]);
    }
}
