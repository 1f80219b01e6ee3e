//! The model by example: what its rows, streams and hints say, spelled out.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use attache_protocol::{
    EventKind, Json, TenantId, Timestamp,
    env::Env,
    rules::run::{RunLimits, WorkerRef},
    wire::account::{ApprovalConfirmation, Callers, OnLimit},
};
use attache_store::{
    Error, Store, WakeHint, WriteContext,
    memory::MemoryStore,
    record::{
        AgentRef, ArchivedNames, NewAccount, NewEvent, NewPairingCode, NewProgress, NewRun, NewRuntime, PairingProof,
        RetentionLimits, RunCreation, RunRecord, RunResult, RunSpec, RuntimeKind, RuntimeRecord,
    },
};

const LEASE: Duration = Duration::from_secs(30);

/// A tenant with one agent and its runtime.
struct World {
    store: MemoryStore,
    env: Env,
    tenant: TenantId,
    runtime: RuntimeRecord,
}

// === impl World ===

impl World {
    async fn new() -> Self {
        let (store, env) = (MemoryStore::new(), Env::seeded(1));
        let tenant = store.ensure_tenant(env.tenant_id(), "home", env.now()).await.unwrap();
        let context = WriteContext::new(tenant, "key:owner", env.now());
        let account = NewAccount {
            archived_names: ArchivedNames::Own,
            author: None,
            approvals: None,
            id: env.agent_id(),
            name: "builder".to_owned(),
            description: None,
            instructions: Some("Be brief.".to_owned()),
            skills: json("[]"),
            a2a: None,
            callers: Callers::Everyone,
            run_timeout: None,
            on_limit: OnLimit::default(),
            confirm_approvals: ApprovalConfirmation::default(),
        };
        let agent = store.create_account(context.clone(), account).await.unwrap().id;
        let code = attache_protocol::secret::SecretHash([1; 32]);
        let expires_at = env.now().plus(Duration::from_secs(600));
        let new = NewPairingCode { maker: None, agent: AgentRef::Id(agent), code, expires_at };
        store.create_pairing_code(context, new).await.unwrap();
        let new = NewRuntime {
            kind: RuntimeKind::Device,
            id: env.runtime_id(),
            token: attache_protocol::secret::SecretHash([2; 32]),
            proof: PairingProof::Code(code),
            paired_by: None,
            device_name: Some("laptop".to_owned()),
            labels: json("{}"),
        };
        let runtime = store.attach_runtime(new, env.now()).await.unwrap();
        Self { store, env, tenant, runtime }
    }

    fn now(&self) -> Timestamp {
        self.env.now()
    }

