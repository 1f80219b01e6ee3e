//! `attache approvals` and the messages of a waiting run: requests shown exactly, decided once, from a terminal.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, until};

/// A device simulated by the test, with the run that it claimed.
struct ApprovalDevice<'a> {
    hub: &'a TestHub,
    token: String,
    run: String,
    epoch: i64,
}

impl<'a> ApprovalDevice<'a> {
    /// Pairs with the agent and claims its next run.
    #[track_caller]
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

    fn path(&self, rest: &str) -> String {
        format!("/api/v1/task-runs/{}/{rest}", self.run)
    }

    /// Requests permission and returns the request's id.
    #[track_caller]
    fn ask(&self, tool: &str, input: &Value) -> String {
        let body = json!({
            "epoch": self.epoch, "tool": tool, "input": input, "cwd": "/home/dev/parser",
            "paths": ["/home/dev/parser/src"], "reason": "the tests want it", "risk": "high",
        });
        let reply = self.hub.worker(&self.token, "POST", &self.path("permission-requests"), &body);
        assert!(reply.status < 300, "{}", reply.text());
        reply.json()["permission_request_id"].as_str().unwrap().to_owned()
    }

    /// What the device receives about its request.
    #[track_caller]
    fn answer(&self, request: &str) -> Value {
        let path = self.path(&format!("permission-requests/{request}"));
        self.hub.worker(&self.token, "GET", &path, &json!({})).expect(200).json()
    }

    #[track_caller]
    fn wonder(&self, prompt: &str) -> String {
        let body = json!({ "epoch": self.epoch, "prompt": prompt });
        let reply = self.hub.worker(&self.token, "POST", &self.path("input-requests"), &body);
        assert!(reply.status < 300, "{}", reply.text());
        reply.json()["input_request_id"].as_str().unwrap().to_owned()
    }

    /// The answer to a question.
    #[track_caller]
    fn heard(&self, question: &str) -> Value {
        let path = self.path(&format!("input-requests/{question}"));
        self.hub.worker(&self.token, "GET", &path, &json!({})).expect(200).json()
    }

    #[track_caller]
    fn complete(&self, text: &str) {
        let body = json!({ "epoch": self.epoch, "output": { "text": text } });
        self.hub.worker(&self.token, "POST", &self.path("complete"), &body).expect(200);
    }
}

#[test]
fn the_last_request_is_the_one_that_the_person_saw() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "clean up");
    let device = ApprovalDevice::claim(&hub, "builder");
    let seen = device.ask("shell", &json!({ "command": "echo harmless" }));
    for verb in ["approve", "deny"] {
        let refused = home.attache(&["approvals", verb, "last"]).exits(2).stderr;
        assert!(refused.contains(&format!("{seen}  builder: shell: echo harmless")), "{refused}");
    }
    home.attache(&["approvals", "show", "last"]).succeeds();
    let unseen = device.ask("shell", &json!({ "command": "rm -rf important" }));
    let allowed = home.attache(&["approvals", "approve", "last"]).succeeds().stderr;
    assert_eq!(allowed, "Allowed once: builder can use shell: echo harmless.\n");
    assert_eq!(
        (device.answer(&seen)["state"].clone(), device.answer(&unseen)["state"].clone()),
        (json!("approved"), json!("pending"))
    );
    // Nor does another one take the place of a request that is decided.
    let decided = home.attache(&["approvals", "deny", "last"]).exits(1).stderr;
    assert!(decided.contains("already decided"), "{decided}");
    let denied = home.attache(&["approvals", "deny", &unseen, "--scope", "run"]).succeeds().stderr;
    assert!(
        denied.contains("Denied for this run: builder can't use shell with exactly this input: rm -rf important."),
        "{denied}"
    );
}

