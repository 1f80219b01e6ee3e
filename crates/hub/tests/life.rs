//! The lifecycle of a run over HTTP, on the in-memory store and on SQLite.

use hyper::Method;
use serde_json::{Value, json};

use crate::world::{HttpReply, World};

#[tokio::test]
async fn a_task_runs_and_its_result_comes_back_on_the_model() {
    whole_life(World::start().await).await;
}

#[tokio::test]
async fn a_task_runs_and_its_result_comes_back_on_sqlite() {
    whole_life(World::on_sqlite().await).await;
}

#[tokio::test]
async fn an_artifact_is_an_event_of_the_run_only() {
    for world in [World::start().await, World::on_sqlite().await] {
        world.agent("builder").await;
        let device = world.device("builder").await;
        let run = world.run("builder").await["task_run_id"].as_str().unwrap().to_owned();
        device.claim().await;
        let path = format!("/api/v1/task-runs/{run}");
        // The maximum size, which is larger than the body limit of most other calls.
        let head = r#"{"artifact_id":"a","name":"n","parts":[ {"data":42.0},{"text":""#;
        let artifact = format!(r#"{head}{}"}}]}}"#, "x".repeat((1 << 20) - head.len() - 4));
        assert_eq!(artifact.len(), 1 << 20);
        let body = format!(r#"{{"epoch":1,"message":"making","artifact":{artifact}}}"#);
        device.client.call(Method::POST, &format!("{path}/progress"), body).await.expect(200);
        let kinds = |page: &HttpReply| -> Vec<Value> {
            page.json()["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect()
        };
        // It fills a page on its own.
        let page = world.owner.get(&format!("{path}/events?after=2")).await;
        assert_eq!(kinds(&page), ["task.progress"]);
        let page = world.owner.get(&format!("{path}/events?after={}", page.json()["events"][0]["seq"])).await;
        assert_eq!(kinds(&page), ["artifact.changed"]);
        let text = String::from_utf8_lossy(&page.body).into_owned();
        assert!(text.contains(&format!(r#""data":{artifact}"#)));
        assert!(world.audit("artifact.changed").await.is_empty(), "only the run's own stream shows it");
    }
}

async fn whole_life(world: World) {
    world.agent("builder").await;
    let conversation =
        world.owner.post("/api/v1/conversations", json!({"metadata": {"instructions": "be brief"}})).await.expect(201);
    let instructions = json!({"instructions": "you build"});
    world.owner.patch("/api/v1/agent-accounts/builder", instructions).await.expect(200);
    let device = world.device("builder").await;
    let body = json!({"agent_id": "builder", "input": {"text": "make it"}, "conversation_id": conversation["conversation_id"]});
    let created = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    let run = created["task_run_id"].as_str().unwrap();
    assert_eq!((created["status"].as_str(), created["attempt"].as_i64()), (Some("pending"), Some(0)));

    let claimed = device.claim().await;
    assert_eq!(claimed["task_run_id"], run);
    assert_eq!(claimed["epoch"], 1);
    assert_eq!(claimed["input"], json!({"text": "make it"}));
    assert_eq!(claimed["instructions"], "you build\n\nbe brief");
    assert_eq!(claimed["workspace_id"], conversation["workspace_id"]);
    assert_eq!(device.pull(0).await.expect(200), json!({"task_run": null}));

    let heartbeat = json!({"agent_id": device.agent, "running": [run], "unknown": 1});
    let beat = device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", heartbeat).await.expect(200);
    let named = |agent: &str| {
        device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", json!({"agent_id": agent, "running": [run]}))
    };
    named("builder").await.expect(200);
    assert_eq!(named("nobody").await.refusal(), (404, "not_found".to_owned()));
    assert_eq!((&beat["status"], &beat["cancelled"]), (&json!("online"), &json!([])));

    let path = format!("/api/v1/task-runs/{run}");
    let progress = json!({"epoch": 1, "message": "half", "percent": 50, "chunk": "he", "usage": {"tokens": 3}});
    let answered = device.client.post(&format!("{path}/progress"), progress).await.expect(200);
    assert_eq!(answered, json!({"status": "running"}));
    let complete = json!({"epoch": 1, "output": {"text": "done", "details": {"n": 1}}, "usage": {"tokens": 9}});
    let finished = json!({"task_run_id": run, "status": "completed"});
    for _ in 0..2 {
        let reply = device.client.post(&format!("{path}/complete"), complete.clone()).await.expect(200);
        assert_eq!(reply, finished, "repeating the same report is harmless");
    }

    let read = world.owner.get(&path).await.expect(200);
    assert_eq!(read["status"], "completed");
    assert_eq!(read["task_result"], json!({"text": "done", "details": {"n": 1}}));
    assert_eq!(read["usage"], json!({"tokens": 9}));
    assert_eq!(read["runtime_id"], device.runtime.as_str());
    let page = world.owner.get(&format!("{path}/events?after=0")).await.expect(200);
    world.owner.get(&format!("{path}/events?after={}", i64::MAX)).await.expect(200);
    let kinds: Vec<&str> = page["events"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["task.created", "task.claimed", "task.progress", "task.chunk", "task.completed"]);
    assert_eq!(page["events"][2]["data"], json!({"message": "half", "percent": 50}));
    assert_eq!(page["events"][4]["data"]["output"]["text"], "done");
    assert_eq!((page["next"].as_i64(), page["status"].as_str()), (Some(5), Some("completed")));

    let messages = format!("/api/v1/conversations/{}/messages", conversation["conversation_id"].as_str().unwrap());
    world.owner.post(&messages, json!({"text": "thanks"})).await.expect(201);
    let said = world.owner.get(&messages).await.expect(200);
    let said: Vec<(&Value, &Value)> =
        said["messages"].as_array().unwrap().iter().map(|message| (&message["role"], &message["text"])).collect();
    let (user, agent) = (&json!("user"), &json!("agent"));
    assert_eq!(said, [(user, &json!("make it")), (agent, &json!("done")), (user, &json!("thanks"))]);
}

#[tokio::test]
async fn messages_page_oldest_first_without_losing_any() {
    let world = World::start().await;
    let conversation = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let path = format!("/api/v1/conversations/{}/messages", conversation["conversation_id"].as_str().unwrap());
    let texts: Vec<String> = (0..7).map(|number| format!("m{number}")).collect();
    for text in &texts {
        world.owner.post(&path, json!({"text": text})).await.expect(201);
    }
    let mut seen = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = world.owner.get(&format!("{path}?limit=3{cursor}")).await.expect(200);
        seen.extend(page["messages"].as_array().unwrap().iter().map(|m| m["text"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, texts);
}

#[tokio::test]
async fn the_same_idempotency_key_makes_one_run() {
    let world = World::start().await;
    world.agent("builder").await;
    let body = json!({"agent_id": "builder", "input": {"text": "x"}, "idempotency_key": "k1"});
    let first = world.owner.post("/api/v1/task-runs", body.clone()).await.expect(201);
    let again = world.owner.post("/api/v1/task-runs", body).await.expect(200);
    assert_eq!(first, again);
    let by_header = world.owner.with("idempotency-key", "k1");
    let same = json!({"agent_id": "builder", "input": {"text": "x"}});
    assert_eq!(by_header.post("/api/v1/task-runs", same).await.expect(200), first);
    let other = json!({"agent_id": "builder", "input": {"text": "y"}});
    let reused = by_header.post("/api/v1/task-runs", other).await;
    assert_eq!(reused.refusal(), (409, "idempotency_key_reused".to_owned()));
    let both = json!({"agent_id": "builder", "idempotency_key": "k2"});
    assert_eq!(by_header.post("/api/v1/task-runs", both).await.refusal(), (400, "invalid_request".to_owned()));
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_stale_epoch_gets_the_current_run() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    device.claim().await;
    device.client.post(&format!("{path}/release"), json!({"epoch": 1})).await.expect(200);
    assert_eq!(device.claim().await["epoch"], 2);
    let late = device.client.post(&format!("{path}/complete"), json!({"epoch": 1, "output": {"text": "late"}})).await;
    assert_eq!(late.refusal(), (409, "stale_epoch".to_owned()));
    let now = world.owner.get(&path).await.expect(200);
    assert_eq!((&late.json()["task_run"], &now["epoch"]), (&now, &json!(2)));
    device
        .client
        .post(&format!("{path}/fail"), json!({"output": {"error": "no", "code": "E9", "exit": 1}}))
        .await
        .expect(200);
    let ended = device.client.post(&format!("{path}/progress"), json!({"epoch": 2, "message": "x"})).await;
    assert_eq!(ended.refusal(), (409, "run_ended".to_owned()));
    let result = json!({"error": "no", "code": "task_failed", "native_code": "E9", "exit": 1});
    assert_eq!(ended.json()["task_run"]["task_result"], result);
    let log = world.owner.get("/api/v1/audit?limit=200").await.expect(200);
    let refused = log["events"].as_array().unwrap().iter().filter(|row| row["type"] == "task.refused").count();
    assert_eq!(refused, 1, "the stale call is in the log");
}

#[tokio::test]
async fn a_cancelled_run_ends_immediately_and_its_worker_is_notified() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let run = created["task_run_id"].as_str().unwrap();
    let path = format!("/api/v1/task-runs/{run}");
    device.claim().await;
    let mut events = device.client.follow(&format!("{path}/events?after=2")).await;
    let cancelled = world.owner.post(&format!("{path}/cancel"), json!({"reason": "enough"})).await.expect(200);
    assert_eq!(cancelled["status"], "cancelled");
    let told = events.next().await.unwrap();
    assert_eq!(
        (told.event.as_str(), told.data["data"]["output"]["code"].as_str()),
        ("task.cancelled", Some("cancelled"))
    );
    assert_eq!(events.next().await, None);
    let beat = device.client.post("/api/v1/agent-runtimes/runtime/heartbeat", json!({"running": [run]})).await;
    assert_eq!(beat.expect(200)["cancelled"], json!([run]));
    assert_eq!(world.owner.post(&format!("{path}/cancel"), json!({})).await.expect(200)["status"], "cancelled");
}

#[tokio::test]
async fn relayed_json_is_kept_byte_for_byte() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let input = r#"{"z": 9007199254740993, "b":42.0,"d":1e400, "text":"\u00e9", "a":{"x":1,"x":2}}"#;
    let output = r#"{"text":"ok" , "n":-0, "m":1.10}"#;
    let client = world.owner.with("content-type", "application/json");
    let body = format!(r#"{{"agent_id":"builder","input":{input}}}"#);
    let created = client.call(hyper::Method::POST, "/api/v1/task-runs", body).await;
    assert!(String::from_utf8_lossy(&created.body).contains(&format!("\"input\":{input},")));
    let run = serde_json::from_slice::<attache_protocol::wire::run::Run>(&created.body).unwrap().task_run_id;
    let pulled = device.pull(0).await;
    assert!(String::from_utf8_lossy(&pulled.body).contains(&format!("\"input\":{input},")));
    let worker = device.client.with("content-type", "application/json");
    let path = format!("/api/v1/task-runs/{run}");
    worker
        .call(hyper::Method::POST, &format!("{path}/complete"), format!(r#"{{"output":{output}}}"#))
        .await
        .expect(200);
    let read = world.owner.get(&path).await;
    assert!(String::from_utf8_lossy(&read.body).contains(&format!("\"task_result\":{output},")));
}

#[tokio::test]
async fn the_callers_trace_is_kept_or_a_new_one_is_created() {
    let world = World::start().await;
    world.agent("builder").await;
    let traced = world.owner.with("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let body = json!({"agent_id": "builder"});
    let run = traced.post("/api/v1/task-runs", body.clone()).await.expect(201);
    assert_eq!(run["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let run = world.owner.post("/api/v1/task-runs", body).await.expect(201);
    assert_eq!(run["trace_id"].as_str().map(str::len), Some(32));
}

#[tokio::test]
async fn an_undelivered_claim_goes_back_to_the_queue() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let pull = format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms=30000", device.agent);
    let waiting = tokio::spawn({
        let client = device.client.clone();
        async move { client.send(hyper::Method::POST, &pull, bytes::Bytes::new()).await }
    });
    wait_for_connections(&world, 1).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let created = world.run("builder").await;
    // Whether the hub noticed the loss before or after it claimed, the next pull gets the run.
    let claimed = device.pull(5000).await.expect(200);
    assert_eq!(claimed["task_run"]["task_run_id"], created["task_run_id"]);
    assert_eq!(claimed["task_run"]["attempt"], 1);
}

#[tokio::test]
async fn dropping_a_pulled_claim_releases_it_and_delivering_keeps_it() {
    use std::time::Duration;
    let world = World::start().await;
    world.agent("builder").await;
    let code = world.code("builder").await;
    let path = "/api/v1/agent-runtimes/runtime/attach-via-pairing";
    let attached = world.anonymous().post(path, json!({"pairing_token": code})).await.expect(200);
    let by = world.hub.authenticate_runtime(attached["runtime_token"].as_str().unwrap()).await.unwrap();
    let created = world.run("builder").await;
    let pulled = world.hub.pull(&by, "builder", Duration::ZERO).await.unwrap();
    assert!(pulled.response().task_run.is_some());
    drop(pulled);
    let again = world.hub.pull(&by, "builder", Duration::from_secs(5)).await.unwrap();
    let claimed = again.delivered().unwrap();
    assert_eq!((claimed.epoch, claimed.attempt), (2, 1));
    let read = world.owner.get(&format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap())).await;
    assert_eq!(read.expect(200)["status"], "running");
}

#[tokio::test]
async fn a_long_pull_is_woken_by_a_new_run() {
    let world = World::tuned(|options| options.poll_every = std::time::Duration::from_secs(60)).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let waiting = tokio::spawn(async move { device.pull(30_000).await });
    wait_for_connections(&world, 1).await;
    let created = world.run("builder").await;
    let pulled = waiting.await.unwrap().expect(200);
    assert_eq!(pulled["task_run"]["task_run_id"], created["task_run_id"]);
}

#[tokio::test]
async fn a_silent_runtime_loses_its_run_and_goes_offline() {
    use std::time::Duration;
    let world = World::tuned(|options| {
        options.heartbeat_timeout = Duration::from_millis(200);
        options.sweep_every = Duration::from_millis(20);
    })
    .await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let run = created["task_run_id"].as_str().unwrap();
    device.claim().await;
    let events = world.owner.follow(&format!("/api/v1/task-runs/{run}/events")).await.rest().await;
    let last = events.last().unwrap();
    assert_eq!((last.event.as_str(), &last.data["data"]["code"]), ("task.failed", &json!("runtime_lost")));
    let account = world.owner.get("/api/v1/agent-accounts/builder").await.expect(200);
    assert_eq!(account["status"], "offline");
}

/// Waits until the hub has this many open connections, which means that a pending request has arrived.
pub async fn wait_for_connections(world: &World, wanted: u64) {
    for _ in 0..500 {
        let metrics = world.owner.get("/metrics").await;
        let text = String::from_utf8_lossy(&metrics.body).into_owned();
        let open = text.lines().find_map(|line| line.strip_prefix("attache_connections ")).unwrap();
        // This request's own connection counts too.
        if open.parse::<u64>().unwrap() > wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the hub never had {wanted} connections");
}

#[tokio::test]
async fn a_claims_response_has_a_content_length() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    world.run("builder").await;
    let pulled = device.pull(0).await;
    assert_eq!(pulled.header("content-length"), pulled.body.len().to_string());
    assert!(pulled.expect(200)["task_run"].is_object());
}
