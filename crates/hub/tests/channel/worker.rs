//! A worker over a WebSocket: credits, reports, questions, the end.

use std::time::Duration;

use serde_json::json;

use super::peer::{TestPeer, WS, read_run, register_agent, run, until_status, worker};
use crate::world::World;

#[tokio::test]
async fn a_complete_run_over_a_channel_on_the_model() {
    whole_run(World::start().await).await;
}

#[tokio::test]
async fn a_complete_run_over_a_channel_on_sqlite() {
    whole_run(World::on_sqlite().await).await;
}

async fn whole_run(world: World) {
    let agent = world.agent("builder").await;
    let (mut peer, registered) = worker(&world, "builder").await;
    assert_eq!((&registered["agent_id"], &registered["heartbeat_ms"]), (&json!(agent), &json!(30000)));
    assert!(registered["channel_id"].as_str().unwrap().starts_with("chn_"));
    assert!(registered["resume_token"].as_str().unwrap().starts_with("rs_"));

    let body = json!({"agent_id": "builder", "input": {"text": "make it"}, "workspace_root": "/srv", "context_fragments": [{"a": 1}]});
    let created = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    let id = created["task_run_id"].as_str().unwrap().to_owned();
    // Without a credit there is no run.
    assert_eq!(peer.settle().await, Vec::<serde_json::Value>::new());
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    let execute = peer.find_action("execute").await;
    assert_eq!((&execute["header"]["type"], &execute["header"]["seq"]), (&json!("request"), &json!(1)));
    assert_eq!(execute["metadata"]["trace_id"], created["trace_id"]);
    assert_eq!(execute["metadata"]["ttl"], 8);
    let payload = &execute["payload"];
    let pinned = [
        ("task_run_id", json!(id)),
        ("epoch", json!(1)),
        ("conversation_id", created["conversation_id"].clone()),
        ("query", json!("make it")),
        ("context_fragments", json!([{"a": 1}])),
        ("allowed_tools", json!([])),
        ("workspace_root", json!("/srv")),
        ("input", json!({"text": "make it"})),
        ("workspace_id", created["workspace_id"].clone()),
        ("attempt", json!(1)),
    ];
    for (name, value) in pinned {
        assert_eq!(payload[name], value, "{name}");
    }
    let work = |mut payload: serde_json::Value| {
        payload["task_run_id"] = json!(id);
        payload["epoch"] = json!(1);
        payload
    };
    let chunk = peer.frame("chunk", work(json!({"action": "chunk", "text": "he"})));
    peer.send(&chunk).await;
    peer.notify(work(json!({"action": "think", "thought_text": "hm"}))).await;
    peer.notify(work(json!({"action": "log", "level": "info", "message": "line"}))).await;
    peer.notify(work(json!({"action": "progress", "message": "half", "percent": 50, "usage_stats": {"tokens": 7}})))
        .await;
    assert_eq!(
        peer.request(work(json!({"action": "extend"}))).await,
        json!({"action": "extend", "ok": true, "status": "running"})
    );
    let done = peer
        .request(work(
            json!({"action": "done", "result_summary": "done", "usage_stats": {"tokens": 9, "cost_usd": 0.5}}),
        ))
        .await;
    assert_eq!(done, json!({"action": "done", "ok": true, "task_run_id": id, "status": "completed"}));

    let read = read_run(&world, &id).await;
    assert_eq!(read["task_result"], json!({"text": "done", "artifact_refs": []}));
    assert_eq!(read["usage"], json!({"tokens": 9, "cost_usd": 0.5}));
    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await.expect(200);
    let seen: Vec<_> =
        events["events"].as_array().unwrap()[2..6].iter().map(|e| (e["type"].clone(), e["data"].clone())).collect();
    assert_eq!(
        seen,
        [
            (json!("task.chunk"), json!({"text": "he"})),
            (json!("task.thought"), json!({"text": "hm"})),
            (json!("task.log"), json!({"level": "info", "message": "line"})),
            (json!("task.progress"), json!({"message": "half", "percent": 50})),
        ]
    );
    // The credit is used.
    run(&world, "builder").await;
    assert_eq!(peer.settle().await, Vec::<serde_json::Value>::new());
}

