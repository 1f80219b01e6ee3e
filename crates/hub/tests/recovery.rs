//! The six states of work on a device, in reads and in lists.

use std::time::Duration;

use attache_protocol::{
    Json,
    secret::SecretHash,
    wire::channel::{PeerRole, Transport},
};
use attache_store::{
    WriteContext,
    record::channel::{ChannelConnection, NewChannel},
};
use serde_json::{Value, json};

use crate::{
    work::ClaimedRunFixture,
    world::{Engine, on_all},
};

on_all! {
    a_run_without_a_device_has_none
    the_six_states_are_distinguished
    over_a_channel_the_connection_decides
}

async fn recovery(work: &ClaimedRunFixture) -> Value {
    let mut read = work.read().await;
    let list = work.world.owner.get("/api/v1/task-runs?status=running").await.expect(200);
    // `waits_for` is only in single reads.
    read.as_object_mut().unwrap().remove("waits_for");
    assert_eq!(list["task_runs"][0], read, "a list says the same");
    read["recovery"].clone()
}

async fn beat(work: &ClaimedRunFixture, body: Value) {
    work.device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", body).await.expect(200);
}

async fn the_six_states_are_distinguished(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    assert_eq!(recovery(&work).await, "remote_running");
    for _ in 0..2 {
        work.world.advance(Duration::from_secs(30));
        work.beat().await;
    }
    assert_eq!(recovery(&work).await, "remote_idle", "it is connected and has said nothing for a minute");
    work.device.client.post(&work.path("/progress"), json!({"chunk": "x"})).await.expect(200);
    assert_eq!(recovery(&work).await, "remote_running");

    let prm = work.pending("shell", json!({})).await;
    assert_eq!(recovery(&work).await, "remote_waiting");
    work.decide(&prm, json!({"approved": true})).await.expect(200);
    assert_eq!(recovery(&work).await, "remote_running");

    beat(&work, json!({"running": [work.run], "unreported": [work.run]})).await;
    assert_eq!(recovery(&work).await, "done_unreconciled");
    work.beat().await;
    assert_eq!(recovery(&work).await, "remote_running");

    work.world.advance(Duration::from_secs(61));
    assert_eq!(recovery(&work).await, "unreachable", "it should have been heard twice by now");
    assert_eq!(work.state().await.0, "running");
    work.beat().await;
    assert_eq!(recovery(&work).await, "remote_idle");
    work.device.client.post(&work.path("/progress"), json!({"chunk": "x"})).await.expect(200);
    assert_eq!(recovery(&work).await, "remote_running");
    work.complete().await.expect(200);

    let mut work = work;
    work.next_run(json!({})).await;
    beat(&work, json!({"running": []})).await;
    assert_eq!(recovery(&work).await, "remote_running", "the list may have been made before the claim arrived");
    work.world.advance(Duration::from_secs(5));
    beat(&work, json!({"running": []})).await;
    assert_eq!(recovery(&work).await, "remote_missing", "the device had time to know of it, and does not");
    work.world.advance(Duration::from_secs(6));
    beat(&work, json!({"running": []})).await;
    let read = work.read().await;
    assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("runtime_lost")));
}

