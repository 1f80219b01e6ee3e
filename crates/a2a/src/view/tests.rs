//! Runs as tasks and updates: a table of short event sequences.

#![allow(clippy::disallowed_methods, reason = "tests build and compare JSON as values")]

mod questions;
mod whole;

use attache_protocol::wire::part::PartContent;
use serde_json::{Value, json};

use super::*;

const RUN: &str = "run_0193f6a1b2c37d4e8f90a1b2c3d4e5f6";
const AT: &str = "2026-11-15T12:00:00.000Z";

fn run(changes: Value) -> Run {
    let mut run = json!({
        "task_run_id": RUN, "agent_id": "agt_0193f6a1b2c37d4e8f90a1b2c3d4e5f6", "agent_name": "a",
        "conversation_id": "cnv_0193f6a1b2c37d4e8f90a1b2c3d4e5f6",
        "workspace_id": "wsp_0193f6a1b2c37d4e8f90a1b2c3d4e5f6", "parent_task_run_id": null, "status": "pending",
        "waiting": null, "recovery": null, "task_type": "task", "attempt": 1, "max_attempts": 1, "epoch": 1,
        "priority": 0, "timeout_ms": 1000, "input": {"text": "hello"}, "task_result": null, "usage": null,
        "caller": "key:x", "user_id": null, "trace_id": null, "runtime_id": null, "created_at": AT,
        "claimed_at": null, "lease_expires_at": null, "expires_at": null, "ended_at": null, "last_seq": 1,
    });
    run.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    let ids = [("agt_", attache_protocol::AgentId::PREFIX), ("cnv_", attache_protocol::ConversationId::PREFIX)];
    let mut text = run.to_string();
    for (written, real) in ids.into_iter().chain([("wsp_", attache_protocol::WorkspaceId::PREFIX)]) {
        text = text.replace(written, real);
    }
    serde_json::from_str(&text.replace("run_", attache_protocol::RunId::PREFIX)).unwrap()
}

fn event(seq: usize, kind: &str, data: &Value) -> Event {
    let data = Json::from_text(data.to_string()).unwrap();
    let at = Timestamp::from_millis(1_700_000_000_000 + i64::try_from(seq).unwrap());
    Event { seq: i64::try_from(seq).unwrap(), kind: kind.to_owned(), at, data }
}

fn known() -> TaskReader {
    TaskReader { origin: Arc::from("https://hub.example"), is_anonymous: false }
}

fn begin() -> TaskView {
    TaskView::begin(&run(json!({})), known())
}

/// The view after the events, and a short line for each update.
fn told(story: &[(&str, Value)]) -> (TaskView, Vec<String>) {
    let mut view = begin();
    let mut lines = Vec::new();
    for (at, (kind, data)) in story.iter().enumerate() {
        lines.extend(view.take(&event(at + 1, kind, data)).iter().map(line));
    }
    (view, lines)
}

fn line(update: &StreamResponse) -> String {
    match update {
        StreamResponse::Task(task) => format!("task {:?}", task.status.state),
        StreamResponse::Message(message) => format!("message {}", words(&message.parts)),
        StreamResponse::StatusUpdate(update) => {
            let extra = update.metadata.as_ref().unwrap().parse::<Value>().unwrap();
            let kind = extra[EVENTS]["kind"].as_str().map(|kind| format!(" ({kind})")).unwrap_or_default();
            let state = format!("{:?}", update.status.state);
            let said = update.status.message.as_ref().map(|it| format!(": {}", words(&it.parts))).unwrap_or_default();
            format!("{}{kind}{said}", state.strip_prefix("TaskState").unwrap())
        }
        StreamResponse::ArtifactUpdate(update) => {
            let append = if update.append == Some(true) { "+" } else { "=" };
            let last = if update.last_chunk == Some(true) { "." } else { "" };
            format!("{} {append} {}{last}", update.artifact.artifact_id, words(&update.artifact.parts))
        }
    }
}

