//! Disconnecting and resuming: acknowledgements, single-use tokens, repeated frames, and repair.

use serde_json::{Value, json};

use super::{
    engine::execute,
    peer::{TestPeer, WS, engine, owner_key, read_run, register_agent, run},
};
use crate::world::World;

fn resume(registered: &Value, last_seq: i64) -> Value {
    json!({"action": "resume", "channel_id": registered["channel_id"], "resume_token": registered["resume_token"], "last_seq": last_seq})
}

async fn on_sqlite_and_the_model(body: impl AsyncFn(World)) {
    body(World::start().await).await;
    body(World::on_sqlite().await).await;
}

#[tokio::test]
async fn unacknowledged_frames_are_resent_in_order_and_answers_survive() {
    on_sqlite_and_the_model(async |world| {
        world.agent("builder").await;
        let key = register_agent(&world, "builder").await;
        let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
        let registered = peer.register(json!({})).await;
        let (one, two) = (run(&world, "builder").await, run(&world, "builder").await);
        peer.notify(json!({"action": "ready", "credits": 2})).await;
        let first = peer.find_action("execute").await;
        let second = peer.find_action("execute").await;
        let ask = json!({"action": "require_approval", "task_run_id": one, "epoch": 1, "tool": "rm", "input": {}});
        let ask = peer.frame("request", ask);
        peer.send(&ask).await;
        while read_run(&world, &one).await["waiting"] != "approval" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        peer.notify(json!({"action": "ack", "seq": 1})).await;
        peer.settle().await;
        drop(peer);

        // While disconnected, the person decides, and the other run is cancelled.
        let listed = world.owner.get("/api/v1/permission-requests").await.expect(200);
        let prm = listed["permission_requests"][0]["permission_request_id"].as_str().unwrap().to_owned();
        let path = format!("/api/v1/permission-requests/{prm}/decision");
        world.owner.post(&path, json!({"approved": true})).await.expect(200);
        world.owner.post(&format!("/api/v1/task-runs/{two}/cancel"), json!({})).await.expect(200);

        let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
        let resumed = peer.request(resume(&registered, 1)).await;
        assert_eq!((&resumed["ok"], &resumed["resumed_from"]), (&json!(true), &json!(1)), "{resumed}");
        let token = resumed["resume_token"].as_str().unwrap();
        assert!(token.starts_with("rs_") && token != registered["resume_token"]);
        let frames = [peer.next().await, peer.next().await, peer.next().await];
        let shown: Vec<_> =
            frames.iter().map(|f| (f["header"]["seq"].clone(), f["payload"]["action"].clone())).collect();
        assert_eq!(
            shown,
            [
                // The claim is gone, so its frame is replaced.
                (json!(2), json!("cancel")),
                (json!(3), json!("require_approval")),
                (json!(4), json!("cancel")),
            ]
        );
        assert_eq!(frames[0]["header"]["msg_id"], second["header"]["msg_id"], "a frame keeps its name");
        assert_eq!(frames[0]["payload"]["task_run_id"], json!(two));
        assert_eq!(frames[1]["header"]["parent_id"], ask["header"]["msg_id"]);
        // The claim and its epoch were kept.
        let done =
            json!({"action": "done", "task_run_id": one, "epoch": first["payload"]["epoch"], "result_summary": "x"});
        assert_eq!(peer.request(done).await["status"], "completed");
    })
    .await;
}

#[tokio::test]
async fn an_unacknowledged_execute_is_resent_unchanged() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    let first = peer.find_action("execute").await;
    drop(peer);
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    peer.request(resume(&registered, 0)).await;
    let mut again = peer.find_action("execute").await;
    again["header"]["timestamp"] = first["header"]["timestamp"].clone();
    again["payload"]["lease_expires_at"] = first["payload"]["lease_expires_at"].clone();
    assert_eq!(again, first);
}