#[test]
fn proposed_changes_and_undisclosed_parts_are_shown() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "upgrade the parser");
    let device = ApprovalDevice::claim(&hub, "builder");
    let body = json!({
        "epoch": device.epoch, "tool": "Edit", "input": {}, "undisclosed": ["input", "paths"],
        "diff": "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\u{1b}[31m\n",
    });
    let reply = hub.worker(&device.token, "POST", &device.path("permission-requests"), &body).expect(201).json();
    let shown =
        home.attache(&["approvals", "show", reply["permission_request_id"].as_str().unwrap()]).succeeds().stdout;
    let lines: Vec<&str> = shown.lines().collect();
    let at = lines.iter().position(|line| *line == "proposed changes").unwrap_or_else(|| panic!("{shown}"));
    assert_eq!(lines[at + 1..at + 5], ["--- a/x", "+++ b/x", "@@ -1 +1 @@", "-old"]);
    assert!(lines[at + 5].starts_with("+new") && !shown.contains('\u{1b}'), "{shown}");
    assert!(lines.iter().any(|line| line.starts_with("not disclosed") && line.ends_with("input, paths")), "{shown}");
}

/// Power fails between the question and the answer, and again between the answer and its reader.
#[test]
fn a_request_and_its_decision_survive_a_killed_hub() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "clean up");
    let ApprovalDevice { token, run, epoch, .. } = ApprovalDevice::claim(&hub, "builder");
    let again = |hub: &TestHub| {
        hub.process.kill();
        home.hub(&["--listen", hub.address()])
    };
    let request = ApprovalDevice { hub: &hub, token: token.clone(), run: run.clone(), epoch }
        .ask("shell", &json!({ "command": "rm -r build" }));
    let second = again(&hub);
    let device = ApprovalDevice { hub: &second, token: token.clone(), run: run.clone(), epoch };
    assert_eq!(device.answer(&request)["approved"], Value::Null);
    home.attache(&["approvals", "approve", &request]).succeeds();
    let third = again(&second);
    assert_eq!(ApprovalDevice { hub: &third, token, run, epoch }.answer(&request)["approved"], true);
    // A decision is final, and the log records who made it, how and from where.
    home.attache(&["approvals", "deny", &request]).exits(1);
    let shown = home.attache(&["approvals", "show", &request, "--json"]).succeeds().json();
    assert!(shown["decided_by"].as_str().unwrap().starts_with("key:"), "{shown}");
    assert_eq!((&shown["decided_via"], &shown["decided_from"]), (&json!("rest"), &json!("127.0.0.1")));
    assert!(shown["decided_at"].is_string() && shown["subject"].as_str().unwrap().len() == 64, "{shown}");
    let log = home.attache(&["audit", "--json"]).succeeds().stdout;
    let row = log.lines().find(|line| line.contains("permission.decided")).unwrap();
    assert!(row.contains("key:") && row.contains("127.0.0.1"), "{row}");
}

#[test]
fn an_undisclosed_input_can_only_be_approved_once() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("gemini");
    hub.create_run("gemini", "make a file");
    let device = ApprovalDevice::claim(&hub, "gemini");
    let body = json!({
        "epoch": device.epoch, "tool": "execute", "input": {}, "undisclosed": ["input", "paths"], "reason": "touch g1.txt",
    });
    let reply = hub.worker(&device.token, "POST", &device.path("permission-requests"), &body).expect(201).json();
    let id = reply["permission_request_id"].as_str().unwrap();
    let listed = home.attache(&["approvals"]).succeeds().stdout;
    assert!(listed.contains("touch g1.txt (input not disclosed)") && !listed.contains("{}"), "{listed}");
    let shown = home.attache(&["approvals", "show", id]).succeeds();
    assert!(
        !shown.stdout.contains("{}") && shown.stderr.contains("Only scope `once` is possible"),
        "{}{}",
        shown.stdout,
        shown.stderr
    );
    let refused = home.attache(&["approvals", "approve", id, "--scope", "run"]).exits(2);
    assert!(refused.stderr.contains("must be `once`"), "{}", refused.stderr);
    home.attache(&["approvals", "approve", id]).succeeds();
}

