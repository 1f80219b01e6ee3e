//! Event streams: once, in order, resumable, and explicit about gaps.

use std::time::Duration;

use serde_json::json;

use crate::world::{Engine, World};

#[tokio::test]
async fn a_stream_resumes_after_the_last_event_and_ends_with_the_run() {
    let world = World::start().await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    let mut live = world.owner.follow(&format!("{path}/events")).await;
    assert_eq!(live.next().await.unwrap().event, "task.created");
    device.claim().await;
    assert_eq!(live.next().await.unwrap().event, "task.claimed");
    for text in ["a", "b", "c"] {
        device.client.post(&format!("{path}/progress"), json!({"chunk": text})).await.expect(200);
    }
    let chunk = live.next().await.unwrap();
    assert_eq!((chunk.id, chunk.event.as_str()), (3, "task.chunk"));
    assert_eq!(
        (&chunk.data["seq"], &chunk.data["type"], &chunk.data["data"]),
        (&json!(3), &json!("task.chunk"), &json!({"text": "a"}))
    );
    drop(live);

    let resumed = world.owner.with("last-event-id", "3").follow(&format!("{path}/events?after=0")).await;
    device.client.post(&format!("{path}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
    let seen: Vec<(i64, String)> =
        resumed.rest().await.into_iter().map(|message| (message.id, message.event)).collect();
    let expected = [(4, "task.chunk"), (5, "task.chunk"), (6, "task.completed")];
    assert_eq!(seen, expected.map(|(id, event)| (id, event.to_owned())));

    let late = world.owner.follow(&format!("{path}/events")).await.rest().await;
    let paged = world.owner.get(&format!("{path}/events?limit=200")).await.expect(200);
    let late: Vec<_> = late.into_iter().map(|message| message.data).collect();
    assert_eq!(late, *paged["events"].as_array().unwrap(), "a late reader sees what an early one saw");
    let nothing = world.owner.with("last-event-id", "6").follow(&format!("{path}/events")).await.rest().await;
    assert_eq!(nothing, []);
    let wrong = world.owner.with("last-event-id", "x").with("accept", "text/event-stream");
    assert_eq!(wrong.get(&format!("{path}/events")).await.refusal(), (400, "invalid_request".to_owned()));
}

#[tokio::test]
async fn below_the_floor_a_reader_gets_a_gap() {
    let world = World::timed(Engine::Model, |options| {
        options.keep_chunks = Duration::ZERO;
        options.retain_every = Duration::ZERO;
    })
    .await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}", created["task_run_id"].as_str().unwrap());
    device.claim().await;
    device.client.post(&format!("{path}/progress"), json!({"chunk": "x"})).await.expect(200);
    device.client.post(&format!("{path}/complete"), json!({"output": {"text": "done"}})).await.expect(200);
    // The retention clock moves in full minutes.
    world.advance(Duration::from_secs(60));
    let first = loop {
        let page = world.owner.get(&format!("{path}/events")).await.expect(200);
        if page["events"][0]["type"] == "snapshot.repaired" {
            break page;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let events = first["events"].as_array().unwrap();
    assert_eq!(events[0]["data"]["missing"], json!({"from": 1, "to": 3}));
    assert_eq!(events[0]["data"]["snapshot"], world.owner.get(&path).await.expect(200));
    assert_eq!(
        (&events[0]["seq"], &events[1]["seq"], &events[1]["type"]),
        (&json!(3), &json!(4), &json!("task.completed"))
    );
    let streamed: Vec<_> =
        world.owner.follow(&format!("{path}/events")).await.rest().await.into_iter().map(|m| m.event).collect();
    assert_eq!(streamed, ["snapshot.repaired", "task.completed"]);
    let resumed = world.owner.with("last-event-id", "3").follow(&format!("{path}/events")).await.rest().await;
    assert_eq!(resumed.len(), 1);
}

#[tokio::test]
async fn an_idle_stream_sends_keep_alives() {
    use http_body_util::BodyExt as _;
    let world = World::tuned(|options| options.keep_alive = Duration::from_millis(30)).await;
    world.agent("builder").await;
    let created = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}/events?after=1", created["task_run_id"].as_str().unwrap());
    let client = world.owner.with("accept", "text/event-stream");
    let mut response = client.send(hyper::Method::GET, &path, bytes::Bytes::new()).await;
    let mut text = String::new();
    while !text.contains(": alive\n\n") {
        let frame = tokio::time::timeout(crate::world::PATIENCE, response.body_mut().frame()).await.unwrap();
        text.push_str(std::str::from_utf8(&frame.unwrap().unwrap().into_data().unwrap()).unwrap());
    }
    assert!(text.starts_with(": open\n\n"));
}

#[tokio::test]
async fn the_tenants_log_is_a_feed_whose_chain_can_be_checked() {
    let world = World::start().await;
    let mut feed = world.owner.follow("/api/v1/audit").await;
    world.agent("builder").await;
    let row = feed.next().await.unwrap();
    assert_eq!((row.event.as_str(), &row.data["data"]["name"]), ("agent.created", &json!("builder")));
    world.device("builder").await;
    let page = world.owner.get("/api/v1/audit?after=0&limit=200").await;
    let page: attache_protocol::wire::audit::AuditPage = serde_json::from_slice(&page.body).unwrap();
    let mut hash = attache_protocol::digest::unhex(&page.floor_hash).unwrap();
    for row in &page.events {
        assert!(row.follows(&hash), "the chain breaks at {}", row.seq);
        hash = attache_protocol::digest::unhex(&row.hash).unwrap();
    }
    assert_eq!((page.next, page.events.len() as i64), (page.head, page.head));
    let rest = world.owner.get(&format!("/api/v1/audit?after={}", page.next)).await.expect(200);
    assert_eq!((&rest["events"], &rest["next"]), (&json!([]), &json!(page.next)));
}

/// One person's streams, waits and WebSockets share one limit, and take nothing from others.
#[tokio::test]
async fn a_caller_who_holds_too_much_open_keeps_no_one_else_out() {
    let world = World::tuned(|options| options.max_streams = 4).await;
    world.agent("builder").await;
    let device = world.device("builder").await;
    let run = world.run("builder").await;
    let path = format!("/api/v1/task-runs/{}", run["task_run_id"].as_str().unwrap());
    let person = async |name: &str| {
        world.owner.post("/api/v1/users", json!({"name": name, "role": "viewer"})).await.expect(201);
        let key = json!({"name": name, "user": name, "role": "viewer"});
        world.anonymous().key(world.owner.post("/api/v1/api-keys", key).await.expect(201)["api_key"].as_str().unwrap())
    };
    let (viewer, other) = (person("val").await, person("vic").await);
    let by = world.hub.authenticate_key(viewer.header("authorization").trim_start_matches("Bearer ")).await.unwrap();
    let events = format!("{path}/events");
    let mut open = Vec::new();
    for _ in 0..3 {
        open.push(viewer.follow(&events).await);
    }
    let call = run["task_run_id"].as_str().unwrap().parse().unwrap();
    let hub = world.hub.clone();
    let waiter = by.clone();
    let wait = tokio::spawn(async move { hub.await_call(&waiter, call, Duration::from_secs(60)).await });
    while viewer.with("accept", "text/event-stream").get(&events).await.status != 429 {
        tokio::task::yield_now().await;
    }
    let refused = viewer.with("accept", "text/event-stream").get(&events).await;
    assert_eq!(refused.refusal(), (429, "too_many_requests".to_owned()));
    assert!(refused.json()["error"]["hint"].as_str().unwrap().contains("--max-streams"));
    let waited = world.hub.await_call(&by, call, Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(waited.code.http_status(), 429);
    world.hub.await_call(&by, call, Duration::ZERO).await.unwrap();
    let metrics = world.owner.get("/metrics").await;
    assert!(String::from_utf8_lossy(&metrics.body).contains("attache_streams_refused_total"));
    // Others, and the device, are not affected.
    let mut live = other.follow(&events).await;
    assert_eq!(live.next().await.unwrap().event, "task.created");
    assert!(device.claim().await["task_run_id"].is_string());
    wait.abort();
    drop(open);
    viewer.follow(&events).await;
}
