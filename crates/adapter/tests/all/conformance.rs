//! The conformance agent: every behaviour, and many tasks at a time.

use std::{
    num::NonZeroUsize,
    time::{Duration, Instant},
};

use attache_adapter::driver::ConformanceDriver;
use attache_protocol::env::Env;
use serde_json::{Value, json};

use crate::world::{AdapterWorld, ReceivedEvents, failed, task_of};

/// Short enough for a test, long enough to be observable.
const TIMEOUT: Duration = Duration::from_millis(120);

async fn world() -> AdapterWorld {
    patient(Duration::from_secs(60)).await
}

async fn patient(patience: Duration) -> AdapterWorld {
    let pace = ConformanceDriver { streaming_timeout: TIMEOUT, answer_timeout: patience };
    AdapterWorld::start(pace, |options| options.concurrency = NonZeroUsize::new(8).unwrap()).await
}

/// A task as the hub creates it from a message.
fn message(version: &str, id: &str, text: &str) -> Value {
    let message = json!({"messageId": id, "role": "ROLE_USER", "parts": [{"text": text}]});
    task_of(Env::system().run_id(), json!({"text": text, "message": message, "a2a_version": version}))
}

fn kit(id: &str) -> Value {
    message("1.0", &format!("{id}-0b6c"), "TCK")
}

fn said(text: &str) -> Value {
    json!({"success": true, "output": {"text": text, "artifact_refs": [], "message": {"parts": [{"text": text}]}}})
}

fn quiet() -> Value {
    json!({"success": true, "output": {"text": "", "artifact_refs": []}})
}

async fn answer(world: &AdapterWorld, task: &Value, text: &str) {
    give(world, task, json!({"parts": [{"text": text}]})).await;
}

async fn give(world: &AdapterWorld, task: &Value, given: Value) {
    let run = task["task_run_id"].as_str().unwrap();
    let body = given.to_string();
    assert_eq!(world.post(&format!("/run-task/{run}/input"), body.as_bytes()).await.status, 200);
}

async fn asked(events: &mut ReceivedEvents) {
    let (_, name, data) = events.next().await.unwrap();
    assert_eq!((name.as_str(), &data["prompt"]), ("input_required", &json!("More input is needed.")));
}

/// All events of a task, without their numbers.
async fn shown(world: &AdapterWorld, task: &Value) -> Vec<(String, Value)> {
    let events = world.stream(task).await.rest().await;
    events.into_iter().map(|(_, name, data)| (name, data)).collect()
}

#[tokio::test]
async fn results_match_the_kits() {
    let world = world().await;
    let made = |name: &str, part: Value| {
        json!({"success": true, "output": {"text": "", "artifact_refs": [],
            "artifacts": [{"artifact_id": "output", "name": name, "parts": [part]}]}})
    };
    let mut direct = said("Direct message response");
    direct["output"]["reply"] = json!("message");
    for (id, expected) in [
        ("tck-complete-task", said("Hello from TCK")),
        ("tck-artifact-text", made("output", json!({"text": "Generated text content"}))),
        (
            "tck-artifact-file",
            made("output.txt", json!({"raw": "dGNr", "filename": "output.txt", "mediaType": "text/plain"})),
        ),
        (
            "tck-artifact-file-url",
            made(
                "output.txt",
                json!({"url": "https://example.com/output.txt", "filename": "output.txt", "mediaType": "text/plain"}),
            ),
        ),
        (
            "tck-artifact-data",
            made("output", json!({"data": {"key": "value", "count": 42}, "mediaType": "application/json"})),
        ),
        ("tck-message-response", direct),
        ("tck-reject-task", failed("rejected", "rejected")),
        ("tck-task-failure", failed("task_failed", "The task failed as requested.")),
        ("tck-stream-002", quiet()),
        ("tck-something-else", said("Hello from TCK")),
    ] {
        assert_eq!(world.run(&kit(id)).await, expected, "{id}");
        // The other kit names the behaviour in the text.
        assert_eq!(world.run(&message("1.0", "0b6c", &format!("{id} please"))).await, expected, "{id}");
    }
    world.stop().await;
}

#[tokio::test]
async fn streams_show_their_output() {
    let world = world().await;
    let artifact = |data: Value| ("artifact".to_owned(), data);
    let result = || ("result".to_owned(), quiet());
    let whole = |name: &str, part: Value| {
        artifact(json!({"artifact_id": "output", "name": name, "parts": [part], "last_chunk": true}))
    };
    let piece = |text: &str| json!({"artifact_id": "pieces", "name": "pieces", "parts": [{"text": text}]});
    let with = |mut piece: Value, names: &[&str]| {
        names.iter().for_each(|name| piece[name] = json!(true));
        artifact(piece)
    };
    for (id, text) in [
        ("tck-stream-001", "Stream hello from TCK"),
        ("tck-stream-003", "Stream task lifecycle"),
        ("tck-stream-ordering-001", "Ordered output"),
        ("tck-stream-artifact-text", "Streamed text content"),
        ("tck-stream-basic", "Streamed content"),
    ] {
        assert_eq!(shown(&world, &kit(id)).await, [whole("output", json!({"text": text})), result()], "{id}");
    }
    let file = json!({"raw": "dGNr", "filename": "output.txt", "mediaType": "text/plain"});
    assert_eq!(shown(&world, &kit("tck-stream-artifact-file")).await, [whole("output.txt", file), result()]);
    let (first, last) = (with(piece("chunk-1 "), &[]), with(piece("chunk-2"), &["append", "last_chunk"]));
    assert_eq!(shown(&world, &kit("tck-stream-artifact-chunked")).await, [first.clone(), last.clone(), result()]);
    let middle = with(piece("chunk-1.5 "), &["append"]);
    assert_eq!(shown(&world, &kit("tck-stream-chunked")).await, [first, middle, last, result()]);
    world.stop().await;
}

