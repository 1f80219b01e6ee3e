//! `attache ask` and `attache watch`: answers, exit codes and messages.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use crate::harness::{TestHome, TestHub, TestProcess, has, process, until};

/// The events of a run so far, as text.
fn events(hub: &TestHub, run: &str) -> String {
    hub.get(&format!("/api/v1/task-runs/{run}/events")).to_string()
}

/// A simulated device claims an agent's next run. Returns its token and the run as the device sees it.
fn claimed(hub: &TestHub, agent: &str) -> (String, Value) {
    let device = hub.attach(&hub.pairing_code(agent));
    let token = device["runtime_token"].as_str().unwrap().to_owned();
    let id = device["agent_id"].as_str().unwrap();
    let beat = json!({ "agent_id": id, "running": [] });
    hub.worker(&token, "POST", "/api/v1/agent-runtimes/runtime/heartbeat", &beat).expect(200);
    let path = format!("/api/v1/agent-accounts/{id}/task-runs/pull?wait_ms=20000");
    let run = hub.worker(&token, "POST", &path, &json!({})).expect(200).json()["task_run"].clone();
    (token, run)
}

fn claim(hub: &TestHub, agent: &str) -> (String, String, i64) {
    let (token, run) = claimed(hub, agent);
    (token, run["task_run_id"].as_str().unwrap().to_owned(), run["epoch"].as_i64().unwrap())
}

#[test]
fn an_answer_with_lost_chunks_is_printed_completely() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let asking = home.spawn("ask", &["ask", "builder", "count"]);
    let (token, run, epoch) = claim(&hub, "builder");
    for chunk in ["one\n", "three\n"] {
        let progress = json!({ "epoch": epoch, "chunk": chunk });
        hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/progress"), &progress).expect(200);
    }
    let report = json!({ "epoch": epoch, "output": { "text": "one\ntwo\nthree\n" } });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/complete"), &report).expect(200);
    assert!(asking.wait().success());
    assert_eq!(asking.stdout(), "one\ntwo\nthree\n");
    assert_eq!(home.attache(&["watch", &run]).succeeds().stdout, "one\ntwo\nthree\n");
}

#[test]
fn a_key_that_cannot_read_runs_starts_none() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let key = home.path().join("call.key");
    let key = key.to_str().unwrap();
    home.attache(&["keys", "add", "caller", "--scope", "call", "--role", "operator", "--to-file", key]).succeeds();
    let ran = home.attache(&["ask", "builder", "count", "--hub", &hub.url, "--key-file", key]).exits(4);
    assert!(ran.stderr.contains("no run was started"), "{}", ran.stderr);
    assert_eq!(hub.get("/api/v1/task-runs")["task_runs"], json!([]));
}

#[test]
fn a_failed_run_shows_its_partial_output() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let ran = home.attache(&["ask", "local", "echo begun; exit 3"]).exits(1);
    assert_eq!(ran.stdout, "begun\n");
}

#[test]
fn exit_codes_follow_the_run() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let ran = home.attache(&["ask", "local", "echo oops >&2; exit 3"]).exits(1);
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("error: the run failed (task_failed)"), "{}", ran.stderr);
    assert!(ran.stderr.contains("attache runs show run_"), "{}", ran.stderr);
    for task in ["", " \n"] {
        let ran = home.attache(&["ask", "local", task]).exits(2);
        assert!(ran.stderr.starts_with("error: the task is empty\n"), "{}", ran.stderr);
    }
    let ran = home.attache(&["ask", "nobody", "true"]).exits(3);
    assert!(ran.stderr.starts_with("error: agent `nobody` not found\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("local"), "the hint lists the agents: {}", ran.stderr);
}

#[test]
fn json_prints_the_finished_run() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let ran = home.attache(&["ask", "local", "printf hi; echo talk >&2", "--json"]).succeeds();
    assert_eq!(ran.stderr, "", "programs read no talk");
    let run = ran.json();
    assert_eq!(run["status"], "completed");
    assert_eq!(run["task_result"]["text"], "hi");
    assert_eq!(run["input"], json!({ "text": "printf hi; echo talk >&2" }));
    let failed = home.attache(&["ask", "local", "exit 1", "--json"]).exits(1);
    assert_eq!(failed.json()["status"], "failed");

    let id = run["task_run_id"].as_str().unwrap();
    let events = home.attache(&["watch", id, "--json"]).succeeds().stdout;
    let kinds: Vec<_> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.first().map(String::as_str), Some("task.created"), "{kinds:?}");
    assert!(kinds.contains(&"task.chunk".to_owned()), "{kinds:?}");
    assert_eq!(kinds.last().map(String::as_str), Some("task.completed"), "{kinds:?}");
    assert_eq!(home.attache(&["watch", id]).succeeds().stdout, "hi");
}

