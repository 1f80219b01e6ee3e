//! The port: HTTP/2 with prior knowledge, clients that hold connections without sending requests, and clients that don't
//! read their responses.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use attache_hub::{router, serve};
use axum::{body::Body, routing};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Method, Request, Response, body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use crate::{
    counting::Counting,
    people::person,
    world::{PATIENCE, TestCaller, World},
};

#[tokio::test]
async fn http_2_works_on_the_same_port() {
    let world = World::start().await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for _ in 0..3 {
        let uri = format!("http://{}/healthz", world.address);
        let response = sender.send_request(Request::get(uri).body(Full::new(Bytes::new())).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.into_body().collect().await.unwrap().to_bytes().starts_with(b"{\"status\":\"ok\""));
    }
    let foreign = Request::get("http://evil.example/metrics").body(Full::new(Bytes::new())).unwrap();
    assert_eq!(sender.send_request(foreign).await.unwrap().status(), 421);
}

/// The usual checks of balancers name the backend's address, or nothing.
#[tokio::test]
async fn a_balancer_can_check_the_health_under_any_name() {
    let world = World::start().await;
    let status = async |head: String| {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        String::from_utf8_lossy(&reply[9..]).into_owned()
    };
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(format!("GET {path} HTTP/1.0\r\n\r\n")).await, "200", "{path}");
        assert_eq!(status(format!("OPTIONS {path} HTTP/1.0\r\n\r\n")).await, "405", "{path}");
        for host in ["127.0.0.1", "hub", "10.0.0.5:9999"] {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(status(head).await, "200", "{path} at {host}");
        }
        let head = format!("GET {path} HTTP/1.1\r\nHost: hub\r\nOrigin: http://evil.example\r\n\r\n");
        assert_eq!(status(head).await, "403", "{path}");
    }
    for path in ["/metrics", "/healthz/", "/readyz/..", "//healthz", "/api/v1/task-runs"] {
        assert_eq!(status(format!("GET {path} HTTP/1.0\r\n\r\n")).await, "421", "{path}");
    }
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_request_head_is_disconnected() {
    let world = World::tuned(|options| options.header_timeout = Duration::from_millis(200)).await;
    for beginning in ["", "P", "PRI", "GET /healthz HTTP/1.1\r\nHost: x"] {
        let begun = Instant::now();
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.expect(beginning);
        assert!(begun.elapsed() < Duration::from_secs(3), "{beginning}");
    }
}

