//! Every kind of answer that a remote can give, and how it is interpreter.

use attache_protocol::Json;

use super::*;

const ID: &str = "dlg_00000000000000000000000000000007";

fn interpreter() -> TaskInterpreter {
    TaskInterpreter::new(ID.parse().unwrap())
}

fn started() -> TaskInterpreter {
    let mut interpreter = interpreter();
    interpreter.mark_started();
    interpreter.task = Some("t".to_owned());
    interpreter
}

fn event(text: &str) -> StreamResponse {
    Json::from_text(text.replace("$ID", ID)).unwrap().parse().unwrap()
}

fn update(state: &str, parts: &str) -> StreamResponse {
    let message = if parts.is_empty() {
        String::new()
    } else {
        format!(r#","message":{{"messageId":"m","role":"ROLE_AGENT","parts":[{parts}]}}"#)
    };
    event(&format!(
        r#"{{"statusUpdate":{{"taskId":"t","contextId":"c","status":{{"state":"TASK_STATE_{state}"{message}}}}}}}"#
    ))
}

const ACCEPT: &str =
    r#"{"data":{"awcp":{"version":"1","type":"ACCEPT","delegation_id":"$ID","remote_mount":{"mount_point":"/m"}}}}"#;
const DONE: &str = r#"{"data":{"awcp":{"version":"1","type":"DONE","delegation_id":"$ID","final_summary":"made it"}}}"#;
const ERROR: &str = r#"{"data":{"awcp":{"version":"1","type":"ERROR","delegation_id":"$ID","code":"DEP_MISSING","message":"no sshfs","hint":"apt install sshfs"}}}"#;

fn failed(code: AwcpErrorCode, message: &str) -> RemoteEvent {
    RemoteEvent::Failed(DelegationFailure { code, message: message.to_owned(), hint: code.hint().to_owned() })
}

fn done() -> RemoteEvent {
    RemoteEvent::Done(awcp::AwcpDone {
        delegation_id: ID.to_owned(),
        final_summary: "made it".to_owned(),
        highlights: Vec::new(),
        notes: None,
        full_output: None,
    })
}

#[test]
fn accept_counts_once_and_not_after_start() {
    let mut interpreter = interpreter();
    let events = interpreter.interpret(update("INPUT_REQUIRED", ACCEPT));
    assert!(
        matches!(&events[..], [RemoteEvent::Task(task), RemoteEvent::Accept(accept)] if task == "t" && accept.remote_mount.mount_point == "/m")
    );
    interpreter.mark_started();
    assert_eq!(interpreter.interpret(update("INPUT_REQUIRED", ACCEPT)), []);
    assert_eq!(
        interpreter.interpret(update("WORKING", r#"{"text":"on it"}"#)),
        [RemoteEvent::Working, RemoteEvent::Message("on it".to_owned())]
    );
}

#[test]
fn done_arrives_as_an_artifact_or_with_the_task() {
    let artifact = format!(
        r#"{{"artifactUpdate":{{"taskId":"t","contextId":"c","artifact":{{"artifactId":"a","name":"awcp","parts":[{DONE}]}}}}}}"#
    );
    let mut interpreter = started();
    assert_eq!(interpreter.interpret(event(&artifact)), []);
    assert_eq!(interpreter.interpret(update("COMPLETED", r#"{"text":"made it"}"#)), [done()]);
    let mut late = started();
    assert_eq!(late.interpret(update("COMPLETED", "")), [RemoteEvent::ReadTask]);
    let task = format!(
        r#"{{"task":{{"id":"t","contextId":"c","status":{{"state":"TASK_STATE_COMPLETED"}},"artifacts":[{{"artifactId":"a","parts":[{DONE}]}}]}}}}"#
    );
    assert_eq!(late.interpret(event(&task)), [done()]);
}

#[test]
fn an_end_without_done_is_an_answer_after_start_and_a_refusal_before() {
    let task = event(
        r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hi"}]}}}}"#,
    );
    let events = started().interpret(task.clone());
    assert!(
        matches!(&events[..], [RemoteEvent::Done(done)] if done.final_summary == "hi" && done.notes.is_some()),
        "{events:?}"
    );
    let events = interpreter().interpret(task);
    assert!(
        matches!(&events[1..], [RemoteEvent::Failed(failure)] if failure.code == AwcpErrorCode::Declined),
        "{events:?}"
    );
}

#[test]
fn ends_without_data_are_mapped() {
    for (state, code, default_message) in [
        ("REJECTED", AwcpErrorCode::Declined, "the remote rejected the task without a reason"),
        ("FAILED", AwcpErrorCode::TaskFailed, "the task failed at the remote without a reason"),
        ("CANCELED", AwcpErrorCode::Cancelled, "the task was cancelled at the remote"),
    ] {
        assert_eq!(started().interpret(update(state, r#"{"text":"because"}"#)), [failed(code, "because")]);
        assert_eq!(started().interpret(update(state, "")), [RemoteEvent::ReadTask]);
        let task = format!(r#"{{"task":{{"id":"t","contextId":"c","status":{{"state":"TASK_STATE_{state}"}}}}}}"#);
        assert_eq!(started().interpret(event(&task)), [failed(code, default_message)]);
        let explained = RemoteEvent::Failed(DelegationFailure {
            code: AwcpErrorCode::DepMissing,
            message: "no sshfs".to_owned(),
            hint: "apt install sshfs".to_owned(),
        });
        assert_eq!(started().interpret(update(state, ERROR)), [explained]);
    }
}

#[test]
fn an_unexpected_message_ends_it() {
    let other = ACCEPT.replace("$ID", "dlg_00000000000000000000000000000008");
    let version = ACCEPT.replace(r#""version":"1""#, r#""version":"2""#);
    for wrong in [other.as_str(), version.as_str(), DONE] {
        let events = interpreter().interpret(update("INPUT_REQUIRED", wrong));
        assert!(
            matches!(&events[1..], [RemoteEvent::Failed(failure)] if failure.code == AwcpErrorCode::TaskFailed),
            "{events:?}"
        );
    }
    let events = started().interpret(update("INPUT_REQUIRED", r#"{"text":"which\u001b one?"}"#));
    assert_eq!(events, [RemoteEvent::Question("something the remote asks for: which  one?".to_owned())]);
    let message = event(r#"{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"hello"}]}}"#);
    assert!(
        matches!(&interpreter().interpret(message)[..], [RemoteEvent::Failed(failure)] if failure.message.ends_with(": hello"))
    );
}
