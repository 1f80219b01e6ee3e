//! Limits for callers without a credential: memory, time and guesses.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use futures_util::{
    SinkExt as _, StreamExt as _,
    future::join_all,
    stream::{self, FuturesUnordered, Pending},
};
use http_body_util::StreamBody;
use hyper::{Request, body::Frame, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};
use tokio_util::task::AbortOnDropHandle;

use crate::world::{HttpReply, PATIENCE, World};

const ATTACH: &str = "/api/v1/agent-runtimes/runtime/attach-via-pairing";

/// Well-formed JSON of about this many bytes.
fn body(bytes: usize) -> Value {
    json!({"pairing_token": "K7QM-2XHD", "labels": {"x": "y".repeat(bytes)}})
}

/// The head of a request that announces this much, and part of its body.
async fn half(world: &World, path: &str, announced: usize, sent: usize) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {announced}\r\n\r\n",
        world.address
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&vec![b' '; sent]).await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("an end in time");
    String::from_utf8_lossy(&text).into_owned()
}

#[tokio::test]
async fn unauthenticated_bodies_have_a_smaller_limit() {
    let world = World::start().await;
    world.agent("builder").await;
    let reply = world.anonymous().post(ATTACH, body(100_000)).await;
    assert_eq!(reply.refusal(), (413, "too_large".to_owned()));
    // A wrong credential gets the same limit.
    let dressed = world.anonymous().key("ak_wrong").post(ATTACH, body(100_000)).await;
    assert_eq!(dressed.refusal(), (413, "too_large".to_owned()));
    let large = json!({"agent_id": "builder", "input": {"text": "x".repeat(500_000)}});
    assert_eq!(world.owner.post("/api/v1/task-runs", large).await.status, 201);
}

#[tokio::test]
async fn unauthenticated_bodies_share_a_memory_budget() {
    let world = World::tuned(|options| options.max_unauthenticated_bytes = 60_000).await;
    world.agent("builder").await;
    let held = half(&world, ATTACH, 60_000, 50_000).await;
    // Until the first one's data has arrived.
    let refused = timeout(PATIENCE, async {
        loop {
            let reply = world.anonymous().post(ATTACH, body(50_000)).await;
            if reply.status == 429 {
                return reply;
            }
        }
    });
    assert_eq!(refused.await.unwrap().refusal(), (429, "too_many_requests".to_owned()));
    // Pairing and sign-in still work, and authenticated callers are not affected.
    assert_eq!(world.anonymous().post(ATTACH, body(100)).await.refusal().1, "pairing_failed");
    let large = json!({"agent_id": "builder", "input": {"text": "x".repeat(500_000)}});
    assert_eq!(world.owner.post("/api/v1/task-runs", large).await.status, 201);
    drop(held);
    let freed = timeout(PATIENCE, async { while world.anonymous().post(ATTACH, body(50_000)).await.status == 429 {} });
    freed.await.expect("what a connection held is free once it has gone");
}

/// A body that never comes.
type NoBody = StreamBody<Pending<Result<Frame<Bytes>, Infallible>>>;

/// A request over HTTP/2 with this many headers.
fn begun(world: &World, headers: usize) -> Request<NoBody> {
    let request = Request::post(format!("http://{}{ATTACH}", world.address));
    let request = (0..headers).fold(request, |request, number| request.header(format!("a{number}"), ""));
    request.body(StreamBody::new(stream::pending())).unwrap()
}

/// The statuses of the first answers to requests that are sent together over one connection.
async fn first_answers(world: &World, sent: usize, answers: usize, headers: usize) -> Vec<u16> {
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let send = |_| {
        let (mut sender, request) = (sender.clone(), begun(world, headers));
        async move { sender.send_request(request).await.unwrap().status().as_u16() }
    };
    let requests: FuturesUnordered<_> = (0..sent).map(send).collect();
    let answered = timeout(PATIENCE, requests.take(answers).collect()).await.expect("answers without a body");
    // While the others are open, a credential opens every door.
    assert_eq!(world.owner.get("/api/v1/users/me").await.status, 200);
    answered
}

/// Over HTTP/2, a header can arrive as a byte and takes 150 of them in memory.
#[tokio::test]
async fn unauthenticated_heads_are_counted_before_anything_is_read() {
    let world = World::tuned(|options| options.max_unauthenticated_bytes = 60_000).await;
    assert_eq!(first_answers(&world, 1, 1, 101).await, [431]);
    // Each takes more than 16 KiB, and as much isn't counted.
    assert_eq!(first_answers(&world, 16, 12, 90).await, [429; 12]);
    // However small they are.
    assert_eq!(first_answers(&world, 20, 4, 0).await, [503; 4]);
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_answered_with_408() {
    let world = World::tuned(|options| options.body_timeout = Duration::from_millis(200)).await;
    let answer = rest(half(&world, ATTACH, 60_000, 1000).await).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("request_timeout"), "{answer}");
    assert!(answer.to_ascii_lowercase().contains("connection: close"), "{answer}");
}

