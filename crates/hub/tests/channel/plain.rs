//! The plain frames of 004 at `/api/a2a/connect`, and envelopes for clients that request them.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use super::peer::{TestPeer, read_run, register_agent, run, until_status};
use crate::world::{PATIENCE, World};

struct PlainPeer(WebSocketStream<TcpStream>);

impl PlainPeer {
    async fn connect(world: &World, key: &str) -> Self {
        let mut request = format!("ws://{}/api/a2a/connect", world.address).into_client_request().unwrap();
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        let stream = TcpStream::connect(world.address).await.unwrap();
        Self(client_async(request, stream).await.unwrap().0)
    }

    async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn next(&mut self) -> Value {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await.expect("a frame in time").unwrap().unwrap();
            if let Message::Text(text) = message {
                return serde_json::from_str(text.as_str()).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn artifacts_of_a_plain_client_are_shown_as_in_a2a() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = register_agent(&world, "laptop").await;
    let mut client = PlainPeer::connect(&world, &key).await;
    let id = run(&world, "laptop").await;
    client.next().await;
    let bad = json!({"artifact_id": "a", "parts": [{"kind": "text"}]});
    client.send(json!({"type": "progress", "task_id": id, "data": {"artifact": bad}})).await;
    let refused = client.next().await;
    assert_eq!(
        (&refused["type"], &refused["data"]["field"]),
        (&json!("error"), &json!("data.artifact.parts")),
        "{refused}"
    );
    let artifact = json!({"artifact_id": "a", "parts": [{"text": "made"}], "append": true});
    client.send(json!({"type": "progress", "task_id": id, "data": {"artifact": artifact}})).await;
    let (message, artifacts) = (json!({"parts": [{"text": "said"}]}), json!([{"parts": [{"url": "https://x.test/"}]}]));
    let data = json!({"summary": "good", "message": message, "artifacts": artifacts, "reply": "message"});
    client.send(json!({"type": "result", "task_id": id, "data": data})).await;
    let read = until_status(&world, &id, "completed").await;
    assert_eq!(
        read["task_result"],
        json!({"text": "good", "details": null, "message": message, "artifacts": artifacts, "reply": "message"})
    );
    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await.expect(200);
    assert_eq!((&events["events"][2]["type"], &events["events"][2]["data"]), (&json!("artifact.changed"), &artifact));
}

#[tokio::test]
async fn a_plain_client_is_never_given_a_run_with_limits() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = register_agent(&world, "laptop").await;
    let mut client = PlainPeer::connect(&world, &key).await;
    let body = json!({"agent_id": "laptop", "input": {"text": "id"}, "sandbox": {"allow_exec": false}});
    let limited = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    let refused = until_status(&world, limited["task_run_id"].as_str().unwrap(), "failed").await;
    assert_eq!(refused["task_result"]["code"], "refused", "{refused}");
    // It first receives the run without limits.
    let free = run(&world, "laptop").await;
    assert_eq!(client.next().await["task_id"], free.as_str());
}

#[tokio::test]
async fn a_task_runs_over_plain_frames_as_in_004() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = register_agent(&world, "laptop").await;
    let mut client = PlainPeer::connect(&world, &key).await;
    let body = json!({"agent_id": "laptop", "input": {"text": "analyse", "context": {"files": ["a"]}}});
    let created = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    let id = created["task_run_id"].as_str().unwrap().to_owned();
    let second = run(&world, "laptop").await;
    assert_eq!(
        client.next().await,
        json!({"type": "task", "task_id": id, "data": {"task": "analyse", "context": {"files": ["a"]}}})
    );
    client.send(json!({"type": "ping"})).await;
    assert_eq!(client.next().await, json!({"type": "pong"}), "one credit, one task");
    client.send(json!({"type": "progress", "task_id": id, "data": {"goal": "reading", "progress": 0.3}})).await;
    client
        .send(json!({"type": "result", "task_id": id, "data": {"summary": "good", "details": {"n": 1}, "stats": {"tokens": 15, "cost": 0.05}}}))
        .await;
    // The result grants the next credit.
    assert_eq!(
        client.next().await,
        json!({"type": "task", "task_id": second, "data": {"task": "hello", "context": null}})
    );
    let read = read_run(&world, &id).await;
    assert_eq!(read["status"], "completed");
    assert_eq!(read["task_result"], json!({"text": "good", "details": {"n": 1}}));
    assert_eq!(read["usage"], json!({"tokens": 15, "cost_usd": 0.05}));
    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await.expect(200);
    assert_eq!(events["events"][2]["data"], json!({"message": "reading", "percent": 30}));
    let third = run(&world, "laptop").await;
    client.send(json!({"type": "error", "task_id": second, "data": {"error": "no disk"}})).await;
    assert_eq!(client.next().await["task_id"], json!(third), "an error grants the next one too");
    assert_eq!(read_run(&world, &second).await["task_result"], json!({"error": "no disk", "code": "task_failed"}));
    world.owner.post(&format!("/api/v1/task-runs/{third}/cancel"), json!({})).await.expect(200);
    assert_eq!(client.next().await, json!({"type": "cancel", "task_id": third, "data": {}}));
    // A late report for that task is rejected, but the client is free again.
    let fourth = run(&world, "laptop").await;
    client.send(json!({"type": "result", "task_id": third, "data": {"summary": "x"}})).await;
    let late = client.next().await;
    assert_eq!((&late["type"], &late["data"]["code"]), (&json!("error"), &json!("run_ended")));
    assert_eq!(client.next().await["task_id"], json!(fourth));
    let channels = world.owner.get("/api/v1/channels").await.expect(200);
    assert_eq!(channels["channels"][0]["native_protocol"], "attache.plain.v1");
}

