//! Several stores that write to one PostgreSQL database: each reads only what the others changed, and hears of it at once.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use attache_protocol::{
    AgentId, Json, RuntimeId, TenantId,
    env::Env,
    rules::run::{RunLimits, WorkerRef},
    secret::SecretHash,
    wire::account::{ApprovalConfirmation, Callers, OnLimit},
};
use attache_store::{
    Error, Store, WakeHint, WriteContext,
    conformance::postgres_server::TestPostgresServer,
    record::{AgentRef, ArchivedNames, NewAccount, NewRun, NewRuntime, PairingProof, RunResult, RunSpec, RuntimeKind},
    sql::SqlStore,
};
use futures_util::future::join_all;
use tokio::time::sleep;

use crate::postgres::connect;

const LEASE: Duration = Duration::from_secs(30);
/// How long a wake-up may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two stores on one database, with an agent and its runtime.
struct TwoWriters {
    server: TestPostgresServer,
    one: SqlStore,
    two: SqlStore,
    env: Env,
    tenant: TenantId,
    agent: AgentId,
    runtime: RuntimeId,
}

/// What a store's listener was told.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<WakeHint>>>);

// === impl TwoWriters ===

impl TwoWriters {
    /// `None` where PostgreSQL isn't installed.
    async fn start() -> Option<Self> {
        let server = TestPostgresServer::start()?;
        let url = server.create_database("hub");
        let (one, two) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
        let env = Env::seeded(1);
        let tenant = one.ensure_tenant(env.tenant_id(), "home", env.now()).await.unwrap();
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
        let agent = one.create_account(WriteContext::new(tenant, "system", env.now()), account).await.unwrap().id;
        let runtime = NewRuntime {
            id: env.runtime_id(),
            kind: RuntimeKind::Device,
            token: SecretHash([1; 32]),
            proof: PairingProof::Owner { tenant, agent },
            paired_by: None,
            device_name: None,
            labels: json("{}"),
        };
        let runtime = one.attach_runtime(runtime, env.now()).await.unwrap().id;
        Some(Self { server, one, two, env, tenant, agent, runtime })
    }

    fn context(&self) -> WriteContext {
        WriteContext::new(self.tenant, "system", self.env.now())
    }