#[test]
fn a_timeout_exits_with_124_and_cancels_the_run() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let ran = home.attache(&["ask", "local", "sleep 600", "--timeout", "1"]).exits(124);
    assert!(ran.stderr.contains("the run is cancelled"), "{}", ran.stderr);
    let runs = up.get("/api/v1/task-runs")["task_runs"].clone();
    assert_eq!(runs[0]["status"], "cancelled");
    let ran = home.attache(&["ask", "local", "sleep 2", "--timeout", "1", "--no-cancel"]).exits(124);
    assert!(ran.stderr.contains("the run continues"), "{}", ran.stderr);
    let id = up.get("/api/v1/task-runs")["task_runs"][0]["task_run_id"].as_str().unwrap().to_owned();
    assert_eq!(up.ended(&id)["status"], "completed");
}

#[test]
fn an_interrupt_cancels_the_run() {
    let home = TestHome::new();
    let up = home.up(&[]);
    // The task's standard error comes later in the stream, so `ask` already has the start of the answer.
    let task = "echo begun; sleep 0.5; echo said-later >&2; sleep 600";
    let asking = home.spawn("ask", &["ask", "local", task]);
    asking.tells("said-later");
    process::signal(asking.id(), "INT");
    assert_eq!(asking.wait().code(), Some(1));
    assert_eq!(asking.stdout(), "begun\n", "the partial answer");
    let run = up.get("/api/v1/task-runs")["task_runs"][0].clone();
    assert_eq!(run["status"], "cancelled");
}

#[test]
fn a_closed_terminal_cancels_the_run_unless_it_is_ignored() {
    let home = TestHome::new();
    let up = home.up(&[]);
    for (setting, status) in [("--default-signal=HUP", "cancelled"), ("--ignore-signal=HUP", "running")] {
        let mut command = home.program("env");
        command.arg(setting).arg(env!("CARGO_BIN_EXE_attache")).args(["ask", "local", "echo begun >&2; sleep 600"]);
        let asking = TestProcess::spawn("ask", &mut command, &home.logs());
        asking.tells("begun");
        process::signal(asking.id(), "HUP");
        let status_of = || up.get("/api/v1/task-runs")["task_runs"][0]["status"].clone();
        if status == "cancelled" {
            assert_eq!(asking.wait().code(), Some(1));
            assert!(asking.stderr().contains("the run is cancelled"), "{}", asking.stderr());
            assert_eq!(status_of(), status);
        } else {
            std::thread::sleep(Duration::from_millis(500));
            assert!(asking.is_running());
            assert_eq!(status_of(), status);
            process::signal(asking.id(), "INT");
            asking.wait();
        }
    }
}

#[test]
fn an_agent_is_online_once_up_is_ready() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let ran = home.attache(&["ask", "local", "echo done"]).succeeds();
    assert!(!ran.stderr.contains("offline"), "{}", ran.stderr);
}

