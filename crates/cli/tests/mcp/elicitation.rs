//! Questions of agents in forms of a client that shares no code with us: the Python SDK of MCP, `mcp` 2.3.0, in both eras of the
//! protocol. `./test` installs it; without it, these tests report that they are skipped.

use std::{path::PathBuf, thread};

use serde_json::{Value, json};

use crate::{
    harness::{FinishedProcess, TestHome, TestHub},
    interop::installed,
};

const LEGACY: &str = "legacy";
const MODERN: &str = "2026-07-28";
/// Rounds of twenty seconds that the device waits for a run or an answer.
const PATIENCE: usize = 6;

/// A device whose tasks say what it asks.
struct CuriousDevice<'a> {
    hub: &'a TestHub,
    token: String,
    agent: String,
}

// === impl CuriousDevice ===

impl<'a> CuriousDevice<'a> {
    fn pair(hub: &'a TestHub) -> Self {
        hub.add_agent("curious");
        let device = hub.attach(&hub.pairing_code("curious"));
        let text = |name: &str| device[name].as_str().unwrap().to_owned();
        let device = Self { hub, token: text("runtime_token"), agent: text("agent_id") };
        let beat = json!({ "agent_id": device.agent, "running": [] });
        device.ask("POST", "/api/v1/agent-runtimes/runtime/heartbeat", &beat);
        device
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.hub.worker(&self.token, method, path, body);
        assert!(reply.status < 300, "{}", reply.text());
        reply.json()
    }

    /// Works on the next run.
    fn work(&self) {
        let pull = format!("/api/v1/agent-accounts/{}/task-runs/pull?wait_ms=20000", self.agent);
        let mut pulled = (0..PATIENCE).map(|_| self.ask("POST", &pull, &json!({}))["task_run"].clone());
        let run = pulled.find(|run| run.is_object()).expect("a run in time");
        let path = |rest: &str| format!("/api/v1/task-runs/{}/{rest}", run["task_run_id"].as_str().unwrap());
        let task = run["input"]["task"].as_str().or(run["input"]["text"].as_str()).unwrap_or_default().to_owned();
        let mut body = json!({ "epoch": run["epoch"], "prompt": "Which one?" });
        if task.contains("options") {
            let options = json!([{ "label": "PostgreSQL", "description": "a server" }, { "label": "SQLite" }]);
            let question = json!({ "question": "Which one?", "header": "Database", "options": options });
            body["parts"] = json!([{ "data": { "questions": [question] } }]);
        }
        if task.contains("approval") {
            let step = json!({ "epoch": run["epoch"], "tool": "Bash", "input": { "command": "make deploy" } });
            self.ask("POST", &path("permission-requests"), &step);
            return;
        }
        let asked = self.ask("POST", &path("input-requests"), &body);
        if !task.contains("answered") {
            return;
        }
        let question = path(&format!("input-requests/{}?wait_ms=20000", asked["input_request_id"].as_str().unwrap()));
        for _ in 0..PATIENCE {
            let answer = self.ask("GET", &question, &json!({}));
            if answer["state"] == "answered" {
                let done = json!({ "epoch": run["epoch"], "output": { "text": answer["parts"].to_string() } });
                self.ask("POST", &path("complete"), &done);
                return;
            }
        }
        panic!("nobody answered");
    }
}

/// How the client reaches the tools.
enum McpTarget<'a> {
    Stdio,
    Http { url: &'a str, secret: &'a str },
}

