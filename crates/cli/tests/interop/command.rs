//! `a2acli` from the crate `a2a-cli`, which speaks 1.0 over JSON-RPC and HTTP+JSON. It generates its own message
//! ids, so the agent goes by the text.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::{AGENT, InteropWorld, STRICT, installed, member};
use crate::harness::FinishedProcess;

struct A2aCliClient {
    world: InteropWorld,
    program: PathBuf,
    binding: &'static str,
}

// === impl A2aCliClient ===

impl A2aCliClient {
    fn new(program: PathBuf, binding: &'static str) -> Self {
        Self { world: InteropWorld::new(), program, binding }
    }

    #[track_caller]
    fn at(&self, agent: &str, args: &[&str]) -> FinishedProcess {
        self.with_card(&self.world.card_url(agent), args)
    }

    #[track_caller]
    fn with_card(&self, card: &str, args: &[&str]) -> FinishedProcess {
        let mut command = self.world.home.program(&self.program);
        command.args([
            "--agent-card",
            card,
            "--transport",
            self.binding,
            "--output",
            "json",
            "--poll-interval",
            "100ms",
        ]);
        command.args(args).env("A2ACLI_BEARER", &self.world.hub.key);
        FinishedProcess::of(&mut command, &self.world.home.logs())
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        self.at(AGENT, args).succeeds().json()
    }

    /// The task in the response to a message.
    #[track_caller]
    fn send(&self, args: &[&str]) -> Value {
        let mut all = vec!["send"];
        all.extend(args);
        let answer = self.json(&all);
        answer.get("task").cloned().unwrap_or(answer)
    }

    /// The events of a stream, one per line.
    #[track_caller]
    fn events(&self, args: &[&str]) -> Vec<Value> {
        let output = self.at(AGENT, args).succeeds().stdout;
        output
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line:?}: {e}\n{output}")))
            .collect()
    }
}

fn id(task: &Value) -> &str {
    task["id"].as_str().unwrap_or_else(|| panic!("not a task: {task}"))
}

#[test]
fn a2a_cli_over_json_rpc() {
    through_every_operation("jsonrpc");
}

#[test]
fn a2a_cli_over_http_json() {
    through_every_operation("rest");
}

fn through_every_operation(binding: &'static str) {
    let Some(folder) = installed("cli") else { return };
    let client = A2aCliClient::new(folder.join("bin/a2acli"), binding);
    cards(&client);
    tasks(&client);
    streams(&client);
    pushes(&client);
    refusals(&client);
}

fn cards(client: &A2aCliClient) {
    let card = client.json(&["card", "get"]);
    assert_eq!(member(&card, "/name"), AGENT, "{card}");
    // Without the version in the query, the card also serves 0.3 clients and doesn't match the 1.0 schema.
    let pure = format!("{}?A2A-Version=1.0", client.world.card_url(AGENT));
    client.with_card(&pure, &["card", "get", "--validate"]).succeeds();
    let extended = client.json(&["card", "get", "--extended"]);
    let extensions = extended["capabilities"]["extensions"].as_array().unwrap();
    let runtime = extensions.iter().find(|extension| extension["uri"] == "https://attache.dev/ext/runtime/v1");
    assert_eq!(runtime.map(|extension| &extension["params"]["online"]), Some(&json!(true)), "{extended}");
}

