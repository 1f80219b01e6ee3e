//! Call, watch, stream and result from a caller's view.

use attache_hub::Options;
use hyper::Method;
use serde_json::{Value, json};

use super::watcher::{Socket, call, result, timeless};
use crate::world::{TestDevice, World};

/// One agent with a device.
async fn laptop() -> (World, TestDevice) {
    let world = World::start().await;
    world.agent("laptop").await;
    let device = world.device("laptop").await;
    (world, device)
}

/// Claims the call's run and reports on it.
async fn begin(device: &TestDevice) -> String {
    let claimed = device.claim().await;
    let path = format!("/api/v1/task-runs/{}", claimed["task_run_id"].as_str().unwrap());
    let report = json!({"message": "reading files", "percent": 30, "chunk": "half an ", "thought": "hm"});
    device.client.post(&format!("{path}/progress"), report).await.expect(200);
    device.client.post(&format!("{path}/progress"), json!({"chunk": "answer"})).await.expect(200);
    path
}

async fn complete(device: &TestDevice, path: &str) {
    let output = json!({"text": "an answer", "details": {"files": 3}});
    let body = json!({"output": output, "usage": {"tokens": 1500, "cost_usd": 0.05}});
    device.client.post(&format!("{path}/complete"), body).await.expect(200);
}

fn said() -> Vec<Value> {
    vec![
        json!({"type": "progress", "data": {"goal": "reading files", "progress": 0.3}}),
        json!({"type": "message", "data": {"kind": "chunk", "text": "half an "}}),
        json!({"type": "message", "data": {"kind": "thought", "text": "hm"}}),
        json!({"type": "message", "data": {"kind": "chunk", "text": "answer"}}),
        json!({"type": "completed", "data": {
            "result": {"summary": "an answer", "details": {"files": 3}},
            "stats": {"duration_ms": 0, "tokens": 1500, "cost": 0.05}}}),
    ]
}