#[tokio::test]
async fn the_first_frame_is_limited_unless_the_head_has_a_credential() {
    let world = World::start().await;
    let connect = async |key: Option<&str>| {
        let mut request = format!("ws://{}/api/envelope/ws", world.address).into_client_request().unwrap();
        if let Some(key) = key {
            request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
        }
        client_async(request, TcpStream::connect(world.address).await.unwrap()).await.unwrap().0
    };
    let frame = |token: &str| {
        json!({
            "header": {"msg_id": "m1", "type": "request", "from": "test", "to": "hub", "timestamp": 1_700_000_000},
            "metadata": {"auth_token": token},
            "payload": {"action": "register", "device_info": {"x": "y".repeat(200_000)}},
        })
        .to_string()
    };
    let key = std::fs::read_to_string(world.data.path().join("hub/admin.key")).unwrap();
    let mut stranger = connect(None).await;
    // The hub may close the connection before everything is written.
    let _ = stranger.send(Message::text(frame(key.trim()))).await;
    let mut answers = Vec::new();
    while let Some(Ok(message)) = timeout(PATIENCE, stranger.next()).await.expect("an end in time") {
        answers.push(message);
    }
    assert!(!answers.iter().any(Message::is_text), "{answers:?}");
    let mut known = connect(Some(key.trim())).await;
    known.send(Message::text(frame(key.trim()))).await.unwrap();
    let answer = timeout(PATIENCE, known.next()).await.unwrap().unwrap().unwrap();
    assert!(answer.to_text().unwrap().contains("device_info"), "{answer}");
}

#[tokio::test]
async fn concurrent_code_attempts_are_counted_before_they_are_checked() {
    let (world, store) = World::counted(|options| options.pairing_failures_per_minute = 5).await;
    let held = store.hold("pairing");
    let guess = async |number: u8| -> HttpReply {
        let code = format!("K7QM-2X{}{}", char::from(b'2' + number % 8), char::from(b'2' + number / 8));
        world.anonymous().post(ATTACH, json!({"pairing_token": code})).await
    };
    let (replies, ()) = tokio::join!(join_all((0..30).map(guess)), async {
        // All admitted attempts wait for the store.
        while store.calls("pairing") < 5 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(held);
    });
    let judged = replies.iter().filter(|reply| reply.status != 429).count();
    assert!(judged <= 5 && store.calls("pairing") <= 5, "{judged} codes were judged");
}

#[tokio::test]
async fn a_page_of_a_conversation_reads_only_a_page() {
    let (world, store) = World::counted(|_| {}).await;
    let made = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let path = format!("/api/v1/conversations/{}/messages", made["conversation_id"].as_str().unwrap());
    for number in 0..450 {
        world.owner.post(&path, json!({"text": format!("m{number:03}")})).await.expect(201);
        // Messages with the same timestamp are read together.
        world.advance(Duration::from_millis(1));
    }
    let before = store.calls("messages");
    let page = world.owner.get(&format!("{path}?limit=1")).await.expect(200);
    assert_eq!((&page["messages"][0]["text"], store.calls("messages") - before), (&json!("m000"), 1));
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.owner.get(&format!("{path}?limit=100{cursor}")).await.expect(200);
        seen.extend(page["messages"].as_array().unwrap().iter().map(|m| m["text"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    seen.sort();
    assert_eq!(seen, (0..450).map(|number| format!("m{number:03}")).collect::<Vec<_>>());
    assert!(store.calls("messages") - before <= 12, "each page reads on where the last one ended");
    assert_eq!(world.owner.get(&format!("{path}?cursor=1.x@nonsense")).await.status, 400);
}

#[tokio::test]
async fn metrics_are_for_this_machine_or_for_an_admin() {
    let world = World::start().await;
    assert_eq!(world.anonymous().get("/metrics").await.status, 200);
    for proxied in ["x-forwarded-for", "forwarded", "via"] {
        assert_eq!(world.anonymous().with(proxied, "192.0.2.1").get("/metrics").await.status, 401, "{proxied}");
    }
    let world = World::tuned(|options| options.public_url = Some("https://hub.example".to_owned())).await;
    assert_eq!(world.anonymous().get("/metrics").await.status, 401);
    assert_eq!(world.key("viewer").await.get("/metrics").await.status, 403);
    assert_eq!(world.owner.get("/metrics").await.status, 200);
}
