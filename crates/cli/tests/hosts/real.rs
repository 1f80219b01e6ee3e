//! The complete lifecycle of each host: approved, denied, cancelled, without a model, and with its supervisors killed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    device::{HostDevice, patiently, processes_of},
    matrix::MatrixRow,
    programs::{self, HostAsks, HostCounts, HostProgram},
};
use crate::{device_or_skip, harness::process};

#[test]
fn claude_code() {
    through_its_life(&programs::CLAUDE);
}

#[test]
fn codex() {
    through_its_life(&programs::CODEX);
}

#[test]
fn gemini() {
    through_its_life(&programs::GEMINI);
}

#[test]
fn opencode() {
    through_its_life(&programs::OPENCODE);
}

#[test]
fn qwen() {
    through_its_life(&programs::QWEN);
}

#[test]
fn hermes() {
    through_its_life(&programs::HERMES);
}

#[test]
fn openclaw() {
    through_its_life(&programs::OPENCLAW);
}

#[test]
fn claude_code_asks_questions() {
    let asked = json!({"questions": [{"question": "Which database?", "header": "DB", "multiSelect": false, "options": [
        {"label": "PostgreSQL", "description": "a server"}, {"label": "SQLite", "description": "a file"}]}]});
    asks_questions(&programs::CLAUDE, "AskUserQuestion", &asked);
}

#[test]
fn codex_asks_questions() {
    let asked = json!({"questions": [{"id": "db", "header": "DB", "question": "Which database?", "options": [
        {"label": "PostgreSQL", "description": "a server"}, {"label": "SQLite", "description": "a file"}]}]});
    asks_questions(&programs::CODEX, "request_user_input", &asked);
}

/// What the agent asks is answered by one of its options, and it goes on with that.
fn asks_questions(program: &HostProgram, tool: &str, asked: &Value) {
    let device = device_or_skip!(program);
    let run = device.create(&format!("CALL:{tool} {asked}"), json!({}));
    let question = patiently("the question", || {
        let now = device.hub.run(&run);
        assert!(now["status"] != "completed" && now["status"] != "failed", "{now}");
        Some(now["waits_for"].clone()).filter(|waits| waits["kind"] == "input")
    });
    let what = question["what"].as_str().unwrap();
    assert!(what.starts_with("Which database?\n  1. PostgreSQL: a server\n  2. SQLite: a file\n"), "{what}");
    device.home.attache(&["runs", "answer", &run, "2"]).succeeds();
    let (ended, approvals) = device.answer(&run, true);
    assert_eq!((&ended["status"], approvals.len()), (&json!("completed"), 0), "{ended}");
    // In the task, in the call of the tool, and in its result.
    let told = format!("{:?}", device.model.requests().last().unwrap());
    assert!(told.matches("SQLite").count() >= 3, "the model is told what was chosen: {told}");
}

/// With the mode `accept_edits`, nobody is asked about a file in the run's folder, but about one that a link leads to.
#[test]
fn claude_code_edits_its_folder_without_asking_if_it_may() {
    let device = device_or_skip!(&programs::CLAUDE);
    let write = |path: &str| format!("WRITE:{path}=written");
    device.home.attache(&["agents", "set", super::device::AGENT, "--permission-mode", "accept-edits"]).succeeds();
    let (ended, asked) = device.answer(&device.create(&write("own.txt"), json!({})), false);
    assert_eq!((&ended["status"], asked.len()), (&json!("completed"), 0), "{ended} {asked:?}");
    assert_eq!(std::fs::read_to_string(device.folder.join("own.txt")).unwrap().trim_end(), "written");

    let outside = device.home.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, device.folder.join("out")).unwrap();
    for path in ["out/theirs.txt", ".envrc"] {
        let (_, asked) = device.answer(&device.create(&write(path), json!({})), false);
        assert!(!asked.is_empty(), "{path}");
    }
    assert!(!outside.join("theirs.txt").exists() && !device.folder.join(".envrc").exists());
}

/// From the command line to the program and back: nothing is written before the plan is approved.
#[test]
fn claude_code_plans_first() {
    let device = device_or_skip!(&programs::CLAUDE);
    let script = "WRITE:early.txt=early\nWRITE:PLAN-FILE=the plan\nCALL:ExitPlanMode\nWRITE:late.txt=late";
    let agent = super::device::AGENT;
    let asked = device.home.attache(&["ask", agent, script, "--mode", "plan-first", "--no-wait"]).succeeds();
    let run = asked.stdout.trim().to_owned();
    let plan = patiently("the plan", || {
        let now = device.hub.run(&run);
        assert!(now["status"] != "completed" && now["status"] != "failed", "{now}");
        Some(now["waits_for"].clone()).filter(|waits| waits["kind"] == "approval")
    });
    assert_eq!(plan["what"], "plan: the plan\n");
    assert_eq!(std::fs::read_dir(&device.folder).unwrap().flatten().filter(|entry| entry.path().is_file()).count(), 0);
    let shown = device.home.attache(&["approvals", "show", plan["id"].as_str().unwrap()]).succeeds();
    assert!(shown.stdout.contains("the plan"), "{}", shown.stdout);
    let (ended, asked) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    let tools: Vec<&Value> = asked.iter().map(|request| &request["tool"]).collect();
    assert_eq!(tools, [&json!("plan"), &json!("Write")]);
    assert!(device.folder.join("late.txt").exists() && !device.folder.join("early.txt").exists());
}

