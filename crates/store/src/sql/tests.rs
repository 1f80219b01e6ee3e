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
    wire::account::{ApprovalConfirmation, Callers, OnLimit},
};
use tempfile::TempDir;

use super::{SqlStore, open, search, writer::UndoMode};
use crate::{
    Error, QuotaStore as _, Store as _, WriteContext,
    record::{
        AgentRef, ArchivedNames, LiveCounts, NewAccount, NewRun, NewRuntime, Pagination, PairingProof, RunFilter,
        RunResult, RunSpec, RuntimeKind,
        delivery::RunCallback,
        quota::{DailyUsage, QuotaTarget},
    },
    search::NameMatches,
};

const LEASE: Duration = Duration::from_secs(30);

/// A store with an agent and its runtime.
struct StoreFixture {
    store: SqlStore,
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
        let store = SqlStore::open(&folder.path().join("hub.db")).unwrap();
        let env = Env::seeded(1);
        let tenant = store.ensure_tenant(env.tenant_id(), "home", env.now()).await.unwrap();
        let account = NewAccount {
            archived_names: ArchivedNames::Own,
            author: None,
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
            confirm_approvals: ApprovalConfirmation::default(),
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
        let done = self.store.finish(self.worker(), run, outcome, usage.map(json), None, self.env.now()).await;
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
            let late = desk.store.finish(desk.worker(), run, outcome, usage, None, desk.env.now()).await;
            assert!(matches!(late, Err(Error::Refused { refusal: run::RunRefusal::Ended, .. })), "{late:?}");
        }
    }
    let account = |quotas: Vec<crate::record::quota::QuotaRecord>| quotas[0].account.spent;
    let spent = Spend { calls: 2, tokens: 18, micro_usd: 0 };
    assert_eq!(account(desk.store.quotas(desk.tenant, desk.env.now()).await.unwrap()), spent);
    let StoreFixture { store, env, tenant, _folder: folder, .. } = desk;
    drop(store);
    let again = SqlStore::open(&folder.path().join("hub.db")).unwrap();
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
    let store = SqlStore::open(&path).unwrap();
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
    store.finish(worker, runs.id, outcome, None, None, at).await.unwrap();
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

async fn found(store: &SqlStore, tenant: TenantId, filter: RunFilter) -> Vec<RunId> {
    let all = Pagination { limit: 1_000, cursor: None };
    store.runs(tenant, filter, all).await.unwrap().items.into_iter().map(|run| run.id).collect()
}

/// How many runs the index has for the words, without those that a list reads from the table.
async fn indexed(store: &SqlStore, words: &'static str) -> i64 {
    let filter = RunFilter { text: Some(words.to_owned()), ..RunFilter::default() };
    let query = search::query(&filter, &NameMatches::default()).unwrap();
    let count = "select count(*) from run_search where run_search match ?1";
    store.read(move |connection| Ok(connection.query_row(count, [query], |row| row.get(0))?)).await.unwrap()
}

