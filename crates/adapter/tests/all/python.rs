//! The Python examples follow the contract: one implements the two basic calls, one asks, one drives Hermes.

use std::{ffi::OsStr, fs, net::SocketAddr, os::unix::fs::PermissionsExt as _, process::Stdio};

use attache_protocol::{
    Json,
    wire::adapter::{AdapterHealth, HostInfo, TaskError, TaskReply},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Child,
};

use crate::world::{RawReply, exchange, task};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");

/// Starts an example on a free port. `None` if Python isn't installed.
async fn start(name: &str) -> Option<(Child, SocketAddr)> {
    start_with(name, &std::env::var_os("PATH").unwrap_or_default()).await
}

async fn start_with(name: &str, path: &OsStr) -> Option<(Child, SocketAddr)> {
    let started = tokio::process::Command::new("python3")
        .args([&format!("{EXAMPLES}/{name}/adapter.py"), "0"])
        .env("PATH", path)
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

async fn post(address: SocketAddr, task: &Value) -> RawReply {
    post_to(address, "/run-task", task).await
}

async fn post_to(address: SocketAddr, path: &str, body: &Value) -> RawReply {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    exchange(address, request.as_bytes()).await
}

#[tokio::test]
async fn the_python_example_follows_the_contract() {
    let Some((mut python, address)) = start("python-adapter").await else { return };
    let health = format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let health = exchange(address, health.as_bytes()).await;
    let host = HostInfo { kind: "custom".to_owned(), version: Some("1".to_owned()) };
    assert_eq!(health.status, 200);
    assert_eq!(
        serde_json::from_str::<AdapterHealth>(&health.body).unwrap(),
        AdapterHealth {
            ok: true,
            host: Some(host),
            asks: false,
            plans: false,
            takes_input: false,
            worktrees: false,
            running: None,
            also_running: Vec::new(),
            concurrency: None,
            enforces: Vec::new(),
            walls: None,
        }
    );

    let reply = post(address, &task("one two\nthree")).await;
    assert_eq!(reply.status, 200);
    let output = Json::from_text(r#"{"text": "3 words", "artifact_refs": []}"#).unwrap();
    let expected = TaskReply { success: true, output: Some(output), error: None, usage: None, inputs_taken: None };
    assert_eq!(serde_json::from_str::<TaskReply>(&reply.body).unwrap(), expected);

    let reply = post(address, &task(" ")).await;
    let error =
        TaskError { code: "task_failed".to_owned(), message: "the task has no text".to_owned(), resets_at: None };
    let expected = TaskReply { success: false, output: None, error: Some(error), usage: None, inputs_taken: None };
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

    // A late reader sees the question again. A repeated answer runs the command only once.
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

/// The example's `hermes`: prints its version and follows its prompt.
const HERMES: &str = r#"#!/bin/sh
case $1 in
--version) echo 'Hermes Agent v0.19.0 (2026.7.20)'; exit;;
-z) prompt=$2;;
esac
echo '{"total_tokens": 12, "estimated_cost_usd": 0.25, "cost_status": "estimated"}' > "$4"
case $prompt in
*WRITE*) echo done > made; pwd; printf '%s\n' "$prompt";;
*FAIL*) echo 'hermes -z: agent failed: no model' >&2; exit 1;;
*HANG*) sleep 600 & echo $! > child; wait;;
esac
"#;

#[tokio::test]
async fn the_hermes_example_follows_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let (bin, work) = (folder.path().join("bin"), folder.path().canonicalize().unwrap().join("work"));
    fs::create_dir(&bin).unwrap();
    fs::create_dir(&work).unwrap();
    fs::write(bin.join("hermes"), HERMES).unwrap();
    fs::set_permissions(bin.join("hermes"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let folders = [bin].into_iter().chain(std::env::split_paths(&path));
    let Some((mut python, address)) = start_with("hermes-adapter", &std::env::join_paths(folders).unwrap()).await
    else {
        return;
    };
    let health =
        exchange(address, format!("GET /health HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").as_bytes())
            .await;
    let host = HostInfo { kind: "hermes".to_owned(), version: Some("0.19.0".to_owned()) };
    let expected = AdapterHealth {
        ok: true,
        host: Some(host),
        asks: false,
        plans: false,
        takes_input: false,
        worktrees: false,
        running: None,
        also_running: Vec::new(),
        concurrency: None,
        enforces: Vec::new(),
        walls: None,
    };
    assert_eq!(serde_json::from_str::<AdapterHealth>(&health.body).unwrap(), expected);

    let here = |text: &str| crate::world::with(task(text), "cwd", work.to_str().unwrap());
    let body = |reply: &RawReply| serde_json::from_str::<Value>(&reply.body).unwrap();
    let usage = json!({"tokens": 12, "cost_usd": 0.25, "source": "estimated"});
    let written = post(address, &crate::world::with(here("please WRITE"), "instructions", "be brief")).await;
    let text = format!("{}\nbe brief\n\nplease WRITE\n", work.display());
    assert_eq!(body(&written), json!({"success": true, "output": {"text": text, "artifact_refs": [], "usage": usage}}));
    assert_eq!(fs::read_to_string(work.join("made")).unwrap(), "done\n");

    let failed =
        json!({"code": "task_failed", "message": "hermes ended with exit status 1: hermes -z: agent failed: no model"});
    assert_eq!(body(&post(address, &here("FAIL")).await), json!({"success": false, "error": failed, "usage": usage}));
    let mut limited = here("please WRITE");
    limited["sandbox"] = json!({"allow_network": false, "cwd_only": false});
    let refused =
        json!({"code": "refused", "message": "the run requires limits that this adapter can't enforce: allow_network"});
    assert_eq!(body(&post(address, &limited).await), json!({"success": false, "error": refused}));

    let hanging = here("HANG");
    let run = hanging["task_run_id"].as_str().unwrap().to_owned();
    let open = tokio::spawn(async move { post(address, &hanging).await });
    let child = work.join("child");
    crate::world::until("the child to start", || fs::read_to_string(&child).is_ok_and(|id| id.ends_with('\n'))).await;
    assert_eq!(post(address, &here("please WRITE")).await.status, 409);
    assert_eq!(post_to(address, "/run-task/run_nothing/cancel", &json!({})).await.status, 404);
    let cancelled = json!({"code": "cancelled", "message": "the run was cancelled"});
    let answer = post_to(address, &format!("/run-task/{run}/cancel"), &json!({})).await;
    assert_eq!(body(&answer), json!({"success": false, "error": cancelled}));
    assert_eq!(body(&open.await.unwrap()), json!({"success": false, "error": cancelled, "usage": usage}));
    let id = fs::read_to_string(child).unwrap();
    crate::world::until("nothing to be left of it", || !crate::world::is_alive(id.trim())).await;
    python.kill().await.unwrap();
}