#[tokio::test]
async fn a_device_works_over_a_channel_with_its_runtime_token() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let token = device.token.as_str();
    let mut peer = TestPeer::try_connect(&world, WS, &[("x-runtime-token", token)]).await.unwrap();
    peer.register(json!({"peer_role": "remote_runtime", "capabilities": ["streaming", "resume"]})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 3})).await;
    assert_eq!(peer.find_action("execute").await["payload"]["task_run_id"], json!(id));
    let channels = world.owner.get("/api/v1/channels").await.expect(200);
    let channel = &channels["channels"][0];
    assert_eq!(
        (&channel["transport"], &channel["peer_role"], &channel["status"], &channel["native_protocol"]),
        (&json!("websocket"), &json!("remote_runtime"), &json!("connected"), &json!("attache.envelope.v1"))
    );
    assert_eq!((&channel["agent_id"], &channel["runtime_id"]), (&json!(device.agent), &json!(device.runtime)));
    assert_eq!(channel["capabilities"], json!(["streaming", "resume"]));
    let account = world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    assert_eq!(account["status"], "online");
}

#[tokio::test]
async fn outputs_are_kept_byte_for_byte() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let output = r#"{"text":"ok" , "n":1.10, "big":9007199254740993,"artifact_refs":[]}"#;
    let text = format!(
        r#"{{"header":{{"msg_id":"exact","type":"request","timestamp":1}},"payload":{{"action":"done","task_run_id":"{id}","epoch":1,"output":{output}}}}}"#
    );
    peer.send_text(text).await;
    assert_eq!(peer.find_action("done").await["payload"]["ok"], true);
    let read = world.owner.get(&format!("/api/v1/task-runs/{id}")).await;
    assert!(String::from_utf8_lossy(&read.body).contains(&format!("\"task_result\":{output},")));
}

#[tokio::test]
async fn artifacts_are_shown_byte_for_byte_and_once() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let artifact = r#"{"artifact_id":"a","parts":[ {"data":{"n":42.0,"big":9007199254740993}}],"append":true}"#;
    let frame = |name: &str, artifact: &str| {
        format!(
            r#"{{"header":{{"msg_id":"{name}","type":"request","timestamp":1}},"payload":{{"action":"progress","task_run_id":"{id}","epoch":1,"report":1,"artifact":{artifact}}}}}"#
        )
    };
    peer.send_text(frame("bad", r#"{"artifact_id":"a","parts":[]}"#)).await;
    let refused = peer.find_action("progress").await["payload"].clone();
    assert_eq!(
        (&refused["ok"], &refused["error"]["field"]),
        (&json!(false), &json!("payload.artifact.parts")),
        "{refused}"
    );
    for name in ["first", "again"] {
        peer.send_text(frame(name, artifact)).await;
        assert_eq!(peer.find_action("progress").await["payload"]["ok"], true);
    }
    let events = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await;
    let text = String::from_utf8_lossy(&events.body).into_owned();
    assert_eq!(text.matches("artifact.changed").count(), 1, "{text}");
    assert!(text.contains(&format!(r#""data":{artifact}"#)), "{text}");
}

#[tokio::test]
async fn failing_releasing_and_draining() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let (one, two) = (run(&world, "builder").await, run(&world, "builder").await);
    peer.notify(json!({"action": "ready", "credits": 2})).await;
    peer.find_action("execute").await;
    peer.find_action("execute").await;
    let failed = json!({"action": "fail", "task_run_id": one, "epoch": 1, "error": "no", "code": "model_unreachable"});
    assert_eq!(peer.request(failed).await["status"], "failed");
    assert_eq!(read_run(&world, &one).await["task_result"], json!({"error": "no", "code": "model_unreachable"}));
    // Draining: no more work, and unstarted work is released with its attempt.
    assert_eq!(peer.request(json!({"action": "drain"})).await, json!({"action": "drain", "ok": true}));
    let released = peer.request(json!({"action": "release", "task_run_id": two, "epoch": 1})).await;
    assert_eq!(released, json!({"action": "release", "ok": true, "task_run_id": two, "status": "pending"}));
    let read = read_run(&world, &two).await;
    assert_eq!((&read["status"], &read["attempt"]), (&json!("pending"), &json!(0)));
    assert_eq!(peer.settle().await, Vec::<serde_json::Value>::new(), "a peer that drains gets no work");
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    assert_eq!(peer.find_action("execute").await["payload"]["epoch"], 2);
}

#[tokio::test]
async fn credits_can_be_taken_back() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 5})).await;
    peer.request(json!({"action": "ready", "credits": 0})).await;
    run(&world, "builder").await;
    assert_eq!(peer.settle().await, Vec::<serde_json::Value>::new());
}

