//! Forms with files: what they may be, and what a browser that never ends one can do.

use std::{convert::Infallible, time::Duration};

use attache_protocol::wire::key::Role;
use axum::{
    body::Body,
    http::{Request, StatusCode},
};
use futures_util::{StreamExt as _, stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::world::{ConsoleWorld, PageAnswer, TestVisitor, between};

/// Far longer than an answer takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn field(name: &str, value: &str) -> String {
    format!("--XyZ\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
}

fn file(name: &str, content: &str) -> String {
    let head = format!("--XyZ\r\nContent-Disposition: form-data; name=\"file\"; filename=\"{name}\"\r\n");
    format!("{head}Content-Type: text/plain\r\n\r\n{content}\r\n")
}

async fn csrf(visitor: &TestVisitor) -> String {
    let page = visitor.get("/settings").await;
    field("csrf", between(&page.body, "name=\"csrf\" value=\"", "\""))
}

/// The answer to a form that goes on after these parts, but never says how.
async fn unended(visitor: &TestVisitor, parts: Vec<String>) -> PageAnswer {
    let parts = stream::iter(parts.into_iter().map(Ok::<_, Infallible>)).chain(stream::pending());
    let request = Request::post("/runs").header("content-type", "multipart/form-data; boundary=XyZ");
    timeout(PATIENCE, visitor.send(request, Body::from_stream(parts))).await.expect("an answer to what is too much")
}

#[tokio::test]
async fn nothing_of_a_form_is_kept_before_its_token() {
    let world = ConsoleWorld::new().await;
    let visitor = world.signed_in(Role::Viewer).await;
    let token = csrf(&visitor).await;
    for parts in [
        vec![field("text", "x"), token],
        vec![field("csrf", "wrong"), field("text", "x")],
        vec![field("csrf", &"x".repeat(1 << 20))],
    ] {
        let answer = unended(&visitor, parts).await;
        assert!(matches!(answer.status, StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST), "{}", answer.status);
    }
}

#[tokio::test]
async fn the_fields_and_files_of_a_form_are_limited() {
    let world = ConsoleWorld::new().await;
    let visitor = world.signed_in(Role::Operator).await;
    let agent = field("agent", &world.agent("builder").await.agent_id.to_string());
    let first = [csrf(&visitor).await, agent, field("text", "x")];
    let parts = |more: Vec<String>| first.iter().cloned().chain(more).collect::<Vec<_>>();
    for more in [vec![field("more", ""); 65], vec![field("more", &"x".repeat(200 << 10)); 3]] {
        assert_eq!(unended(&visitor, parts(more)).await.status, StatusCode::BAD_REQUEST);
    }
    for more in [vec![file("a.txt", ""); 101], vec![file("", ""); 101]] {
        let answer = unended(&visitor, parts(more)).await;
        assert!(answer.body.contains("at most 100 files"), "{}", answer.body);
    }
}

#[tokio::test]
async fn an_upload_may_take_longer_than_other_requests() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let world = ConsoleWorld::with(address, |options| options.body_timeout = Duration::from_millis(500)).await;
    tokio::spawn(attache_hub::serve(listener, world.router.clone(), world.hub.clone(), std::future::pending()));
    let agent = field("agent", &world.agent("builder").await.agent_id.to_string());
    let visitor = world.signed_in(Role::Operator).await;
    let head = format!(
        "POST /runs HTTP/1.1\r\nHost: {address}\r\nCookie: {}\r\nTransfer-Encoding: chunked\r\n\
         Content-Type: multipart/form-data; boundary=XyZ\r\nConnection: close\r\n\r\n",
        visitor.cookie()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let fields = [csrf(&visitor).await, agent, field("text", "x")].concat();
    let file = [file("a.txt", "what takes a while"), "--XyZ--\r\n".to_owned()].concat();
    // A piece of the file at a time, for two seconds.
    let pieces = file.as_bytes().chunks(file.len().div_ceil(10));
    for piece in std::iter::once(fields.as_bytes()).chain(pieces) {
        let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat();
        stream.write_all(&chunk).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 303 "), "{answer}");
}
