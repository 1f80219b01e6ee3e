//! `POST /api/envelope`: one request, answered by frames as server-sent events, over HTTP/1.1 and h2c.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, client::conn::http2, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{net::TcpStream, time::timeout};

use super::peer::{owner_key, read_run, worker};
use crate::world::{Engine, PATIENCE, World};

/// The frames of a response, with their event ids.
struct AnswerFrames {
    response: Response<Incoming>,
    text: String,
}

impl AnswerFrames {
    async fn next(&mut self) -> Option<(Option<i64>, Value)> {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let lines = |name: &str| {
                    event.lines().filter_map(|line| line.strip_prefix(name)).collect::<Vec<_>>().join("\n")
                };
                let data = lines("data: ");
                if data.is_empty() {
                    continue;
                }
                return Some((lines("id: ").parse().ok(), serde_json::from_str(&data).unwrap()));
            }
            let frame = timeout(PATIENCE, self.response.body_mut().frame()).await.expect("a frame in time")?.ok()?;
            if let Ok(data) = frame.into_data() {
                self.text.push_str(std::str::from_utf8(&data).unwrap());
            }
        }
    }

    async fn find(&mut self, action: &str) -> (Option<i64>, Value) {
        loop {
            let (id, frame) = self.next().await.expect("a frame before the end");
            if frame["payload"]["action"] == action {
                return (id, frame);
            }
        }
    }

    async fn rest(mut self) -> Vec<(Option<i64>, Value)> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }
}

fn frame(name: &str, kind: &str, payload: Value) -> Value {
    json!({
        "header": {"msg_id": name, "parent_id": null, "type": kind, "from": "engine", "to": "builder", "timestamp": 1},
        "payload": payload,
    })
}

async fn post(world: &World, frame: &Value, last: Option<i64>) -> AnswerFrames {
    let client = world.owner.with("content-type", "application/json").with("accept", "text/event-stream");
    let client = match last {
        Some(last) => client.with("last-event-id", &last.to_string()),
        None => client,
    };
    let response = client.send(hyper::Method::POST, "/api/envelope", Bytes::from(frame.to_string())).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
    AnswerFrames { response, text: String::new() }
}

async fn post_h2c(world: &World, frame: &Value) -> AnswerFrames {
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post(format!("http://{}/api/envelope", world.address))
        .header("authorization", format!("Bearer {}", owner_key(world)))
        .header("content-type", "application/json")
        .header("accept", "text/event-stream")
        .body(Full::new(Bytes::from(frame.to_string())))
        .unwrap();
    let response = timeout(PATIENCE, sender.send_request(request)).await.unwrap().unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, hyper::Version::HTTP_2));
    AnswerFrames { response, text: String::new() }
}

#[tokio::test]
async fn a_run_is_streamed_to_its_end_over_http_1() {
    let world = World::start().await;
    world.agent("builder").await;
    let request = frame("r1", "request", json!({"action": "execute", "query": "go"}));
    let frames = post(&world, &request, None).await;
    whole_answer(&world, frames).await;
}

#[tokio::test]
async fn a_run_is_streamed_to_its_end_over_h2c() {
    let world = World::start().await;
    world.agent("builder").await;
    let request = frame("r1", "request", json!({"action": "execute", "query": "go"}));
    let frames = post_h2c(&world, &request).await;
    whole_answer(&world, frames).await;
}

async fn whole_answer(world: &World, mut frames: AnswerFrames) {
    let (id, first) = frames.next().await.unwrap();
    assert_eq!((id, &first["payload"]["action"], &first["payload"]["ok"]), (None, &json!("execute"), &json!(true)));
    assert_eq!(first["header"]["parent_id"], "r1");
    let run = first["payload"]["task_run_id"].clone();
    let (mut sub, _) = worker(world, "builder").await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    sub.find_action("execute").await;
    let chunk = sub.frame("chunk", json!({"action": "chunk", "task_run_id": run, "epoch": 1, "text": "he"}));
    sub.send(&chunk).await;
    let (id, told) = frames.find("chunk").await;
    assert_eq!((&told["header"]["type"], &told["header"]["parent_id"]), (&json!("chunk"), &json!("r1")));
    assert_eq!(id, told["header"]["seq"].as_i64());
    sub.request(json!({"action": "done", "task_run_id": run, "epoch": 1, "result_summary": "x"})).await;
    let rest = frames.rest().await;
    assert_eq!(rest.last().unwrap().1["payload"]["action"], "done", "and then the answer ends");
    let channels = world.owner.get("/api/v1/channels").await.expect(200);
    let sse = channels["channels"].as_array().unwrap().iter().find(|c| c["transport"] == "sse").unwrap().clone();
    assert_eq!((&sse["peer_role"], &sse["native_protocol"]), (&json!("client"), &json!("attache.envelope.v1")));
}

