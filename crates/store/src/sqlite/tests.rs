//! Tests that need the engine itself: how much a run writes, that memory follows a rollback, and that older databases
//! open.

use std::time::Duration;

use attache_protocol::{
    AgentId, Json, RunId, RuntimeId, TenantId, UserId,
    digest::unhex,
    env::Env,
    rules::{
        quota::{QuotaAccount, QuotaLimits, Spend, UtcDay},
        run::{self, RunStatus, WorkerRef},
    },
    secret::SecretHash,
    wire::account::{Callers, OnLimit},
};
use tempfile::TempDir;

use super::{SqliteStore, open, writer::UndoMode};
use crate::{
    Error, QuotaStore as _, Store as _, WriteContext,
    record::{
        AgentRef, LiveCounts, NewAccount, NewRun, NewRuntime, Pagination, PairingProof, RunFilter, RunResult, RunSpec,
        RuntimeKind,
        delivery::RunCallback,
        quota::{DailyUsage, QuotaTarget},
    },
};

const LEASE: Duration = Duration::from_secs(30);

/// A store with an agent and its runtime.
struct StoreFixture {
    store: SqliteStore,
    env: Env,
    tenant: TenantId,
    agent: AgentId,
    runtime: RuntimeId,
    _folder: TempDir,
}

// === impl StoreFixture ===

impl StoreFixture {
    async fn make() -> Self {
        let folder = TempDir::new().unwrap();
        let store = SqliteStore::open(&folder.path().join("hub.db")).unwrap();
        let env = Env::seeded(1);
        let tenant = store.ensure_tenant(env.tenant_id(), "home", env.now()).await.unwrap();
        let account = NewAccount {
            id: env.agent_id(),
            name: "builder".to_owned(),
            description: None,
            instructions: None,
            skills: json("[]"),
            a2a: None,
            approvals: None,
            callers: Callers::Everyone,
            run_timeout: None,
            on_limit: OnLimit::default(),
        };
        let agent = store.create_account(WriteContext::new(tenant, "system", env.now()), account).await.unwrap().id;
        let runtime = NewRuntime {
            id: env.runtime_id(),
            kind: RuntimeKind::Device,
            token: SecretHash([1; 32]),
            proof: PairingProof::Owner { tenant, agent },
            paired_by: None,
            device_name: None,
            labels: json("{}"),
        };
        let runtime = store.attach_runtime(runtime, env.now()).await.unwrap().id;
        Self { store, env, tenant, agent, runtime, _folder: folder }
    }

    fn context(&self, user: Option<UserId>) -> WriteContext {
        WriteContext::new(self.tenant, "system", self.env.now()).for_user(user)
    }

