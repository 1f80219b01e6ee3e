//! The Python examples keep the contract: one speaks its two plain calls, the other asks.

use std::{net::SocketAddr, process::Stdio};

use attache_protocol::{
    Json,
    wire::adapter::{Health, Host, TaskError, TaskReply},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use crate::world::{Reply, exchange, task};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// Starts an example on a free port; none where there is no Python.
async fn start(name: &str) -> Option<(Child, SocketAddr)> {
    let started = tokio::process::Command::new("python3")
        .args([&format!("{EXAMPLES}/{name}/adapter.py"), "0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    let mut python = match started {
        Ok(python) => python,
        Err(error) => {
            eprintln!("skipped: python3 cannot be started: {error}");
            return None;
        }
    };
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().expect("a line with the address");
    Some((python, line.strip_prefix("listening on http://").unwrap().parse().unwrap()))
}

async fn post(address: SocketAddr, task: &Value) -> Reply {
    post_to(address, "/run-task", task).await
}

async fn post_to(address: SocketAddr, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, request.as_bytes()).await
}

#[tokio::test]
async fn the_python_example_keeps_the_contract() {
    let Some((mut python, address)) = start("python-adapter").await else { return };
    let health = format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let health = exchange(address, health.as_bytes()).await;
    let host = Host { kind: "custom".to_owned(), version: Some("1".to_owned()) };
    assert_eq!(health.status, 200);
    assert_eq!(
        serde_json::from_str::<Health>(&health.body).unwrap(),
        Health { ok: true, host: Some(host), running: None, also_running: Vec::new() }
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

#[tokio::test]
async fn the_asking_example_waits_for_people() {
    let Some((mut python, address)) = start("python-asking-adapter").await else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = "say: hello\nrun: echo x >> out; cat out\nask: Which one?\nrun: false";
    let task = crate::world::with(task(text), "cwd", folder.path().to_str().unwrap());
    let run = task["task_run_id"].as_str().unwrap();
    let mut events = crate::world::stream_from(address, &task).await;
    assert_eq!(events.next().await, Some((1, "chunk".to_owned(), json!({"text": "hello\n"}))));
    let command = |command: &str, number: u8| {
        json!({"id": format!("permission-{number}"), "tool": "shell", "input": {"command": command},
               "cwd": folder.path(), "reason": "the task says so", "risk": "high"})
    };
    let asked = (2, "permission".to_owned(), command("echo x >> out; cat out", 2));
    assert_eq!(events.next().await, Some(asked.clone()));

    // Whoever joins hears the question again; an answer that comes twice lets the command run once.
    let mut late = crate::world::stream_from(address, &task).await;
    late.next().await.unwrap();
    assert_eq!(late.next().await, Some(asked));
    let unknown =
        post_to(address, &format!("/run-task/{run}/permission/permission-9"), &json!({"approved": true})).await;
    assert_eq!(unknown.status, 404);
    let path = format!("/run-task/{run}/permission/permission-2");
    for approved in [true, false] {
        assert_eq!(post_to(address, &path, &json!({"approved": approved})).await.status, 200);
    }
    assert_eq!(events.next().await, Some((3, "chunk".to_owned(), json!({"text": "x\n"}))));

    let asked = json!({"id": "input-3", "prompt": "Which one?"});
    assert_eq!(events.next().await, Some((4, "input_required".to_owned(), asked)));
    let given = json!({"id": "input-3", "parts": [{"text": "the first"}]});
    assert_eq!(post_to(address, &format!("/run-task/{run}/input"), &given).await.status, 200);
    assert_eq!(events.next().await, Some((5, "chunk".to_owned(), json!({"text": "the first\n"}))));

    assert_eq!(events.next().await, Some((6, "permission".to_owned(), command("false", 4))));
    let path = format!("/run-task/{run}/permission/permission-4");
    assert_eq!(post_to(address, &path, &json!({"approved": false, "comment": "why?"})).await.status, 200);
    let denied = json!({"code": "permission_denied", "message": "`false` was not allowed: why?"});
    let result = (7, "result".to_owned(), json!({"success": false, "error": denied}));
    assert_eq!(events.rest().await, [result]);
    python.kill().await.unwrap();
}