#[tokio::test]
async fn the_same_request_resumes_after_the_last_event_id() {
    let world = World::start().await;
    world.agent("builder").await;
    let request = frame("again", "request", json!({"action": "execute", "query": "go"}));
    let mut frames = post(&world, &request, None).await;
    let run = frames.next().await.unwrap().1["payload"]["task_run_id"].clone();
    let (mut sub, _) = worker(&world, "builder").await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    sub.find_action("execute").await;
    for text in ["a", "b"] {
        let chunk = sub.frame("chunk", json!({"action": "chunk", "task_run_id": run, "epoch": 1, "text": text}));
        sub.send(&chunk).await;
    }
    let (id, told) = frames.find("chunk").await;
    assert_eq!(told["payload"]["text"], "a");
    drop(frames);
    sub.request(json!({"action": "done", "task_run_id": run, "epoch": 1, "result_summary": "x"})).await;
    let mut frames = post(&world, &request, id).await;
    let first = frames.next().await.unwrap().1;
    assert_eq!((&first["payload"]["task_run_id"], &first["payload"]["status"]), (&run, &json!("completed")));
    let rest = frames.rest().await;
    let seen: Vec<_> = rest.iter().map(|(id, frame)| (id.unwrap(), frame["payload"]["action"].clone())).collect();
    let from = id.unwrap();
    assert_eq!(seen, [(from + 1, json!("chunk")), (from + 2, json!("done"))]);
    assert_eq!(rest[0].1["payload"]["text"], "b");
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"].as_array().unwrap().len(), 1, "the same request is the same run");
}

/// An ended run, with the frames streamed for it.
async fn told(world: &World, request: &Value) -> Vec<(i64, Value)> {
    world.agent("builder").await;
    let mut frames = post(world, request, None).await;
    let run = frames.next().await.unwrap().1["payload"]["task_run_id"].clone();
    let (mut sub, _) = worker(world, "builder").await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    sub.find_action("execute").await;
    for text in ["a", "b"] {
        sub.request(json!({"action": "chunk", "task_run_id": run, "epoch": 1, "text": text})).await;
    }
    sub.request(json!({"action": "done", "task_run_id": run, "epoch": 1, "result_summary": "x"})).await;
    numbered(frames.rest().await)
}

/// Frames without their timestamps.
fn numbered(frames: Vec<(Option<i64>, Value)>) -> Vec<(i64, Value)> {
    let bare = frames.into_iter().map(|(id, mut frame)| {
        frame["header"]["timestamp"] = json!(0);
        (id.unwrap(), frame)
    });
    bare.collect()
}

#[tokio::test]
async fn a_fully_read_response_ends_immediately() {
    for world in [World::start().await, World::on_sqlite().await] {
        let request = frame("over", "request", json!({"action": "execute", "query": "go"}));
        let last = told(&world, &request).await.last().unwrap().0;
        for last in [last, last + 1, i64::MAX] {
            let rest = post(&world, &request, Some(last)).await.rest().await;
            assert_eq!(rest.len(), 1, "{rest:?}");
            assert_eq!((rest[0].0, &rest[0].1["payload"]["status"]), (None, &json!("completed")));
        }
    }
}