#[test]
fn a_request_is_listed_shown_and_decided_once() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let output = home.attache(&["approvals"]).succeeds();
    assert!(output.stdout.is_empty() && output.stderr.starts_with("No pending approvals."), "{}", output.stderr);
    hub.create_run("builder", "upgrade the parser");
    let device = ApprovalDevice::claim(&hub, "builder");
    let id = device.ask("Run", &json!({ "command": "git push --force origin main", "timeout": 60 }));

    let list = home.attache(&["approvals", "--json"]).succeeds().json();
    assert_eq!(list["permission_requests"][0]["permission_request_id"], id.as_str());
    let table = home.attache(&["approvals"]).succeeds().stdout;
    assert!(table.starts_with("ID ") && table.contains("git push --force origin main"), "{table}");
    let shown = home.attache(&["approvals", "show", &id]).succeeds();
    for part in [
        "if unanswered  denied in ",
        "; the run fails",
        "/home/dev/parser/src",
        "the tests want it",
        "\ncommand\ngit push --force origin main\n",
        "\ninput\n{\n  \"timeout\": 60\n}\n",
    ] {
        assert!(shown.stdout.contains(part), "{part:?} is missing in {}", shown.stdout);
    }
    assert!(shown.stderr.contains(&format!("attache approvals approve {id}")), "{}", shown.stderr);
    let run = home.attache(&["runs", "show", &device.run]).succeeds();
    assert!(run.stdout.contains("paused while it waits"), "{}", run.stdout);
    assert!(run.stdout.contains("waiting: approval") && run.stdout.contains("Run: git push"), "{}", run.stdout);
    assert!(run.stdout.contains("the device is waiting for a person's answer"), "{}", run.stdout);
    for verb in ["approve", "deny"] {
        assert!(run.stderr.contains(&format!("attache approvals {verb} {id}")), "{}", run.stderr);
    }
    let runs = home.attache(&["runs"]).succeeds();
    assert!(runs.stdout.contains("waiting: approval") && runs.stderr.contains("attache approvals"), "{runs:?}");

    let decided = home.attache(&["approvals", "approve", &id, "--comment", "go on", "--json"]).succeeds().json();
    assert_eq!((&decided["state"], &decided["decided_via"]), (&json!("approved"), &json!("rest")));
    assert_eq!(device.answer(&id)["comment"], "go on");
    // Repeating the same decision is fine; a different one is refused and shows who decided first.
    home.attache(&["approvals", "approve", &id, "--comment", "go on"]).succeeds();
    home.attache(&["approvals", "approve", &id]).succeeds();
    home.attache(&["approvals", "approve", &id, "--comment", "go away"]).exits(1);
    let late = home.attache(&["approvals", "deny", &id]).exits(1);
    assert!(late.stderr.starts_with("error: already decided: approved once by owner"), "{}", late.stderr);
    assert!(late.stderr.contains("attache approvals grants"), "{}", late.stderr);
    let late = home.attache(&["approvals", "deny", &id, "--json"]).exits(1);
    let error: Value = serde_json::from_str(&late.stderr).unwrap();
    assert_eq!(error["error"]["code"], "already_decided");
    let all = home.attache(&["approvals", "list", "--state", "all"]).succeeds().stdout;
    assert!(all.contains("approved"), "{all}");
    let shown = home.attache(&["approvals", "show", &id]).succeeds();
    assert!(
        shown.stdout.contains("approved once by owner") && shown.stdout.contains("through the API"),
        "{}",
        shown.stdout
    );
}

