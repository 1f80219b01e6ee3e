//! Standard A2A from outside, against the real programs: a client's view of a hub that is killed.

use std::io::BufRead as _;

use serde_json::{Value, json};

use crate::harness::{TestHome, http};

const VERSION: (&str, &str) = ("a2a-version", "1.0");

/// The content of a stream so far: the answer's text and the state.
#[derive(Default)]
struct StreamedTask {
    text: String,
    state: String,
}

impl StreamedTask {
    /// Follows the client rules: a task replaces everything, an update appends or replaces.
    fn hear(&mut self, update: &Value) {
        let text = |artifact: &Value| -> String {
            artifact["parts"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect()
        };
        if let Some(task) = update.get("task") {
            self.text = task["artifacts"].as_array().map(|all| all.iter().map(text).collect()).unwrap_or_default();
        }
        if let Some(update) = update.get("artifactUpdate") {
            let piece = text(&update["artifact"]);
            self.text = if update["append"] == true { format!("{}{piece}", self.text) } else { piece };
        }
        for name in ["task", "statusUpdate"] {
            if let Some(state) = update[name]["status"]["state"].as_str() {
                self.state = state.to_owned();
            }
        }
    }

    /// Reads until the condition holds or the stream breaks; returns whether it holds.
    fn until(
        &mut self,
        lines: &mut impl Iterator<Item = std::io::Result<String>>,
        done: impl Fn(&Self) -> bool,
    ) -> bool {
        while !done(self) {
            let Some(Ok(line)) = lines.next() else { return false };
            if let Some(data) = line.strip_prefix("data:") {
                self.hear(&serde_json::from_str(data.trim()).unwrap());
            }
        }
        true
    }
}

/// The hub is killed in the middle of a stream: a client that resubscribes misses nothing.
#[test]
fn a_stream_resumes_after_the_hub_is_killed() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let address = hub.address().to_owned();
    let bearer = format!("Bearer {}", home.owner_key());
    let headers = [("authorization", bearer.as_str()), VERSION];
    let gate = home.path().join("gate");
    let task = format!("echo one; while [ ! -e {} ]; do sleep 0.05; done; echo two", gate.display());
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": task}]});
    let body = json!({"message": message, "configuration": {"returnImmediately": true}});
    let base = format!("{}/a2a/builder", hub.url);
    let sent = http::json("POST", &format!("{base}/message:send"), &headers, Some(&body)).unwrap().expect(200).json();
    let id = sent["task"]["id"].as_str().unwrap().to_owned();
    let watch = || http::open("GET", &format!("{base}/tasks/{id}:subscribe"), &headers).unwrap().lines();

    let (mut seen, mut lines) = (StreamedTask::default(), watch());
    assert!(seen.until(&mut lines, |seen| seen.text.contains("one")));
    hub.process.kill();
    assert!(!seen.until(&mut lines, |seen| seen.state == "TASK_STATE_COMPLETED"), "the stream breaks off");

    let _hub = home.hub(&["--listen", &address]);
    let mut lines = watch();
    seen.text.clear();
    assert!(seen.until(&mut lines, |seen| seen.text.contains("one")), "the task holds what was seen");
    std::fs::write(&gate, "").unwrap();
    assert!(seen.until(&mut lines, |seen| seen.state == "TASK_STATE_COMPLETED"));
    assert_eq!(seen.text.trim(), "one\ntwo", "complete, in order, nothing twice");
}

/// A stream contains only the agent's messages, not that it was started or the device's name.
#[test]
fn a_stream_contains_only_the_agents_messages() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let bearer = format!("Bearer {}", home.owner_key());
    let headers = [("authorization", bearer.as_str()), VERSION];
    let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "echo one"}]});
    let url = format!("{}/a2a/builder/message:send", hub.url);
    let sent = http::json("POST", &url, &headers, Some(&json!({ "message": message }))).unwrap().expect(200).json();
    let task = &sent["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "{sent}");
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "one\n", "{sent}");
    let said: Vec<&Value> = task["history"].as_array().unwrap().iter().map(|said| &said["role"]).collect();
    assert_eq!(said, ["ROLE_USER"], "{sent}");
    let id = task["id"].as_str().unwrap();
    let events = http::json("GET", &format!("{}/api/v1/task-runs/{id}/events", hub.url), &headers, None).unwrap();
    let events = String::from_utf8(events.expect(200).body).unwrap();
    assert!(!events.contains("Started"), "nothing that the agent did not say: {events}");
}

/// A new context belongs to its first task: if that is refused, nothing is left of it.
#[test]
fn a_refused_message_opens_no_conversation() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["quotas", "set", "--agent", "builder", "--calls", "1"]).succeeds();
    let bearer = format!("Bearer {}", home.owner_key());
    let send = |context: &str| {
        let message = json!({
            "messageId": format!("m-{context}"), "role": "ROLE_USER", "contextId": context,
            "parts": [{ "text": "build it" }],
        });
        let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let headers = [VERSION, ("authorization", bearer.as_str())];
        http::json("POST", &format!("{}/a2a/builder/message:send", hub.url), &headers, Some(&body)).unwrap()
    };
    let opened = |row: &Value| row["type"] == "conversation.created";
    let made = || {
        let listed = hub.get("/api/v1/conversations")["conversations"].as_array().unwrap().len();
        let log = hub.get("/api/v1/audit?limit=200");
        (listed, log["events"].as_array().unwrap().iter().filter(|row| opened(row)).count())
    };
    let first = send("first").expect(200).json();
    assert_eq!((made(), &first["task"]["contextId"]), ((1, 1), &json!("first")));
    let refused = send("second");
    assert!(refused.status >= 400, "{}", refused.text());
    assert_eq!(made(), (1, 1));
    // The next message in the same context continues the conversation.
    home.attache(&["quotas", "set", "--agent", "builder", "--calls", "9"]).succeeds();
    let message = json!({
        "messageId": "m-again", "role": "ROLE_USER", "contextId": "first", "parts": [{ "text": "once more" }],
    });
    let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let headers = [VERSION, ("authorization", bearer.as_str())];
    http::json("POST", &format!("{}/a2a/builder/message:send", hub.url), &headers, Some(&body)).unwrap().expect(200);
    assert_eq!(made(), (1, 1));
    let runs = hub.get("/api/v1/task-runs")["task_runs"].as_array().unwrap().clone();
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["conversation_id"], runs[1]["conversation_id"]);
}