#[tokio::test]
async fn a_cancelled_run_reaches_its_worker_as_a_frame() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    world.owner.post(&format!("/api/v1/task-runs/{id}/cancel"), json!({})).await.expect(200);
    let cancel = peer.find_action("cancel").await;
    assert_eq!(
        (&cancel["header"]["type"], &cancel["header"]["seq"], &cancel["payload"]),
        (&json!("notification"), &json!(2), &json!({"action": "cancel", "task_run_id": id}))
    );
    let late = peer.request(json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"})).await;
    assert_eq!((&late["ok"], &late["error"]["code"]), (&json!(false), &json!("run_ended")));
    assert_eq!(late["error"]["task_run"]["status"], "cancelled");
}

#[tokio::test]
async fn a_stale_epoch_is_refused_with_the_current_run() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 2})).await;
    peer.find_action("execute").await;
    peer.request(json!({"action": "release", "task_run_id": id, "epoch": 1})).await;
    assert_eq!(peer.find_action("execute").await["payload"]["epoch"], 2);
    let stale = peer.request(json!({"action": "progress", "task_run_id": id, "epoch": 1, "message": "x"})).await;
    assert_eq!((&stale["error"]["code"], &stale["error"]["task_run"]["epoch"]), (&json!("stale_epoch"), &json!(2)));
    // A refused notification gets a reply too.
    let frame = peer.notify(json!({"action": "think", "task_run_id": id, "epoch": 1, "thought_text": "x"})).await;
    let refused = peer.find(|told| told["header"]["parent_id"] == frame["header"]["msg_id"]).await;
    assert_eq!(refused["payload"]["error"]["code"], "stale_epoch");
}

