//! A run at the terminal: the answer is shown once, tools with their commands, and decisions are typed right there.

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestTerminal, has, until};

/// A device simulated by the test, with the run that it claimed.
struct TerminalDevice<'a> {
    hub: &'a TestHub,
    token: String,
    run: String,
    epoch: i64,
}

// === impl TerminalDevice ===

impl<'a> TerminalDevice<'a> {
    fn claim(hub: &'a TestHub, agent: &str) -> Self {
        let device = hub.attach(&hub.pairing_code(agent));
        let token = device["runtime_token"].as_str().unwrap().to_owned();
        let id = device["agent_id"].as_str().unwrap();
        let beat = json!({ "agent_id": id, "running": [] });
        hub.worker(&token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &beat).expect(200);
        let path = format!("/api/v1/agent-accounts/{id}/task-runs/pull?wait_ms=20000");
        let run = hub.worker(&token, "POST", &path, &json!({})).expect(200).json()["task_run"].clone();
        let (epoch, run) = (run["epoch"].as_i64().unwrap(), run["task_run_id"].as_str().unwrap().to_owned());
        Self { hub, token, run, epoch }
    }

    #[track_caller]
    fn tells(&self, rest: &str, mut body: Value) -> Value {
        body["epoch"] = json!(self.epoch);
        let reply = self.hub.worker(&self.token, "POST", &format!("/api/v1/task-runs/{}/{rest}", self.run), &body);
        assert!(reply.status < 300, "{}", reply.text());
        reply.json()
    }

    /// The outcome of a permission request, once it is decided.
    fn answer(&self, asked: &Value) -> Value {
        let id = asked["permission_request_id"].as_str().unwrap();
        let path = format!("/api/v1/task-runs/{}/permission-requests/{id}", self.run);
        until("a decision", || {
            let answer = self.hub.worker(&self.token, "GET", &path, &json!({})).expect(200).json();
            (answer["state"] != "pending").then_some(answer)
        })
    }
}

#[test]
fn several_messages_of_an_agent_are_not_reported_as_lost_output() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let mut terminal = TestTerminal::run(&home, "ask builder look");
    let device = TerminalDevice::claim(&hub, "builder");
    for chunk in ["I will look first.\n\n", "Two files ", "differ.\n"] {
        device.tells("progress", json!({ "chunk": chunk }));
    }
    device.tells("complete", json!({ "output": { "text": "Two files differ.\n" } }));
    assert!(terminal.ends(), "{}", terminal.screen());
    let screen = terminal.screen();
    assert!(!screen.contains("lost"), "{screen}");
    assert_eq!(screen.matches("Two files differ.").count(), 1, "{screen}");
}

#[test]
fn tools_are_shown_once_with_their_command_and_output() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let mut terminal = TestTerminal::run(&home, "ask builder look");
    let device = TerminalDevice::claim(&hub, "builder");
    let call = json!({ "id": "1", "name": "Bash", "status": "started", "input": { "command": "git status" } });
    device.tells("progress", json!({ "tool_call": call }));
    let done = json!({ "id": "1", "name": "Bash", "status": "completed", "input": { "command": "git status" },
        "output": "On branch main\n" });
    device.tells("progress", json!({ "tool_call": done }));
    device.tells("complete", json!({ "output": { "text": "clean\n" } }));
    assert!(terminal.ends(), "{}", terminal.screen());
    let screen = terminal.screen();
    assert_eq!(screen.matches("Bash: git status").count(), 1, "{screen}");
    assert_eq!(screen.matches("On branch main").count(), 1, "{screen}");
}

#[test]
fn a_person_decides_at_the_terminal() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let mut terminal = TestTerminal::run(&home, "ask builder publish");
    let device = TerminalDevice::claim(&hub, "builder");
    let command = "cargo publish\nrm -rf target";
    let ask = json!({ "tool": "Bash", "input": { "command": command }, "cwd": "/home/dev/parser" });
    let first = device.tells("permission-requests", ask);
    // The complete text is shown, not just its first line.
    let screen = terminal.shows("Type a to allow once");
    assert!(screen.contains("rm -rf target") && screen.contains("in: /home/dev/parser"), "{screen}");
    terminal.types("maybe");
    terminal.shows("type a to allow or d to deny");
    terminal.types("a");
    let answer = device.answer(&first);
    assert_eq!((&answer["approved"], &answer["scope"]), (&json!(true), &json!("once")));
    terminal.shows("approved by owner");
    let second = device.tells("permission-requests", json!({ "tool": "Bash", "input": { "command": "git push" } }));
    until("the second question", || (terminal.screen().matches("Type a to allow once").count() == 2).then_some(()));
    terminal.types("d use the other remote");
    let answer = device.answer(&second);
    assert_eq!((&answer["approved"], &answer["comment"]), (&json!(false), &json!("use the other remote")));
    device.tells("complete", json!({ "output": { "text": "done\n" } }));
    assert!(terminal.ends(), "{}", terminal.screen());
}

#[test]
fn removing_an_agent_needs_confirmation() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let mut terminal = TestTerminal::run(&home, "agents remove builder");
    terminal.shows("[y/N]");
    terminal.types("");
    assert!(!terminal.ends(), "{}", terminal.screen());
    assert_eq!(hub.get("/api/v1/agent-accounts/builder")["archived_at"], Value::Null);
    let mut terminal = TestTerminal::run(&home, "agents remove builder");
    terminal.shows("[y/N]");
    terminal.types("y");
    assert!(terminal.ends(), "{}", terminal.screen());
    assert_eq!(hub.get("/api/v1/agent-accounts")["agent_accounts"], json!([]));
    // In a script, the command includes the confirmation.
    hub.add_agent("other");
    let mut terminal = TestTerminal::run(&home, "agents remove other --yes");
    assert!(terminal.ends(), "{}", terminal.screen());
    assert!(!terminal.screen().contains("[y/N]"), "{}", terminal.screen());
}

#[test]
fn replacing_a_device_needs_confirmation() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    hub.agent_is("builder", "online");
    let url = format!("{}/api/v1/agent-runtimes/runtime/pairing-requests", hub.url);
    let asked = crate::harness::http::json("POST", &url, &[], Some(&json!({ "device_name": "other" }))).unwrap().json();
    let code = asked["pairing_code"].as_str().unwrap();
    let device = hub.get("/api/v1/agent-accounts/builder")["runtime"]["device_name"].as_str().unwrap().to_owned();
    let mut terminal = TestTerminal::run(&home, &format!("runtimes confirm {code} --agent builder"));
    terminal.shows(&format!("This replaces {device} (online)."));
    terminal.shows("[y/N]");
    terminal.types("");
    assert!(!terminal.ends(), "{}", terminal.screen());
    assert_eq!(hub.get("/api/v1/agent-accounts/builder")["runtime"]["device_name"], device.as_str());
}

/// Nothing can be written to it any more, not even the end of the line.
#[test]
fn closing_the_terminal_in_the_middle_of_a_line_cancels_the_run() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let mut terminal = TestTerminal::run(&home, "ask builder look");
    let device = TerminalDevice::claim(&hub, "builder");
    device.tells("progress", json!({ "chunk": "half a line" }));
    terminal.shows("half a line");
    terminal.closes();
    let shown = || home.attache(&["runs", "show", &device.run, "--json"]).succeeds().stdout;
    until("the run to be cancelled", || shown().contains("cancelled").then_some(()));
}