#[tokio::test]
async fn slow_behaviours_take_the_configured_time() {
    let world = world().await;
    let asked = Instant::now();
    assert_eq!(world.run(&kit("test-resubscribe-message-id")).await, quiet());
    assert!(asked.elapsed() >= TIMEOUT * 2, "{:?}", asked.elapsed());

    let asked = Instant::now();
    let long = shown(&world, &kit("tck-long-running")).await;
    assert!(asked.elapsed() >= TIMEOUT, "{:?}", asked.elapsed());
    let names: Vec<&str> = long.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!((names, &long[1].1), (vec!["artifact", "result"], &said("The long task is done.")));

    let held = kit("tck-cancel");
    let events = world.stream(&held).await;
    assert_eq!(world.cancel(&held).await.status, 200);
    let cancelled = "the run was cancelled; every process it started on this device was stopped";
    assert_eq!(events.rest().await, [(1, "result".to_owned(), failed("cancelled", cancelled))]);
    world.stop().await;
}

#[tokio::test]
async fn input_continues_a_task() {
    let world = world().await;
    let task = kit("tck-input-required");
    let mut events = world.stream(&task).await;
    // The message with the answer also selects the next behaviour.
    for id in ["tck-input-required-2", "tck-input-required-3", "tck-complete-task-4"] {
        asked(&mut events).await;
        let parts = json!([{"text": "TCK history message"}]);
        let message = json!({"messageId": id, "role": "ROLE_USER", "parts": parts});
        give(&world, &task, json!({"parts": parts, "message": message})).await;
    }
    assert_eq!(events.next().await.unwrap().2, said("Hello from TCK"));

    let task = kit("tck-input-required");
    let mut events = world.stream(&task).await;
    asked(&mut events).await;
    answer(&world, &task, "anything").await;
    assert_eq!(events.next().await.unwrap().2, said("Hello from TCK"));

    let task = message("1.0", "0b6c", "tck-multi-turn start");
    let mut events = world.stream(&task).await;
    asked(&mut events).await;
    answer(&world, &task, "here is more").await;
    asked(&mut events).await;
    answer(&world, &task, "Done.").await;
    assert_eq!(events.next().await.unwrap().2, said("Hello from TCK"));
    world.stop().await;
}

#[tokio::test]
async fn a_task_of_a_v03_client_keeps_asking() {
    let world = patient(Duration::from_secs(3)).await;
    let task = message("0.3", "msg-1", "hello");
    let begun = Instant::now();
    let mut events = world.stream(&task).await;
    asked(&mut events).await;
    assert!(begun.elapsed() >= TIMEOUT, "{:?}", begun.elapsed());
    answer(&world, &task, "more").await;
    asked(&mut events).await;
    // No more answers: the slot is free again after the timeout.
    assert_eq!(events.next().await.unwrap().2, failed("task_failed", "no answer within 3 seconds"));
    world.stop().await;
}

#[tokio::test]
async fn an_authorization_is_requested_and_decides() {
    let world = world().await;
    for (approved, expected) in
        [(true, said("Hello from TCK")), (false, failed("permission_denied", "the permission was denied"))]
    {
        let task = message("1.0", "0b6c", "tck-auth-required");
        let mut events = world.stream(&task).await;
        let (_, name, data) = events.next().await.unwrap();
        assert_eq!((name.as_str(), &data["tool"]), ("permission", &json!("conformance")));
        let path = format!("/run-task/{}/permission/tck", task["task_run_id"].as_str().unwrap());
        assert_eq!(world.post(&path, json!({"approved": approved}).to_string().as_bytes()).await.status, 200);
        assert_eq!(events.next().await.unwrap().2, expected);
    }
    world.stop().await;
}

#[tokio::test]
async fn concurrency_is_limited_to_the_configured_number() {
    let world = world().await;
    let held: Vec<Value> = (0..8).map(|_| kit("tck-cancel")).collect();
    let mut streams = Vec::new();
    for task in &held {
        streams.push(world.stream(task).await);
    }
    let health: Value = serde_json::from_str(&world.get("/health").await.body).unwrap();
    let ids: Vec<&Value> = held.iter().map(|task| &task["task_run_id"]).collect();
    assert_eq!((&health["running"], health["also_running"].as_array().unwrap().len()), (ids[0], 7));
    assert_eq!(health["also_running"].as_array().unwrap().iter().collect::<Vec<_>>(), ids[1..]);

    let refused = world.send(&kit("tck-complete-task")).await;
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    let message = "this adapter is running 8 tasks, its maximum";
    assert_eq!((refused.status, &body["error"]["message"]), (409, &json!(message)));

    // A task that ends frees its slot, and is remembered until the slot is needed.
    assert_eq!(world.cancel(&held[3]).await.status, 200);
    assert_eq!(world.cancel(&held[3]).await.status, 200);
    assert_eq!(world.run(&kit("tck-complete-task")).await, said("Hello from TCK"));
    assert_eq!(world.cancel(&held[3]).await.status, 404);
    world.stop().await;
    for stream in streams {
        assert_eq!(stream.rest().await.len(), 1, "everybody hears how it ended");
    }
}