    /// Its id is also its idempotency key.
    fn new_run(&self) -> NewRun {
        let id = self.env.run_id();
        NewRun {
            id,
            agent: AgentRef::Id(self.agent),
            conversation: None,
            opens_conversation: false,
            payer: None,
            limits: RunLimits { max_attempts: 3, timeout: LEASE * 10, queue_ttl: LEASE * 10 },
            push: None,
            follow: None,
            approval: None,
            idempotency_key: Some(*id.uuid().as_bytes()),
            request_digest: [0; 16],
            spec: RunSpec::new("chat", json(r#"{"text":"hi"}"#)),
        }
    }

    async fn create_run(&self, by: &SqlStore) {
        by.create_run(self.context(), self.new_run()).await.unwrap();
    }

    /// Claims the next run with one store and completes it with the other.
    async fn work_off_a_run(&self) {
        let claimed = self.one.claim(self.runtime, None, Vec::new(), LEASE, self.env.now()).await.unwrap().unwrap();
        let by = WorkerRef { runtime: self.runtime, epoch: None };
        let outcome = RunResult::Completed { output: json("{}"), artifacts: Vec::new() };
        self.two.finish(by, claimed.run.id, outcome, None, None, self.env.now()).await.unwrap();
    }

    /// Wakes whoever waits for a tenant that nobody else ever wakes.
    async fn wake(&self, by: &SqlStore) -> WakeHint {
        let tenant = self.env.tenant_id();
        by.create_tenant(tenant, "another", self.env.now()).await.unwrap();
        WakeHint::Tenant(tenant)
    }

    /// Waits until a store listens.
    async fn until_heard(&self, by: &SqlStore, listener: &Heard) {
        let begun = Instant::now();
        loop {
            let hint = self.wake(by).await;
            sleep(Duration::from_millis(50)).await;
            if listener.count(hint) > 0 {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing was heard");
        }
    }

    /// How often each store has read everything it remembers.
    fn memory_reads(&self) -> [u64; 2] {
        [&self.one, &self.two].map(|store| store.measures().unwrap().memory_reads())
    }

    async fn assert_nothing_is_stale(&self) {
        for store in [&self.one, &self.two] {
            assert_eq!(store.stale_memory().await.unwrap(), None);
        }
    }
}

// === impl Heard ===

impl Heard {
    fn by(store: &SqlStore) -> Self {
        let heard = Self::default();
        let told = heard.clone();
        store.on_wake(Box::new(move |woken| told.0.lock().unwrap().extend_from_slice(woken)));
        heard
    }

    fn count(&self, hint: WakeHint) -> usize {
        self.0.lock().unwrap().iter().filter(|heard| **heard == hint).count()
    }

    fn forget(&self) {
        self.0.lock().unwrap().clear();
    }
}

fn json(text: &str) -> Json {
    Json::from_text(text).unwrap()
}

async fn until(what: &str, is_done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_done() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// What is refused was decided after others in the same transaction had written, whose answers may still be on their way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_write_takes_none_of_the_others_with_it() {
    let Some(desk) = TwoWriters::start().await else { return };
    let known = desk.new_run();
    desk.one.create_run(desk.context(), known.clone()).await.unwrap();
    let reused = || NewRun { id: desk.env.run_id(), request_digest: [1; 16], ..known.clone() };
    for round in 1..=40 {
        // The last statement of an advance is one that nobody waits for.
        let at = desk.env.now().plus(Duration::from_millis(round));
        let accepted = join_all((0..8).map(|_| desk.one.advance_clock(LEASE, at)));
        let refused = join_all((0..8).map(|_| desk.one.create_run(desk.context(), reused())));
        let (accepted, refused) = tokio::join!(accepted, refused);
        let lost: Vec<_> = accepted.into_iter().filter_map(Result::err).collect();
        assert!(lost.is_empty(), "{lost:?}");
        for refused in refused {
            assert!(matches!(refused, Err(Error::KeyReused)), "{refused:?}");
        }
    }
}

#[tokio::test]
async fn a_turn_that_passes_reads_what_changed_and_everything_only_if_that_is_unknown() {
    let Some(writers) = TwoWriters::start().await else { return };
    writers.create_run(&writers.two).await;
    // Each read everything with its first turn.
    let begun = writers.memory_reads();
    for _ in 0..5 {
        writers.create_run(&writers.one).await;
        writers.create_run(&writers.two).await;
        writers.work_off_a_run().await;
    }
    writers.assert_nothing_is_stale().await;
    assert_eq!(writers.memory_reads(), begun);

    // What the other one did is no longer listed, and after that a list isn't understood.
    for gap in ["delete from writer_changes", r#"insert into writer_changes (changes) values ('{"leases":[1]}')"#] {
        let before = writers.memory_reads();
        writers.create_run(&writers.one).await;
        writers.work_off_a_run().await;
        writers.server.psql("hub", gap);
        writers.assert_nothing_is_stale().await;
        assert_eq!(writers.memory_reads(), before.map(|reads| reads + 1), "{gap}");
        writers.work_off_a_run().await;
        writers.assert_nothing_is_stale().await;
        assert_eq!(writers.memory_reads(), before.map(|reads| reads + 1), "{gap}");
    }
}

/// A transaction that isn't kept neither loses what others did before nor tells them anything.
#[tokio::test]
async fn a_failed_write_between_others_leaves_every_memory_right() {
    let Some(writers) = TwoWriters::start().await else { return };
    for _ in 0..3 {
        writers.create_run(&writers.one).await;
        let unknown = writers.env.run_id();
        assert!(writers.two.cancel_run(writers.context(), unknown, None).await.is_err());
        writers.assert_nothing_is_stale().await;
        writers.work_off_a_run().await;
    }
    writers.assert_nothing_is_stale().await;
}

/// Without the list, the other store would look for a run that is gone.
#[tokio::test]
async fn a_key_of_a_deleted_run_is_forgotten_by_every_store() {
    let Some(writers) = TwoWriters::start().await else { return };
    let new = writers.new_run();
    writers.one.create_run(writers.context(), new.clone()).await.unwrap();
    writers.assert_nothing_is_stale().await;
    writers.one.cancel_run(writers.context(), new.id, None).await.unwrap();
    writers.one.delete_run(writers.context(), new.id).await.unwrap();
    for store in [&writers.two, &writers.one] {
        let again = NewRun { id: writers.env.run_id(), ..new.clone() };
        assert_eq!(store.create_run(writers.context(), again).await.unwrap_err(), Error::RunDeleted);
    }
    writers.assert_nothing_is_stale().await;
}

#[tokio::test]
async fn a_commit_wakes_the_other_store_and_its_own_only_once() {
    let Some(writers) = TwoWriters::start().await else { return };
    let (one, two) = (Heard::by(&writers.one), Heard::by(&writers.two));
    writers.until_heard(&writers.one, &two).await;
    writers.until_heard(&writers.two, &one).await;

    let first = writers.wake(&writers.one).await;
    until("the other store hears of it", || two.count(first) > 0).await;
    // Notifications arrive in order: with this one, its own would have arrived, too.
    let second = writers.wake(&writers.two).await;
    until("the first store hears of the other one", || one.count(second) > 0).await;
    let third = writers.wake(&writers.one).await;
    until("the other store hears again", || two.count(third) > 0).await;
    for hint in [first, second] {
        assert_eq!((one.count(hint), two.count(hint)), (1, 1));
    }
}

#[tokio::test]
async fn a_lost_listener_wakes_everything_once_and_listens_again() {
    let Some(writers) = TwoWriters::start().await else { return };
    let two = Heard::by(&writers.two);
    writers.until_heard(&writers.one, &two).await;
    two.forget();
    let lost = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'attache listener'";
    writers.server.psql("hub", lost);
    until("everything is woken", || two.count(WakeHint::Everything) > 0).await;
    writers.until_heard(&writers.one, &two).await;
    assert_eq!(two.count(WakeHint::Everything), 1);
}

/// 20,000 runs with `ATTACHE_LONG=1`, fewer otherwise.
#[tokio::test]
#[allow(clippy::disallowed_methods, reason = "`./test --long` asks for more through the environment")]
#[allow(clippy::print_stdout, reason = "this is a measurement, too")]
async fn a_turn_that_passes_costs_less_than_reading_everything() {
    const TURNS: u32 = 20;
    let Some(writers) = TwoWriters::start().await else { return };
    let count = if std::env::var_os("ATTACHE_LONG").is_some() { 20_000 } else { 2_000 };
    for _ in 0..count / 500 {
        join_all((0..500).map(|_| writers.create_run(&writers.one))).await;
    }
    writers.create_run(&writers.two).await;
    let mut took = [Duration::ZERO; 3];
    for (case, took) in took.iter_mut().enumerate() {
        for _ in 0..TURNS {
            writers.create_run(&writers.two).await;
            match case {
                0 => writers.create_run(&writers.one).await,
                1 => {}
                _ => drop(writers.server.psql("hub", "delete from writer_changes")),
            }
            let begun = Instant::now();
            writers.create_run(&writers.one).await;
            *took += begun.elapsed();
        }
        *took /= TURNS;
    }
    let [own, passed, unknown] = took;
    println!(
        "{count} runs: a turn after one's own {own:?}, after another's {passed:?}, reading everything {unknown:?}"
    );
}
