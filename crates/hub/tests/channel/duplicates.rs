//! Repeated frames take effect once.

use serde_json::{Value, json};

use super::{
    engine::execute,
    peer::{TestPeer, WS, engine, register_agent, run, worker},
};
use crate::world::World;

async fn chunks(world: &World, id: &str) -> Vec<Value> {
    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events?limit=200")).await.expect(200);
    let events = events["events"].as_array().unwrap().clone();
    events
        .into_iter()
        .filter(|event| event["type"] == "task.chunk")
        .map(|event| event["data"]["text"].clone())
        .collect()
}

#[tokio::test]
async fn every_frame_sent_twice_takes_effect_once() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    run(&world, "builder").await;
    let ready = peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.send(&ready).await;
    peer.find_action("execute").await;
    assert_eq!(peer.settle().await, Vec::<Value>::new(), "one credit, one run");
    let work = |mut payload: Value| {
        payload["task_run_id"] = json!(id);
        payload["epoch"] = json!(1);
        payload
    };
    for text in ["a", "b"] {
        let chunk = peer.frame("chunk", work(json!({"action": "chunk", "text": text})));
        peer.send(&chunk).await;
        peer.send(&chunk).await;
    }
    let extend = peer.frame("request", work(json!({"action": "extend"})));
    assert_eq!(peer.ask(&extend).await, peer.ask(&extend).await, "the same reply, to the letter");
    assert_eq!(chunks(&world, &id).await, ["a", "b"]);
    let done = peer.frame("request", work(json!({"action": "done", "result_summary": "x"})));
    assert_eq!(peer.ask(&done).await, peer.ask(&done).await);
}

#[tokio::test]
async fn numbered_reports_repeated_after_a_break_count_once() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let mut sent = Vec::new();
    for seq in 1..=5 {
        let mut chunk =
            peer.frame("chunk", json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": seq.to_string()}));
        chunk["header"]["seq"] = json!(seq);
        peer.send(&chunk).await;
        sent.push(chunk);
    }
    peer.find(|frame| frame["payload"] == json!({"action": "ack", "seq": 5})).await;
    drop(peer);
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"], "resume_token": registered["resume_token"], "last_seq": 1});
    assert_eq!(peer.request(resume).await["ok"], true);
    // The peer can't know how much arrived, and repeats everything.
    for frame in &sent {
        peer.send(frame).await;
    }
    let mut next = peer.frame("chunk", json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": "6"}));
    next["header"]["seq"] = json!(6);
    peer.send(&next).await;
    peer.find(|frame| frame["payload"] == json!({"action": "ack", "seq": 6})).await;
    assert_eq!(chunks(&world, &id).await, ["1", "2", "3", "4", "5", "6"]);
}

#[tokio::test]
async fn self_numbered_reports_count_once_across_http_and_channel() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let mut peer = TestPeer::try_connect(&world, WS, &[("x-runtime-token", device.token.as_str())]).await.unwrap();
    peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let path = format!("/api/v1/task-runs/{id}/progress");
    for report in 1..=4 {
        let text = report.to_string();
        let frame = json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": text, "report": report});
        assert_eq!(peer.request(frame).await["ok"], true);
        let body = json!({"epoch": 1, "chunk": text, "report": report});
        device.client.post(&path, body).await.expect(200);
    }
    assert_eq!(chunks(&world, &id).await, ["1", "2", "3", "4"]);
}

#[tokio::test]
async fn repeated_questions_are_one_question() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let ask = peer.frame(
        "request",
        json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {}}),
    );
    for _ in 0..3 {
        peer.send(&ask).await;
    }
    assert_eq!(peer.settle().await, Vec::<Value>::new());
    let listed = world.owner.get("/api/v1/permission-requests").await.expect(200);
    let listed = listed["permission_requests"].as_array().unwrap().clone();
    assert_eq!(listed.len(), 1);
    let path = format!("/api/v1/permission-requests/{}/decision", listed[0]["permission_request_id"].as_str().unwrap());
    world.owner.post(&path, json!({"approved": false, "comment": "no"})).await.expect(200);
    let answer = peer.find_action("require_approval").await;
    assert_eq!((&answer["payload"]["approved"], &answer["payload"]["comment"]), (&json!(false), &json!("no")));
    assert_eq!(peer.settle().await, Vec::<Value>::new());
}

#[tokio::test]
async fn a_final_refusal_is_repeated_exactly() {
    let world = World::start().await;
    let (mut host, _) = engine(&world, json!([])).await;
    let frame = execute(&mut host, "late", json!({"query": "go"}));
    let refused = host.ask(&frame).await;
    assert_eq!(refused["payload"]["error"]["code"], "not_found");
    let unclear = host.frame("request", json!({"action": "ready"}));
    let missing = host.ask(&unclear).await;
    assert_eq!(missing["payload"]["error"]["field"], "payload.credits");
    // It could succeed now, but the request was already answered.
    world.agent("late").await;
    assert_eq!(host.ask(&frame).await, refused);
    assert_eq!(host.ask(&unclear).await, missing);
    assert_eq!(world.owner.get("/api/v1/task-runs").await.expect(200)["task_runs"], json!([]));
    let anew = execute(&mut host, "late", json!({"query": "go"}));
    assert_eq!(host.ask(&anew).await["payload"]["ok"], true);
}

#[tokio::test]
async fn a_temporary_refusal_is_not_kept() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let ready = peer.frame("request", json!({"action": "ready", "credits": 1}));
    assert_eq!(peer.ask(&ready).await["payload"]["error"]["code"], "not_registered");
    peer.register(json!({})).await;
    assert_eq!(peer.ask(&ready).await["payload"]["ok"], true);
}