/// What the client printed of each step.
fn run(home: &TestHome, python: &PathBuf, mode: &str, target: &McpTarget<'_>, steps: &[Value]) -> Vec<Value> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/elicitation.py");
    let mut command = home.program(python);
    command.args([script, mode, &json!(steps).to_string()]);
    match target {
        McpTarget::Stdio => command.args([env!("CARGO_BIN_EXE_attache"), "mcp"]),
        McpTarget::Http { url, secret } => command.arg(url).env("ATTACHE_SECRET", secret),
    };
    let printed = FinishedProcess::of(&mut command, &home.logs()).succeeds().stdout;
    printed.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

fn step(task: &str) -> Value {
    json!({ "arguments": { "agent_url": "curious", "task": task } })
}

fn with_form(task: &str, form: Value) -> Value {
    let mut step = step(task);
    step["form"] = form;
    step
}

#[track_caller]
fn status(said: &Value) -> &str {
    said["structured"]["metadata"]["status"].as_str().unwrap_or_else(|| panic!("{said}"))
}

/// A client that shows forms, and one that doesn't.
fn questions_are_answered_in_forms(home: &TestHome, hub: &TestHub, mode: &str, target: &McpTarget<'_>) {
    let Some(python) = installed("mcp_python").map(|folder| folder.join("bin/python3")) else { return };
    let steps = [
        with_form("options, answered", json!({ "action": "accept", "content": { "answer": "SQLite" } })),
        with_form("options, answered", json!({ "action": "accept", "content": { "answer_in_own_words": "neither" } })),
        with_form("words, answered", json!({ "action": "accept", "content": { "answer": "the first" } })),
        with_form("words", json!({ "action": "decline" })),
        with_form("options", json!({ "action": "cancel" })),
        with_form("approval", json!({ "action": "accept", "content": {} })),
    ];
    let device = CuriousDevice::pair(hub);
    let said = thread::scope(|scope| {
        scope.spawn(|| (0..steps.len()).for_each(|_| device.work()));
        run(home, &python, mode, target, &steps)
    });
    let [option, own_words, words, declined, cancelled, approval] = &said[..] else { panic!("{said:?}") };

    let message = "The agent curious asks:\n\nWhich one?\n\nDon't enter passwords, keys or other secrets.";
    let form = &option["forms"][0];
    assert_eq!(form["message"], message, "{option}");
    let titles =
        json!([{ "const": "PostgreSQL", "title": "PostgreSQL: a server" }, { "const": "SQLite", "title": "SQLite" }]);
    let properties = json!({
        "answer": { "type": "string", "title": "Database", "oneOf": titles },
        "answer_in_own_words": { "type": "string", "title": "In your own words" },
    });
    assert_eq!(form["requestedSchema"], json!({ "type": "object", "properties": properties }), "{option}");
    let answered = |said: &Value| -> Value {
        assert_eq!((status(said), said["forms"].as_array().unwrap().len()), ("completed", 1), "{said}");
        serde_json::from_str(said["structured"]["output"].as_str().unwrap()).unwrap_or_else(|_| panic!("{said}"))
    };
    assert_eq!(answered(option), json!([{ "data": { "answers": [{ "selected": ["SQLite"] }] } }]));
    assert_eq!(answered(own_words), json!([{ "data": { "answers": [{ "selected": [], "text": "neither" }] } }]));
    assert_eq!(answered(words), json!([{ "text": "the first" }]));

    for (said, says) in [(declined, "declined to answer it"), (cancelled, "closed it without an answer")] {
        assert_eq!((status(said), said["forms"].as_array().unwrap().len()), ("input_required", 1), "{said}");
        assert!(said["structured"]["metadata"]["question_id"].is_string(), "{said}");
        let text = said["text"].as_str().unwrap();
        assert!(text.contains("Which one?") && text.contains(says), "{text}");
    }
    assert_eq!((status(approval), &approval["forms"]), ("approval_required", &json!([])), "{approval}");
    no_form_without_the_capability(home, &device, &python, mode, target);
}

fn no_form_without_the_capability(
    home: &TestHome,
    device: &CuriousDevice<'_>,
    python: &PathBuf,
    mode: &str,
    target: &McpTarget<'_>,
) {
    let said = thread::scope(|scope| {
        scope.spawn(|| device.work());
        run(home, python, mode, target, &[step("options")])
    });
    assert_eq!((status(&said[0]), &said[0]["forms"]), ("input_required", &json!([])), "{said:?}");
    assert!(said[0]["text"].as_str().unwrap().contains("Next: call remote_agent with call_id"), "{said:?}");
}

#[test]
fn a_form_over_standard_input_and_output() {
    for mode in [LEGACY, MODERN] {
        let home = TestHome::new();
        let hub = home.hub(&[]);
        questions_are_answered_in_forms(&home, &hub, mode, &McpTarget::Stdio);
    }
}

#[test]
fn a_form_over_local_http() {
    for mode in [LEGACY, MODERN] {
        let home = TestHome::new();
        let hub = home.hub(&[]);
        let (_server, ready) = home.ready("mcp", &["mcp", "--http", "127.0.0.1:0"]);
        let secret = std::fs::read_to_string(ready["secret_file"].as_str().unwrap()).unwrap();
        let target = McpTarget::Http { url: ready["url"].as_str().unwrap(), secret: secret.trim() };
        questions_are_answered_in_forms(&home, &hub, mode, &target);
    }
}

#[test]
fn a_form_at_the_hub() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let url = format!("{}/mcp", hub.url);
    questions_are_answered_in_forms(&home, &hub, MODERN, &McpTarget::Http { url: &url, secret: &hub.key });
}

/// It has no sessions, so it can't ask a client of the old era anything.
#[test]
fn no_form_at_the_hub_for_a_client_before_2026() {
    let Some(python) = installed("mcp_python").map(|folder| folder.join("bin/python3")) else { return };
    let home = TestHome::new();
    let hub = home.hub(&[]);
    let url = format!("{}/mcp", hub.url);
    let device = CuriousDevice::pair(&hub);
    let steps = [with_form("options", json!({ "action": "decline" }))];
    let said = thread::scope(|scope| {
        scope.spawn(|| device.work());
        run(&home, &python, LEGACY, &McpTarget::Http { url: &url, secret: &hub.key }, &steps)
    });
    assert_eq!((status(&said[0]), &said[0]["forms"]), ("input_required", &json!([])), "{said:?}");
}