#[tokio::test]
async fn a_search_finds_the_same_before_and_after_a_run_is_indexed_until_it_is_removed() {
    let desk = StoreFixture::make().await;
    let tasks = ["Fix the login page", "修复登录页面", "ok", "100% \"done\" OR NOT*"];
    let mut made = Vec::new();
    for task in tasks {
        let mut new = desk.run(None);
        new.spec.input = Json::of(&std::collections::BTreeMap::from([("text", task)]));
        made.push(new.id);
        desk.store.create_run(desk.context(None), new).await.unwrap();
    }
    let id = made[0].to_string();
    let searches = [
        ("login", vec![made[0]]),
        ("登录", vec![made[1]]),
        ("复", vec![made[1]]),
        ("o", vec![made[3], made[2], made[0]]),
        ("ok", vec![made[2]]),
        ("\"done\" or not*", vec![made[3]]),
        ("logins", vec![]),
        ("登陆", vec![]),
        (&id[id.len() - 9..], vec![made[0]]),
        ("builde", made.iter().rev().copied().collect()),
    ];
    for is_indexed in [false, true] {
        assert_eq!(indexed(&desk.store, "login").await, i64::from(is_indexed));
        for (words, wanted) in &searches {
            let filter = RunFilter { text: Some((*words).to_owned()), ..RunFilter::default() };
            let mut found = found(&desk.store, desk.tenant, filter).await;
            if *words == "o" {
                // Ids and the caller may have one, too.
                found.retain(|run| wanted.contains(run));
            }
            assert_eq!(&found, wanted, "{words} {is_indexed}");
        }
        desk.store.sweep(LEASE, desk.env.now()).await.unwrap();
    }
    // The newest: its row number is used again.
    for (run, text) in [(made[3], "not"), (made[0], "login")] {
        desk.store.cancel_run(desk.context(None), run, None).await.unwrap();
        desk.store.delete_run(desk.context(None), run).await.unwrap();
        assert_eq!(indexed(&desk.store, text).await, 0, "{text}");
    }
    let mut again = desk.run(None);
    again.spec.input = json(r#"{"text":"another"}"#);
    desk.store.create_run(desk.context(None), again).await.unwrap();
    desk.store.sweep(LEASE, desk.env.now()).await.unwrap();
    assert_eq!((indexed(&desk.store, "another").await, indexed(&desk.store, "not").await), (1, 1));
}

/// More runs than one step takes.
#[tokio::test]
async fn a_sweep_indexes_what_a_burst_left_behind() {
    let desk = StoreFixture::make().await;
    for _ in 0..700 {
        desk.store.create_run(desk.context(None), desk.run(None)).await.unwrap();
    }
    desk.store.sweep(LEASE, desk.env.now()).await.unwrap();
    assert_eq!(desk.store.read(search::next_unindexed).await.unwrap(), None);
    assert_eq!(indexed(&desk.store, "run_").await, 700);
}

#[tokio::test]
async fn an_older_database_is_searched_before_and_after_it_is_indexed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("hub.db");
    open::of_version_1(&path, include_str!("migrations/version_1_rows.sql"));
    let store = SqlStore::open(&path).unwrap();
    let env = Env::seeded(1);
    let tenant = store.ensure_tenant(env.tenant_id(), "another", env.now()).await.unwrap();
    for _ in 0..2 {
        let text = RunFilter { text: Some("hi".to_owned()), ..RunFilter::default() };
        assert_eq!(found(&store, tenant, text).await.len(), 3);
        for (least, count) in [(10_000, 1), (10_001, 0)] {
            let cost = RunFilter { min_micro_usd: Some(least), ..RunFilter::default() };
            assert_eq!(found(&store, tenant, cost).await.len(), count);
        }
        let at = env.now();
        let periods = [(Some(at), None, 3), (None, Some(at), 0), (Some(at.plus(LEASE)), None, 0)];
        for (since, before, count) in periods {
            let period = RunFilter { since, before, ..RunFilter::default() };
            assert_eq!(found(&store, tenant, period).await.len(), count);
        }
        store.sweep(LEASE, env.now()).await.unwrap();
    }
}

/// 100,000 runs with `ATTACHE_LONG=1`, fewer otherwise.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "`./test --long` asks for more through the environment")]
#[allow(clippy::print_stdout, reason = "this is a measurement, too")]
async fn a_search_over_many_runs_is_quick() {
    const WORDS: [&str; 12] =
        ["fix", "the", "login", "page", "parser", "deploy", "release", "notes", "write", "flaky", "修复", "登录页面"];
    let desk = StoreFixture::make().await;
    let count = if std::env::var_os("ATTACHE_LONG").is_some() { 100_000 } else { 3_000 };
    let mut made = 0_usize;
    while made < count {
        let batch: Vec<NewRun> = (made..made + 500)
            .map(|number| {
                let word = |place: usize| WORDS[(number * (place + 3) + number / 7 + place) % WORDS.len()];
                let mut text: Vec<&str> = (0..12).map(word).collect();
                if number == 17 {
                    text.push("needle");
                }
                let mut new = desk.run(None);
                new.spec.input = Json::of(&serde_json::json!({ "text": text.join(" ") }));
                new
            })
            .collect();
        made += batch.len();
        let context = desk.context(None);
        let create = move |transaction: &mut super::writer::WriteTransaction<'_, '_>| {
            for new in batch {
                transaction.create_run(context.clone(), new)?;
            }
            Ok(())
        };
        desk.store.write(create).await.unwrap();
    }
    let begun = std::time::Instant::now();
    while desk.store.read(search::next_unindexed).await.unwrap().is_some() {
        desk.store.sweep(LEASE, desk.env.now()).await.unwrap();
    }
    println!("{count} runs were indexed in {:?}", begun.elapsed());
    for (words, is_rare) in [
        ("needle", true),
        ("no such words", true),
        ("登录", false),
        ("修", false),
        ("login page", false),
        ("e", false),
        ("zq", true),
    ] {
        let filter = RunFilter { text: Some(words.to_owned()), ..RunFilter::default() };
        let begun = std::time::Instant::now();
        let page = Pagination { limit: 50, cursor: None };
        let found = desk.store.runs(desk.tenant, filter, page).await.unwrap().items.len();
        let took = begun.elapsed();
        println!("{words:?}: {found} in {took:?}");
        assert_eq!(found, if is_rare { usize::from(words == "needle") } else { 50 }, "{words}");
        assert!(took < Duration::from_millis(200), "{words} took {took:?}");
    }
}