#[tokio::test]
async fn a_call_returns_immediately_and_its_context_arrives_byte_for_byte() {
    let (world, device) = laptop().await;
    let body = r#"{"future":7,"task":"analyse","agent_type":null,"callback_url":null,
        "context":{ "n":1.50 ,"a":1,"a":2.0},"agent_type2":"x"}"#;
    let client = world.owner.with("content-type", "application/json");
    let started = client.call(Method::POST, "/api/a2a/call", body).await.expect(200);
    let id = started["call_id"].as_str().unwrap();
    let watch_url = format!("ws://{}/api/a2a/watch/{id}", world.address);
    assert_eq!(started, json!({"call_id": id, "status": "started", "watch_url": watch_url}));
    let run = id.replace("a2a-", "run_");
    let raw = world.owner.get(&format!("/api/v1/task-runs/{run}")).await;
    let raw = String::from_utf8(raw.body.to_vec()).unwrap();
    assert!(raw.contains(r#""input":{"text":"analyse","context":{ "n":1.50 ,"a":1,"a":2.0}}"#), "{raw}");
    assert_eq!(
        result(&world.owner, id).await,
        json!({"status": "started", "result": null, "stats": {"duration_ms": 0, "tokens": null, "cost": null}})
    );
    assert_eq!(device.claim().await["task_run_id"], json!(run));
    assert_eq!(result(&world.owner, id).await["status"], "running");
    assert_eq!(result(&world.owner, &run).await["status"], "running", "the run's own id names the call, too");
}

#[tokio::test]
async fn early_and_late_watchers_see_the_same_from_the_start_to_the_end() {
    let (world, device) = laptop().await;
    let id = call(&world.owner, json!({"task": "analyse"})).await;
    let watch = format!("/api/a2a/watch/{id}");
    let mut early = Socket::open(&world, &watch, &world.owner).await;
    let path = begin(&device).await;
    assert_eq!(early.next().await.unwrap(), said()[0], "it is shown while the agent works");
    let joined = Socket::open(&world, &watch, &world.owner).await;
    complete(&device, &path).await;
    assert_eq!(early.rest().await, said()[1..]);
    assert_eq!(joined.rest().await, said());
    assert_eq!(Socket::open(&world, &watch, &world.owner).await.rest().await, said());
    let streamed = Socket::open(&world, &format!("/api/a2a/stream/{id}"), &world.owner).await;
    assert_eq!(streamed.rest().await, said()[1..], "messages and the end, without progress");
    assert_eq!(
        timeless(result(&world.owner, &id).await),
        json!({"status": "completed", "result": {"summary": "an answer", "details": {"files": 3}},
            "stats": {"duration_ms": 0, "tokens": 1500, "cost": 0.05}})
    );
}

#[tokio::test]
async fn a_watch_over_server_sent_events_resumes() {
    let (world, device) = laptop().await;
    let id = call(&world.owner, json!({"task": "analyse"})).await;
    let watch = format!("/api/a2a/watch/{id}");
    let path = begin(&device).await;
    let mut events = world.owner.follow(&watch).await;
    let first = events.next().await.unwrap();
    assert_eq!((first.event.as_str(), &first.data), ("progress", &said()[0]));
    let second = events.next().await.unwrap();
    drop(events);
    complete(&device, &path).await;
    let again = world.owner.with("last-event-id", &second.id.to_string());
    let rest = again.follow(&watch).await.rest().await;
    let kinds: Vec<&str> = rest.iter().map(|message| message.event.as_str()).collect();
    assert_eq!(kinds, ["message", "message", "completed"]);
    let shown: Vec<Value> = rest.into_iter().map(|message| timeless(message.data)).collect();
    assert_eq!(shown, said()[2..]);
}

#[tokio::test]
async fn a_call_that_fails_or_is_cancelled_says_why() {
    let (world, device) = laptop().await;
    let failed = call(&world.owner, json!({"task": "analyse"})).await;
    let run = device.claim().await["task_run_id"].as_str().unwrap().to_owned();
    let body = json!({"output": {"error": "no disk", "code": "host_crashed"}});
    device.client.post(&format!("/api/v1/task-runs/{run}/fail"), body).await.expect(200);
    let frames = Socket::open(&world, &format!("/api/a2a/watch/{failed}"), &world.owner).await.rest().await;
    assert_eq!(frames, [json!({"type": "failed", "data": {"error": "no disk", "code": "host_crashed"}})]);
    assert_eq!(
        timeless(result(&world.owner, &failed).await),
        json!({"status": "failed", "result": null, "error": "no disk", "code": "host_crashed",
            "stats": {"duration_ms": 0, "tokens": null, "cost": null}})
    );
    let cancelled = call(&world.owner, json!({"task": "analyse"})).await;
    let watcher = Socket::open(&world, &format!("/api/a2a/watch/{cancelled}"), &world.owner).await;
    let run = cancelled.replace("a2a-", "run_");
    world.owner.post(&format!("/api/v1/task-runs/{run}/cancel"), json!({})).await.expect(200);
    let frames = watcher.rest().await;
    assert_eq!((frames.len(), &frames[0]["type"]), (1, &json!("failed")));
    assert_eq!(frames[0]["data"]["code"], "cancelled");
    let read = result(&world.owner, &cancelled).await;
    assert_eq!((&read["status"], &read["code"]), (&json!("cancelled"), &json!("cancelled")));
    assert_eq!(read["error"], frames[0]["data"]["error"]);
}

#[tokio::test]
async fn the_same_key_returns_the_same_call() {
    let (world, _device) = laptop().await;
    let client = world.owner.with("idempotency-key", "once");
    // Whoever guesses the name of the member must not reach another agent than the one they named.
    for name in ["agent", "agent_id"] {
        let missing = world.owner.post("/api/a2a/call", json!({"task": "analyse", name: "nobody"})).await;
        assert_eq!(missing.refusal().0, 404, "{name}");
    }
    let first = call(&client, json!({"task": "analyse", "agent_type": "laptop"})).await;
    assert_eq!(call(&client, json!({"task": "analyse"})).await, first, "named or meant, it is the same agent");
    let other = client.post("/api/a2a/call", json!({"task": "something else"})).await;
    assert_eq!(other.refusal(), (409, "idempotency_key_reused".to_owned()));
    assert_ne!(call(&world.owner, json!({"task": "analyse"})).await, first);
}

#[tokio::test]
async fn the_watch_url_uses_the_public_address() {
    let public = |options: &mut Options| options.public_url = Some("https://hub.example.org/".to_owned());
    let world = World::tuned(public).await;
    world.agent("laptop").await;
    let started = world.owner.post("/api/a2a/call", json!({"task": "x"})).await.expect(200);
    let id = started["call_id"].as_str().unwrap();
    assert_eq!(started["watch_url"], json!(format!("wss://hub.example.org/api/a2a/watch/{id}")));
}

#[tokio::test]
async fn a_watch_ends_with_its_credential_and_with_the_hub() {
    let (world, _device) = laptop().await;
    let id = call(&world.owner, json!({"task": "analyse"})).await;
    let watch = format!("/api/a2a/watch/{id}");
    let key = world.owner.post("/api/v1/api-keys", json!({"name": "v", "role": "viewer"})).await.expect(201);
    let viewer = world.anonymous().key(key["api_key"].as_str().unwrap());
    let mut watcher = Socket::open(&world, &watch, &viewer).await;
    let path = format!("/api/v1/api-keys/{}", key["key"]["key_id"].as_str().unwrap());
    let revoked = world.owner.delete(&path).await.status;
    assert!((200..300).contains(&revoked), "{revoked}");
    assert_eq!(watcher.next().await.unwrap_err().map(|close| u16::from(close.code)), Some(1008));
    let mut watcher = Socket::open(&world, &watch, &world.owner).await;
    world.hub.drain();
    assert_eq!(watcher.next().await.unwrap_err().map(|close| u16::from(close.code)), Some(1001));
}

#[tokio::test]
async fn a_caller_may_wait_for_the_result_instead_of_polling() {
    let (world, device) = laptop().await;
    let id = call(&world.owner, json!({"task": "analyse"})).await;
    let path = format!("/api/a2a/result/{id}");
    let soon = world.owner.get(&format!("{path}?wait_ms=1")).await.expect(200);
    assert_eq!(soon["status"], "started", "the time was up before anything happened");
    let (waiting, work) = (world.owner.clone(), begin(&device).await);
    let waiting = tokio::spawn(async move { waiting.get(&format!("{path}?wait_ms=60000")).await.expect(200) });
    complete(&device, &work).await;
    assert_eq!(
        timeless(waiting.await.unwrap()),
        json!({"status": "completed", "result": {"summary": "an answer", "details": {"files": 3}},
            "stats": {"duration_ms": 0, "tokens": 1500, "cost": 0.05}})
    );
    world.owner.get(&format!("/api/a2a/result/{id}?wait_ms=x")).await.expect(400);
}