fn through_its_life(program: &HostProgram) {
    let mut device = device_or_skip!(program);
    let mut row = MatrixRow::of(program, &device);
    row.took("task", || allowed(&device, program));
    if program.asks == HostAsks::BeforeItWrites {
        row.took("deny", || denied(&device));
    }
    if let Some(tool) = program.tool {
        row.took("our tools", || with_our_tools(&device, tool));
        not_around_an_approval(&device, tool);
    }
    row.took("cancel", || cancelled(&device));
    row.took("runtime killed", || runtime_killed(&mut device));
    row.took("adapter killed", || adapter_killed(&device));
    row.took("no model", || without_a_model(&mut device));
    row.keep();
}

/// Task, approval request, approval, file written, completed; tokens are counted.
fn allowed(device: &HostDevice, program: &HostProgram) {
    let run = device.create("WRITE:approved.txt=written by the agent", json!({}));
    let (ended, asked) = device.answer(&run, true);
    assert_eq!(ended["status"], "completed", "{ended}");
    let written = std::fs::read_to_string(device.folder.join("approved.txt")).unwrap_or_default();
    assert_eq!(written.trim_end(), "written by the agent", "{ended}");
    assert_eq!(asked.is_empty(), program.asks == HostAsks::Never, "{asked:?}");
    if let Some(question) = asked.first() {
        // The person can judge the step: the input is shown, or marked as undisclosed.
        let undisclosed = question["undisclosed"].as_array().cloned().unwrap_or_default();
        let text = question.to_string();
        assert!(text.contains("approved.txt") || undisclosed.contains(&json!("input")), "{question}");
    }
    let counted = ended["usage"]["tokens"].as_u64().is_some_and(|tokens| tokens > 0);
    assert_eq!(counted, program.counts == HostCounts::Tokens, "{}", ended["usage"]);
    assert_eq!(processes_of(&run), Vec::<u32>::new());
}

fn denied(device: &HostDevice) {
    let run = device.create("WRITE:denied.txt=never", json!({}));
    let (ended, asked) = device.answer(&run, false);
    assert!(!asked.is_empty(), "{ended}");
    assert!(!device.folder.join("denied.txt").exists());
    assert_eq!(
        (&ended["status"], &ended["task_result"]["code"]),
        (&json!("failed"), &json!("permission_denied")),
        "{ended}"
    );
}

/// The agent asks the hub for other agents, with the run's own token.
fn with_our_tools(device: &HostDevice, tool: &str) {
    let run = device.create(&format!("CALL:{tool} {{}}"), json!({}));
    let (ended, _) = device.answer(&run, true);
    let text = ended["task_result"]["text"].as_str().unwrap_or_default();
    assert!(ended["status"] == "completed" && text.contains(super::device::AGENT), "{ended}");
}

/// What the agent needs approval for, it can't have done by an agent that never asks.
fn not_around_an_approval(device: &HostDevice, tool: &str) {
    device.hub.add_agent("local");
    let tool = tool.replace("list_agents", "remote_agent");
    let call = json!({ "agent_url": "local", "task": "head admin.key" });
    let run = device.create(&format!("CALL:{tool} {call}"), json!({}));
    let (ended, asked) = device.answer(&run, false);
    let is_asked = |one: &Value| one["tool"] == "remote_agent/local" && one["input"]["task"] == "head admin.key";
    assert!(asked.iter().any(is_asked), "{asked:?} {ended}");
    let passed_on = device.hub.get(&format!("/api/v1/task-runs?parent_task_run_id={run}"));
    assert_eq!(passed_on["task_runs"], json!([]), "nothing reached the other agent");
}

/// Cancelled in the middle of an answer: nothing is left after two seconds (fifteen here, because the machine may be
/// busy).
fn cancelled(device: &HostDevice) {
    let run = at_work(device);
    let begun = Instant::now();
    device.hub.post(&format!("/api/v1/task-runs/{run}/cancel"), &json!({})).expect(200);
    device.gone(&run);
    assert!(begun.elapsed() < Duration::from_secs(15), "it took {:?}", begun.elapsed());
    assert_eq!((device.hub.run(&run)["status"].clone(), device.ends(&run)), (json!("cancelled"), 1));
}

fn runtime_killed(device: &mut HostDevice) {
    let run = at_work(device);
    device.runtime.kill();
    device.gone(&run);
    device.runtime = device.home.runtime(&[]);
    let ended = device.ended(&run);
    assert_eq!((ended["status"].as_str(), device.ends(&run)), (Some("failed"), 1), "{ended}");
}

fn adapter_killed(device: &HostDevice) {
    let run = at_work(device);
    let adapters = process::children(device.runtime.id());
    assert!(!adapters.is_empty());
    adapters.iter().for_each(|adapter| process::signal(*adapter, "KILL"));
    device.gone(&run);
    let ended = device.ended(&run);
    assert_eq!((ended["status"].as_str(), device.ends(&run)), (Some("failed"), 1), "{ended}");
}

/// Last, because the model doesn't come back.
fn without_a_model(device: &mut HostDevice) {
    device.hub.agent_is(super::device::AGENT, "online");
    device.model.switch_off();
    let run = device.create("SAY:hello", json!({}));
    let ended = device.ended(&run);
    let result: &Value = &ended["task_result"];
    assert_eq!((&ended["status"], &result["code"]), (&json!("failed"), &json!("model_unreachable")), "{ended}");
    assert!(result["error"].as_str().is_some_and(|error| error.contains("model")), "{result}");
}

/// A run with a slow model.
fn at_work(device: &HostDevice) -> String {
    let before = device.model.requests().len();
    let run = device.create("SLEEP:120 SAY:too late", json!({}));
    device.works(before);
    assert_ne!(processes_of(&run), Vec::<u32>::new());
    run
}