#[test]
fn a_closed_pipe_cancels_the_run() {
    let home = TestHome::new();
    let up = home.up(&[]);
    let task = "while :; do echo line; sleep 0.1; done";
    let mut asking = home
        .command(&["ask", "local", task, "--stream"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(asking.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "line\n");
    let ended = asking.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(!ended.status.success() && said.contains("The output was closed; the run is cancelled."), "{said}");
    assert_eq!(up.get("/api/v1/task-runs")["task_runs"][0]["status"], "cancelled");
}

#[test]
fn an_agent_that_is_offline_is_explained_and_the_run_waits() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let asking = home.spawn("ask", &["ask", "builder", "echo late"]);
    let messages = asking.tells("queued");
    assert!(messages.contains("no device is paired with builder"), "{messages}");
    home.attache(&["runtime", "pair", &hub.pairing_code("builder"), "--api-base", &hub.url]).succeeds();
    let _runtime = home.runtime(&[]);
    assert!(asking.wait().success());
    assert_eq!(asking.stdout(), "late\n");
}

#[test]
fn the_same_idempotency_key_is_the_same_run() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let ask = || {
        let args = ["ask", "builder", "true", "--no-wait", "--idempotency-key", "k1"];
        home.attache(&args).succeeds().stdout.trim().to_owned()
    };
    assert_eq!(ask(), ask());
}

#[test]
fn a_budget_is_sent_with_the_task() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["ask", "builder", "true", "--no-wait", "--cost", "0.10", "--tokens", "2000"]).succeeds();
    assert_eq!(claimed(&hub, "builder").1["budget"], json!({ "tokens": 2000, "cost_usd": 0.10 }));
    for wrong in [["--cost", "much"], ["--cost", "-1"], ["--tokens", "0"]] {
        home.attache(&[&["ask", "builder", "true"], &wrong[..]].concat()).exits(2);
    }
}

#[test]
fn at_a_usage_limit_a_run_waits_or_another_agent_goes_on() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    for agent in ["claude", "codex"] {
        hub.add_agent(agent);
    }
    let limit = |epoch: i64| json!({ "epoch": epoch, "output": { "error": "limit", "code": "usage_limit", "resets_at": "2126-01-01T00:00:00Z" } });
    let asking = home.spawn("ask", &["ask", "claude", "count", "--fallback", "codex"]);
    let (token, run, epoch) = claim(&hub, "claude");
    let progress = json!({ "epoch": epoch, "chunk": "zero\n" });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/progress"), &progress).expect(200);
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/fail"), &limit(epoch)).expect(200);
    let (token, next, epoch) = claim(&hub, "codex");
    let report = json!({ "epoch": epoch, "output": { "text": "one\n" } });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{next}/complete"), &report).expect(200);
    assert!(asking.wait().success(), "{}", asking.stderr());
    assert_eq!(asking.stdout(), "one\n");
    let said = format!("claude has reached a usage limit; the fallback agent continues: {next}");
    assert!(asking.stderr().contains(&said), "{}", asking.stderr());
    assert_eq!(home.attache(&["watch", &run]).succeeds().stdout, "one\n");

    home.attache(&["agents", "set", "claude", "--on-limit", "wait"]).succeeds();
    assert!(home.attache(&["agents", "show", "claude"]).succeeds().stdout.contains("at usage limits"));
    let asking = home.spawn("ask", &["ask", "claude", "count"]);
    let (token, run, epoch) = claim(&hub, "claude");
    let soon = json!({ "epoch": epoch, "output": { "error": "limit", "code": "usage_limit" } });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/fail"), &soon).expect(200);
    until("the reason", || asking.stderr().contains("The run will continue automatically in ").then_some(()));
    assert!(home.attache(&["runs"]).succeeds().stdout.contains("waiting: usage limit"));
    home.attache(&["runs", "cancel", &run]).succeeds();
    assert!(!asking.wait().success());
}

#[test]
fn the_task_comes_from_standard_input_too() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let mut command = home.command(&["ask", "local", "-"]);
    let mut child = command
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"echo from\necho stdin\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "from\nstdin\n");
}

#[test]
fn a_watcher_survives_a_restart_of_the_hub() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let address = hub.address().to_owned();
    let id = hub.create_run("builder", "echo one; sleep 4; echo two");
    let watching = home.spawn("watch", &["watch", &id]);
    until("the answer to begin", || events(&hub, &id).contains("one\\n").then_some(()));
    watching.tells("Started on");
    hub.process.kill();
    let hub = home.hub(&["--listen", &address]);
    until("the watcher to see the end", || watching.try_wait());
    assert_eq!(watching.stdout(), "one\ntwo\n");
    assert_eq!(hub.run(&id)["status"], "completed");
}

