//! Invalid messages are rejected with the name of the invalid field.

use super::super::{v1, v03};
use crate as model;
use model::InvalidField;

fn message(parts: Vec<v1::Part>) -> v1::Message {
    v1::Message { message_id: "m".to_owned(), role: v1::Role::User.into(), parts, ..Default::default() }
}

fn text(text: &str) -> v1::Part {
    v1::Part { content: Some(v1::part::Content::Text(text.to_owned())), ..Default::default() }
}

fn refused<T: std::fmt::Debug>(result: Result<T, InvalidField>) -> (String, String) {
    let InvalidField { field, problem } = result.unwrap_err();
    (field, problem)
}

fn send(message: Option<v1::Message>) -> (String, String) {
    refused(model::SendMessage::try_from(v1::SendMessageRequest { message, ..Default::default() }))
}

fn pair(field: &str, problem: &str) -> (String, String) {
    (field.to_owned(), problem.to_owned())
}

#[test]
fn a_request_error_names_the_field() {
    assert_eq!(send(None), pair("message", "is missing"));
    let nobody = v1::Message { role: 0, ..message(vec![text("x")]) };
    assert_eq!(send(Some(nobody)), pair("message.role", "must be ROLE_USER or ROLE_AGENT"));
    let stranger = v1::Message { role: 77, ..message(vec![text("x")]) };
    assert_eq!(send(Some(stranger)), pair("message.role", "must be ROLE_USER or ROLE_AGENT"));
    assert_eq!(
        send(Some(message(vec![text("x"), v1::Part::default()]))),
        pair("message.parts[1]", "must have one of text, raw, url and data")
    );
    let infinite = prost_types::Value { kind: Some(prost_types::value::Kind::NumberValue(f64::INFINITY)) };
    let part = v1::Part { content: Some(v1::part::Content::Data(infinite)), ..Default::default() };
    assert_eq!(
        send(Some(message(vec![part]))),
        pair("message.parts[0].data", "contains a number that JSON can't represent")
    );
    let push = v1::SendMessageConfiguration {
        task_push_notification_config: Some(v1::TaskPushNotificationConfig::default()),
        ..Default::default()
    };
    let request =
        v1::SendMessageRequest { message: Some(message(vec![])), configuration: Some(push), ..Default::default() };
    assert_eq!(
        refused(model::SendMessage::try_from(request)),
        pair("configuration.task_push_notification_config.url", "is missing")
    );
}

#[test]
fn a_0_3_request_error_names_the_field() {
    let request = v03::SendMessageRequest {
        request: Some(v03::Message {
            role: v03::Role::User.into(),
            content: vec![v03::Part { part: Some(v03::part::Part::File(v03::FilePart::default())), metadata: None }],
            ..Default::default()
        }),
        ..Default::default()
    };
    assert_eq!(
        refused(model::SendMessage::try_from(request)),
        pair("message.content[0].file", "must have one of file_with_uri and file_with_bytes")
    );
    assert_eq!(
        refused(model::GetTask::try_from(v03::GetTaskRequest { name: "t".to_owned(), history_length: 0 })),
        pair("name", "must be a name like tasks/{id}")
    );
    let create = v03::CreateTaskPushNotificationConfigRequest { parent: "tasks/t".to_owned(), ..Default::default() };
    assert_eq!(refused(model::PushConfig::try_from(create)), pair("config.push_notification_config", "is missing"));
}

#[test]
fn an_unrepresentable_time_is_refused() {
    let status = v1::TaskStatus {
        state: v1::TaskState::Working.into(),
        message: None,
        timestamp: Some(prost_types::Timestamp { seconds: i64::MAX, nanos: 0 }),
    };
    let task = v1::Task { id: "t".to_owned(), status: Some(status), ..Default::default() };
    assert_eq!(refused(model::Task::try_from(task)), pair("status.timestamp", "is not a valid time"));
    assert_eq!(refused(model::Task::try_from(v1::Task::default())), pair("status", "is missing"));
}