#[tokio::test]
async fn work_done_while_the_hub_was_away_is_accepted() {
    for reports in [true, false] {
        let ClaimedRunFixture { world, device, run } = ClaimedRunFixture::begin(Engine::Sqlite).await;
        let work = ClaimedRunFixture { world: world.away(Duration::from_secs(600)).await, device, run };
        // Many sweeps.
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(work.state().await.0, "running", "the silence was the hub's");
        if reports {
            beat(&work, json!({"running": [], "unreported": [work.run]})).await;
            work.complete().await.expect(200);
        } else {
            work.world.advance(Duration::from_secs(121));
            while work.state().await.0 == "running" {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            assert_eq!(work.read().await["task_result"]["code"], "runtime_lost", "now the silence is its own");
        }
    }
}

#[tokio::test]
async fn a_stalled_hub_blames_no_device() {
    let lease = Duration::from_secs(2);
    for is_suspended in [true, false] {
        let work = ClaimedRunFixture::tuned(Engine::Sqlite, |options| options.heartbeat_timeout = lease).await;
        if is_suspended {
            work.world.env.suspend(10 * lease);
        } else {
            // Time passes while the process stands still.
            work.world.advance(10 * lease);
            std::thread::sleep(lease);
        }
        let until = json!(work.world.env.now().plus(lease));
        let is_judged = |run: &Value| run["status"] != "running" || run["lease_expires_at"] == until;
        let read = work.world.until(&work.path(""), is_judged).await;
        assert_eq!(read["status"], "running", "the silence was the hub's: {read}");
        assert_eq!(work.world.audit("runtime.offline").await.len(), 0, "nobody is away either");
        work.beat().await;
        work.world.advance(lease);
        let lost = work.world.until(&work.path(""), |run| run["status"] != "running").await;
        assert_eq!(lost["task_result"]["code"], "runtime_lost", "now the silence is its own");
    }
}

async fn a_run_without_a_device_has_none(engine: Engine) {
    let work = ClaimedRunFixture::begin(engine).await;
    let pending = work.world.run("builder").await;
    assert_eq!(pending["recovery"], Value::Null);
    work.complete().await.expect(200);
    assert_eq!(work.read().await["recovery"], Value::Null);
}

async fn over_a_channel_the_connection_decides(engine: Engine) {
    let mut work = ClaimedRunFixture::begin(engine).await;
    work.complete().await.expect(200);
    let (store, env) = (work.world.store.clone(), work.world.env.clone());
    let runtime = work.device.runtime.parse().unwrap();
    let tenant = work.world.hub.authenticate_runtime(&work.device.token).await.unwrap().tenant;
    let context = |actor: &str| WriteContext::new(tenant, actor, env.now());
    let channel = NewChannel {
        id: env.channel_id(),
        node: None,
        transport: Transport::Websocket,
        peer_role: PeerRole::Worker,
        account_ref: format!("agent:{}", work.device.agent),
        runtime: Some(runtime),
        capabilities: Json::from_text("[]").unwrap(),
        native_protocol: None,
        tools: Json::from_text("[]").unwrap(),
        device_info: None,
        address: None,
        resume: SecretHash::of("rs_1"),
        running: None,
    };
    let channel = store.open_channel(context("runtime:x"), channel).await.unwrap().id;
    work.run = work.world.run("builder").await["task_run_id"].as_str().unwrap().to_owned();
    let lease = Duration::from_secs(120);
    let connection = ChannelConnection { channel, resume: SecretHash::of("rs_1") };
    let claimed = store.claim(runtime, Some(connection), Vec::new(), lease, env.now()).await.unwrap().unwrap();
    assert_eq!(claimed.run.id.to_string(), work.run);
    assert_eq!(recovery(&work).await, "remote_running");

    store.close_channel(context("system"), channel, "silent").await.unwrap();
    assert_eq!(recovery(&work).await, "unreachable", "at once, without waiting for a heartbeat to be missed");
    assert_eq!(work.state().await.0, "running", "a silent channel changes no run");
    work.world.advance(Duration::from_secs(1));
    work.beat().await;
    assert_eq!(recovery(&work).await, "remote_running", "the device goes on over HTTP");
}

/// 002 has neither lists of runs nor unreported outcomes.
#[tokio::test]
async fn a_device_with_bare_heartbeats_is_judged_by_them() {
    let work = ClaimedRunFixture::begin(Engine::Model).await;
    work.world.agent("plain").await;
    let device = work.world.device("plain").await;
    let run = work.world.run("plain").await["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    let plain = ClaimedRunFixture { world: work.world, device, run };
    assert_eq!(plain.read().await["recovery"], "remote_running", "no heartbeat yet, but it has just claimed");
    beat(&plain, json!({})).await;
    assert_eq!(plain.read().await["recovery"], "remote_running");
    plain.world.advance(Duration::from_secs(61));
    beat(&plain, json!({})).await;
    assert_eq!(plain.read().await["recovery"], "remote_idle");
    plain.world.advance(Duration::from_secs(119));
    assert_eq!(plain.read().await["recovery"], "remote_idle", "nobody said how often it would be heard");
}