#[test]
fn a_lost_connection_is_reported_and_so_is_its_return() {
    let home = TestHome::new();
    let (hub, _runtime) = home.hub_with_builder();
    let address = hub.address().to_owned();
    let gate = home.path().join("go-on");
    let task = format!("until test -e {}; do sleep 0.1; done; echo done", gate.display());
    let run = hub.create_run("builder", &task);
    let watching = home.spawn("watch", &["watch", &run]);
    let silent = home.spawn("watch-json", &["--json", "watch", &run]);
    watching.tells("Started on");
    silent.says("\"seq\":");
    hub.process.kill();
    let lost = "Lost the connection to the hub; trying again for up to 2 min.";
    watching.tells(lost);
    assert!(!watching.stderr().contains("Connected again."), "{}", watching.stderr());
    let _hub = home.hub(&["--listen", &address]);
    watching.tells("Connected again.");
    std::fs::write(gate, "").unwrap();
    assert!(watching.wait().success(), "{}", watching.stderr());
    assert_eq!(watching.stderr().matches(lost).count(), 1, "{}", watching.stderr());
    assert!(silent.wait().success());
    assert_eq!(silent.stderr(), "");
}

#[test]
fn the_waiting_line_of_a_terminal_says_that_the_connection_is_lost() {
    if !has("script", "bsdutils") {
        return;
    }
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let run = hub.create_run("builder", "never claimed");
    let screen = home.path().join("screen");
    let line = format!("{} watch {run}", env!("CARGO_BIN_EXE_attache"));
    let mut command = home.program("script");
    command.args(["-q", "-f", "-e", "-c", &line]).arg(&screen).env("TERM", "xterm");
    let _watching = TestProcess::spawn("terminal", &mut command, &home.logs());
    let shows = |text: &str| {
        until(&format!("{text:?} on the screen"), || {
            std::fs::read_to_string(&screen).unwrap_or_default().contains(text).then_some(())
        });
    };
    shows("waiting … ");
    hub.process.kill();
    shows("Lost the connection to the hub");
    shows("waiting for the connection to the hub … ");
}

/// Titles, cleared screens, hidden links and reordered letters appear as plain text on a terminal; a pipe gets the
/// bytes.
#[test]
fn what_an_agent_prints_cannot_drive_the_terminal() {
    let found = Command::new("script").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("skipped: `script` is not installed (Debian: apt-get install bsdutils)");
        return;
    }
    let home = TestHome::new();
    let (_hub, _runtime) = home.hub_with_builder();
    let hostile =
        "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}]8;;http://evil.example\u{1b}\\click\u{1b}]8;;\u{1b}\\ \u{202e}gpj.exe";
    let file = home.path().join("hostile");
    std::fs::write(&file, format!("before {hostile} after\n")).unwrap();
    let task = format!("cat {} && cat {} >&2", file.display(), file.display());

    let screen = home.path().join("screen");
    let line = format!("{} ask builder '{task}'", env!("CARGO_BIN_EXE_attache"));
    let mut command = home.program("script");
    command.args(["-q", "-f", "-e", "-c", &line]).arg(&screen).env("TERM", "xterm");
    let ended = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
    let shown = std::fs::read_to_string(&screen).unwrap();
    assert!(ended.success() && shown.contains("before") && shown.contains("after"), "{shown:?}");
    for escape in ["\u{1b}]", "\u{1b}[2J", "\u{7}", "\u{202e}"] {
        assert!(!shown.contains(escape), "{escape:?} reached the terminal: {shown:?}");
    }
    let piped = home.attache(&["ask", "builder", &task]).succeeds();
    assert!(piped.stdout.contains(hostile), "{:?}", piped.stdout);
}