#[tokio::test]
async fn a_client_that_is_still_sending_can_read_its_response() {
    let world = World::start().await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!("POST /api/v1/task-runs HTTP/1.1\r\nHost: {}\r\nContent-Length: 8000000\r\n\r\n", world.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    // The hub has answered long before all of this has arrived.
    for _ in 0..80 {
        stream.write_all(&[b' '; 100_000]).await.expect("the hub does not hang up on a client that is sending");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("the response is not lost");
    let response = String::from_utf8(response).unwrap();
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
}

/// Almost a request, then nothing.
const HALF: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: x";

async fn half(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(HALF).await.unwrap();
    stream
}

/// Whether the other side has closed it.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut byte = [0; 1];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut byte)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

/// Waits until a device has authenticated and is waiting for work.
async fn until_it_waits(store: &Counting) {
    let begun = Instant::now();
    while store.calls("claim") == 0 {
        assert!(begun.elapsed() < PATIENCE, "the device never asks for work");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_unauthenticated_connection_is_evicted_and_an_authenticated_one_is_not() {
    let (world, store) = World::counted(|options| options.max_connections = 16).await;
    let agent = world.agent("builder").await;
    let device = world.device(&agent).await;
    // A device that waits for work, and half requests on all other connections.
    let waiting = tokio::spawn(async move { device.pull(20_000).await });
    until_it_waits(&store).await;
    let mut halves = Vec::new();
    for _ in 0..32 {
        halves.push(half(world.address).await);
    }
    assert!(is_closed(&mut halves[0]).await, "the oldest stranger makes room");
    assert_eq!(world.owner.get("/healthz").await.status, 200);
    world.run(&agent).await;
    assert!(waiting.await.unwrap().expect(200)["task_run"].is_object(), "the device was never cut");
}

/// As many as the limit of open files allows: both ends are in this process, and the hub itself keeps few files open.
#[tokio::test]
async fn sixteen_thousand_half_requests_lock_no_one_out() {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(20_000);
    let flood = usize::try_from(files).unwrap().saturating_sub(3_000).min(16_000);
    let (world, store) = World::counted(|_| {}).await;
    let agent = world.agent("builder").await;
    let device = world.device(&agent).await;
    let waiting = tokio::spawn(async move {
        while !device.pull(20_000).await.expect(200)["task_run"].is_object() {}
        device
    });
    until_it_waits(&store).await;
    let mut halves = Vec::with_capacity(flood);
    for number in 0..flood {
        halves.push(half(world.address).await);
        // Meanwhile, people come and go.
        if number % 1_000 == 999 {
            assert_eq!(world.owner.get("/api/v1/task-runs").await.status, 200, "after {number}");
        }
    }
    let begun = Instant::now();
    loop {
        let metrics = world.owner.get("/metrics").await;
        let metrics = String::from_utf8_lossy(&metrics.body).into_owned();
        let open = metrics.lines().find_map(|line| line.strip_prefix("attache_connections ")).unwrap();
        if open.trim().parse::<f64>().unwrap() <= 1_100.0 {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "one address has {open} connections");
    }
    world.run(&agent).await;
    let device = waiting.await.expect("the device that was there stays");
    assert_eq!(device.pull(0).await.status, 200, "and comes anew");
    assert_eq!(world.anonymous().get("/healthz").await.status, 200, "and so does a stranger");
}

#[tokio::test]
async fn an_idle_http_2_connection_is_closed() {
    let world = World::tuned(|options| options.header_timeout = Duration::from_millis(200)).await;
    let stream = TcpStream::connect(world.address).await.unwrap();
    let (_sender, connection) =
        http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    let _ = tokio::time::timeout(Duration::from_secs(5), connection).await.expect("it is closed");
}

#[tokio::test]
async fn the_device_reserve_is_not_for_people() {
    let world = World::tuned(|options| options.max_connections = 16).await;
    let agent = world.agent("builder").await;
    let device = world.device(&agent).await;
    let run = world.run(&agent).await["task_run_id"].as_str().unwrap().to_owned();
    // People use all the connections they can get.
    let watcher = world.owner.with("accept", "text/event-stream");
    let (path, begun, mut watching) = (format!("/api/v1/task-runs/{run}/events"), Instant::now(), Vec::new());
    while watching.len() < 14 {
        // Earlier requests may still be ending.
        let answer = watcher.send(Method::GET, &path, Bytes::new()).await;
        if answer.status() == 200 {
            watching.push(answer);
        }
        assert!(begun.elapsed() < PATIENCE, "only {} get in", watching.len());
    }
    let refused = world.owner.get("/api/v1/task-runs").await;
    assert_eq!(refused.refusal(), (503, "overloaded".to_owned()));
    assert!(device.pull(0).await.expect(200)["task_run"].is_object());
}

type H2Sender = http2::SendRequest<Full<Bytes>>;

/// An HTTP/2 connection whose client accepts this much of each response before it reads.
async fn http_2(address: SocketAddr, window: u32) -> H2Sender {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The head of the response. Its body is not read.
async fn head(world: &World, sender: &H2Sender, caller: &TestCaller, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://{}{path}", world.address));
    let request = match caller.header("authorization") {
        "" => request,
        key => request.header("authorization", key),
    };
    let mut sender = sender.clone();
    let sent = sender.send_request(request.body(Full::new(Bytes::new())).unwrap());
    tokio::time::timeout(PATIENCE, sent).await.expect("a head in time").unwrap()
}

/// The path of a new artifact of this size.
async fn artifact(world: &World, size: usize) -> String {
    artifact_of_type(world, size, "application/octet-stream").await
}

async fn artifact_of_type(world: &World, size: usize, media_type: &str) -> String {
    let conversation =
        world.owner.post("/api/v1/conversations", json!({"metadata": {"space": "team"}})).await.expect(201);
    let workspace = conversation["workspace_id"].as_str().unwrap();
    let path = format!("/api/v1/workspaces/{workspace}/artifacts/large");
    let uploader = world.owner.with("content-type", media_type);
    let stored = uploader.call(Method::PUT, &path, vec![b'x'; size]).await.expect(201);
    format!("/api/v1/artifacts/{}", stored["artifact_id"].as_str().unwrap())
}

/// Waits until a request of the caller is answered.
async fn until_answered(caller: &TestCaller) {
    let begun = Instant::now();
    while caller.get("/api/v1/users/me").await.status != 200 {
        assert!(begun.elapsed() < PATIENCE, "unread responses are never cut");
    }
}

#[tokio::test]
async fn unread_responses_are_limited_per_caller_and_cut() {
    let world = World::tuned(|options| {
        options.max_requests = 8;
        options.response_timeout = Duration::from_secs(3);
    })
    .await;
    let viewer = person(&world, "ada", "viewer").await;
    // A client that accepts nothing, and one that accepts a byte. The uploader's media type changes nothing.
    for (window, media_type) in [(0, "image/png"), (1, "text/event-stream"), (0, "application/grpc")] {
        let large = artifact_of_type(&world, 1 << 20, media_type).await;
        let sender = http_2(world.address, window).await;
        let heads = futures_util::future::join_all((0..128).map(|_| head(&world, &sender, &viewer, &large))).await;
        let (begun, refused): (Vec<_>, Vec<_>) = heads.into_iter().partition(|response| response.status() == 200);
        assert_eq!((begun.len(), refused.len()), (8, 120), "{media_type}");
        assert!(refused.iter().all(|response| response.status() == 503));
        assert_eq!(world.owner.get("/api/v1/users/me").await.status, 200, "others are not affected");
        // Room for eight more means that all eight are cut.
        let (other, waiting) = (http_2(world.address, window).await, Instant::now());
        while !futures_util::future::join_all((0..8).map(|_| head(&world, &other, &viewer, &large)))
            .await
            .iter()
            .all(|response| response.status() == 200)
        {
            assert!(waiting.elapsed() < PATIENCE, "unread responses are never cut");
        }
        for response in begun {
            assert!(response.into_body().collect().await.is_err(), "it was cut");
        }
    }
}

#[tokio::test]
async fn small_unread_responses_are_cut_too() {
    let world = World::tuned(|options| {
        options.max_requests = 8;
        options.response_timeout = Duration::from_secs(1);
    })
    .await;
    let viewer = person(&world, "ada", "viewer").await;
    let sender = http_2(world.address, 1).await;
    let _unread =
        futures_util::future::join_all((0..8).map(|_| head(&world, &sender, &viewer, "/api/v1/users/me"))).await;
    until_answered(&viewer).await;
}

/// One connection without a credential holds all it can. Others at the same address still get in.
#[tokio::test]
async fn nobody_keeps_others_at_its_address_from_signing_in() {
    let world = World::tuned(|options| {
        options.max_requests = 4;
        options.response_timeout = Duration::from_secs(20);
    })
    .await;
    let (sender, anonymous) = (http_2(world.address, 0).await, world.anonymous());
    let hold = async |path: &str| {
        let held = (0..4).map(|_| head(&world, &sender, &anonymous, path));
        futures_util::future::join_all(held).await
    };
    let _documents = hold("/api/v1/openapi.json").await;
    let _health = hold("/healthz").await;
    let begun = Instant::now();
    let statuses = [("/healthz", 200), ("/readyz", 200), ("/login", 404), ("/assets/x/style.css", 404)];
    for (path, status) in statuses {
        assert_eq!(world.anonymous().get(path).await.status, status, "{path}");
    }
    let pairing = json!({"pairing_token": "AAAA-AAAA", "device_name": "laptop"});
    let paired = world.anonymous().post("/api/v1/agent-runtimes/runtime/attach-via-pairing", pairing).await;
    assert_eq!(paired.refusal(), (404, "pairing_failed".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(5), "they waited for a slot");
    let others = world.anonymous().get("/api/v1/openapi.json").await;
    assert_eq!(others.refusal(), (503, "overloaded".to_owned()), "larger responses are limited per address");
}

#[tokio::test]
async fn an_unread_http_1_response_is_cut() {
    const SIZE: usize = 64 << 20;
    let world = World::tuned(|options| {
        options.max_requests = 1;
        options.response_timeout = Duration::from_millis(600);
    })
    .await;
    let large = artifact(&world, SIZE).await;
    let viewer = person(&world, "ada", "viewer").await;
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let authorization = viewer.header("authorization");
    let head = format!("GET {large} HTTP/1.1\r\nHost: {}\r\nAuthorization: {authorization}\r\n\r\n", world.address);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stream.read_exact(&mut first).await.unwrap();
    assert_eq!(first, *b"HTTP/1.1 200");
    assert_eq!(viewer.get("/api/v1/users/me").await.refusal(), (503, "overloaded".to_owned()));
    until_answered(&viewer).await;
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(rest.len() < SIZE, "all of it arrived");
}

#[tokio::test]
async fn a_slow_reader_gets_its_whole_response() {
    let world = World::tuned(|options| options.response_timeout = Duration::from_secs(1)).await;
    let large = artifact(&world, 200_000).await;
    let sender = http_2(world.address, 40_000).await;
    let mut body = head(&world, &sender, &world.owner, &large).await.into_body();
    let mut received = 0;
    while let Some(frame) = body.frame().await {
        received += frame.unwrap().into_data().unwrap().len();
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert_eq!(received, 200_000);
}

#[tokio::test]
async fn one_person_cannot_take_all_connections() {
    let world = World::tuned(|options| options.max_connections = 64).await;
    let viewer = person(&world, "ada", "viewer").await;
    let (mut senders, mut statuses) = (Vec::new(), Vec::new());
    for _ in 0..17 {
        let sender = http_2(world.address, 65_535).await;
        let response = head(&world, &sender, &viewer, "/api/v1/users/me").await;
        statuses.push(response.status().as_u16());
        response.into_body().collect().await.unwrap();
        senders.push(sender);
    }
    assert_eq!((&statuses[..16], statuses[16]), (&[200; 16][..], 503));
    assert_eq!(world.owner.get("/api/v1/users/me").await.status, 200);
}

/// The processor time of this thread, which also runs the hub.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    let ticks: u64 = rest.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    Duration::from_millis(10 * ticks)
}

#[tokio::test]
async fn half_a_preface_is_not_looked_at_again_and_again() {
    let world = World::start().await;
    let mut halves = Vec::new();
    for _ in 0..500 {
        let mut stream = TcpStream::connect(world.address).await.unwrap();
        stream.write_all(b"PRI").await.unwrap();
        halves.push(stream);
    }
    // The hub has read what there is.
    assert_eq!(world.owner.get("/healthz").await.status, 200);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let before = spent();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let idle = spent() - before;
    assert!(idle < Duration::from_millis(150), "waiting for the rest took {idle:?}");
    // The rest may come later.
    let begun = &mut halves[0];
    begun.write_all(b" * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let mut settings = [0; 9];
    tokio::time::timeout(PATIENCE, begun.read_exact(&mut settings)).await.unwrap().unwrap();
    assert_eq!(settings[3], 4, "the hub begins with its settings");
}

/// Most surfaces have a limit of their own. What forgets it can't be used to fill the memory.
#[tokio::test]
async fn a_body_has_a_limit_wherever_it_is_read() {
    let world = World::start().await;
    let read = |body: Body| async move {
        match body.collect().await {
            Ok(whole) => whole.to_bytes().len().to_string(),
            Err(error) => error.to_string(),
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = router(world.hub.clone()).route("/forgetful", routing::post(read));
    tokio::spawn(serve(listener, router, world.hub.clone(), std::future::pending()));
    let key = world.owner.header("authorization").trim_start_matches("Bearer ").to_owned();
    let caller = TestCaller::anonymous(address).key(&key).with("host", &world.address.to_string());
    let small = caller.call(Method::POST, "/forgetful", vec![b'x'; 4 << 20]).await;
    assert_eq!((small.status, small.body.as_ref()), (200, b"4194304".as_slice()));
    let large = caller.call(Method::POST, "/forgetful", vec![b'x'; 10 << 20]).await;
    assert_eq!(large.refusal(), (413, "too_large".to_owned()));
    // An upload has its own limit.
    let made = world.owner.post("/api/v1/conversations", json!({})).await.expect(201);
    let path = format!("/api/v1/workspaces/{}/artifacts/large", made["workspace_id"].as_str().unwrap());
    caller.call(Method::PUT, &path, vec![b'x'; 10 << 20]).await.expect(201);
}