fn tasks(client: &A2aCliClient) {
    // This client reads every JSON number as floating point.
    let done = client.send(&["--text-part", "tck-artifact-data", "--data-part", r#"{"n":[1,2.5,null]}"#]);
    assert_eq!(member(&done, "/status/state"), "TASK_STATE_COMPLETED", "{done}");
    assert_eq!(member(&done, "/artifacts/0/parts/0/data"), &json!({ "key": "value", "count": 42.0 }), "{done}");
    let got = client.json(&["task", "get", id(&done)]);
    assert_eq!(member(&got, "/history/0/parts/1/data"), &json!({ "n": [1.0, 2.5, null] }), "{got}");

    let asked = client.send(&["tck-multi-turn"]);
    assert_eq!(member(&asked, "/status/state"), "TASK_STATE_INPUT_REQUIRED", "{asked}");
    let done = client.send(&["--task-id", id(&asked), "done"]);
    assert_eq!([&done["id"], member(&done, "/status/state")], [&asked["id"], &json!("TASK_STATE_COMPLETED")], "{done}");
    let last = client.json(&["task", "get", id(&asked), "--history-length", "1"]);
    assert_eq!(last["history"].as_array().map(Vec::len), Some(1), "{last}");
    assert_eq!(member(&last, "/history/0/parts/0/text"), "done", "{last}");

    let context = "context-of-a2acli";
    for text in ["tck-artifact-text", "tck-complete-task", "tck-complete-task again"] {
        client.send(&["--context-id", context, text]);
    }
    let list = ["task", "list", "--context-id", context, "--status", "completed", "--page-size", "2"];
    let first = client.json(&list);
    assert_eq!([&first["totalSize"], &first["pageSize"]], [&json!(3), &json!(2)], "{first}");
    let token = first["nextPageToken"].as_str().unwrap();
    let mut next = list.to_vec();
    next.extend(["--page-token", token, "--include-artifacts"]);
    let second = client.json(&next);
    assert_eq!(second["tasks"].as_array().map(Vec::len), Some(1), "{second}");
    assert_eq!(member(&second, "/tasks/0/artifacts/0/parts/0/text"), "Generated text content", "{second}");

    let begun = client.send(&["--return-immediately", "--async", "tck-cancel"]);
    let cancelled = client.json(&["task", "cancel", id(&begun)]);
    assert_eq!(member(&cancelled, "/status/state"), "TASK_STATE_CANCELED", "{cancelled}");
}

fn streams(client: &A2aCliClient) {
    let events = client.events(&["send", "--stream", "tck-stream-chunked"]);
    let last = events.last().unwrap();
    assert_eq!(member(last, "/statusUpdate/status/state"), "TASK_STATE_COMPLETED", "{events:?}");
    let task = events[0]["task"].clone();
    let pieces: Vec<_> = task["artifacts"][0]["parts"]
        .as_array()
        .into_iter()
        .flatten()
        .chain(events.iter().filter_map(|event| event.pointer("/artifactUpdate/artifact/parts/0")))
        .map(|part| part["text"].as_str().unwrap())
        .collect();
    assert_eq!(pieces, ["chunk-1 ", "chunk-1.5 ", "chunk-2"], "{events:?}");

    let begun = client.send(&["--return-immediately", "--async", "test-resubscribe-message-id"]);
    let events = client.events(&["task", "subscribe", id(&begun)]);
    assert_eq!(member(&events[0], "/task/id"), &begun["id"], "{events:?}");
    assert_eq!(member(events.last().unwrap(), "/statusUpdate/status/state"), "TASK_STATE_COMPLETED", "{events:?}");
}

fn pushes(client: &A2aCliClient) {
    let task = client.send(&["tck-input-required"]);
    let id = id(&task);
    let url = "http://127.0.0.1:9/hook";
    let create = ["task", "push-config", "create", id, url, "--config-id", "mine", "--token", "a token"];
    let made = client.json(&create);
    assert_eq!([&made["id"], &made["taskId"], &made["url"]], [&json!("mine"), &json!(id), &json!(url)], "{made}");
    let got = client.json(&["task", "push-config", "get", id, "mine"]);
    assert_eq!(got, made);
    let listed = client.json(&["task", "push-config", "list", id]);
    assert_eq!(listed["configs"], json!([made]), "{listed}");
    client.at(AGENT, &["task", "push-config", "delete", id, "mine"]).succeeds();
    let listed = client.json(&["task", "push-config", "list", id]);
    assert_eq!(listed["configs"].as_array().map_or(0, Vec::len), 0, "{listed}");
    client.json(&["task", "cancel", id]);
}

fn refusals(client: &A2aCliClient) {
    let messages = |ran: FinishedProcess, code: &str| {
        assert_ne!(ran.status, Some(0), "{ran:?}");
        assert!((ran.stdout.clone() + &ran.stderr).contains(code), "{ran:?}");
    };
    messages(client.at(AGENT, &["task", "get", "no-such-task"]), "TASK_NOT_FOUND");
    let done = client.send(&["tck-complete-task"]);
    messages(client.at(AGENT, &["task", "cancel", id(&done)]), "TASK_NOT_CANCELABLE");
    let plain = format!("{AGENT}-plain");
    messages(client.at(&plain, &["task", "subscribe", id(&done)]), "UNSUPPORTED_OPERATION");
    let strict = format!("{AGENT}-strict");
    let send = ["send", "--return-immediately", "--async", "hello"];
    messages(client.at(&strict, &send), "EXTENSION_SUPPORT_REQUIRED");
    let header = format!("A2A-Extensions:{STRICT}");
    let mut with = vec!["--svc-param", header.as_str()];
    with.extend(send);
    client.at(&strict, &with).succeeds();
}