#[test]
fn the_time_limit_comes_from_the_caller_the_agent_or_the_hub() {
    let home = TestHome::new();
    let hub = home.hub(&["--run-timeout", "3h"]);
    hub.add_agent("builder");
    let limit = |more: &[&str]| {
        let args = [&["ask", "builder", "true", "--no-wait", "--json"], more].concat();
        home.attache(&args).succeeds().json()["timeout_ms"].clone()
    };
    assert_eq!(limit(&[]), json!(3 * 3_600_000));
    home.attache(&["agents", "set", "builder", "--run-timeout", "2h"]).succeeds();
    assert_eq!(limit(&[]), json!(2 * 3_600_000));
    assert_eq!(limit(&["--run-timeout", "8h"]), json!(8 * 3_600_000));
    let shown = home.attache(&["runs", "show", "last"]).succeeds().stdout;
    assert!(shown.lines().any(|line| line.starts_with("time limit") && line.ends_with("8 h")), "{shown}");
    let agent = home.attache(&["agents", "show", "builder"]).succeeds().stdout;
    assert!(agent.lines().any(|line| line.starts_with("run timeout") && line.ends_with("2 h")), "{agent}");
    home.attache(&["agents", "set", "builder", "--run-timeout", "default"]).succeeds();
    assert_eq!(limit(&[]), json!(3 * 3_600_000));
    home.attache(&["ask", "builder", "true", "--run-timeout", "0s"]).exits(2);
    home.attache(&["ask", "builder", "true", "--run-timeout", "forever"]).exits(2);
}

#[test]
fn a_run_is_stopped_at_its_time_limit() {
    let home = TestHome::new();
    let _up = home.up(&[]);
    let ran = home.attache(&["ask", "local", "sleep 600", "--run-timeout", "1s"]).exits(1);
    assert!(ran.stderr.contains("(timed_out)"), "{}", ran.stderr);
}

#[test]
fn files_are_attached_to_the_task() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    std::fs::write(home.path().join("dot.png"), [0x89, b'P', b'N', b'G', 0]).unwrap();
    std::fs::write(home.path().join("app.log"), "line\n").unwrap();
    let args = ["ask", "builder", "look", "--no-wait", "--file", "dot.png", "-f", "app.log"];
    home.attache(&args).succeeds();
    let run = claimed(&hub, "builder").1;
    assert_eq!(run["input"]["text"], "look");
    assert_eq!(run["input"]["message"]["role"], "ROLE_USER");
    assert_eq!(
        run["input"]["message"]["parts"],
        json!([
            { "text": "look" },
            { "raw": "iVBORwA=", "filename": "dot.png", "mediaType": "image/png" },
            { "raw": "bGluZQo=", "filename": "app.log", "mediaType": "text/plain" },
        ])
    );
    // Repeating the request, as after a lost response, returns the same run.
    let again = || {
        let args = ["ask", "builder", "look", "--no-wait", "--file", "app.log", "--idempotency-key", "k"];
        home.attache(&args).succeeds().stdout
    };
    assert_eq!(again(), again());
    home.attache(&["ask", "builder", "look", "--file", "nowhere"]).exits(2);
    home.attache(&["ask", "builder", "look", "--file", "."]).exits(2);
}

/// A file too large for the request is sent as an artifact, and the device stores it where smaller files are.
#[test]
fn a_large_file_is_attached_as_an_artifact() {
    let home = TestHome::new();
    let up = home.up(&[]);
    up.agent_is("local", "online");
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(home.path().join("large.bin"), &bytes).unwrap();
    std::fs::write(home.path().join("note.txt"), "small\n").unwrap();
    let task = "cat \"$ATTACHE_FILES/note.txt\" \"$ATTACHE_FILES/large.bin\"";
    let files = ["--file", "large.bin", "--file", "note.txt"];
    let mut command = home.command(&[&["ask", "local", task], &files[..]].concat());
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stdout == [b"small\n", &bytes[..]].concat(), "{} bytes came back", out.stdout.len());
    let run = up.get("/api/v1/task-runs?agent_id=local")["task_runs"][0].clone();
    let parts = run["input"]["message"]["parts"].as_array().unwrap();
    assert!(parts[1]["url"].as_str().unwrap().starts_with("artifact:art_"), "{}", parts[1]);
    assert_eq!(parts[1]["filename"], "large.bin");
    // Nothing of it is left on the device.
    let left = std::fs::read_dir(home.path().join(".attache")).map(Iterator::count).unwrap_or(0);
    assert_eq!(left, 0);
    // The caller can't name a file on the device.
    let passwd = json!([{ "url": "file:///etc/passwd", "filename": "x" }]);
    let call = json!({ "agent_type": "local", "task": "cat \"$ATTACHE_FILES\"/x", "parts": passwd });
    let call = up.post("/api/a2a/call", &call).expect(200).json();
    let run = call["call_id"].as_str().unwrap().replace("a2a-", "run_");
    assert_eq!(up.ended(&run)["task_result"]["text"], "file:///etc/passwd\n");
}

