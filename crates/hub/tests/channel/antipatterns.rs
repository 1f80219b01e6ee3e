//! The anti-patterns at the end of seed 003, each with a test that the hub avoids it. The two about A2A belong to the
//! standard A2A surface.

use serde_json::json;

use super::{
    engine::execute,
    peer::{TestPeer, WS, engine, owner_key, read_run, register_agent, run, worker},
};
use crate::world::World;

/// 远程消息直接写 UI,不进入 runtime event stream.
#[tokio::test]
async fn a_remote_message_is_never_written_to_the_ui_past_the_event_stream() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, registered) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    peer.request(json!({"action": "progress", "task_run_id": id, "epoch": 1, "message": "remote words"})).await;
    peer.request(json!({"action": "message", "message": "channel words"})).await;
    // Everything visible is a numbered event: of the run, the channel or the tenant.
    let run_events = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await.expect(200);
    let progress = run_events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&progress["seq"], &progress["data"]["message"]), (&json!(3), &json!("remote words")));
    let channel = registered["channel_id"].as_str().unwrap();
    let channel_events = world.owner.get(&format!("/api/v1/channels/{channel}/events")).await.expect(200);
    let message = channel_events["events"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&message["type"], &message["data"]["message"]), (&json!("channel.message"), &json!("channel words")));
    let audit = world.owner.get("/api/v1/audit?limit=200").await.expect(200);
    let logged = audit["events"].as_array().unwrap().iter().filter(|row| row["type"] == "channel.message").count();
    assert_eq!(logged, 1);
    // And it did not become a turn in a conversation.
    let conversation = read_run(&world, &id).await["conversation_id"].clone();
    let messages = world.owner.get(&format!("/api/v1/conversations/{}/messages", conversation.as_str().unwrap())).await;
    let texts = messages.expect(200)["messages"].to_string();
    assert!(!texts.contains("remote words") && !texts.contains("channel words"), "{texts}");
}

/// 重连后从头重复投递,产生重复 turn.
#[tokio::test]
async fn reconnecting_does_not_redeliver_or_create_a_second_turn() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = owner_key(&world);
    let (mut host, mut registered) = engine(&world, json!([])).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let first = host.ask(&frame).await["payload"].clone();
    let created = host.find(|told| told["payload"]["type"] == "task.created").await;
    for _ in 0..5 {
        drop(host);
        host = TestPeer::connect(&world, WS, Some(&key)).await;
        let resume = json!({"action": "resume", "channel_id": registered["channel_id"], "resume_token": registered["resume_token"], "last_seq": created["header"]["seq"]});
        let resumed = host.request(resume).await;
        assert_eq!(resumed["resumed_from"], created["header"]["seq"]);
        registered["resume_token"] = resumed["resume_token"].clone();
        // The engine can't know whether its request arrived, and repeats it.
        assert_eq!(host.ask(&frame).await["payload"]["task_run_id"], first["task_run_id"]);
        assert_eq!(host.settle().await, Vec::<serde_json::Value>::new(), "nothing is delivered twice");
    }
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"].as_array().unwrap().len(), 1, "one request, one turn");
}

/// 远程权限由浏览器或 host 私下批准,evidence 里没有记录.
#[tokio::test]
async fn no_permission_is_approved_in_private_without_evidence() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, worker_channel) = worker(&world, "builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].as_str().unwrap().to_owned();
    sub.find_action("execute").await;
    let ask = sub.frame(
        "request",
        json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {"path": "x"}}),
    );
    sub.send(&ask).await;
    let asked = host.find_action("require_approval").await;
    let mut reply = host.frame("response", json!({"approved": true, "comment": "fine"}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("require_approval").await["payload"]["approved"], true);
    // Who asked for what, who decided, over which surface and from where: all of it is in the log.
    let audit = world.owner.get("/api/v1/audit?limit=200").await.expect(200);
    let rows = audit["events"].as_array().unwrap();
    let row = |kind: &str| rows.iter().find(|row| row["type"] == kind).unwrap_or_else(|| panic!("no {kind}")).clone();
    let (requested, decided) = (row("permission.requested"), row("permission.decided"));
    assert!(requested["actor"].as_str().unwrap().starts_with("runtime:"));
    assert_eq!((&requested["data"]["tool"], &requested["data"]["input"]), (&json!("rm"), &json!({"path": "x"})));
    assert!(decided["actor"].as_str().unwrap().starts_with("key:"));
    let data = &decided["data"];
    assert_eq!(
        (&data["approved"], &data["source"], &data["via"], &data["from"], &data["comment"]),
        (&json!(true), &json!("user"), &json!("channel"), &json!("127.0.0.1"), &json!("fine"))
    );
    for kind in ["channel.permission_forwarded", "channel.permission_returned"] {
        assert_eq!(row(kind)["data"]["channel_id"], worker_channel["channel_id"]);
    }
    // The worker that asked can never decide.
    let ask = sub.frame(
        "request",
        json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {"path": "y"}}),
    );
    sub.send(&ask).await;
    let asked = host.find_action("require_approval").await;
    let mut own = sub.frame("response", json!({"approved": true}));
    own["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    assert_eq!(sub.ask(&own).await["payload"]["error"]["code"], "forbidden");
}

/// channel 断开导致 running peer task 被错误标记 completed.
#[tokio::test]
async fn a_broken_channel_never_marks_a_running_task_completed() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    peer.request(json!({"action": "progress", "task_run_id": id, "epoch": 1, "message": "x"})).await;
    peer.close().await;
    let path = format!("/api/v1/channels/{}", registered["channel_id"].as_str().unwrap());
    while world.owner.get(&path).await.expect(200)["status"] != "disconnected" {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let read = read_run(&world, &id).await;
    assert_eq!((&read["status"], &read["task_result"]), (&json!("running"), &json!(null)));
    let kinds: Vec<_> = {
        let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await.expect(200);
        events["events"].as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(kinds, ["task.created", "task.claimed", "task.progress"]);
}
