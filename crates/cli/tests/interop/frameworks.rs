//! Third-party agent frameworks with their own A2A code: as clients of our agent, and their servers as outside
//! agents.
//!
//! google-adk, strands-agents, agent-framework, beeai-framework, crewai and a2a-sdk 0.2 send, stream, receive
//! artifacts and continue a task that asked for input; servers of google-adk, strands-agents and fasta2a execute our
//! runs. Cards are used as served.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{AGENT, INTEROP_TIMEOUT, InteropWorld, installed, scripts_folder};
use crate::harness::{TestHome, TestProcess};

const KEY: &str = "ATTACHE_KEY";

/// Runs a script in `tests/interop/frameworks` with the Python that has the framework.
#[track_caller]
fn client(environment: &str, script: &str, a2a: Option<Value>) {
    let Some(python) = installed(environment).map(|folder| folder.join("bin/python3")) else { return };
    let world = InteropWorld::new();
    if let Some(a2a) = a2a {
        let path = format!("/api/v1/agent-accounts/{AGENT}");
        world.hub.call("PATCH", &path, Some(&json!({ "a2a": a2a }))).expect(200);
    }
    let script = scripts_folder().join("frameworks").join(script);
    let output = world.run(environment, KEY, &python, &[script.to_str().unwrap(), &world.hub.url, AGENT]);
    // A framework may still log from another thread after the script is done.
    assert!(output.lines().any(|line| line.starts_with("done ")), "{output}");
}

#[test]
fn google_adk_as_a_client() {
    // It rejects a card URL if one of the card's interfaces has another origin.
    client("adk", "adk.py", Some(json!({ "bindings": ["JSONRPC", "HTTP+JSON"] })));
}

#[test]
fn strands_as_a_client() {
    client("strands", "strands.py", None);
}

#[test]
fn agent_framework_as_a_client() {
    client("agent_framework", "agent_framework.py", None);
}

#[test]
fn beeai_as_a_client() {
    client("beeai", "beeai.py", None);
}

#[test]
fn crewai_as_a_client() {
    client("crewai", "crewai.py", None);
}

#[test]
fn a2a_sdk_0_2_as_a_client() {
    client("py02", "sdk02.py", None);
}

/// An agent served by a framework executes a run.
#[track_caller]
fn server(environment: &str, script: &str) {
    let Some(python) = installed(environment).map(|folder| folder.join("bin/python3")) else { return };
    let home = TestHome::new();
    let hub = home.hub(&["--egress-allow", "127.0.0.0/8"]);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (port, script) = (free.port(), scripts_folder().join("servers").join(script));
    let mut command = home.program(&python);
    command.arg(script).arg(port.to_string());
    let _server = TestProcess::spawn(environment, &mut command, &home.logs());
    let (url, give_up) = (format!("http://127.0.0.1:{port}"), Instant::now() + INTEROP_TIMEOUT);
    let wait = || {
        assert!(Instant::now() < give_up, "{environment} did not get ready within {INTEROP_TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(100));
    };
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        wait();
    }
    hub.post("/api/v1/agent-accounts", &json!({ "name": "outside", "peer": { "url": url } })).expect(201);
    let made = hub.post("/api/v1/task-runs", &json!({ "agent_id": "outside", "input": { "text": "hello" } }));
    let path = format!("/api/v1/task-runs/{}", made.expect(201).json()["task_run_id"].as_str().unwrap());
    let ended = loop {
        let run = hub.get(&path);
        if run["ended_at"].is_string() {
            break run;
        }
        wait();
    };
    assert_eq!(ended["status"], "completed", "{ended}");
    assert!(ended["task_result"].to_string().replace("\"},{\"text\":\"", "").contains("you said: hello"), "{ended}");
}

#[test]
fn google_adk_as_an_agent_outside() {
    server("adk", "adk.py");
}

#[test]
fn strands_as_an_agent_outside() {
    server("strands", "strands.py");
}

#[test]
fn fasta2a_as_an_agent_outside() {
    server("fasta2a", "fasta2a.py");
}