    async fn create_run(&self) -> RunRecord {
        let new = NewRun {
            push: None,
            follow: None,
            id: self.env.run_id(),
            agent: AgentRef::Name("builder".to_owned()),
            conversation: None,
            opens_conversation: false,
            payer: None,
            limits: RunLimits {
                max_attempts: 1,
                timeout: Duration::from_secs(3600),
                queue_ttl: Duration::from_secs(600),
            },
            approval: None,
            idempotency_key: None,
            request_digest: [0; 16],
            spec: RunSpec::new("prompt", json(r#"{"text":"hi"}"#)),
        };
        let context = WriteContext::new(self.tenant, "key:owner", self.now());
        match self.store.create_run(context, new).await.unwrap() {
            RunCreation::New(run) => run,
            RunCreation::Existing(run) => panic!("{run:?} was there already"),
        }
    }

    /// Creates, claims, reports two events and completes a run.
    async fn whole_run(&self) -> RunRecord {
        let run = self.create_run().await.id;
        self.store.claim(self.runtime.id, None, Vec::new(), LEASE, self.now()).await.unwrap().unwrap();
        let by = WorkerRef { runtime: self.runtime.id, epoch: Some(1) };
        let events = vec![
            NewEvent { kind: EventKind::TaskChunk, data: json(r#"{"text":"hel"}"#) },
            NewEvent { kind: EventKind::TaskChunk, data: json(r#"{"text":"lo"}"#) },
        ];
        let progress = NewProgress { events, ..NewProgress::default() };
        self.store.progress(by, run, progress, LEASE, self.now()).await.unwrap();
        let outcome = RunResult::Completed { output: json(r#"{"text":"hello"}"#), artifacts: Vec::new() };
        self.store.finish(by, run, outcome, Some(json(r#"{"tokens":3}"#)), None, self.now()).await.unwrap();
        self.store.run(self.tenant, run).await.unwrap()
    }

    async fn stream(&self, run: &RunRecord) -> (i64, Vec<String>) {
        let page = self.store.run_events(self.tenant, run.id, 0, 100).await.unwrap();
        let shown = page.events.iter().map(|event| format!("{} {} {}", event.seq, event.kind, event.data.get()));
        (page.floor, shown.collect())
    }

    async fn log(&self) -> Vec<String> {
        let page = self.store.log(self.tenant, 0, 100).await.unwrap();
        page.rows.iter().map(|row| format!("{} {} {} {}", row.seq, row.actor, row.kind, row.data.get())).collect()
    }
}

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

#[tokio::test]
async fn a_run_leaves_rows_in_the_log_and_events_in_its_stream() {
    let world = World::new().await;
    let run = world.whole_run().await;
    let (agent, runtime) = (world.runtime.agent, world.runtime.id);
    assert_eq!(
        world.log().await,
        [
            r#"1 system tenant.created {"name":"home"}"#.to_owned(),
            format!(r#"2 key:owner agent.created {{"agent_id":"{agent}","name":"builder"}}"#),
            format!(
                r#"3 key:owner pairing.code_created {{"agent_id":"{agent}","expires_at":"2023-11-14T22:23:20.000Z"}}"#
            ),
            format!(
                r#"4 runtime:{runtime} runtime.attached {{"agent_id":"{agent}","runtime_id":"{runtime}","device_name":"laptop"}}"#
            ),
            format!(r#"5 key:owner task.created {{"agent_id":"{agent}","task_type":"prompt"}}"#),
            format!(r#"6 runtime:{runtime} task.claimed {{"runtime_id":"{runtime}","epoch":1,"attempt":1}}"#),
            format!(r#"7 runtime:{runtime} task.completed {{"usage":{{"tokens":3}}}}"#),
        ]
    );
    assert_eq!(
        world.stream(&run).await,
        (
            0,
            vec![
                format!(r#"1 task.created {{"agent_id":"{agent}","task_type":"prompt"}}"#),
                format!(r#"2 task.claimed {{"runtime_id":"{runtime}","epoch":1,"attempt":1}}"#),
                r#"3 task.chunk {"text":"hel"}"#.to_owned(),
                r#"4 task.chunk {"text":"lo"}"#.to_owned(),
                r#"5 task.completed {"output":{"text":"hello"},"usage":{"tokens":3}}"#.to_owned(),
            ]
        )
    );
}

#[tokio::test]
async fn retention_leaves_the_end_of_a_stream_and_says_what_it_took() {
    let world = World::new().await;
    let run = world.whole_run().await;
    let later = world.now().plus(Duration::from_millis(1));
    let keep_the_log = RetentionLimits {
        at: later,
        max_rows: 1000,
        chunks_before: later,
        log_before: Timestamp::default(),
        streams_before: Timestamp::default(),
        channels_before: Timestamp::default(),
        runs_before: Timestamp::default(),
        conversations_before: Timestamp::default(),
        artifacts_before: Timestamp::default(),
        credentials_before: Timestamp::default(),
    };
    world.store.retain(keep_the_log).await.unwrap();
    let end = r#"5 task.completed {"output":{"text":"hello"},"usage":{"tokens":3}}"#.to_owned();
    assert_eq!(world.stream(&run).await, (4, vec![end]));
    assert_eq!(world.log().await.len(), 7);

    let before = world.store.log(world.tenant, 0, 100).await.unwrap();
    world
        .store
        .retain(RetentionLimits {
            at: later,
            max_rows: 1000,
            chunks_before: later,
            log_before: later,
            streams_before: Timestamp::default(),
            channels_before: Timestamp::default(),
            runs_before: Timestamp::default(),
            conversations_before: Timestamp::default(),
            artifacts_before: Timestamp::default(),
            credentials_before: Timestamp::default(),
        })
        .await
        .unwrap();
    assert_eq!(world.stream(&run).await, (5, Vec::new()));
    let after = world.store.log(world.tenant, 0, 100).await.unwrap();
    assert_eq!((after.rows.len(), after.head, after.floor), (1, 8, 7));
    assert_eq!(attache_protocol::digest::hex(&after.floor_hash), before.rows[6].hash);
    let removal = format!(r#"8 system log.removed {{"through":7,"hash":"{}"}}"#, before.rows[6].hash);
    assert_eq!(world.log().await, [removal]);
}

#[tokio::test]
async fn a_stale_epoch_changes_nothing_but_the_log() {
    let world = World::new().await;
    let run = world.create_run().await;
    let claimed = world.store.claim(world.runtime.id, None, Vec::new(), LEASE, world.now()).await.unwrap().unwrap();
    assert_eq!(claimed.agent_instructions.as_deref(), Some("Be brief."));
    let by = WorkerRef { runtime: world.runtime.id, epoch: Some(7) };
    let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
    let refused = world.store.finish(by, run.id, outcome, None, None, world.now()).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { run: shown, .. } if *shown == claimed.run));
    assert_eq!(world.store.run(world.tenant, run.id).await, Ok(claimed.run));
    let refusal = format!(
        r#"7 runtime:{} task.refused {{"task_run_id":"{}","call":"complete","epoch":7}}"#,
        world.runtime.id, run.id
    );
    assert_eq!(world.log().await.last(), Some(&refusal));
}

#[tokio::test]
async fn hints_name_what_moved_and_come_after_the_change() {
    let world = World::new().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&heard);
    world.store.on_wake(Box::new(move |woken| listener.lock().unwrap().extend_from_slice(woken)));
    let take = || std::mem::take(&mut *heard.lock().unwrap());

    let run = world.create_run().await;
    let (tenant, queue) = (WakeHint::Tenant(world.tenant), WakeHint::Queue(world.runtime.agent));
    assert_eq!(take(), [WakeHint::Run(run.id), tenant, queue]);
    world.store.claim(world.runtime.id, None, Vec::new(), LEASE, world.now()).await.unwrap();
    assert_eq!(take(), [WakeHint::Run(run.id), tenant]);
    let by = WorkerRef { runtime: world.runtime.id, epoch: None };
    world.store.release(by, run.id, world.now()).await.unwrap();
    assert_eq!(take(), [WakeHint::Run(run.id), tenant, queue]);
    world.store.claim(world.runtime.id, None, Vec::new(), LEASE, world.now()).await.unwrap();
    assert_eq!(take(), [WakeHint::Run(run.id), tenant]);
    world.store.progress(by, run.id, NewProgress::default(), LEASE, world.now()).await.unwrap();
    assert_eq!(take(), []);
    let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
    world.store.finish(by, run.id, outcome, None, None, world.now()).await.unwrap();
    assert!(take().contains(&WakeHint::Run(run.id)));
    let context = WriteContext::new(world.tenant, "key:owner", world.now());
    world.store.revoke_runtime(context, world.runtime.id).await.unwrap();
    assert_eq!(take(), [tenant, WakeHint::Runtime(world.runtime.agent)]);
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let world = World::new().await;
    world.store.close().await;
    let closed = Error::Internal("the store is closed".to_owned());
    assert_eq!(world.store.ping().await, Err(closed.clone()));
    assert_eq!(world.store.live(world.tenant).await, Err(closed));
}