#[tokio::test]
async fn a_token_works_once_and_only_for_its_own_channel_and_principal() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = peer.register(json!({})).await;
    peer.close().await;
    let refused = async |key: &str, payload: Value| {
        let mut peer = TestPeer::connect(&world, WS, Some(key)).await;
        let reply = peer.request(payload).await;
        assert_eq!(reply["ok"], false, "{reply}");
        reply["error"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(refused(&owner_key(&world), resume(&registered, 0)).await, "resume_refused", "another principal");
    let mut wrong = resume(&registered, 0);
    wrong["resume_token"] = json!("rs_00");
    assert_eq!(refused(&key, wrong).await, "resume_refused", "another token");
    let mut unknown = resume(&registered, 0);
    unknown["channel_id"] = json!("chn_00000000000000000000000000000001");
    assert_eq!(refused(&key, unknown).await, "resume_refused", "an unknown channel");

    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let fresh = peer.request(resume(&registered, 0)).await;
    assert_eq!(fresh["ok"], true);
    assert_eq!(refused(&key, resume(&registered, 0)).await, "resume_refused", "a used token");
    drop(peer);
    let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
    let mut next = resume(&registered, 0);
    next["resume_token"] = fresh["resume_token"].clone();
    assert_eq!(peer.request(next.clone()).await["ok"], true, "the fresh one works");
    // Registering again invalidates what came before.
    let mut newer = TestPeer::connect(&world, WS, Some(&key)).await;
    newer.register(json!({})).await;
    assert_eq!(refused(&key, next).await, "resume_refused", "a superseded channel");
}

#[tokio::test]
async fn an_impossible_last_seq_is_refused_and_keeps_the_token() {
    on_sqlite_and_the_model(async |world| {
        world.agent("builder").await;
        let key = register_agent(&world, "builder").await;
        let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
        let registered = peer.register(json!({})).await;
        run(&world, "builder").await;
        peer.notify(json!({"action": "ready", "credits": 1})).await;
        peer.find_action("execute").await;
        drop(peer);
        let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
        for beyond in [2, 1000, i64::MAX] {
            let reply = peer.request(resume(&registered, beyond)).await;
            assert_eq!(
                (&reply["ok"], &reply["error"]["code"], &reply["error"]["field"]),
                (&json!(false), &json!("invalid_frame"), &json!("payload.last_seq")),
                "{reply}"
            );
        }
        // No one else learns how far the channel got.
        let mut other = TestPeer::connect(&world, WS, Some(&owner_key(&world))).await;
        assert_eq!(other.request(resume(&registered, 1000)).await["error"]["code"], "resume_refused");
        let resumed = peer.request(resume(&registered, 1)).await;
        assert_eq!((&resumed["ok"], &resumed["resumed_from"]), (&json!(true), &json!(1)), "{resumed}");
    })
    .await;
}

#[tokio::test]
async fn a_resumed_channel_leaves_its_old_connection() {
    let world = World::start().await;
    world.agent("builder").await;
    let key = register_agent(&world, "builder").await;
    let mut old = TestPeer::connect(&world, WS, Some(&key)).await;
    let registered = old.register(json!({})).await;
    let mut new = TestPeer::connect(&world, WS, Some(&key)).await;
    assert_eq!(new.request(resume(&registered, 0)).await["ok"], true);
    assert_eq!(old.closed().await, Some((1008, "superseded".to_owned())));
    let channels = world.owner.get("/api/v1/channels").await.expect(200);
    assert_eq!(
        (channels["channels"].as_array().unwrap().len(), &channels["channels"][0]["status"]),
        (1, &json!("connected")),
        "the end of the old connection is not the end of the channel"
    );
    run(&world, "builder").await;
    new.notify(json!({"action": "ready", "credits": 1})).await;
    new.find_action("execute").await;
}

#[tokio::test]
async fn below_the_floor_a_gap_is_reported_with_a_snapshot() {
    on_sqlite_and_the_model(async |world| {
        world.agent("builder").await;
        let key = register_agent(&world, "builder").await;
        let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
        let registered = peer.register(json!({})).await;
        let id = run(&world, "builder").await;
        run(&world, "builder").await;
        peer.notify(json!({"action": "ready", "credits": 2})).await;
        peer.find_action("execute").await;
        peer.find_action("execute").await;
        assert_eq!(peer.request(json!({"action": "ack", "seq": 2})).await["ok"], true);
        peer.close().await;
        // The peer lost its state and names an older frame than it acknowledged.
        let mut peer = TestPeer::connect(&world, WS, Some(&key)).await;
        let resumed = peer.request(resume(&registered, 0)).await;
        assert_eq!((&resumed["ok"], &resumed["repaired"]), (&json!(true), &json!({"from": 1, "to": 2})), "{resumed}");
        let snapshot = &resumed["snapshot"];
        assert_eq!(snapshot["channel"]["channel_id"], registered["channel_id"]);
        let held: Vec<_> =
            snapshot["task_runs"].as_array().unwrap().iter().map(|run| run["task_run_id"].clone()).collect();
        assert!(held.len() == 2 && held.contains(&json!(id)), "{snapshot}");
    })
    .await;
}

#[tokio::test]
async fn impossible_acknowledgements_are_refused() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = super::peer::worker(&world, "builder").await;
    for seq in [-1, 1, 1000] {
        let reply = peer.request(json!({"action": "ack", "seq": seq})).await;
        assert_eq!((&reply["ok"], &reply["error"]["field"]), (&json!(false), &json!("payload.seq")));
    }
}

