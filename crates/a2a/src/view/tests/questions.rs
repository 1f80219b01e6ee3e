//! Open questions of a run, as its task shows them.

use serde_json::{Value, json};

use super::{super::*, *};

pub(super) fn permission(name: &str) -> (&'static str, Value) {
    ("permission.requested", json!({"permission_request_id": name, "tool": name, "reason": "why"}))
}

pub(super) fn waiting(what: Value) -> (&'static str, Value) {
    ("task.waiting", json!({"waiting": what}))
}

#[test]
fn a_permission_question_includes_its_request() {
    let (view, lines) = told(&[permission("shell"), waiting(json!("approval"))]);
    let wanted = concat!(
        r#"AuthRequired: [{"text":"A person must approve `shell` before the task continues: why"},{"data":{"permission_request":"#,
        r#"{"permission_request_id":"shell","tool":"shell","reason":"why"},"#,
        r#""decide_url":"https://hub.example/approvals/shell"}}]"#
    );
    assert_eq!(lines, [wanted]);
    assert_eq!(view.state(), TaskState::TaskStateAuthRequired);
}

/// The question shown after each event.
fn questions(story: &[(&str, Value)]) -> Vec<String> {
    let mut view = begin();
    let mut shown = Vec::new();
    for (at, (kind, data)) in story.iter().enumerate() {
        view.take(&event(at + 1, kind, data));
        let text = view.message.as_ref().map_or(String::new(), |message| match &message.parts[0].content {
            PartContent::Text(text) => text.split('`').nth(1).unwrap_or(text).to_owned(),
            other => panic!("{other:?}"),
        });
        let state = format!("{:?}", view.state);
        shown.push(format!("{} {text}", state.strip_prefix("TaskState").unwrap()).trim_end().to_owned());
    }
    shown
}

#[test]
fn several_open_questions_are_shown_one_after_the_other() {
    let decided = |name: &str| ("permission.decided", json!({"permission_request_id": name, "approved": true}));
    let shown = questions(&[
        permission("a"),
        waiting(json!("approval")),
        permission("b"),
        permission("c"),
        decided("b"),
        decided("c"),
        decided("a"),
        waiting(Value::Null),
    ]);
    let wanted = [
        "Submitted",
        "AuthRequired a",
        "AuthRequired b",
        "AuthRequired c",
        "AuthRequired c",
        "AuthRequired a",
        "AuthRequired a",
        "Working",
    ];
    assert_eq!(shown, wanted);

    let ask = |name: &str| ("task.input_required", json!({"input_request_id": name, "prompt": name}));
    let given = |name: &str| ("task.input_received", json!({"input_id": "i", "input_request_id": name, "parts": []}));
    let shown = questions(&[
        ask("x"),
        waiting(json!("input")),
        ask("y"),
        permission("a"),
        waiting(json!("approval")),
        given("x"),
        decided("a"),
        waiting(json!("input")),
        given("y"),
        waiting(Value::Null),
    ]);
    let wanted = [
        "Submitted",
        "InputRequired x",
        "InputRequired x",
        "InputRequired x",
        "AuthRequired a",
        "AuthRequired a",
        "AuthRequired a",
        "InputRequired y",
        "InputRequired y",
        "Working",
    ];
    assert_eq!(shown, wanted);
}

#[test]
fn questions_and_answers_become_history() {
    let sent = json!({"messageId": "m2", "role": "ROLE_USER", "parts": [{"text": "left"}], "metadata": {"n": 1.0}});
    let (view, _) = told(&[
        ("task.input_required", json!({"input_request_id": "x", "prompt": "Which?", "parts": [{"data": [1]}]})),
        waiting(json!("input")),
        (
            "task.input_received",
            json!({"input_id": "inp", "input_request_id": "x", "parts": [{"text": "left"}], "message": sent}),
        ),
        waiting(Value::Null),
        ("task.input_received", json!({"input_id": "inp2", "parts": [{"text": "and go on"}]})),
    ]);
    let history: Vec<String> = view
        .task(None)
        .history
        .unwrap()
        .iter()
        .map(|it| format!("{} {:?} {}", it.message_id.replace(&view.id, "RUN"), it.role, words(&it.parts)))
        .collect();
    let wanted = [
        r#"RUN User [{"text":"hello"}]"#,
        r#"RUN-1 Agent [{"text":"Which?"},{"data":[1]}]"#,
        r#"m2 User [{"text":"left"}]"#,
        r#"inp2 User [{"text":"and go on"}]"#,
    ];
    assert_eq!(history, wanted);
    assert_eq!(view.task(Some(2)).history.unwrap().len(), 2);
    assert_eq!(view.task(Some(0)).history, None);
    assert_eq!(view.task(Some(99)).history.unwrap().len(), 4);
}
