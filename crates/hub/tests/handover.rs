//! The secrets of a START: only the runtime that holds the run receives them, over HTTP and over its channel.

use std::time::{Duration, Instant};

use attache_protocol::wire::awcp;
use attache_store::record::shared_value::SharedValueKind;
use serde_json::{Value, json};

use crate::{
    channel::peer::{TestPeer, WS, read_run, register_agent},
    world::{Engine, PATIENCE, TestCaller, TestDevice, World, on_all},
};

on_all! {
    a_device_receives_the_secrets_over_http_while_it_holds_the_run
    one_run_does_not_fill_the_room_of_all_delegations
}

pub const KEY: &str = "planted-private-key-0123456789";
const TOKEN: &str = "planted-tunnel-token-0123456789";

fn start(key: &str, token: &str) -> Value {
    json!([{"text": "go"}, {"data": {"awcp": {"version": "1", "type": "START", "delegation_id": "dlg_1", "mount": {
        "credential": {"type": "private_key", "private_key": key},
        "endpoint": {"host": "h", "port": 22, "user": "lease", "tunnel": {"url": "wss://h/t", "token": token}},
    }}}}])
}

pub fn in_full() -> Value {
    start(KEY, TOKEN)
}

fn hidden() -> Value {
    start("***", "***")
}

/// What a runtime declares that accepts folders.
fn accepts_folders() -> Value {
    json!({"extensions": [{"uri": awcp::EXTENSION}]})
}

/// A run of a delegation to this agent, whose device says that it accepts folders.
pub async fn delegation(world: &World, device: &TestCaller, agent: &str) -> String {
    device.post("/api/v1/agent-runtimes/runtime/heartbeat", accepts_folders()).await.expect(200);
    delegation_run(world, agent).await
}

async fn delegation_run(world: &World, agent: &str) -> String {
    let body = json!({"agent_id": agent, "task_type": awcp::TASK_TYPE});
    let run = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    run["task_run_id"].as_str().unwrap().to_owned()
}