#[tokio::test]
async fn numbered_frames_are_acknowledged() {
    let world = World::start().await;
    world.agent("builder").await;
    let (mut peer, _) = super::peer::worker(&world, "builder").await;
    let id = run(&world, "builder").await;
    peer.notify(json!({"action": "ready", "credits": 1})).await;
    peer.find_action("execute").await;
    for seq in 1..=20 {
        let mut chunk = peer.frame("chunk", json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": "x"}));
        chunk["header"]["seq"] = json!(seq);
        peer.send(&chunk).await;
    }
    let last = peer.find(|frame| frame["payload"] == json!({"action": "ack", "seq": 20})).await;
    assert_eq!(last["header"]["type"], "notification");
    assert_eq!(last["header"].get("seq"), None);
}

#[tokio::test]
async fn an_engine_resumes_with_every_event_once() {
    on_sqlite_and_the_model(async |world| {
        world.agent("builder").await;
        let (mut sub, _) = super::peer::worker(&world, "builder").await;
        let (mut host, registered) = engine(&world, json!([])).await;
        sub.notify(json!({"action": "ready", "credits": 1})).await;
        let frame = execute(&mut host, "builder", json!({"query": "go"}));
        let id = host.ask(&frame).await["payload"]["task_run_id"].as_str().unwrap().to_owned();
        sub.find_action("execute").await;
        let chunk = |text: String| json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": text});
        let mut seen = Vec::new();
        let mut last = 0;
        let mut current = registered;
        let key = owner_key(&world);
        for round in 0..6 {
            for number in 0..7 {
                let chunk = sub.frame("chunk", chunk(format!("{round}.{number}")));
                sub.send(&chunk).await;
            }
            // Read part of it, then drop the connection without a close frame.
            for _ in 0..4 {
                let told = host.find(|frame| frame["header"]["seq"].is_i64()).await;
                assert_eq!(told["header"]["seq"], json!(last + 1));
                last += 1;
                if told["payload"]["action"] == "chunk" {
                    assert_eq!(told["header"]["parent_id"], frame["header"]["msg_id"]);
                    seen.push(told["payload"]["text"].as_str().unwrap().to_owned());
                }
            }
            drop(host);
            host = TestPeer::connect(&world, WS, Some(&key)).await;
            let resumed = host.request(resume(&current, last)).await;
            assert_eq!(resumed["ok"], true, "{resumed}");
            current["resume_token"] = resumed["resume_token"].clone();
        }
        sub.request(json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"})).await;
        loop {
            let told = host.find(|frame| frame["header"]["seq"].is_i64()).await;
            assert_eq!(told["header"]["seq"], json!(last + 1));
            last += 1;
            match told["payload"]["action"].as_str().unwrap() {
                "chunk" => seen.push(told["payload"]["text"].as_str().unwrap().to_owned()),
                "done" => break,
                _ => {}
            }
        }
        let wanted: Vec<_> = (0..6).flat_map(|round| (0..7).map(move |number| format!("{round}.{number}"))).collect();
        assert_eq!(seen, wanted);
    })
    .await;
}

#[tokio::test]
async fn a_settled_request_is_resent_as_an_event() {
    on_sqlite_and_the_model(async |world| {
        world.agent("builder").await;
        let (mut sub, _) = super::peer::worker(&world, "builder").await;
        let (mut host, registered) =
            engine(&world, json!([{"name": "count", "input_schema": {"type": "object"}}])).await;
        sub.notify(json!({"action": "ready", "credits": 1})).await;
        let frame = execute(&mut host, "builder", json!({"query": "go"}));
        let id = host.ask(&frame).await["payload"]["task_run_id"].clone();
        sub.find_action("execute").await;
        let ask = async |sub: &mut TestPeer, host: &mut TestPeer, mut payload: Value| {
            (payload["task_run_id"], payload["epoch"]) = (id.clone(), json!(1));
            let action = payload["action"].clone();
            let frame = sub.frame("request", payload);
            sub.send(&frame).await;
            host.find(|told| told["payload"]["action"] == action && told["header"]["type"] == "request").await
        };
        let call = json!({"action": "call_tool", "tool_name": "count", "arguments": {}});
        let approval = json!({"action": "require_approval", "tool": "rm", "input": {}});
        let input = json!({"action": "require_input", "prompt": "which?"});
        let mut asked = Vec::new();
        for question in [&call, &approval, &input] {
            asked.push(ask(&mut sub, &mut host, question.clone()).await);
        }
        for (asked, answer) in asked.iter().zip([
            json!({"action": "call_tool", "ok": true, "result": 1}),
            json!({"approved": true}),
            json!({"parts": [{"text": "this"}]}),
        ]) {
            let mut reply = host.frame("response", answer);
            reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
            host.send(&reply).await;
        }
        for action in ["call_tool", "require_approval", "require_input"] {
            sub.find_action(action).await;
        }
        for question in [&call, &approval, &input] {
            asked.push(ask(&mut sub, &mut host, question.clone()).await);
        }
        drop(host);

        let shown = |frame: &Value| {
            let (header, payload) = (&frame["header"], &frame["payload"]);
            [&header["seq"], &header["msg_id"], &header["parent_id"], &header["type"], &payload["action"]]
                .map(Value::clone)
        };
        let past = |frame: &Value| {
            let mut shown = shown(frame);
            (shown[3], shown[4]) = (json!("notification"), json!("event"));
            shown
        };
        let key = owner_key(&world);
        let again = async |registered: &Value| {
            let mut host = TestPeer::connect(&world, WS, Some(&key)).await;
            let resumed = host.request(resume(registered, 0)).await;
            assert_eq!((&resumed["ok"], resumed.get("repaired")), (&json!(true), None), "{resumed}");
            let mut told = Vec::new();
            for asked in &asked {
                told.push(host.find(|told| told["header"]["seq"] == asked["header"]["seq"]).await);
            }
            let mut registered = registered.clone();
            registered["resume_token"] = resumed["resume_token"].clone();
            (told, registered)
        };
        // Answered questions come as events. Open ones are asked again, unchanged.
        let (told, registered) = again(&registered).await;
        let mut wanted: Vec<_> = asked.iter().map(shown).collect();
        for (wanted, asked) in wanted.iter_mut().zip(&asked).take(3) {
            *wanted = past(asked);
        }
        assert_eq!(told.iter().map(shown).collect::<Vec<_>>(), wanted);
        let (called, permission) = (&told[0]["payload"], &told[1]["payload"]);
        assert_eq!(
            (&called["type"], &called["task_run_id"], &called["data"]),
            (&json!("tool.called"), &id, &json!({"tool_name": "count", "state": "answered"}))
        );
        assert_eq!((&permission["type"], &permission["data"]["tool"]), (&json!("permission.requested"), &json!("rm")));
        assert_eq!(told[2]["payload"]["type"], "task.input_required");
        assert_eq!(told[3]["payload"], asked[3]["payload"]);

        // An ended run asks no questions.
        let cancel = format!("/api/v1/task-runs/{}/cancel", id.as_str().unwrap());
        world.owner.post(&cancel, json!({})).await.expect(200);
        let (told, _) = again(&registered).await;
        assert_eq!(told.iter().map(shown).collect::<Vec<_>>(), asked.iter().map(past).collect::<Vec<_>>());
        assert_eq!(told[3]["payload"]["data"], json!({"tool_name": "count", "state": "cancelled"}));
    })
    .await;
}

#[tokio::test]
async fn removed_events_are_reported_as_a_gap_of_their_run() {
    let world = World::tuned(|options| {
        options.keep_chunks = std::time::Duration::ZERO;
        options.retain_every = std::time::Duration::ZERO;
        options.sweep_every = std::time::Duration::from_millis(10);
    })
    .await;
    world.agent("builder").await;
    let (mut sub, _) = super::peer::worker(&world, "builder").await;
    let (mut host, registered) = engine(&world, json!([])).await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    let frame = execute(&mut host, "builder", json!({"query": "go"}));
    let id = host.ask(&frame).await["payload"]["task_run_id"].as_str().unwrap().to_owned();
    sub.find_action("execute").await;
    host.find(|told| told["payload"]["type"] == "task.claimed").await;
    let last = host.last_seq;
    assert_eq!(last, 2);
    host.close().await;
    for text in ["a", "b", "c"] {
        sub.request(json!({"action": "chunk", "task_run_id": id, "epoch": 1, "text": text})).await;
    }
    sub.request(json!({"action": "done", "task_run_id": id, "epoch": 1, "result_summary": "x"})).await;
    // Wait until retention has removed everything but the end.
    loop {
        let page = world.owner.get(&format!("/api/v1/task-runs/{id}/events")).await.expect(200);
        if page["events"][0]["type"] == "snapshot.repaired" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let mut host = TestPeer::connect(&world, WS, Some(&owner_key(&world))).await;
    assert_eq!(host.request(resume(&registered, last)).await["resumed_from"], json!(last));
    let mut told = Vec::new();
    while told.last().is_none_or(|frame: &Value| frame["payload"]["action"] != "done") {
        told.push(host.next().await);
    }
    let gap = json!({"action": "stream.gap", "task_run_id": id, "missing": {"from": 3, "to": 5}});
    assert_eq!(told[0]["payload"], gap);
    assert_eq!(told[0]["header"]["parent_id"], frame["header"]["msg_id"]);
    let seqs: Vec<_> = told.iter().map(|frame| frame["header"]["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, [3, 4, 5, 6], "no place is left out");
}
