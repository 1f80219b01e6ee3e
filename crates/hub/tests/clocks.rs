//! Clocks that are set briefly or permanently: no log is erased, no idempotency key is lost, and no run fails.

use std::time::Duration;

use attache_hub::Options;
use hyper::Method;
use serde_json::{Value, json};

use crate::world::{Engine, World, on_all};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

on_all! {
    a_clock_that_is_set_changes_nothing
    elapsed_time_expires_keys_and_log_rows
}

/// With retention at every sweep.
fn eager(options: &mut Options) {
    options.retain_every = Duration::ZERO;
}

/// A request with an idempotency key: the status and the run.
async fn keyed(world: &World) -> (u16, Value) {
    let body = json!({"agent_id": "builder", "input": {"text": "x"}, "idempotency_key": "one"});
    let reply = world.owner.call(Method::POST, "/api/v1/task-runs", body.to_string()).await;
    (reply.status, reply.json()["task_run_id"].clone())
}

/// Waits until sweeps have observed that this much time passed.
async fn passes(world: &World, by: Duration) {
    let goal = world.env.now().plus(by).minus(Duration::from_secs(60));
    world.advance(by);
    while world.store.clock().await.unwrap().is_none_or(|clock| clock < goal) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn floor(world: &World) -> Value {
    world.owner.get("/api/v1/audit?after=0&limit=1").await.expect(200)["floor"].clone()
}

async fn a_clock_that_is_set_changes_nothing(engine: Engine) {
    for by in [401 * DAY_MS, 25 * DAY_MS / 24, DAY_MS / 24, -DAY_MS / 24] {
        let world = World::timed(engine, eager).await;
        world.agent("builder").await;
        let device = world.device("builder").await;
        let (status, run) = keyed(&world).await;
        assert_eq!(status, 201);
        device.claim().await;
        passes(&world, Duration::from_secs(30)).await;
        world.env.set_clock(by);
        passes(&world, Duration::from_secs(50)).await;
        world.env.set_clock(-by);
        passes(&world, Duration::from_secs(30)).await;
        assert_eq!(floor(&world).await, 0, "every row of the log is there");
        assert_eq!(keyed(&world).await, (200, run.clone()), "the key stands for the same run");
        let read = world.owner.get(&format!("/api/v1/task-runs/{}", run.as_str().unwrap())).await.expect(200);
        assert_eq!(read["status"], "running");
    }
}

async fn elapsed_time_expires_keys_and_log_rows(engine: Engine) {
    let world = World::timed(engine, |options| {
        eager(options);
        options.keep_log = 2 * DAY;
        options.clock_step = 10 * DAY;
    })
    .await;
    world.agent("builder").await;
    let (status, run) = keyed(&world).await;
    assert_eq!(status, 201);
    passes(&world, DAY / 2).await;
    assert_eq!(keyed(&world).await, (200, run.clone()));
    passes(&world, DAY).await;
    let (status, second) = keyed(&world).await;
    assert!(status == 201 && second != run, "a key lives for a day");
    passes(&world, 3 * DAY).await;
    while floor(&world).await == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_hub_that_starts_with_a_wrong_clock_removes_nothing() {
    let world = World::timed(Engine::Sqlite, eager).await;
    world.agent("builder").await;
    let (_, run) = keyed(&world).await;
    passes(&world, Duration::from_secs(60)).await;
    // It can't be known whether it was off for so long or its clock is wrong.
    let before = world.store.clock().await.unwrap().unwrap();
    let world = world.away(401 * DAY).await;
    // Each sweep advances the retention clock by at most a minute.
    while world.store.clock().await.unwrap().is_none_or(|clock| clock < before.plus(Duration::from_secs(600))) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(floor(&world).await, 0);
    assert_eq!(keyed(&world).await, (200, run));
}

#[tokio::test]
async fn a_hub_whose_clock_went_back_continues_from_its_last_time() {
    let world = World::timed(Engine::Sqlite, eager).await;
    world.agent("builder").await;
    passes(&world, Duration::from_secs(600)).await;
    let before = world.env.now();
    world.env.set_clock(-365 * DAY_MS);
    let world = world.restart().await;
    world.agent("second").await;
    let rows = world.owner.get("/api/v1/audit?after=0&limit=200").await.expect(200)["events"].clone();
    let times: Vec<String> =
        rows.as_array().unwrap().iter().map(|row| row["at"].as_str().unwrap().to_owned()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(world.env.now() >= before);
}