    fn run(&self, callback: Option<&str>) -> NewRun {
        NewRun {
            id: self.env.run_id(),
            agent: AgentRef::Id(self.agent),
            conversation: None,
            opens_conversation: false,
            payer: None,
            limits: run::RunLimits { max_attempts: 3, timeout: LEASE * 10, queue_ttl: LEASE * 10 },
            push: None,
            follow: None,
            approval: None,
            idempotency_key: None,
            request_digest: [0; 16],
            spec: RunSpec {
                callback: callback.map(|url| RunCallback { url: url.to_owned(), approvals: false }),
                ..RunSpec::new("chat", json(r#"{"text":"hi"}"#))
            },
        }
    }

    async fn claim(&self) -> RunId {
        self.store.claim(self.runtime, None, Vec::new(), LEASE, self.env.now()).await.unwrap().unwrap().run.id
    }

    fn worker(&self) -> WorkerRef {
        WorkerRef { runtime: self.runtime, epoch: None }
    }

    async fn complete(&self, run: RunId, usage: Option<&str>) {
        let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
        let done = self.store.finish(self.worker(), run, outcome, usage.map(json), self.env.now()).await;
        assert_eq!(done.unwrap(), RunStatus::Completed);
    }

    /// How many rows were written since the database was opened.
    async fn written(&self) -> u64 {
        self.store.write(|transaction| Ok(transaction.connection.total_changes())).await.unwrap()
    }

    /// How many rows a run writes from creation to end.
    async fn rows_of_a_run(&self, user: Option<UserId>, callback: Option<&str>) -> u64 {
        let before = self.written().await;
        self.store.create_run(self.context(user), self.run(callback)).await.unwrap();
        let run = self.claim().await;
        self.complete(run, Some(r#"{"tokens":7,"cost_usd":0.01}"#)).await;
        self.written().await - before
    }

    async fn usage(&self) -> Vec<DailyUsage> {
        self.store.usage(self.tenant, UtcDay(i64::MIN), UtcDay(i64::MAX)).await.unwrap()
    }
}

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

/// Created, claimed, completed: one log row each, plus the run's own. Users and quotas add nothing.
#[tokio::test]
async fn a_run_writes_six_rows_and_one_more_for_its_callback() {
    let desk = StoreFixture::make().await;
    let user = Some(desk.env.user_id());
    assert_eq!(desk.rows_of_a_run(None, None).await, 6);
    assert_eq!(desk.rows_of_a_run(user, None).await, 6);
    let limits = QuotaLimits { calls: Some(10), tokens: Some(1_000_000), micro_usd: None };
    desk.store.set_quota(desk.context(None), QuotaTarget::default(), limits).await.unwrap();
    assert_eq!(desk.rows_of_a_run(user, None).await, 6);
    assert_eq!(desk.rows_of_a_run(user, Some("http://127.0.0.1/")).await, 7);
}

#[tokio::test]
async fn usage_of_a_rolled_back_transaction_is_forgotten() {
    let desk = StoreFixture::make().await;
    let limits = QuotaLimits { calls: Some(10), ..QuotaLimits::default() };
    desk.store.set_quota(desk.context(None), QuotaTarget::default(), limits).await.unwrap();
    desk.rows_of_a_run(None, None).await;
    let account = async || desk.store.quotas(desk.tenant, desk.env.now()).await.unwrap()[0].account;
    let before = account().await;
    let spent = Spend { calls: 1, tokens: 7, micro_usd: 10_000 };
    assert_eq!(before, QuotaAccount { day: UtcDay::of(desk.env.now()), spent, held: Spend::default() });

    let (context, run) = (desk.context(None), desk.run(None));
    let id = run.id;
    let undone: crate::Result<()> = desk
        .store
        .write(move |transaction| {
            transaction.write_usage()?;
            transaction.create_run(context.clone(), run)?;
            transaction.cancel_run(&context, id, None)?;
            Err(Error::Overloaded)
        })
        .await;
    assert_eq!(undone, Err(Error::Overloaded));
    assert_eq!(account().await, before);
    let usage = desk.usage().await;
    assert_eq!(usage.iter().map(|row| (row.calls, row.failed, row.tokens)).collect::<Vec<_>>(), [(1, 0, 7)]);
    // They are stored now, and counted once.
    assert_eq!(desk.usage().await, usage);
}

/// Whether the sums were stored before or after its end, and also after a restart.
#[tokio::test]
async fn late_usage_of_a_cancelled_run_is_counted_once() {
    let desk = StoreFixture::make().await;
    let limits = QuotaLimits { tokens: Some(1000), ..QuotaLimits::default() };
    desk.store.set_quota(desk.context(None), QuotaTarget::default(), limits).await.unwrap();
    for written in [false, true] {
        desk.store.create_run(desk.context(None), desk.run(None)).await.unwrap();
        let run = desk.claim().await;
        desk.store.cancel_run(desk.context(None), run, None).await.unwrap();
        if written {
            desk.usage().await;
        }
        for tokens in [7, 9, 8, 9] {
            let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
            let usage = Some(json(&format!(r#"{{"tokens":{tokens}}}"#)));
            let late = desk.store.finish(desk.worker(), run, outcome, usage, desk.env.now()).await;
            assert!(matches!(late, Err(Error::Refused { refusal: run::RunRefusal::Ended, .. })), "{late:?}");
        }
    }
    let account = |quotas: Vec<crate::record::quota::QuotaRecord>| quotas[0].account.spent;
    let spent = Spend { calls: 2, tokens: 18, micro_usd: 0 };
    assert_eq!(account(desk.store.quotas(desk.tenant, desk.env.now()).await.unwrap()), spent);
    let StoreFixture { store, env, tenant, _folder: folder, .. } = desk;
    drop(store);
    let again = SqliteStore::open(&folder.path().join("hub.db")).unwrap();
    assert_eq!(account(again.quotas(tenant, env.now()).await.unwrap()), spent);
    let usage = again.usage(tenant, UtcDay(i64::MIN), UtcDay(i64::MAX)).await.unwrap();
    assert_eq!(usage.iter().map(|row| (row.calls, row.failed, row.tokens)).collect::<Vec<_>>(), [(2, 2, 18)]);
}

/// Its runs have no users, quotas or callbacks, and their usage isn't summed up.
#[tokio::test]
async fn a_database_of_version_1_opens_with_its_runs() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("hub.db");
    open::of_version_1(&path, include_str!("migrations/version_1_rows.sql"));
    let store = SqliteStore::open(&path).unwrap();
    let env = Env::seeded(1);
    let at = env.now();
    let tenant = store.ensure_tenant(env.tenant_id(), "another", at).await.unwrap();
    let live = store.live(tenant).await.unwrap();
    assert_eq!(live, LiveCounts { pending: 1, running: 1, ..live });
    let limits = QuotaLimits { calls: Some(3), ..QuotaLimits::default() };
    let quota = store.set_quota(WriteContext::new(tenant, "system", at), QuotaTarget::default(), limits).await.unwrap();
    let spent = Spend { calls: 1, tokens: 7, micro_usd: 10_000 };
    let held = Spend { calls: 2, ..Spend::default() };
    assert_eq!(quota.account, QuotaAccount { day: UtcDay::of(at), spent, held });

    let all = Pagination { limit: 9, cursor: None };
    let runs = store.runs(tenant, RunFilter::default(), all).await.unwrap().items;
    let [waits, runs, ended] = runs.try_into().unwrap();
    assert_eq!(
        [&waits, &runs, &ended].map(|run| run.state.status()),
        [RunStatus::Pending, RunStatus::Running, RunStatus::Completed]
    );
    let worker = WorkerRef { runtime: runs.runtime.unwrap(), epoch: Some(1) };
    let claimed = store.claim(worker.runtime, None, Vec::new(), LEASE, at).await.unwrap().unwrap();
    assert_eq!(claimed.run.id, waits.id);
    // Its usage was reported before the upgrade.
    let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
    store.finish(worker, runs.id, outcome, None, at).await.unwrap();
    let row = DailyUsage {
        day: UtcDay::of(at),
        user: None,
        agent: runs.agent,
        calls: 2,
        failed: 0,
        tokens: 12,
        micro_usd: 10_000,
        reported: 1,
        estimated: 0,
        unknown: 1,
        duration_ms: 0,
    };
    assert_eq!(store.usage(tenant, UtcDay::of(at), UtcDay::of(at)).await.unwrap(), [row]);
}

/// A commit with an unknown result: the writer's memory is read from the file again. Here it contains a run that was
/// rolled back, which it couldn't undo itself.
#[tokio::test]
async fn memory_matches_the_file_after_a_failed_commit() {
    let desk = StoreFixture::make().await;
    desk.store.create_run(desk.context(None), desk.run(None)).await.unwrap();
    let (context, run) = (desk.context(None), desk.run(None));
    let lost = run.id;
    let failed = desk
        .store
        .settle(UndoMode::Promise, move |transaction| {
            transaction.create_run(context, run)?;
            transaction.cache.keep();
            transaction.cache.commit();
            // The transaction is already gone when the writer commits.
            transaction.connection.execute_batch("rollback")?;
            Ok(Ok(()))
        })
        .await;
    assert_eq!(failed, Err(Error::Unknown));
    assert_eq!(desk.store.live(desk.tenant).await.unwrap().pending, 1);
    assert_eq!(desk.store.run(desk.tenant, lost).await.unwrap_err(), Error::NotFound);
    // The log continues from the content of the file, without a gap.
    desk.store.create_run(desk.context(None), desk.run(None)).await.unwrap();
    let log = desk.store.log(desk.tenant, 0, 100).await.unwrap();
    let mut hash = log.floor_hash;
    for (row, seq) in log.rows.iter().zip(1..) {
        assert!(row.seq == seq && row.follows(&hash), "{row:?}");
        hash = unhex(&row.hash).unwrap();
    }
    assert_eq!((hash, log.rows.iter().filter(|row| row.run == Some(lost)).count()), (log.head_hash, 0));
}