async fn wait_for_input(world: &World, id: &str) {
    while read_run(world, id).await["waiting"] != "input" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A device that asked for START and received it: the run, and the path of the answer.
async fn given(world: &World) -> (TestDevice, String, String) {
    world.agent("builder").await;
    let device = world.device("builder").await;
    let id = delegation(world, &device.client, "builder").await;
    device.claim().await;
    let path = format!("/api/v1/task-runs/{id}/input");
    let asked = json!({"epoch": 1, "prompt": "START?"});
    let asked = device.client.post(&format!("{path}-requests"), asked).await.expect(201);
    world.owner.post(&path, json!({"parts": in_full()})).await.expect(200);
    let answer = format!("{path}-requests/{}", asked["input_request_id"].as_str().unwrap());
    (device, id, answer)
}

#[tokio::test]
async fn a_worker_receives_the_secrets_over_its_channel() {
    let world = World::on_sqlite().await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    peer.register(accepts_folders()).await;
    let id = delegation_run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let ask = json!({"action": "require_input", "task_run_id": id, "epoch": 1, "prompt": "START?"});
    let frame = peer.frame("request", ask);
    peer.send(&frame).await;
    wait_for_input(&world, &id).await;
    let path = format!("/api/v1/task-runs/{id}/input");
    world.owner.post(&path, json!({"parts": in_full()})).await.expect(200);
    assert_eq!(peer.find_action("require_input").await["payload"]["parts"], in_full());
    // The same as unsolicited input.
    world.owner.post(&path, json!({"parts": in_full()})).await.expect(200);
    assert_eq!(peer.find_action("input").await["payload"]["parts"], in_full());

    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events?after=0")).await.expect(200);
    let received = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "task.input_received");
    let received: Vec<_> = received.map(|event| event["data"]["parts"].clone()).collect();
    assert_eq!(received, [hidden(), hidden()]);
    let everything = world.owner.get("/api/v1/audit?after=0&limit=200").await;
    let everything = String::from_utf8_lossy(&everything.body).into_owned();
    let database = std::fs::read(world.data.path().join("hub.db")).unwrap();
    let journal = std::fs::read(world.data.path().join("hub.db-wal")).unwrap_or_default();
    for secret in [KEY, TOKEN] {
        assert!(!everything.contains(secret));
        for bytes in [&database, &journal] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
}

async fn a_device_receives_the_secrets_over_http_while_it_holds_the_run(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    let (device, id, answer) = given(&world).await;
    for _ in 0..2 {
        assert_eq!(
            device.client.get(&answer).await.expect(200)["parts"],
            in_full(),
            "an answer may be lost on its way"
        );
    }
    world.advance(Duration::from_secs(31));
    assert_eq!(device.client.get(&answer).await.expect(200)["parts"], hidden(), "and is handed over once");
    let twice = r#"{"parts":[{"data":{"awcp":{"mount":{"credential":{"private_key":"a","private_key":"b"}}}}}]}"#;
    let caller = world.owner.with("content-type", "application/json");
    let refused = caller.call(hyper::Method::POST, &format!("/api/v1/task-runs/{id}/input"), twice).await;
    assert_eq!(refused.refusal(), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn a_restart_loses_no_secrets_and_the_end_of_the_run_removes_them() {
    let world = World::timed(Engine::Sqlite, |_| {}).await;
    let (device, id, answer) = given(&world).await;
    let world = world.restart().await;
    assert_eq!(device.client.get(&answer).await.expect(200)["parts"], in_full());
    let path = format!("/api/v1/task-runs/{id}/complete");
    device.client.post(&path, json!({"epoch": 1, "output": {"text": "nine"}})).await.expect(200);
    // Its time hasn't come yet: the clock stands still.
    let kept = async || world.store.value_holders(SharedValueKind::StartSecrets, world.env.now()).await.unwrap();
    let begun = Instant::now();
    while !kept().await.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "they are never removed");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// What is kept of the secrets can't be read without the hub's key.
#[tokio::test]
async fn secrets_that_wait_are_encrypted() {
    let world = World::on_sqlite().await;
    let (_device, id, _) = given(&world).await;
    let now = world.env.now();
    let kept = world.store.shared_values(SharedValueKind::StartSecrets, now).await.unwrap();
    assert_eq!(kept.iter().map(|value| value.holder.as_str()).collect::<Vec<_>>(), [id]);
    let database = std::fs::read(world.data.path().join("hub.db")).unwrap();
    let journal = std::fs::read(world.data.path().join("hub.db-wal")).unwrap_or_default();
    for secret in [KEY, TOKEN] {
        for bytes in [&database, &journal] {
            assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()));
        }
    }
}

#[tokio::test]
async fn another_channel_of_the_agent_receives_no_secrets() {
    let world = World::start().await;
    let (_device, _, answer) = given(&world).await;
    // A newer device of the same agent takes over, and the older one loses the run.
    let newer = world.device("builder").await;
    let reply = newer.client.get(&answer).await;
    let body = String::from_utf8_lossy(&reply.body).into_owned();
    assert!(!body.contains(KEY) && !body.contains(TOKEN), "{body}");
}

/// Secrets of an ordinary run are stored nowhere, and a delegation's own older ones give way.
async fn one_run_does_not_fill_the_room_of_all_delegations(engine: Engine) {
    let world = World::timed(engine, |_| {}).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let kept = async || world.store.shared_values(SharedValueKind::StartSecrets, world.env.now()).await.unwrap();
    let send = async |id: &str, number: usize| {
        let parts = json!([{"text": number.to_string()}, in_full()[1]]);
        world.owner.post(&format!("/api/v1/task-runs/{id}/input"), json!({"parts": parts})).await.expect(200);
    };
    let ordinary = world.run("builder").await["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    send(&ordinary, 0).await;
    assert_eq!(kept().await, []);
    let events = world.owner.get(&format!("/api/v1/task-runs/{ordinary}/events?after=0")).await.expect(200).to_string();
    assert!(events.contains("***") && !events.contains(KEY) && !events.contains(TOKEN), "{events}");
    let path = format!("/api/v1/task-runs/{ordinary}/complete");
    device.client.post(&path, json!({"epoch": 1, "output": {}})).await.expect(200);

    let delegation = delegation(&world, &device.client, "builder").await;
    device.claim().await;
    for number in 0..6 {
        send(&delegation, number).await;
    }
    assert_eq!(kept().await.iter().map(|value| value.holder.as_str()).collect::<Vec<_>>(), [delegation.as_str(); 4]);
}
