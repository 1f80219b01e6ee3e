//! `docs/adapter.md` matches the code.

use attache_adapter::driver::ShellDriver;
use attache_protocol::{
    error::{self, Code},
    wire::{
        adapter::{
            AdapterHealth, AdapterInputAnswer, AdapterInputRequest, AdapterPermissionDecision,
            AdapterPermissionRequest, RunTask, TaskReply,
        },
        host_session::{AdapterSessions, HostSession},
        questionnaire::Questionnaire,
    },
};
use serde_json::{Value, json};

use crate::world::{AdapterWorld, task};

const DOCUMENT: &str = include_str!("../../../../docs/adapter.md");

fn examples() -> Vec<&'static str> {
    DOCUMENT.split("```json\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn the_examples_match_their_types() {
    let examples = examples();
    let [health, run_task, success, failure, refusal, permission, input, options, cancelled, sessions] = examples[..]
    else {
        panic!("{} examples", examples.len())
    };
    assert!(serde_json::from_str::<AdapterHealth>(health).unwrap().ok);
    let task: RunTask = serde_json::from_str(run_task).unwrap();
    let again: Value = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
    // Every member is known and survives a round trip.
    assert_eq!(again, serde_json::from_str::<Value>(run_task).unwrap());
    assert!(serde_json::from_str::<TaskReply>(success).unwrap().success);
    for (text, code) in [(failure, "task_failed"), (cancelled, "cancelled")] {
        let reply: TaskReply = serde_json::from_str(text).unwrap();
        assert_eq!((reply.success, reply.error.unwrap().code.as_str()), (false, code));
    }
    assert_eq!(serde_json::from_str::<error::ErrorBody>(refusal).unwrap().error.code, "busy");
    assert!(serde_json::from_str::<AdapterPermissionDecision>(permission).unwrap().approved);
    assert_eq!(serde_json::from_str::<AdapterInputAnswer>(input).unwrap().id.as_deref(), Some("q1"));
    let asked: AdapterInputRequest = serde_json::from_str(options).unwrap();
    let questions = Questionnaire::from_parts(&asked.parts.unwrap()).unwrap();
    assert!(questions.prompt().starts_with(&asked.prompt), "{}", questions.prompt());
    let kept: AdapterSessions = serde_json::from_str(sessions).unwrap();
    assert!(!kept.sessions.is_empty() && kept.sessions.iter().all(HostSession::is_plain), "{kept:?}");
}

#[test]
fn the_documented_questions_match_their_types() {
    let data = |event: &str| {
        let (_, rest) = DOCUMENT.split_once(&format!("event: {event}\ndata: ")).unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    let asked: AdapterPermissionRequest = serde_json::from_str(&data("permission")).unwrap();
    assert_eq!(serde_json::to_string(&asked).unwrap(), data("permission"));
    let asked: AdapterInputRequest = serde_json::from_str(&data("input_required")).unwrap();
    assert_eq!(serde_json::to_string(&asked).unwrap(), data("input_required"));
}

#[test]
fn the_documented_errors_match_the_error_table() {
    let rows = DOCUMENT.lines().filter_map(|line| {
        let mut cells = line.split('|').map(str::trim).skip(1);
        Some((cells.next()?.parse::<u16>().ok()?, cells.next()?))
    });
    let mut seen = 0;
    for (status, codes) in rows {
        for code in codes.split(", ").map(|code| code.trim_matches('`')) {
            let known = Code::from_text(code).unwrap_or_else(|| panic!("{code} is not in the table"));
            assert_eq!(known.http_status(), status, "{code}");
            seen += 1;
        }
    }
    assert_eq!(seen, 13);
}

#[tokio::test]
async fn the_documented_script_hands_over_its_file() {
    let world = AdapterWorld::start(ShellDriver, |_| {}).await;
    let line = DOCUMENT.lines().find(|line| line.contains("echo report.pdf")).unwrap().trim();
    let script = line.replace("pdflatex report.tex", "echo 1 > report.pdf");
    let path = world.cwd.join("report.pdf");
    let expected = json!({"success": true, "output": {"text": "", "artifact_refs": [{"path": path}]}});
    assert_eq!(world.run(&task(&script)).await, expected);
    world.stop().await;
}
