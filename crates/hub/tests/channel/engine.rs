//! An engine over a WebSocket: creates runs, receives all events, answers questions.

use serde_json::{Value, json};

use super::peer::{TestPeer, WS, engine, owner_key, read_run, register_agent, until_status, worker};
use crate::world::World;

/// A frame of an engine to an agent.
pub fn execute(peer: &mut TestPeer, agent: &str, payload: Value) -> Value {
    let mut frame = peer.frame("request", payload);
    frame["header"]["to"] = json!(agent);
    frame["payload"]["action"] = json!("execute");
    frame
}

/// The action and payload of the frames that are not about the run's lifecycle.
pub fn said(frames: &[Value]) -> Vec<(String, Value)> {
    let action = |frame: &Value| frame["payload"]["action"].as_str().unwrap().to_owned();
    let wanted = frames.iter().filter(|frame| !["event", "ack"].contains(&action(frame).as_str()));
    wanted.map(|frame| (action(frame), frame["payload"].clone())).collect()
}

#[tokio::test]
async fn an_engine_receives_all_events_of_its_run() {
    let world = World::start().await;
    let agent = world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let (mut host, registered) = engine(&world, json!([])).await;
    assert_eq!(registered["agent_id"], json!(null));
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let mut frame = execute(
        &mut host,
        "builder",
        json!({"query": "go", "context_fragments": ["a"], "allowed_tools": ["x"], "workspace_root": "/w"}),
    );
    frame["metadata"] = json!({"trace_id": "global_trace_id", "ttl": 3});
    let started = host.ask(&frame).await["payload"].clone();
    let id = started["task_run_id"].as_str().unwrap().to_owned();
    assert_eq!((&started["action"], &started["ok"]), (&json!("execute"), &json!(true)));

    let got = sub.find_action("execute").await;
    assert_eq!(got["metadata"], json!({"trace_id": "global_trace_id", "ttl": 2}), "one hop was taken");
    let payload = &got["payload"];
    assert_eq!(
        (&payload["query"], &payload["context_fragments"], &payload["allowed_tools"], &payload["workspace_root"]),
        (&json!("go"), &json!(["a"]), &json!(["x"]), &json!("/w"))
    );
    let work = |mut payload: Value| {
        payload["task_run_id"] = json!(id);
        payload["epoch"] = json!(1);
        payload
    };
    let chunk = sub.frame("chunk", work(json!({"action": "chunk", "text": "he"})));
    sub.send(&chunk).await;
    sub.notify(work(json!({"action": "think", "thought_text": "hm"}))).await;
    sub.notify(work(json!({"action": "log", "level": "warn", "message": "line"}))).await;
    sub.notify(work(json!({"action": "progress", "message": "half", "percent": 50}))).await;
    sub.request(work(json!({"action": "done", "result_summary": "all", "usage_stats": {"tokens": 3}}))).await;

    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["payload"]["action"] != "done") {
        frames.push(host.next().await);
    }
    assert!(frames.iter().all(|told| told["header"]["parent_id"] == frame["header"]["msg_id"]), "{frames:#?}");
    let seqs: Vec<_> = frames.iter().map(|frame| frame["header"]["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, (1..=frames.len() as i64).collect::<Vec<_>>());
    assert_eq!(
        said(&frames),
        [
            ("chunk".to_owned(), json!({"action": "chunk", "task_run_id": id, "text": "he"})),
            ("think".to_owned(), json!({"action": "think", "task_run_id": id, "thought_text": "hm"})),
            ("log".to_owned(), json!({"action": "log", "task_run_id": id, "level": "warn", "message": "line"})),
            ("progress".to_owned(), json!({"action": "progress", "task_run_id": id, "message": "half", "percent": 50})),
            (
                "done".to_owned(),
                json!({"action": "done", "task_run_id": id, "result_summary": "all", "artifact_refs": [],
                    "usage_stats": {"tokens": 3}, "output": {"text": "all", "artifact_refs": []}})
            ),
        ]
    );
    let kinds: Vec<_> = frames.iter().map(|frame| frame["header"]["type"].as_str().unwrap()).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == "chunk").count(), 1);
    assert_eq!(read_run(&world, &id).await["agent_id"], json!(agent));
}