#[tokio::test]
async fn reported_usage_of_a_plain_client_stops_the_run_at_its_budget() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = register_agent(&world, "laptop").await;
    let mut client = PlainPeer::connect(&world, &key).await;
    let body = json!({"task": "analyse", "agent_type": "laptop", "budget": {"tokens": 100}});
    let call = world.owner.post("/api/a2a/call", body).await.expect(200)["call_id"].as_str().unwrap().to_owned();
    let id = call.replace("a2a-", "run_");
    assert_eq!(client.next().await["task_id"], json!(id));
    let progress =
        |stats: Value| json!({"type": "progress", "task_id": id, "data": {"goal": "reading", "stats": stats}});
    for uncountable in [json!({"tokens": -1}), json!({"tokens": "many"}), json!({"cost": -0.5}), json!(7)] {
        client.send(progress(uncountable.clone())).await;
        let of_progress = client.next().await;
        assert_eq!(of_progress["type"], "error", "{uncountable}");
        let result = json!({"type": "result", "task_id": id, "data": {"summary": "x", "stats": uncountable}});
        client.send(result).await;
        assert_eq!(client.next().await, of_progress);
    }
    client.send(progress(json!({"tokens": 60, "cost": 0.01}))).await;
    client.send(json!({"type": "ping"})).await;
    assert_eq!(client.next().await, json!({"type": "pong"}));
    let read = read_run(&world, &id).await;
    assert_eq!((&read["status"], &read["usage"]), (&json!("running"), &json!({"tokens": 60, "cost_usd": 0.01})));
    client.send(progress(json!({"tokens": 101}))).await;
    assert_eq!(client.next().await, json!({"type": "cancel", "task_id": id, "data": {}}));
    assert_eq!(until_status(&world, &id, "failed").await["task_result"]["code"], "quota_exceeded");
}

#[tokio::test]
async fn invalid_plain_frames_get_an_error_and_the_connection_stays_open() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = register_agent(&world, "laptop").await;
    let mut client = PlainPeer::connect(&world, &key).await;
    let id = run(&world, "laptop").await;
    client.next().await;
    for (frame, code, field) in [
        (json!(7), "invalid_frame", json!(null)),
        (json!({}), "invalid_frame", json!("type")),
        (json!({"type": 7}), "invalid_frame", json!("type")),
        (json!({"type": "dance", "task_id": id}), "invalid_frame", json!("type")),
        (json!({"type": "result"}), "invalid_frame", json!("task_id")),
        (json!({"type": "result", "task_id": "x", "data": {}}), "invalid_frame", json!("task_id")),
        (json!({"type": "result", "task_id": id}), "invalid_frame", json!("data")),
        (json!({"type": "result", "task_id": id, "data": {}}), "invalid_frame", json!("data.summary")),
        (json!({"type": "result", "task_id": id, "data": {"summary": 7}}), "invalid_frame", json!("data.summary")),
        (json!({"type": "progress", "task_id": id, "data": {"progress": 7}}), "invalid_frame", json!("data.progress")),
        (
            json!({"type": "result", "task_id": "run_00000000000000000000000000000001", "data": {"summary": "x"}}),
            "not_found",
            json!(null),
        ),
    ] {
        client.send(frame.clone()).await;
        let answer = client.next().await;
        assert_eq!(answer["type"], "error", "{frame}");
        assert_eq!((&answer["data"]["code"], &answer["data"]["field"]), (&json!(code), &field), "{frame}: {answer}");
    }
    client.send(json!({"type": "result", "task_id": id.replace("run_", "a2a-"), "data": {"summary": "x"}})).await;
    until_status(&world, &id, "completed").await;
}

#[tokio::test]
async fn a_reconnected_plain_client_finishes_its_task_and_gets_no_duplicates() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = register_agent(&world, "laptop").await;
    let mut client = PlainPeer::connect(&world, &key).await;
    let id = run(&world, "laptop").await;
    assert_eq!(client.next().await["task_id"], json!(id));
    client.send(json!({"type": "ping"})).await;
    client.next().await;
    drop(client);
    let mut client = PlainPeer::connect(&world, &key).await;
    client.send(json!({"type": "ping"})).await;
    assert_eq!(client.next().await, json!({"type": "pong"}), "the task was written once and is not written again");
    client.send(json!({"type": "result", "task_id": id, "data": {"summary": "late but good"}})).await;
    let read = until_status(&world, &id, "completed").await;
    assert_eq!(read["epoch"], 1);
}

#[tokio::test]
async fn connect_uses_envelopes_if_requested() {
    let world = World::start().await;
    world.agent("laptop").await;
    let key = format!("Bearer {}", register_agent(&world, "laptop").await);
    let headers = [("authorization", key.as_str()), ("sec-websocket-protocol", "attache.envelope.v1")];
    let mut peer = TestPeer::try_connect(&world, "/api/a2a/connect", &headers).await.unwrap();
    peer.register(json!({})).await;
    let id = run(&world, "laptop").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    assert_eq!(peer.find_action("execute").await["payload"]["task_run_id"], json!(id));
}