#[tokio::test]
async fn the_last_event_id_is_a_position_and_not_an_acknowledgement() {
    for world in [World::start().await, World::on_sqlite().await] {
        let request = frame("read", "request", json!({"action": "execute", "query": "go"}));
        let whole = told(&world, &request).await;
        assert_eq!(whole.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
        for last in [Some(2), None, Some(4), Some(5), Some(0), None, Some(1)] {
            let mut frames = post(&world, &request, last).await;
            let first = frames.next().await.unwrap().1["payload"].clone();
            assert_eq!((&first["action"], first.get("repaired")), (&json!("execute"), None));
            let from = usize::try_from(last.unwrap_or(0)).unwrap();
            assert_eq!(numbered(frames.rest().await), whole[from..], "after {last:?}");
        }
    }
}

#[tokio::test]
async fn tools_work_with_posts_only() {
    let world = World::start().await;
    world.agent("builder").await;
    let tools = json!([{"name": "lookup", "input_schema": {"type": "object"}}]);
    let register = frame("reg", "request", json!({"action": "register", "tools": tools}));
    let registered = post(&world, &register, None).await.rest().await;
    assert_eq!(registered.len(), 1);
    assert_eq!(
        (&registered[0].1["payload"]["ok"], &registered[0].1["header"]["parent_id"]),
        (&json!(true), &json!("reg"))
    );
    let request = frame(
        "run",
        "request",
        json!({"action": "execute", "query": "go", "channel_id": registered[0].1["payload"]["channel_id"]}),
    );
    let mut frames = post(&world, &request, None).await;
    let run = frames.next().await.unwrap().1["payload"]["task_run_id"].clone();
    let (mut sub, _) = worker(&world, "builder").await;
    sub.notify(json!({"action": "ready", "credits": 1})).await;
    sub.find_action("execute").await;
    let call = sub.frame(
        "request",
        json!({"action": "call_tool", "task_run_id": run, "epoch": 1, "tool_name": "lookup", "arguments": {"q": 1}}),
    );
    sub.send(&call).await;
    let asked = frames.find("call_tool").await.1;
    let mut reply = frame("reply", "response", json!({"action": "call_tool", "ok": true, "result": 42}));
    reply["header"]["parent_id"] = asked["header"]["msg_id"].clone();
    let taken = post(&world, &reply, None).await.rest().await;
    assert_eq!(taken[0].1["payload"], json!({"action": "call_tool", "ok": true}));
    assert_eq!(sub.find_action("call_tool").await["payload"]["result"], 42);
    let cancel = frame("stop", "request", json!({"action": "cancel", "task_run_id": run}));
    let cancelled = post(&world, &cancel, None).await.rest().await;
    assert_eq!(cancelled[0].1["payload"]["status"], "cancelled");
    assert_eq!(frames.rest().await.last().unwrap().1["payload"]["code"], "cancelled");
    assert_eq!(read_run(&world, run.as_str().unwrap()).await["status"], "cancelled");
}

#[tokio::test]
async fn every_request_is_authenticated_and_errors_name_the_field() {
    let world = World::start().await;
    world.agent("builder").await;
    let execute = frame("e", "request", json!({"action": "execute", "query": "go"}));
    let anonymous = world.anonymous().post("/api/envelope", execute.clone()).await;
    assert_eq!((anonymous.status, &anonymous.json()["payload"]["error"]["code"]), (401, &json!("unauthenticated")));
    let mut with_token =
        frame("t", "request", json!({"action": "cancel", "task_run_id": "run_00000000000000000000000000000001"}));
    with_token["metadata"] = json!({"auth_token": format!("bearer {}", owner_key(&world))});
    assert_eq!(world.anonymous().post("/api/envelope", with_token).await.refusal(), (404, "not_found".to_owned()));
    let wrong = world.owner.post("/api/envelope", json!({"header": {"msg_id": "w"}})).await;
    assert_eq!(wrong.status, 400);
    let body = wrong.json();
    assert_eq!(
        (&body["payload"]["error"]["field"], &body["header"]["parent_id"], &body["error"]["code"]),
        (&json!("header.type"), &json!("w"), &json!("invalid_frame"))
    );
    let looped = {
        let mut looped = execute.clone();
        looped["metadata"] = json!({"ttl": 0});
        looped
    };
    assert_eq!(world.owner.post("/api/envelope", looped).await.refusal(), (409, "loop_refused".to_owned()));
    let evil = world.owner.with("origin", "http://evil.example").post("/api/envelope", execute).await;
    assert_eq!(evil.refusal(), (403, "foreign_origin".to_owned()));
    assert_eq!(world.owner.get("/api/v1/task-runs").await.expect(200)["task_runs"], json!([]));
}

/// The attack: one long list of tools, then many small requests, each with a channel that has those tools.
#[tokio::test]
async fn small_requests_with_tools_grow_the_store_little_and_are_removed() {
    const REQUESTS: usize = 100;
    let world = World::timed(Engine::Sqlite, |options| {
        options.retain_every = Duration::ZERO;
        options.clock_step = Duration::from_secs(24 * 60 * 60);
        options.queue_ttl = Duration::from_secs(60);
    })
    .await;
    world.agent("builder").await;
    // A closed store is a single file.
    let world = world.restart().await;
    let file = world.data.path().join("hub.db");
    let size = || std::fs::metadata(&file).unwrap().len();
    let before = size();
    let tools: Vec<Value> = (0..100)
        .map(|number| json!({"name": format!("tool{number}"), "description": "x".repeat(1_000), "input_schema": {"type": "object"}}))
        .collect();
    let register = frame("reg", "request", json!({"action": "register", "tools": tools}));
    let mut sent = register.to_string().len();
    let registered = post(&world, &register, None).await.rest().await;
    let channel = registered[0].1["payload"]["channel_id"].clone();
    for number in 0..REQUESTS {
        let payload = json!({"action": "execute", "query": "y".repeat(2_000), "channel_id": channel});
        let request = frame(&format!("run{number}"), "request", payload);
        sent += request.to_string().len();
        let first = post(&world, &request, None).await.next().await.unwrap().1;
        assert_eq!(first["payload"]["ok"], true, "{first}");
    }
    let world = world.restart().await;
    let grown = size() - before;
    println!("{sent} bytes sent, the store has grown by {grown}");
    assert!(grown < 5 * u64::try_from(sent).unwrap(), "{sent} bytes sent, the store has grown by {grown}");

    let channels = "/api/v1/channels?limit=200";
    let count = |list: &Value| list["channels"].as_array().unwrap().len();
    assert!(count(&world.owner.get(channels).await.expect(200)) > 2);
    // The runs are never claimed: they expire, and their streams are never read.
    world.advance(Duration::from_secs(60));
    world.until("/api/v1/task-runs?status=pending", |list| list["task_runs"].as_array().unwrap().is_empty()).await;
    world.advance(Duration::from_secs(2 * 60 * 60));
    world.until(channels, |list| count(list) <= 2).await;
}

#[tokio::test]
async fn streams_of_envelopes_count_and_frames_that_are_answered_at_once_do_not() {
    let world = World::tuned(|options| options.max_streams = 2).await;
    world.agent("builder").await;
    let execute = |name: &str| frame(name, "request", json!({"action": "execute", "query": "go"}));
    let mut open = Vec::new();
    for name in ["r1", "r2"] {
        let mut frames = post(&world, &execute(name), None).await;
        frames.next().await.unwrap();
        open.push(frames);
    }
    let refused = world.owner.post("/api/envelope", execute("r3")).await;
    assert_eq!(refused.refusal(), (429, "too_many_requests".to_owned()));
    let runs = world.owner.get("/api/v1/task-runs").await.expect(200);
    assert_eq!(runs["task_runs"].as_array().unwrap().len(), 2, "nothing was begun");
    let register = frame("r4", "request", json!({"action": "register", "peer_role": "client"}));
    assert_eq!(post(&world, &register, None).await.rest().await.len(), 1);
    open.pop();
    let closed = async {
        loop {
            let metrics = world.owner.get("/metrics").await;
            if String::from_utf8_lossy(&metrics.body).contains("attache_streams 1\n") {
                break;
            }
        }
    };
    timeout(PATIENCE, closed).await.expect("a closed stream makes room");
    post(&world, &execute("r5"), None).await.next().await.unwrap();
}