#[test]
fn wrong_usage_unknown_requests_and_viewers_are_refused() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "go");
    let device = ApprovalDevice::claim(&hub, "builder");
    let id = device.ask("Run", &json!({ "command": "ls" }));
    for args in [
        &["approvals", "approve", "run_1"][..],
        &["approvals", "approve", &id, "--scope", "world"],
        &["approvals", "approve", &id, "--until", "soon"],
        &["approvals", "list", "--state", "odd"],
        &["approvals", "approve"],
    ] {
        home.attache(args).exits(2);
    }
    home.attache(&["approvals", "show", "prm_00000000000000000000000000000000"]).exits(3);
    home.attache(&["approvals", "grants", "revoke", "gnt_00000000000000000000000000000000"]).exits(3);
    let file = home.path().join("viewer.key");
    let path = file.to_str().unwrap();
    home.attache(&["keys", "add", "look", "--role", "viewer", "--to-file", path]).succeeds();
    home.attache(&["approvals", "--key-file", path]).succeeds();
    home.attache(&["approvals", "approve", &id, "--key-file", path]).exits(4);
    // A pattern needs a wider scope; the hub refuses it otherwise.
    let ran = home.attache(&["approvals", "approve", &id, "--tool-pattern", "R*"]);
    assert_ne!(ran.status, Some(0), "{}", ran.stderr);
    assert_eq!(device.answer(&id)["state"], "pending");
}

#[test]
fn a_grant_is_listed_counted_and_revoked() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "go");
    let device = ApprovalDevice::claim(&hub, "builder");
    let id = device.ask("Read", &json!({ "path": "a" }));
    let args = ["approvals", "approve", &id, "--scope", "agent", "--tool-pattern", "Read*", "--until", "7d"];
    let output = home.attache(&args).succeeds();
    assert!(output.stderr.contains("attache approvals grants revoke gnt_"), "{}", output.stderr);
    let next = device.ask("ReadMany", &json!({ "path": "b" }));
    assert_eq!(device.answer(&next)["state"], "approved");
    let grants = home.attache(&["approvals", "grants", "--json"]).succeeds().json();
    let grant = grants["permission_grants"][0]["grant_id"].as_str().unwrap().to_owned();
    let table = home.attache(&["approvals", "grants"]).succeeds().stdout;
    assert!(table.contains(&grant) && table.contains("active") && table.contains("Read*"), "{table}");
    let ends_later = |table: &str| ["in 7 d", "in 6 d"].iter().any(|end| table.contains(end));
    assert!(ends_later(&table), "{table}");
    home.attache(&["approvals", "grants", "revoke", &grant]).succeeds();
    let table = home.attache(&["approvals", "grants"]).succeeds().stdout;
    assert!(table.contains("revoked") && !ends_later(&table), "{table}");
    let last = device.ask("Read", &json!({ "path": "c" }));
    assert_eq!(device.answer(&last)["state"], "pending");
    let deny = ["approvals", "deny", &last, "--scope", "run", "--comment", "enough"];
    home.attache(&deny).succeeds();
    assert_eq!(device.answer(&last)["approved"], false);
}

#[test]
fn agent_text_is_sanitised_for_the_terminal() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    hub.create_run("builder", "go");
    let device = ApprovalDevice::claim(&hub, "builder");
    let hostile = "ls \u{1b}]0;owned\u{7}\u{1b}[8mrm -rf ~\u{1b}[0m \u{202e}txt\u{200b}\u{a0}x\r";
    let id = device.ask("Run\u{202e}", &json!({ "command": hostile, "note": hostile, "more": [hostile] }));
    for args in [&["approvals"][..], &["approvals", "show", &id], &["runs", "show", &device.run]] {
        let ran = home.attache(args).succeeds();
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains(['\u{1b}', '\u{7}', '\u{202e}', '\u{200b}', '\r']), "{all:?}");
        assert!(all.contains("␛]0;owned␇␛[8mrm -rf ~␛[0m ⟨U+202E⟩txt⟨U+200B⟩⟨U+00A0⟩x"), "{all}");
    }
    // JSON is exact, because programs read it.
    let json = home.attache(&["approvals", "show", &id, "--json"]).succeeds().json();
    assert_eq!(json["input"]["command"], hostile);
}