#[test]
fn a_file_that_is_too_large_for_the_hub_is_refused_before_anything_runs() {
    let home = TestHome::new();
    let hub = home.hub(&["--max-artifact-bytes", "1000000"]);
    hub.add_agent("builder");
    std::fs::write(home.path().join("large.bin"), vec![0; 2_000_000]).unwrap();
    let refused = home.attache(&["ask", "builder", "look", "--file", "large.bin"]).exits(2);
    assert!(
        refused.stderr.contains("large.bin (1.9 MiB) exceeds this hub's artifact size limit"),
        "{}",
        refused.stderr
    );
    assert!(refused.stderr.contains("attache delegate --help"), "{}", refused.stderr);
    assert_eq!(hub.get("/api/v1/task-runs")["task_runs"], json!([]));
}

#[test]
fn stream_writes_the_answer_to_a_pipe_as_it_arrives() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    let asking = home.spawn("ask", &["ask", "builder", "count", "--stream"]);
    let (token, run, epoch) = claim(&hub, "builder");
    let progress = json!({ "epoch": epoch, "chunk": "one\n" });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/progress"), &progress).expect(200);
    until("the first piece", || (asking.stdout() == "one\n").then_some(()));
    let report = json!({ "epoch": epoch, "output": { "text": "one\n" } });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/complete"), &report).expect(200);
    assert!(asking.wait().success());
    assert_eq!(asking.stdout(), "one\n", "once");
}

#[test]
fn runs_are_filtered_by_time_caller_text_and_wait_reason() {
    let home = TestHome::new();
    let hub = home.hub(&[]);
    hub.add_agent("builder");
    home.attache(&["users", "add", "ada"]).succeeds();
    let key = home.path().join("ada.key").to_str().unwrap().to_owned();
    home.attache(&["keys", "add", "ada", "--user", "ada", "--to-file", &key]).succeeds();
    home.attache(&["ask", "builder", "deploy the site", "--no-wait", "--key-file", &key]).succeeds();
    home.attache(&["ask", "builder", "run the tests", "--no-wait"]).succeeds();
    let found = |args: &[&str]| -> Vec<String> {
        let all = [&["runs", "list", "--json"], args].concat();
        let list = home.attache(&all).succeeds().json();
        let text = |run: &Value| run["input"]["text"].as_str().unwrap().to_owned();
        list["task_runs"].as_array().unwrap().iter().map(text).collect()
    };
    assert_eq!(found(&[]), ["run the tests", "deploy the site"]);
    assert_eq!(found(&["--caller", "ada"]), ["deploy the site"]);
    assert_eq!(found(&["--caller", "owner"]), ["run the tests"]);
    assert_eq!(found(&["--text", "DEPLOY"]), ["deploy the site"]);
    assert_eq!(found(&["--since", "1h"]).len(), 2);
    assert_eq!(found(&["--since", "2099-01-01T00:00:00Z"]).len(), 0);
    assert_eq!(found(&["--status", "waiting"]).len(), 0);
    let (token, run, epoch) = claim(&hub, "builder");
    let question = json!({ "epoch": epoch, "prompt": "Which one?" });
    hub.worker(&token, "POST", &format!("/api/v1/task-runs/{run}/input-requests"), &question).expect(201);
    assert_eq!(found(&["--status", "waiting"]), ["deploy the site"]);
}
