//! The Python example speaks the two plain calls of the contract.

use std::{net::SocketAddr, process::Stdio};

use attache_protocol::{
    Json,
    wire::adapter::{Health, Host, TaskError, TaskReply},
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::world::{Reply, exchange, task};

const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/python-adapter/adapter.py");

async fn post(address: SocketAddr, task: &Value) -> Reply {
    let body = task.to_string();
    let request = format!(
        "POST /run-task HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, request.as_bytes()).await
}

#[tokio::test]
async fn the_python_example_keeps_the_contract() {
    let started = tokio::process::Command::new("python3")
        .args([EXAMPLE, "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut python = match started {
        Ok(python) => python,
        Err(error) => {
            println!("skipped: python3 cannot be started: {error}");
            return;
        }
    };
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("a line with the address");
    let address: SocketAddr = line.strip_prefix("listening on http://").unwrap().parse().unwrap();

    let health = format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let health = exchange(address, health.as_bytes()).await;
    let host = Host { kind: "custom".to_owned(), version: Some("1".to_owned()) };
    assert_eq!(health.status, 200);
    assert_eq!(
        serde_json::from_str::<Health>(&health.body).unwrap(),
        Health { ok: true, host: Some(host), running: None }
    );

    let reply = post(address, &task("one two\nthree")).await;
    assert_eq!(reply.status, 200);
    let output = Json::from_text(r#"{"text": "3 words", "artifact_refs": []}"#).unwrap();
    let expected = TaskReply { success: true, output: Some(output), error: None, usage: None };
    assert_eq!(serde_json::from_str::<TaskReply>(&reply.body).unwrap(), expected);

    let reply = post(address, &task(" ")).await;
    let error = TaskError { code: "task_failed".to_owned(), message: "there is no text to count words in".to_owned() };
    let expected = TaskReply { success: false, output: None, error: Some(error), usage: None };
    assert_eq!((reply.status, serde_json::from_str::<TaskReply>(&reply.body).unwrap()), (200, expected));

    let foreign = exchange(address, b"POST /run-task HTTP/1.1\r\nhost: attacker.example\r\n\r\n").await;
    let expected = json!({"error": {"code": "invalid_request", "message": "POST JSON to /run-task", "hint": ""}});
    assert_eq!((foreign.status, serde_json::from_str::<Value>(&foreign.body).unwrap()), (400, expected));
    python.kill().await.unwrap();
}
