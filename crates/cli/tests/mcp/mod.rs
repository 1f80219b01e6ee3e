//! `attache mcp` from outside: real processes, driven by hand, by the inspector and by the conformance suite of the MCP
//! project, and the hub's `/mcp`.

mod elicitation;
pub mod hub;
mod install;
mod kits;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Stdio},
};

use serde_json::{Value, json};

use crate::harness::TestHome;

/// `attache mcp` as a client starts it. Stopped with the test.
pub(crate) struct McpProcess {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    next: u64,
}

impl McpProcess {
    pub(crate) fn start(home: &TestHome, args: &[&str]) -> Self {
        let mut all = vec!["mcp"];
        all.extend(args);
        let mut command = home.command(&all);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut client = Self { child, to, from, next: 0 };
        let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        client.ask("initialize", params);
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        client
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.to.as_mut().unwrap(), "{message}").unwrap();
    }

    #[track_caller]
    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.next, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.from.read_line(&mut line).unwrap() > 0, "the server hung up");
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == json!(self.next) {
                return message;
            }
        }
    }

    #[track_caller]
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))["result"].take()
    }

    /// Disconnects, as clients do, and waits for the exit.
    pub(crate) fn close(mut self) -> bool {
        drop(self.to.take());
        self.child.wait().unwrap().success()
    }
}

impl Drop for McpProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn agents_of_the_local_hub_are_listed_and_called() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let mut client = McpProcess::start(&home, &[]);
    let listed = client.call("list_agents", json!({}));
    let agents = &listed["structuredContent"]["agents"];
    assert_eq!(agents[0]["name"], "local", "{listed}");
    let url = agents[0]["agent_url"].as_str().unwrap().to_owned();
    assert_eq!(url, format!("{}/a2a/local", up.url));
    for agent in [url.as_str(), "local"] {
        let answer = client.call("remote_agent", json!({ "task": "echo hello from $((40 + 2))", "agent_url": agent }));
        assert_eq!(answer["isError"], json!(false), "{answer}");
        assert_eq!(answer["structuredContent"]["output"].as_str().map(str::trim), Some("hello from 42"), "{answer}");
    }
    let failed = client.call("remote_agent", json!({ "task": "exit 3", "agent_url": "local" }));
    assert_eq!(failed["structuredContent"]["metadata"]["status"], "failed", "{failed}");
    assert!(client.close());
}

#[test]
fn a_long_call_is_fetched_later() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let mut client = McpProcess::start(&home, &["--wait", "1"]);
    let go = home.path().join("go");
    let task = format!("while [ ! -e {} ]; do sleep 0.1; done; echo done", go.display());
    let answer = client.call("remote_agent", json!({ "task": task, "agent_url": "local" }));
    let metadata = &answer["structuredContent"]["metadata"];
    assert_eq!(metadata["status"], "running", "{answer}");
    std::fs::write(go, "").unwrap();
    let call = metadata["call_id"].as_str().unwrap();
    let mut status = Value::Null;
    for _ in 0..30 {
        let answer = client.call("remote_agent", json!({ "call_id": call }));
        status = answer["structuredContent"]["metadata"]["status"].clone();
        if status == "completed" {
            break;
        }
    }
    assert_eq!(status, "completed");
}

#[test]
fn a_folder_that_is_not_allowed_is_refused_with_the_command_that_allows_it() {
    let home = TestHome::new();
    // Started here, so that it stops with the test; otherwise the tool would start one.
    let (_daemon, _) = home.ready("daemon", &["daemon", "--ssh-listen", "127.0.0.1:0"]);
    let mut client = McpProcess::start(&home, &[]);
    let folder = home.path().join("project");
    std::fs::create_dir(&folder).unwrap();
    let arguments = json!({
        "description": "Try it",
        "prompt": "List the files.",
        "peer_url": "http://127.0.0.1:9/a2a/builder",
        "workspace_dir": folder,
    });
    let refused = client.call("delegate", arguments);
    assert_eq!(refused["isError"], json!(true), "{refused}");
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("attache delegations allow"), "{text}");
    assert!(text.contains("<AWCP_metadata>\nstatus: refused\n"), "{text}");
}

#[test]
fn over_http_the_secret_is_in_a_private_file_and_only_this_machine_is_served() {
    use std::os::unix::fs::PermissionsExt as _;
    let home = TestHome::new();
    let (server, ready) = home.ready("mcp", &["mcp", "--http", "127.0.0.1:0"]);
    let (url, file) = (ready["url"].as_str().unwrap(), ready["secret_file"].as_str().unwrap());
    let port = url.rsplit_once(':').unwrap().1.split_once('/').unwrap().0;
    assert_eq!(file, home.a2a().join(format!("mcp/127.0.0.1_{port}")).to_str().unwrap());
    assert_eq!(std::fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let secret = std::fs::read_to_string(file).unwrap().trim().to_owned();
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let bearer = format!("Bearer {secret}");
    let accept = ("accept", "application/json, text/event-stream");
    let status =
        |headers: &[(&str, &str)]| crate::harness::http::json("POST", url, headers, Some(&hello)).unwrap().status;
    assert_eq!(status(&[accept]), 401);
    assert_eq!(status(&[accept, ("authorization", &bearer), ("origin", "http://evil.example")]), 403);
    assert_eq!(status(&[accept, ("authorization", &bearer)]), 200);
    assert!(!server.stderr().contains(&secret) && !server.stdout().contains(&secret));
    let taken = home.attache(&["mcp", "--http", &format!("127.0.0.1:{port}")]).exits(1);
    assert!(taken.stderr.contains("--http 127.0.0.1:0") && !taken.stderr.contains("--listen"), "{}", taken.stderr);
    server.terminate();
    home.attache(&["mcp", "--http", "0.0.0.0:0"]).exits(2);
}