fn words(parts: &[Part]) -> String {
    Json::of(parts).get().replace(r#","mediaType":"application/json""#, "")
}

fn artifacts(view: &TaskView) -> Vec<String> {
    view.task(None)
        .artifacts
        .unwrap_or_default()
        .iter()
        .map(|it| format!("{}: {}", it.artifact_id, words(&it.parts)))
        .collect()
}

/// A name, the events, the resulting updates, and the final artifacts.
type StoryRow<'a> = (&'a str, Vec<(&'a str, Value)>, &'a [&'a str], &'a [&'a str]);

#[test]
fn events_become_updates() {
    let claimed = || ("task.claimed", json!({}));
    let chunk = |text: &str| ("task.chunk", json!({"text": text}));
    let done = |output: Value| ("task.completed", json!({"output": output}));
    let table: &[StoryRow<'_>] = &[
        ("nothing yet", vec![("task.created", json!({}))], &[], &[]),
        (
            "a plain answer",
            vec![claimed(), done(json!({"text": "hi"}))],
            &["Working", r#"answer = [{"text":"hi"}]."#, "Completed"],
            &[r#"answer: [{"text":"hi"}]"#],
        ),
        (
            "an answer with details",
            vec![done(json!({"text": "hi", "details": {"n": 1.0}}))],
            &[r#"answer = [{"text":"hi"},{"data":{"n":1.0}}]."#, "Completed"],
            &[r#"answer: [{"text":"hi"},{"data":{"n":1.0}}]"#],
        ),
        ("an empty answer", vec![done(json!({"text": ""}))], &["Completed"], &[]),
        (
            "chunks that the answer goes on from",
            vec![claimed(), chunk("one "), chunk("two"), done(json!({"text": "one two three", "details": {}}))],
            &[
                "Working",
                r#"answer = [{"text":"one "}]"#,
                r#"answer + [{"text":"two"}]"#,
                r#"answer + [{"text":" three"},{"data":{}}]."#,
                "Completed",
            ],
            &[r#"answer: [{"text":"one two three"},{"data":{}}]"#],
        ),
        (
            "chunks that are the answer but for the end of the line",
            vec![chunk("one\n"), done(json!({"text": "one"}))],
            &[r#"answer = [{"text":"one\n"}]"#, "Completed"],
            &[r#"answer: [{"text":"one\n"}]"#],
        ),
        (
            "chunks that are not the answer",
            vec![chunk("thinking"), done(json!({"text": "one"}))],
            &[r#"answer = [{"text":"thinking"}]"#, r#"answer = [{"text":"one"}]."#, "Completed"],
            &[r#"answer: [{"text":"one"}]"#],
        ),
        (
            "chunks of an attempt that was given up",
            vec![chunk("on"), ("task.requeued", json!({})), claimed(), chunk("one"), done(json!({"text": "one"}))],
            &[
                r#"answer = [{"text":"on"}]"#,
                "Submitted",
                "Working",
                r#"answer + [{"text":"one"}]"#,
                r#"answer = [{"text":"one"}]."#,
                "Completed",
            ],
            &[r#"answer: [{"text":"one"}]"#],
        ),
        (
            "artifacts",
            vec![
                ("artifact.changed", json!({"artifact_id": "a", "parts": [{"text": "1"}], "append": true})),
                ("artifact.changed", json!({"artifact_id": "a", "parts": [{"text": "2"}], "append": true})),
                ("artifact.changed", json!({"artifact_id": "b", "parts": [{"data": [1.5]}]})),
                ("artifact.changed", json!({"artifact_id": "b", "parts": [{"text": "3"}], "last_chunk": true})),
                done(json!({"text": "t", "artifacts": [{"parts": [{"text": "4"}]},
                    {"artifact_id": "b", "parts": [{"text": "3"}]}], "artifact_refs": ["art_x", "no"],
                    "message": {"parts": [{"text": "made"}]}})),
            ],
            &[
                r#"a = [{"text":"1"}]"#,
                r#"a + [{"text":"2"}]"#,
                r#"b = [{"data":[1.5]}]"#,
                r#"b = [{"text":"3"}]."#,
                r#"artifact-1 = [{"text":"4"}]."#,
                r#"art_x = [{"url":"https://hub.example/api/v1/artifacts/art_x"}]."#,
                r#"Completed: [{"text":"made"}]"#,
            ],
            &[
                r#"a: [{"text":"1"},{"text":"2"}]"#,
                r#"b: [{"text":"3"}]"#,
                r#"artifact-1: [{"text":"4"}]"#,
                r#"art_x: [{"url":"https://hub.example/api/v1/artifacts/art_x"}]"#,
            ],
        ),
        (
            "transient updates",
            vec![
                ("task.progress", json!({"message": "half", "percent": 50.0})),
                ("task.thought", json!({"text": "hm"})),
                ("task.log", json!({"level": "info", "message": "line"})),
                ("task.log", json!({"level": "info"})),
                ("task.tool_call", json!({"name": "ls"})),
                ("task.progress", json!({"percent": 60})),
            ],
            &[
                r#"Submitted (progress): [{"text":"half"}]"#,
                r#"Submitted (thought): [{"text":"hm"}]"#,
                r#"Submitted (log): [{"text":"line"}]"#,
                r#"Submitted (log): [{"data":{"level":"info"}}]"#,
                r#"Submitted (tool_call): [{"data":{"name":"ls"}}]"#,
                "Submitted (progress)",
            ],
            &[],
        ),
        (
            "rejected",
            vec![claimed(), ("task.failed", json!({"output": {"error": "not today", "code": "rejected"}}))],
            &["Working", r#"Rejected: [{"text":"not today"}]"#],
            &[],
        ),
        (
            "failed with its own message",
            vec![("task.failed", json!({"output": {"error": "x", "message": {"parts": [{"data": {"n": 1}}]}}}))],
            &[r#"Failed: [{"data":{"n":1}}]"#],
            &[],
        ),
        (
            "cancelled",
            vec![chunk("on"), ("task.cancelled", json!({"output": {"error": "enough"}}))],
            &[r#"answer = [{"text":"on"}]"#, r#"Canceled: [{"text":"enough"}]"#],
            &[r#"answer: [{"text":"on"}]"#],
        ),
        (
            "unknown events",
            vec![("workspace.changed", json!({})), ("task.chunk", json!(7)), ("artifact.changed", json!({"parts": 1}))],
            &[],
            &[],
        ),
    ];
    for (name, story, updates, made) in table {
        let (view, lines) = told(story);
        assert_eq!(lines, *updates, "{name}");
        assert_eq!(artifacts(&view), *made, "{name}");
    }
}

/// The cost per piece stays constant, because existing content isn't measured again.
#[test]
fn a_long_run_keeps_its_newest_content() {
    let mut view = begin();
    for seq in 1..=40_000 {
        let text = format!("step {seq} {}", "x".repeat(60));
        let event = match seq % 2 {
            0 => event(seq, EventKind::TaskProgress.as_str(), &json!({"message": text})),
            _ => event(
                seq,
                EventKind::ArtifactChanged.as_str(),
                &json!({"artifact_id": "log", "parts": [{"text": text}], "append": true, "last_chunk": false}),
            ),
        };
        drop(view.take(&event));
    }
    let task = view.task(None);
    assert!(Json::of(&task).get().len() < 5_000_000);
    let parts = &task.artifacts.as_ref().unwrap()[0].parts;
    assert!(parts.len() > 5_000 && words(&parts[parts.len() - 1..]).contains("step 39999 "), "{}", parts.len());
    let history = task.history.as_ref().unwrap();
    assert!(
        history.len() > 1_000 && words(&history.last().unwrap().parts).contains("step 39998 "),
        "{}",
        history.len()
    );
    assert!(task.metadata.unwrap().get().contains(r#""truncated":true"#));
}

#[test]
fn a_message_reply_is_not_an_artifact() {
    let (view, lines) = told(&[("task.completed", json!({"output": {"text": "hi", "reply": "message"}}))]);
    assert_eq!(lines, [r#"Completed: [{"text":"hi"}]"#]);
    assert_eq!(artifacts(&view), Vec::<String>::new());
    let reply = view.reply().unwrap();
    assert_eq!(
        (words(&reply.parts), reply.role, &reply.task_id),
        (r#"[{"text":"hi"}]"#.to_owned(), A2aRole::Agent, &None)
    );
    assert_eq!(reply.message_id, format!("{}-1", view.id));
    let (silent, _) = told(&[("task.completed", json!({"output": {"text": "", "reply": "message"}}))]);
    assert_eq!(silent.reply(), None, "there is nothing to reply with");
}

#[test]
fn a_gap_is_repaired_from_the_run() {
    let repaired = |run: &Run| {
        let data = json!({"missing": {"from": 2, "to": 9}, "snapshot": serde_json::to_value(run).unwrap()});
        ("snapshot.repaired", data)
    };
    let ended = run(json!({"status": "completed", "task_result": {"text": "done"}, "last_seq": 9, "ended_at": AT,
        "usage": {"tokens": 7}}));
    let (view, lines) = told(&[("task.chunk", json!({"text": "x"})), repaired(&ended)]);
    assert_eq!(lines, [r#"answer = [{"text":"x"}]"#, "task TaskStateCompleted"]);
    assert_eq!(artifacts(&view), [r#"answer: [{"text":"done"}]"#]);
    let extra = view.task(None).metadata.unwrap();
    assert_eq!(extra.get(), format!(r#"{{"{EVENTS}":{{"generation":2,"usage":{{"tokens":7}}}}}}"#));
    let waits = run(json!({"status": "running", "waiting": "approval", "claimed_at": AT, "last_seq": 9}));
    let (view, lines) = told(&[repaired(&waits)]);
    assert_eq!(
        (lines, view.state()),
        (vec!["task TaskStateAuthRequired".to_owned()], TaskState::TaskStateAuthRequired)
    );
}

#[test]
fn a_run_without_output_is_the_same_from_its_record() {
    for (status, kind, result) in [
        ("completed", "task.completed", json!({"text": "hi"})),
        ("failed", "task.failed", json!({"error": "no", "code": "rejected"})),
        ("cancelled", "task.cancelled", json!({"error": "enough"})),
    ] {
        let (mut view, _) = told(&[("task.created", json!({})), ("task.claimed", json!({}))]);
        let last = event(3, kind, &json!({"output": result}));
        view.take(&last);
        let record = run(json!({"status": status, "task_result": result, "last_seq": 3, "ended_at": last.at}));
        assert_eq!(TaskView::of_record(&record, record.created_at, known()).task(None), view.task(None), "{status}");
    }
}

/// A stranger sees that the task waits, and not for what.
#[test]
fn a_caller_without_a_credential_is_not_shown_what_a_person_is_asked() {
    let stranger = TaskReader { is_anonymous: true, ..known() };
    let mut view = TaskView::begin(&run(json!({})), stranger);
    let request = json!({"permission_request_id": "perm_1", "tool": "Bash", "reason": "to read /home/ada",
        "input": {"command": "mysql -phunter2"}, "cwd": "/home/ada", "paths": ["/home/ada/x"], "diff": "-secret"});
    let mut updates = view.take(&event(1, "task.claimed", &json!({})));
    updates.extend(view.take(&event(2, "permission.requested", &request)));
    updates.extend(view.take(&event(3, "task.waiting", &json!({"waiting": "approval"}))));
    let shown = view.task(None).status.message.unwrap().parts;
    assert_eq!(shown, [Part::text("A person must approve a step before the task continues".to_owned())]);
    // Nor later, in the history or in another update.
    updates.extend(view.take(&event(4, "permission.decided", &json!({"permission_request_id": "perm_1"}))));
    updates.extend(view.take(&event(5, "task.waiting", &json!({"waiting": null}))));
    let everything = format!("{:?} {updates:?}", view.task(None));
    for hidden in ["Bash", "hunter2", "/home", "-secret", "perm_1", "approvals"] {
        assert!(!everything.contains(hidden), "{hidden}: {everything}");
    }
}