#[tokio::test]
async fn a_decision_reaches_the_worker_that_asked() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, registered) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let ask = json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {"path": "x"},
        "cwd": "/srv", "paths": ["/srv/x"], "reason": "old", "risk": "high"});
    let frame = peer.frame("request", ask);
    peer.send(&frame).await;
    let pending = loop {
        let listed = world.owner.get("/api/v1/permission-requests?state=pending").await.expect(200);
        if let Some(request) = listed["permission_requests"].get(0) {
            break request.clone();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert_eq!((&pending["tool"], &pending["channel_id"]), (&json!("rm"), &registered["channel_id"]));
    assert_eq!(read_run(&world, &id).await["waiting"], "approval");
    let prm = pending["permission_request_id"].as_str().unwrap();
    let decision = json!({"approved": true, "scope": "run", "comment": "go"});
    world.owner.post(&format!("/api/v1/permission-requests/{prm}/decision"), decision).await.expect(200);
    let answer = peer.find_action("require_approval").await;
    assert_eq!(answer["header"]["parent_id"], frame["header"]["msg_id"]);
    assert_eq!(
        answer["payload"],
        json!({"action": "require_approval", "ok": true, "approved": true, "permission_request_id": prm, "scope": "run", "comment": "go"})
    );
    // The same question again returns the same answer immediately. A new one like it is answered by the grant.
    let again = peer.ask(&frame).await;
    assert_eq!(again["payload"], answer["payload"]);
    // A known name answers nothing else: neither from the connection's memory nor from a new one.
    let mut evil = frame.clone();
    evil["payload"]["input"] = json!({"path": "/"});
    let refused = peer.ask(&evil).await["payload"].clone();
    assert_eq!((&refused["ok"], &refused["error"]["code"]), (&json!(false), &json!("idempotency_key_reused")));
    let granted = peer.frame("request", frame["payload"].clone());
    let granted = peer.ask(&granted).await;
    assert_eq!((&granted["payload"]["approved"], &granted["payload"]["scope"]), (&json!(true), &json!(null)));
    assert_eq!(peer.settle().await, Vec::<serde_json::Value>::new(), "each answer comes once");
    let log = world.owner.get(&format!("/api/v1/channels/{}/events", registered["channel_id"].as_str().unwrap())).await;
    let kinds: Vec<_> =
        log.expect(200)["events"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds[..3], ["channel.connected", "channel.permission_forwarded", "channel.permission_returned"]);
}

#[tokio::test]
async fn a_used_approval_id_approves_nothing_else_on_a_new_connection() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let ask =
        json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {"path": "x"}});
    let frame = peer.frame("request", ask);
    peer.send(&frame).await;
    let pending = world
        .until("/api/v1/permission-requests?state=pending", |listed| listed["permission_requests"].get(0).is_some())
        .await;
    let prm = pending["permission_requests"][0]["permission_request_id"].as_str().unwrap();
    world
        .owner
        .post(&format!("/api/v1/permission-requests/{prm}/decision"), json!({"approved": true}))
        .await
        .expect(200);
    assert_eq!(peer.find_action("require_approval").await["payload"]["approved"], true);
    peer.settle().await;
    drop(peer);
    // The new connection remembers no frames of the old one, but the store knows the name too.
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let resume = json!({"action": "resume", "channel_id": registered["channel_id"],
        "resume_token": registered["resume_token"], "last_seq": 0});
    assert_eq!(peer.request(resume).await["ok"], true);
    let mut evil = frame.clone();
    evil["payload"]["input"] = json!({"path": "/"});
    peer.send(&evil).await;
    let refused = peer
        .find(|frame| frame["header"]["parent_id"] == evil["header"]["msg_id"] && frame["payload"]["ok"] == false)
        .await["payload"]
        .clone();
    assert_eq!(refused["error"]["code"], "idempotency_key_reused");
    let all = world.owner.get("/api/v1/permission-requests").await.expect(200);
    assert_eq!(all["permission_requests"].as_array().unwrap().len(), 1, "and nobody was asked, or approved, anything");
}

#[tokio::test]
async fn input_reaches_the_worker_asked_or_unsolicited() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    let frame =
        peer.frame("request", json!({"action": "require_input", "task_run_id": id, "epoch": 1, "prompt": "which?"}));
    peer.send(&frame).await;
    while read_run(&world, &id).await["waiting"] != "input" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let path = format!("/api/v1/task-runs/{id}/input");
    world.owner.post(&path, json!({"text": "blue"})).await.expect(200);
    let answer = peer.find_action("require_input").await;
    assert_eq!(answer["header"]["parent_id"], frame["header"]["msg_id"]);
    assert_eq!(answer["payload"], json!({"action": "require_input", "ok": true, "parts": [{"text": "blue"}]}));
    world.owner.post(&path, json!({"parts": [{"text": "and red"}]})).await.expect(200);
    let unasked = peer.find_action("input").await;
    let input = unasked["payload"]["input_id"].clone();
    assert!(input.as_str().unwrap().starts_with("inp_"), "{unasked}");
    let expected = json!({"action": "input", "task_run_id": id, "parts": [{"text": "and red"}], "input_id": input});
    assert_eq!(unasked["payload"], expected);
}

#[tokio::test]
async fn questions_about_a_run_that_was_pulled_are_answered_over_the_channel() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let id = run(&world, "builder").await;
    device.claim().await;
    let mut peer = TestPeer::try_connect(&world, WS, &[("x-runtime-token", device.token.as_str())]).await.unwrap();
    peer.register(json!({})).await;
    let ask = json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {}});
    let frame = peer.frame("request", ask);
    peer.send(&frame).await;
    while read_run(&world, &id).await["waiting"] != "approval" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let listed = world.owner.get("/api/v1/permission-requests").await.expect(200);
    let prm = listed["permission_requests"][0]["permission_request_id"].as_str().unwrap();
    world
        .owner
        .post(&format!("/api/v1/permission-requests/{prm}/decision"), json!({"approved": false}))
        .await
        .expect(200);
    let answer = peer.find_action("require_approval").await;
    assert_eq!(
        (&answer["payload"]["approved"], &answer["header"]["parent_id"]),
        (&json!(false), &frame["header"]["msg_id"])
    );
}