#[test]
fn ask_prints_the_command_that_continues_a_waiting_run() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let asking = home.spawn("ask", &["ask", "builder", "publish it", "--hub", &hub.url]);
    let device = ApprovalDevice::claim(&hub, "builder");
    let id = device.ask("Run", &json!({ "command": "cargo publish" }));
    let messages = asking.tells("approvals approve");
    assert!(messages.contains("waiting for approval of Run: cargo publish"), "{messages}");
    let command = format!("attache approvals approve {id} --hub {}", hub.url);
    assert!(messages.contains(&command), "{messages}");
    let args: Vec<_> = command.split(' ').skip(1).collect();
    home.attache(&args).succeeds();
    asking.tells("approved by owner");
    let question = device.wonder("Which version?\n(0.9 or 1.0)");
    let messages = asking.tells("attache runs answer");
    assert!(messages.contains("asks for input: Which version?\n(0.9 or 1.0)"), "{messages}");
    // Later watchers see the same.
    let watching = home.spawn("watch", &["watch", &device.run]);
    watching.tells(&format!("attache runs answer {} \"…\"", device.run));
    home.attache(&["runs", "answer", &device.run, " "]).exits(2);
    let shown = home.attache(&["runs", "answer", &device.run]).succeeds().stdout;
    assert!(shown.contains("Which version?\n(0.9 or 1.0)"), "{shown}");
    home.attache(&["runs", "answer", &device.run, "1.0"]).succeeds();
    let ran = home.attache(&["runs", "answer", &device.run, "0.9"]).exits(1);
    assert!(ran.stderr.contains("has no open question"), "{}", ran.stderr);
    assert_eq!(device.heard(&question)["parts"], json!([{ "text": "1.0" }]));
    device.complete("published 1.0\n");
    assert!(asking.wait().success() && watching.wait().success());
    assert_eq!((asking.stdout(), watching.stdout()), ("published 1.0\n".to_owned(), "published 1.0\n".to_owned()));
    // A finished run accepts no input.
    let ran = home.attache(&["runs", "input", &device.run, "more"]).exits(1);
    assert!(ran.stderr.starts_with("error: "), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("has ended").count(), 1, "said once: {}", ran.stderr);
    let ran = home.attache(&["runs", "answer", &device.run, "1.0"]).exits(1);
    assert!(ran.stderr.contains("has ended") && !ran.stderr.contains("runs input"), "{}", ran.stderr);
}

#[test]
fn json_output_has_no_messages_while_a_run_waits() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let asking = home.spawn("ask", &["ask", "builder", "publish it", "--json"]);
    let device = ApprovalDevice::claim(&hub, "builder");
    let id = device.ask("Run", &json!({ "command": "cargo publish" }));
    home.attache(&["approvals", "approve", &id]).succeeds();
    device.complete("done");
    assert!(asking.wait().success());
    assert_eq!(asking.stderr(), "");
}

#[test]
fn a_person_at_a_terminal_types_the_input() {
    let found = Command::new("script").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("skipped: `script` is not installed (Debian: apt-get install bsdutils)");
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let log = home.path().join("screen");
    let line = format!("{} ask builder 'which one'", env!("CARGO_BIN_EXE_attache"));
    let mut command = home.program("script");
    command.args(["-q", "-f", "-e", "-c", &line]).arg(&log).env("TERM", "dumb");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let device = ApprovalDevice::claim(&hub, "builder");
    let question = device.wonder("main or next?");
    let screen = || std::fs::read_to_string(&log).unwrap_or_default();
    until("the question to be on the screen", || screen().contains("type your answer").then_some(()));
    child.stdin.as_mut().unwrap().write_all(b"next\n").unwrap();
    let heard = until("the answer to arrive", || {
        let heard = device.heard(&question);
        (heard["state"] == "answered").then_some(heard)
    });
    assert_eq!(heard["parts"], json!([{ "text": "next" }]));
    device.complete("took next\n");
    assert!(child.wait().unwrap().success(), "{}", screen());
    assert!(screen().contains("took next"), "{}", screen());
}
