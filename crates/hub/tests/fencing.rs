//! Replaced or revoked runtimes and revoked keys are rejected immediately, also on open streams.

use std::time::Duration;

use attache_hub::Options;
use serde_json::json;

use crate::{life::wait_for_connections, world::World};

/// No polling and no cache expiry: everything must be pushed.
fn told(options: &mut Options) {
    options.poll_every = Duration::from_secs(3600);
    options.credential_ttl = Duration::from_secs(3600);
}

#[tokio::test]
async fn a_superseded_runtime_is_cut_off_everywhere() {
    let world = World::tuned(told).await;
    world.agent("builder").await;
    let old = world.device("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    old.claim().await;
    let mut stream = old.client.follow(&format!("{path}/events?after=2")).await;
    let client = old.client.clone();
    let pull = format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms=30000", old.agent);
    let waiting = tokio::spawn(async move { client.post(&pull, json!({})).await });
    wait_for_connections(&world, 2).await;

    let new = world.device("builder").await;
    assert_eq!(waiting.await.unwrap().refusal(), (401, "runtime_superseded".to_owned()));
    // The loss of the claim may still be reported, but nothing after it.
    while let Some(event) = stream.next().await {
        assert_eq!(event.event, "task.failed");
    }
    for call in ["progress", "complete", "fail", "release"] {
        let body = json!({"epoch": 1, "output": {"text": "x", "error": "x"}});
        let reply = old.client.post(&format!("{path}/{call}"), body).await;
        assert_eq!(reply.refusal(), (401, "runtime_superseded".to_owned()), "{call}");
    }
    let message = old.client.get(&path).await.json()["error"]["message"].as_str().unwrap().to_owned();
    assert_eq!(message, "Another device was paired with this agent, so this one no longer works for it.");
    assert_eq!(new.pull(0).await.status, 200);
    let read = world.owner.get(&path).await.expect(200);
    assert_eq!((&read["status"], &read["task_result"]["code"]), (&json!("failed"), &json!("runtime_lost")));
}

#[tokio::test]
async fn a_revoked_runtime_is_cut_off_everywhere() {
    let world = World::tuned(told).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}/events?after=2", created["task_run_id"].as_str().unwrap());
    device.claim().await;
    let mut stream = device.client.follow(&path).await;
    let revoked = world.owner.delete(&format!("/api/v1/agent-runtimes/{}", device.runtime)).await.expect(200);
    assert_eq!(revoked["state"], "revoked");
    while stream.next().await.is_some() {}
    let beat = device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", json!({})).await;
    assert_eq!(beat.refusal(), (401, "runtime_revoked".to_owned()));
    assert!(beat.json()["error"]["hint"].as_str().unwrap().contains("new pairing code for the same agent"));
}

#[tokio::test]
async fn a_revoked_key_is_cut_off_everywhere() {
    let world = World::tuned(told).await;
    world.agent("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}/events", created["task_run_id"].as_str().unwrap());
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "ci", "role": "viewer"})).await.expect(201);
    let key = world.anonymous().key(made["api_key"].as_str().unwrap());
    let mut stream = key.follow(&path).await;
    assert_eq!(stream.next().await.unwrap().event, "task.created");
    let id = made["key"]["key_id"].as_str().unwrap();
    world.owner.delete(&format!("/api/v1/api-keys/{id}")).await.expect(200);
    assert_eq!(stream.next().await, None);
    assert_eq!(key.get("/api/v1/task-runs").await.refusal(), (401, "unauthenticated".to_owned()));
}

/// The store is queried before the key is revoked, and answers afterwards.
#[tokio::test]
async fn a_key_revoked_meanwhile_is_not_cached() {
    let (world, store) = World::counted(told).await;
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "ci", "role": "viewer"})).await.expect(201);
    let key = world.anonymous().key(made["api_key"].as_str().unwrap());
    let token = key.post("/api/v1/tokens", json!({})).await.expect(201);
    let by = world.anonymous().key(token["token"].as_str().unwrap());
    let held = store.hold("key_credential");
    let early = tokio::spawn({
        let by = by.clone();
        async move { by.get("/api/v1/task-runs").await }
    });
    while store.calls("key_credential") == 0 {
        tokio::task::yield_now().await;
    }
    world.owner.delete(&format!("/api/v1/api-keys/{}", made["key"]["key_id"].as_str().unwrap())).await.expect(200);
    drop(held);
    assert_eq!(early.await.unwrap().status, 200, "it was good when it was asked for");
    assert_eq!(by.get("/api/v1/task-runs").await.refusal(), (401, "unauthenticated".to_owned()));
}

#[tokio::test]
async fn a_key_cannot_create_a_stronger_key() {
    let world = World::start().await;
    let admin = world.key("admin").await;
    let owner = json!({"name": "x", "role": "owner"});
    assert_eq!(admin.post("/api/v1/api-keys", owner).await.refusal(), (403, "forbidden".to_owned()));
    let keys = world.owner.get("/api/v1/api-keys").await.expect(200);
    let find = |role: &str| {
        let keys = keys["api_keys"].as_array().unwrap();
        keys.iter().find(|key| key["role"] == role).unwrap()["key_id"].as_str().unwrap().to_owned()
    };
    let path = |role: &str| format!("/api/v1/api-keys/{}", find(role));
    assert_eq!(admin.delete(&path("owner")).await.refusal(), (403, "forbidden".to_owned()));
    let made = world.owner.post("/api/v1/api-keys", json!({"name": "v", "role": "viewer"})).await.expect(201);
    let viewer = world.anonymous().key(made["api_key"].as_str().unwrap());
    assert_eq!(viewer.delete(&path("admin")).await.refusal(), (403, "forbidden".to_owned()));
    let own = made["key"]["key_id"].as_str().unwrap();
    viewer.delete(&format!("/api/v1/api-keys/{own}")).await.expect(200);
    let expired = json!({"name": "x", "expires_at": "2020-01-01T00:00:00.000Z"});
    assert_eq!(world.owner.post("/api/v1/api-keys", expired).await.refusal(), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn the_last_owner_key_cannot_be_revoked() {
    let world = World::start().await;
    let keys = world.owner.get("/api/v1/api-keys").await.expect(200);
    let id = keys["api_keys"][0]["key_id"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/api-keys/{id}");
    assert_eq!(world.owner.delete(&path).await.refusal(), (403, "forbidden".to_owned()));
    world.owner.post("/api/v1/api-keys", json!({"name": "second", "role": "owner"})).await.expect(201);
    world.owner.delete(&path).await.expect(200);
}

#[tokio::test]
async fn a_run_with_reports_cannot_be_released() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    device.claim().await;
    let released = device.client.post(&format!("{path}/release"), json!({"epoch": 1})).await.expect(200);
    assert_eq!((&released["status"], &released["attempt"]), (&json!("pending"), &json!(0)), "nothing was begun");
    device.claim().await;
    device.client.post(&format!("{path}/progress"), json!({"epoch": 2, "chunk": "half"})).await.expect(200);
    let refused = device.client.post(&format!("{path}/release"), json!({"epoch": 2})).await;
    assert_eq!(refused.refusal(), (409, "already_begun".to_owned()));
    assert_eq!(refused.json()["task_run"]["status"], "running");
    let done = device.client.post(&format!("{path}/complete"), json!({"epoch": 2, "output": {"text": "x"}})).await;
    assert_eq!(done.expect(200)["status"], "completed");
}