#[tokio::test]
async fn pulling_and_a_channel_at_once_never_run_a_task_twice() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let mut peer = TestPeer::try_connect(&world, WS, &[("x-runtime-token", device.token.as_str())]).await.unwrap();
    peer.register(json!({})).await;
    peer.notify(json!({"action": "ready", "credits": 40})).await;
    let mut made = Vec::new();
    for _ in 0..40 {
        made.push(run(&world, "builder").await);
    }
    let mut seen = Vec::new();
    loop {
        let pulled = device.pull(0).await.expect(200);
        match pulled["task_run"]["task_run_id"].as_str() {
            Some(id) => seen.push(id.to_owned()),
            None => break,
        }
    }
    while seen.len() < 40 {
        seen.push(peer.find_action("execute").await["payload"]["task_run_id"].as_str().unwrap().to_owned());
    }
    seen.sort();
    made.sort();
    assert_eq!(seen, made);
    assert_eq!(peer.settle().await, Vec::<serde_json::Value>::new());
}

#[tokio::test]
async fn messages_about_a_channel_are_kept_and_bounded() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, registered) = worker(&world, "builder").await;
    assert_eq!(peer.request(json!({"action": "message", "message": {"battery": 0.5}})).await["ok"], true);
    let big = peer.request(json!({"action": "message", "message": "x".repeat(5000)})).await;
    assert_eq!((&big["error"]["code"], &big["error"]["field"]), (&json!("too_large"), &json!("payload.message")));
    let mut refused = None;
    for _ in 0..40 {
        let reply = peer.request(json!({"action": "message", "message": 1})).await;
        if reply["ok"] == false {
            refused = Some(reply["error"]["code"].clone());
        }
    }
    assert_eq!(refused, Some(json!("too_many_requests")));
    let path = format!("/api/v1/channels/{}/events?limit=200", registered["channel_id"].as_str().unwrap());
    let events = world.owner.get(&path).await.expect(200);
    let messages: Vec<_> =
        events["events"].as_array().unwrap().iter().filter(|e| e["type"] == "channel.message").collect();
    assert_eq!((messages.len(), &messages[0]["data"]["message"]), (30, &json!({"battery": 0.5})));
}

#[tokio::test]
async fn a_stopping_hub_announces_it() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    world.hub.drain();
    assert_eq!(peer.find_action("drain").await["header"]["type"], "notification");
    let release = peer.frame("request", json!({"action": "release", "task_run_id": id, "epoch": 1}));
    peer.send(&release).await;
    // The hub gets to it only after the close timeout.
    std::thread::sleep(Duration::from_millis(1200));
    let released = peer.find(|told| told["header"]["parent_id"] == release["header"]["msg_id"]).await;
    assert_eq!(released["payload"]["status"], "pending", "what has not begun is handed back");
    assert_eq!(peer.closed().await, Some((1001, "hub_stopped".to_owned())));
}

#[tokio::test]
async fn a_newer_channel_of_the_same_agent_takes_the_claims_over() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut old = TestPeer::connect(&world, WS, Some(&key)).await;
    old.register(json!({})).await;
    let id = run(&world, "builder").await;
    old.notify(json!({"action": "ready", "credits": 2})).await;
    old.find_action("execute").await;
    let mut new = TestPeer::connect(&world, WS, Some(&key)).await;
    new.register(json!({"running": [id]})).await;
    assert_eq!(old.closed().await, Some((1008, "superseded".to_owned())));
    let done = json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"});
    assert_eq!(new.request(done).await["status"], "completed", "with the epoch that it had");
    until_status(&world, &id, "completed").await;
    // The old channel's credits have lapsed.
    run(&world, "builder").await;
    assert_eq!(new.settle().await, Vec::<serde_json::Value>::new());
}
