//! Request checks: callers, and malformed requests.

use std::{net::SocketAddr, time::Duration};

use attache_adapter::{Adapter, BindError, Options, driver::ShellDriver};
use attache_protocol::{env::Env, secret::Kind};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::world::{AdapterWorld, RawReply, exchange, task, with};

fn code(reply: &RawReply) -> (u16, String) {
    let body: Value = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("not JSON: {}", reply.body));
    let error = body["error"].as_object().unwrap_or_else(|| panic!("not an error: {body}"));
    let members: Vec<&str> = error.keys().map(String::as_str).collect();
    assert_eq!(members, ["code", "message", "hint"]);
    assert!(error.values().all(|value| !value.as_str().unwrap().is_empty()), "{body}");
    assert!(reply.head.contains("\r\ncontent-type: application/json"), "{}", reply.head);
    assert_eq!(reply.status == 401, reply.head.contains("\r\nwww-authenticate: bearer"), "{}", reply.head);
    (reply.status, error["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn health_discloses_little_without_the_secret() {
    let world = AdapterWorld::shell().await;
    let open = format!("GET /health HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", world.address);
    let open = exchange(world.address, open.as_bytes()).await;
    assert_eq!((open.status, open.body.as_str()), (200, r#"{"ok":true}"#));
    let full = world.get("/health").await;
    let expected =
        format!(r#"{{"ok":true,"host":{{"type":"shell","version":"{}"}},"running":null}}"#, env!("CARGO_PKG_VERSION"));
    assert_eq!((full.status, full.body), (200, expected));
    world.stop().await;
}

/// Every program of the machine reaches the port. Those that only hold connections keep nobody out, and are closed.
#[tokio::test]
async fn strangers_hold_few_connections() {
    let world = AdapterWorld::shell().await;
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut stranger = TcpStream::connect(world.address).await.unwrap();
        stranger.write_all(b"GET /health HTTP/1.1\r\nx: ").await.unwrap();
        held.push(stranger);
    }
    assert_eq!(world.get("/health").await.status, 200);
    // Closed, not answered.
    assert!(matches!(held[0].read(&mut [0; 64]).await, Ok(0) | Err(_)));
    // Whoever talks without end is not listened to.
    let mut talker = TcpStream::connect(world.address).await.unwrap();
    let line = [b'x'; 4096];
    let heard = async { while talker.write_all(&line).await.is_ok() {} };
    timeout(Duration::from_secs(60), heard).await.expect("the adapter hangs up");
    // A connection with the secret may send more than that.
    let long = with(task("true"), "unknown", json!("x".repeat(1 << 20)));
    assert_eq!(world.send(&long).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn host_origin_and_secret_are_checked() {
    let world = AdapterWorld::shell().await;
    let (port, secret) = (world.address.port(), world.secret.as_str());
    let (own, right) = (format!("127.0.0.1:{port}"), format!("Bearer {secret}"));
    let host = |name: &str| (format!("host: {name}\r\n"), String::new(), right.clone());
    let origin = |name: String| (format!("host: {own}\r\n"), format!("origin: {name}\r\n"), right.clone());
    let bearer = |value: String| (format!("host: {own}\r\n"), String::new(), value);
    let (fine, wrong_host, foreign) = (200, 421, 403);
    let table = [
        (host(&own), fine),
        (host(&format!("localhost:{port}")), fine),
        (host(&format!("LocalHost:{port}")), fine),
        (host(&format!("[::1]:{port}")), fine),
        (host("127.0.0.1"), wrong_host),
        (host(&format!("127.0.0.1:{}", port ^ 1)), wrong_host),
        (host(&format!("attacker.example:{port}")), wrong_host),
        (host(&format!("127.0.0.1.attacker.example:{port}")), wrong_host),
        (host(&format!("192.168.0.1:{port}")), wrong_host),
        (host(&format!("user@127.0.0.1:{port}")), wrong_host),
        (host(""), wrong_host),
        (host(&format!("{own}\r\nhost: attacker.example")), wrong_host),
        ((String::new(), String::new(), right.clone()), wrong_host),
        (origin(format!("http://{own}")), fine),
        (origin(format!("http://localhost:{port}")), fine),
        (origin(format!("https://{own}")), foreign),
        (origin("http://127.0.0.1".to_owned()), foreign),
        (origin("https://attacker.example".to_owned()), foreign),
        (origin("null".to_owned()), foreign),
        (bearer(format!("bearer {secret}")), fine),
        (bearer(String::new()), 401),
        (bearer("Bearer".to_owned()), 401),
        (bearer("Bearer ".to_owned()), 401),
        (bearer(format!("Bearer {secret}x")), 401),
        (bearer(format!("Bearer {}", &secret[1..])), 401),
        (bearer(format!("Basic {secret}")), 401),
        (bearer(secret.to_owned()), 401),
    ];
    for ((host, origin, bearer), status) in table {
        let authorization = if bearer.is_empty() { bearer } else { format!("authorization: {bearer}\r\n") };
        let body = task("true").to_string();
        let request = format!(
            "POST /run-task HTTP/1.1\r\n{host}{origin}{authorization}connection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = exchange(world.address, request.as_bytes()).await;
        let about = format!("{host:?} {origin:?} {authorization:?}").replace(secret, "<secret>");
        assert_eq!(reply.status, status, "{about}: {}", reply.body);
        assert!(!reply.body.contains(secret), "{about}");
        let expected = match status {
            421 => "wrong_host",
            403 => "foreign_origin",
            401 => "unauthenticated",
            _ => continue,
        };
        assert_eq!(code(&reply), (status, expected.to_owned()), "{about}");
        // The same checks protect `/health`, except that it doesn't need a secret.
        let request = format!("GET /health HTTP/1.1\r\n{host}{origin}{authorization}connection: close\r\n\r\n");
        let reply = exchange(world.address, request.as_bytes()).await;
        assert_eq!(reply.status, if authorization.is_empty() { 200 } else { status }, "{about}");
    }
    let target = format!("GET http://attacker.example/health HTTP/1.1\r\nhost: {own}\r\nconnection: close\r\n\r\n");
    assert_eq!(code(&exchange(world.address, target.as_bytes()).await), (421, "wrong_host".to_owned()));
    world.stop().await;
}

#[tokio::test]
async fn malformed_requests_get_clear_errors() {
    let world = AdapterWorld::shell().await;
    let good = task("true");
    let without = |name: &str| {
        let mut task = good.clone();
        task.as_object_mut().unwrap().remove(name);
        task.to_string()
    };
    let deep = good.to_string().replace(r#"{"text":"true"}"#, &("[".repeat(10_000) + &"]".repeat(10_000)));
    let table: Vec<(String, u16, &str)> = vec![
        (String::new(), 400, "invalid_json"),
        ("{".to_owned(), 400, "invalid_json"),
        ("nonsense".to_owned(), 400, "invalid_json"),
        (format!("{good}{good}"), 400, "invalid_json"),
        ("\u{feff}{}".to_owned(), 400, "invalid_json"),
        ("[]".to_owned(), 400, "invalid_request"),
        ("null".to_owned(), 400, "invalid_request"),
        ("{}".to_owned(), 400, "invalid_request"),
        (without("task_run_id"), 400, "invalid_request"),
        (without("conversation_id"), 400, "invalid_request"),
        (without("workspace_id"), 400, "invalid_request"),
        (without("task_type"), 400, "invalid_request"),
        (without("input"), 400, "invalid_request"),
        (with(good.clone(), "task_run_id", "run_7").to_string(), 400, "invalid_request"),
        (with(good.clone(), "task_run_id", good["workspace_id"].clone()).to_string(), 400, "invalid_request"),
        (with(good.clone(), "task_type", 7).to_string(), 400, "invalid_request"),
        (with(good.clone(), "deadline", "tomorrow").to_string(), 400, "invalid_request"),
        (deep, 400, "json_too_deep"),
        ("x".repeat(8 * 1024 * 1024 + 1), 413, "too_large"),
    ];
    for (body, status, expected) in table {
        let reply = world.post("/run-task", body.as_bytes()).await;
        let about: String = body.chars().take(100).collect();
        assert_eq!(code(&reply), (status, expected.to_owned()), "{about}: {}", reply.body);
    }
    let bytes = world.post("/run-task", b"{\"task_type\":\"\xff\"}").await;
    assert_eq!(code(&bytes).0, 400, "{}", bytes.body);
    let reply = world.post("/run-task", without("input").as_bytes()).await;
    let expected = json!({"error": {
        "code": "invalid_request",
        "message": format!("the body isn't a task: missing field `input` at line 1 column {}", without("input").len()),
        "hint": "See docs/adapter.md for the format of every body.",
    }});
    assert_eq!(serde_json::from_str::<Value>(&reply.body).unwrap(), expected);
    let unknown = with(task("echo unknown members are ignored"), "from_a_newer_runtime", json!({"x": 1}));
    assert_eq!(world.send(&unknown).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn paths_methods_and_content_types_are_checked() {
    let world = AdapterWorld::shell().await;
    let (address, secret) = (world.address, &world.secret);
    let body = task("true").to_string();
    let known = world.run(&task("true")).await;
    assert_eq!(known["success"], true);
    let table = [
        ("GET", "/run-task", "application/json", 405, "method_not_allowed"),
        ("POST", "/health", "application/json", 405, "method_not_allowed"),
        ("POST", "/", "application/json", 404, "no_such_path"),
        ("POST", "/run-task/", "application/json", 404, "no_such_path"),
        ("POST", "/run-task/run_0190aaaabbbbccccddddeeeeffff0000/cancel", "application/json", 404, "not_found"),
        ("POST", "/run-task/nonsense/cancel", "application/json", 404, "not_found"),
        ("POST", "/run-task", "text/plain", 415, "unsupported_media_type"),
        ("POST", "/run-task", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
        ("POST", "/run-task", "application/jsonp", 415, "unsupported_media_type"),
    ];
    for (method, path, kind, status, expected) in table {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {secret}\r\nconnection: close\r\n\
             content-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let reply = exchange(address, request.as_bytes()).await;
        assert_eq!(code(&reply), (status, expected.to_owned()), "{method} {path} {kind}");
    }
    let request = format!(
        "POST /run-task HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {secret}\r\nconnection: close\r\n\
         content-type: Application/JSON; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(exchange(address, request.as_bytes()).await.status, 200);
    world.stop().await;
}

#[tokio::test]
async fn an_adapter_binds_only_loopback_and_explains_errors() {
    let folder = tempfile::tempdir().unwrap();
    let options = || {
        let secret = Kind::AdapterSecret.generate(&Env::system());
        Options::new(std::sync::Arc::new(ShellDriver), secret, folder.path(), folder.path())
    };
    let open = Options { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..options() };
    let refused = Adapter::bind(open).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "an adapter executes commands, so it can only listen on this device; use 127.0.0.1 or [::1] instead of 0.0.0.0:0"
    );
    let first = Adapter::bind(options()).await.unwrap();
    let second = Adapter::bind(Options { listen: first.local_addr(), ..options() }).await.unwrap_err();
    assert!(matches!(&second, BindError::Listen { address, .. } if *address == first.local_addr()), "{second:?}");
    let nowhere = Adapter::bind(Options { cwd: folder.path().join("missing"), ..options() }).await.unwrap_err();
    assert!(matches!(nowhere, BindError::Directory { .. }), "{nowhere:?}");
    let printed = format!("{:?}", options());
    assert!(!printed.contains("as_"), "a secret prints as ***: {printed}");
}
