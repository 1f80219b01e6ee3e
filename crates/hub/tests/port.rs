//! The port itself: HTTP/2 by prior knowledge, and clients that take a seat without asking for anything.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::world::World;

#[tokio::test]
async fn http_2_is_spoken_on_the_same_port() {
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
    let foreign = Request::get("http://evil.example/healthz").body(Full::new(Bytes::new())).unwrap();
    assert_eq!(sender.send_request(foreign).await.unwrap().status(), 421);
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_head_loses_its_seat() {
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
async fn connections_beyond_the_cap_are_refused_and_seats_come_free() {
    let world = World::tuned(|options| options.max_connections = 1).await;
    let first = TcpStream::connect(world.address).await.unwrap();
    let mut second = TcpStream::connect(world.address).await.unwrap();
    let mut answer = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(5), second.read_to_end(&mut answer)).await.unwrap();
    assert!(closed.is_err() || answer.is_empty());
    drop(first);
    let begun = Instant::now();
    loop {
        let mut again = TcpStream::connect(world.address).await.unwrap();
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", world.address);
        let mut answer = Vec::new();
        if again.write_all(request.as_bytes()).await.is_ok()
            && again.read_to_end(&mut answer).await.is_ok()
            && answer.starts_with(b"HTTP/1.1 200")
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "the seat never came free");
    }
}
