//! `attache adapter`: its secret, its shutdown, and what happens when its parent dies.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _, process::Stdio};

use serde_json::json;

use crate::harness::{TestHome, http, process, until};

fn secret_of(home: &TestHome, url: &str) -> (std::path::PathBuf, String) {
    let name = url.trim_start_matches("http://").replace(':', "_");
    let path = home.a2a().join("adapters").join(name);
    let secret = fs::read_to_string(&path).unwrap().trim().to_owned();
    (path, secret)
}

fn task(text: &str) -> serde_json::Value {
    let id = "00000000000000000000000000000001";
    json!({
        "task_run_id": format!("run_{id}"), "conversation_id": format!("cnv_{id}"),
        "workspace_id": format!("wsp_{id}"), "task_type": "prompt", "input": { "text": text },
    })
}

#[test]
fn the_secret_is_private_and_removed_with_the_adapter() {
    let home = TestHome::new();
    let (adapter, url) = home.adapter(&["shell"]);
    let (path, secret) = secret_of(&home, &url);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let run = |bearer: &str| {
        http::json("POST", &format!("{url}/run-task"), &[("authorization", bearer)], Some(&task("echo hi"))).unwrap()
    };
    assert_eq!(run("Bearer wrong").status, 401);
    let reply = run(&format!("Bearer {secret}")).expect(200).json();
    assert_eq!(reply["output"]["text"].as_str().unwrap().trim(), "hi");
    assert!(adapter.terminate().success());
    assert!(!path.exists(), "the secret outlived its adapter");
    assert!(!adapter.stderr().contains(&secret) && !adapter.stdout().contains(&secret));
}

#[test]
fn a_chosen_port_keeps_its_secret() {
    let home = TestHome::new();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listen = port.to_string();
    let start = || home.ready("adapter", &["adapter", "shell", "--listen", &listen]);
    let (first, ready) = start();
    let (_, secret) = secret_of(&home, ready["url"].as_str().unwrap());
    first.terminate();
    let (second, ready) = start();
    assert_eq!(secret_of(&home, ready["url"].as_str().unwrap()).1, secret);
    second.terminate();
}

#[test]
fn a_task_sees_no_secrets_of_the_environment() {
    let home = TestHome::new();
    let mut command = home.command(&["adapter", "shell", "--pass-env", "WANTED", "--ready-file", "ready"]);
    command.env("PLANTED_SECRET", "x").env("WANTED", "y");
    let _adapter = process::TestProcess::spawn("adapter", &mut command, &home.logs());
    let file = home.path().join("ready");
    let ready: serde_json::Value =
        until("the adapter", || serde_json::from_slice(&fs::read(&file).unwrap_or_default()).ok());
    let url = ready["url"].as_str().unwrap();
    let (_, secret) = secret_of(&home, url);
    let bearer = format!("Bearer {secret}");
    let reply =
        http::json("POST", &format!("{url}/run-task"), &[("authorization", &bearer)], Some(&task("env"))).unwrap();
    let text = reply.expect(200).json()["output"]["text"].as_str().unwrap().to_owned();
    assert!(text.contains("WANTED=y"), "{text}");
    assert!(!text.contains("PLANTED_SECRET") && !text.contains("A2A_HOME"), "{text}");
}

#[test]
fn it_exits_when_its_parent_exits() {
    let home = TestHome::new();
    let mut command = home.command(&["adapter", "shell", "--exit-with-parent", "--ready-file", "ready"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let file = home.path().join("ready");
    until("the adapter", || file.exists().then_some(()));
    // Ctrl-C reaches every process of the terminal, and a parent may write to standard input.
    process::signal(child.id(), "INT");
    input.write_all(b"hello\n").unwrap();
    assert!(child.try_wait().unwrap().is_none());
    drop(input);
    let status = until("the adapter to end", || child.try_wait().unwrap());
    assert!(status.success(), "{status}");
    assert!(!file.exists());
}