#[tokio::test]
async fn a_tool_call_goes_to_the_engine_and_its_result_comes_back() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let (mut host, _) = engine(
        &world,
        json!([{"name": "lookup", "description": "d", "input_schema": {"type": "object", "required": ["q"]}}]),
    )
    .await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
    let got = sub.find_action("execute").await;
    assert_eq!(got["payload"]["allowed_tools"], json!(["lookup"]), "without a list, all that the engine has");
    assert_eq!(got["payload"]["tools"][0]["description"], "d");
    let call = sub.frame(
        "request",
        json!({"action": "call_tool", "task_run_id": id, "epoch": 1, "tool_name": "lookup", "arguments": {"q": 1.0}}),
    );
    sub.send(&call).await;
    let asked = host.find_action("call_tool").await;
    assert_eq!(
        (&asked["header"]["type"], &asked["header"]["parent_id"]),
        (&json!("request"), &frame["header"]["msg_id"])
    );
    assert_eq!(
        asked["payload"],
        json!({"action": "call_tool", "task_run_id": id, "tool_name": "lookup", "arguments": {"q": 1.0}})
    );
    let mut reply = host.frame("response", json!({"action": "call_tool", "ok": true, "result": {"found": [1, 2]}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    let answer = sub.find_action("call_tool").await;
    assert_eq!(answer["header"]["parent_id"], call["header"]["msg_id"]);
    assert_eq!(answer["payload"], json!({"action": "call_tool", "ok": true, "result": {"found": [1, 2]}}));
    // The engine's refusal reaches the worker too.
    let call = sub.frame(
        "request",
        json!({"action": "call_tool", "task_run_id": id, "epoch": 1, "tool_name": "lookup", "arguments": {"q": 2}}),
    );
    sub.send(&call).await;
    let asked = host.find_action("call_tool").await;
    let mut reply = host.frame("response", json!({"action": "call_tool", "ok": false, "error": {"code": "nope"}}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    let answer = sub.find(|told| told["header"]["parent_id"] == call["header"]["msg_id"]).await;
    assert_eq!(answer["payload"], json!({"action": "call_tool", "ok": false, "error": {"code": "nope"}}));
}

#[tokio::test]
async fn an_engine_decides_only_where_its_principal_may() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    let caller = register_agent(&world, "caller").await;
    let mut agent = TestPeer::connect(&world, WS, Some(&caller)).await;
    agent.register(json!({"peer_role": "host"})).await;
    for (peer, may) in [(&mut host, true), (&mut agent, false)] {
        sub.notify(json!({"action": "ready", "credits": 1})).await;
        let frame = execute(peer, "builder", json!({"query": "go"}));
        let id = peer.ask(&frame).await["payload"]["task_run_id"].clone();
        sub.find_action("execute").await;
        let ask = sub.frame("request", json!({"action": "require_approval", "task_run_id": id, "epoch": 1, "tool": "rm", "input": {"a": 1}, "risk": "high"}));
        sub.send(&ask).await;
        let asked = peer.find_action("require_approval").await;
        assert_eq!(asked["header"]["type"], "request");
        assert_eq!(
            (
                &asked["payload"]["tool"],
                &asked["payload"]["input"],
                &asked["payload"]["risk"],
                &asked["payload"]["task_run_id"]
            ),
            (&json!("rm"), &json!({"a": 1}), &json!("high"), &id)
        );
        let mut reply = peer.frame("response", json!({"approved": true}));
        reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
        let prm = asked["payload"]["permission_request_id"].as_str().unwrap().to_owned();
        if may {
            peer.send(&reply).await;
            assert_eq!(sub.find_action("require_approval").await["payload"]["approved"], true);
            let decided = world.owner.get(&format!("/api/v1/permission-requests/{prm}")).await.expect(200);
            assert_eq!((&decided["state"], &decided["decided_via"]), (&json!("approved"), &json!("channel")));
            assert!(decided["decided_by"].as_str().unwrap().starts_with("key:"));
        } else {
            let refused = peer.ask(&reply).await;
            assert_eq!(refused["payload"]["error"]["code"], "forbidden");
            let decided = world.owner.get(&format!("/api/v1/permission-requests/{prm}")).await.expect(200);
            assert_eq!(decided["state"], "pending");
        }
    }
}

#[tokio::test]
async fn an_engine_gives_input_and_cancels() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
    sub.find_action("execute").await;
    let ask =
        sub.frame("request", json!({"action": "require_input", "task_run_id": id, "epoch": 1, "prompt": "which?"}));
    sub.send(&ask).await;
    let asked = host.find_action("require_input").await;
    assert_eq!((&asked["header"]["type"], &asked["payload"]["prompt"]), (&json!("request"), &json!("which?")));
    let mut reply = host.frame("response", json!({"action": "require_input", "ok": true, "parts": [{"text": "this"}]}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    host.send(&reply).await;
    assert_eq!(sub.find_action("require_input").await["payload"]["parts"], json!([{"text": "this"}]));
    let given = host.request(json!({"action": "input", "task_run_id": id, "parts": [{"text": "more"}]})).await;
    assert_eq!((&given["ok"], &given["status"]), (&json!(true), &json!("running")));
    assert_eq!(sub.find_action("input").await["payload"]["parts"], json!([{"text": "more"}]));
    let cancelled = host.request(json!({"action": "cancel", "task_run_id": id, "reason": "enough"})).await;
    assert_eq!((&cancelled["ok"], &cancelled["status"]), (&json!(true), &json!("cancelled")));
    sub.find_action("cancel").await;
    let fail = host.find_action("fail").await["payload"].clone();
    assert_eq!((&fail["code"], &fail["error"]), (&json!("cancelled"), &json!("enough")));
}

#[tokio::test]
async fn an_invalid_execute_is_refused_with_the_field() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    let refusal = async |host: &mut TestPeer, to: &str, payload: Value, ttl: Value| {
        let mut frame = execute(host, to, payload);
        frame["metadata"] = json!({"ttl": ttl});
        let reply = host.ask(&frame).await["payload"].clone();
        assert_eq!((&reply["action"], &reply["ok"]), (&json!("execute"), &json!(false)), "{reply}");
        (reply["error"]["code"].as_str().unwrap().to_owned(), reply["error"]["field"].clone())
    };
    let go = || json!({"query": "go"});
    let is = |code: &str, field: Value| (code.to_owned(), field);
    assert_eq!(refusal(&mut host, "nobody", go(), json!(3)).await, is("not_found", json!(null)));
    assert_eq!(refusal(&mut host, "not a name", go(), json!(3)).await, is("invalid_request", json!("header.to")));
    assert_eq!(refusal(&mut host, "builder", json!({}), json!(3)).await, is("invalid_frame", json!("payload.query")));
    for ttl in [0, -1] {
        assert_eq!(refusal(&mut host, "builder", go(), json!(ttl)).await, is("loop_refused", json!("metadata.ttl")));
    }
    let tools = json!({"query": "go", "allowed_tools": [7]});
    assert_eq!(
        refusal(&mut host, "builder", tools, json!(1)).await,
        is("invalid_frame", json!("payload.allowed_tools"))
    );
    let viewer = world.owner.post("/api/v1/api-keys", json!({"name": "v", "role": "viewer"})).await.expect(201);
    assert_eq!(TestPeer::refused(&world, WS, viewer["api_key"].as_str().unwrap()).await, 403);
    assert_eq!(world.owner.get("/api/v1/task-runs").await.expect(200)["task_runs"], json!([]));
}

#[tokio::test]
async fn each_forwarding_uses_a_hop_until_work_is_refused() {
    let world = World::start().await;
    let names = ["one", "two", "three", "four", "five"];
    let mut agents = Vec::new();
    for name in names {
        world.agent(name).await;
        agents.push(worker(&world, name).await.0);
    }
    let (mut host, _) = engine(&world, json!([])).await;
    let mut frame = execute(&mut host, "one", json!({"query": "pass it on"}));
    frame["metadata"] = json!({"ttl": 4});
    host.ask(&frame).await;
    let mut hops = 0;
    for turn in 0.. {
        let (this, next) = (turn, names[turn + 1]);
        agents[this].notify(json!({"action": "ready", "credits": 1})).await;
        let got = agents[this].find_action("execute").await;
        hops += 1;
        // An agent passes on its task with the metadata it received.
        let query = json!({"query": "again", "parent_task_run_id": got["payload"]["task_run_id"]});
        let mut frame = execute(&mut agents[this], next, query);
        frame["metadata"] = got["metadata"].clone();
        let reply = agents[this].ask(&frame).await["payload"].clone();
        if reply["ok"] == false {
            assert_eq!(reply["error"]["code"], "loop_refused");
            break;
        }
    }
    assert_eq!(hops, 4);
}

#[tokio::test]
async fn an_engine_that_does_not_read_loses_nothing_and_slows_no_one_down() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut sub, _) = worker(&world, "builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].as_str().unwrap().to_owned();
    sub.find_action("execute").await;
    // Far more than the sockets' buffers hold.
    let filler = "x".repeat(16 * 1024);
    for number in 0..700 {
        let chunk = json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": format!("{number} {filler}")});
        let chunk = sub.frame("chunk", chunk);
        sub.send(&chunk).await;
    }
    let done = sub.request(json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"})).await;
    assert_eq!(done["ok"], true, "the worker never waited for the reader");
    until_status(&world, &id, "completed").await;
    let mut numbers = Vec::new();
    loop {
        let frame = host.next().await;
        match frame["payload"]["action"].as_str().unwrap() {
            "chunk" => {
                let text = frame["payload"]["text"].as_str().unwrap();
                numbers.push(text.split(' ').next().unwrap().parse::<usize>().unwrap());
            }
            "done" => break,
            _ => {}
        }
    }
    assert_eq!(numbers, (0..700).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_repeated_request_is_the_same_run_even_over_another_channel() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = owner_key(&world);
    let (mut host, _) = engine(&world, json!([])).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let first = host.ask(&frame).await;
    let again = host.ask(&frame).await;
    assert_eq!(first, again, "the stored reply");
    host.close().await;
    let mut other = TestPeer::connect(&world, WS, Some(&key)).await;
    other.register(json!({"peer_role": "host"})).await;
    let moved = other.ask(&frame).await;
    assert_eq!(moved["payload"], first["payload"]);
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"].as_array().unwrap().len(), 1);
    // The run is followed by its latest requester.
    let id = first["payload"]["task_run_id"].as_str().unwrap();
    world.owner.post(&format!("/api/v1/task-runs/{id}/cancel"), json!({})).await.expect(200);
    assert_eq!(other.find_action("fail").await["payload"]["code"], "cancelled");
}

#[tokio::test]
async fn an_event_too_large_for_a_frame_becomes_a_reference() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let (mut host, _) = engine(&world, json!([])).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].as_str().unwrap().to_owned();
    device.claim().await;
    let output = json!({"epoch": 1, "output": {"text": "x".repeat(1 << 20)}});
    device.client.post(&format!("/api/v1/task-runs/{id}/complete"), output).await.expect(200);
    let done = host.find_action("done").await["payload"].clone();
    let read = format!("/api/v1/task-runs/{id}/events?after=2&limit=1");
    assert_eq!(done, json!({"action": "done", "task_run_id": id, "omitted": true, "read": read}));
    let whole = world.owner.get(&read).await.expect(200);
    assert_eq!(whole["events"][0]["data"]["output"]["text"].as_str().map(str::len), Some(1 << 20));
}
