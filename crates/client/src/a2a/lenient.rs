//! Repairs answers of remote agents that deviate slightly from the standard, because the work was done anyway.
//!
//! Only answers that can't be parsed as they are come here. No repair changes their meaning: a time without a zone is
//! UTC, a message without an id gets one derived from its content, a task without a context has none.

use attache_protocol::{Json, Timestamp, json::Members};
use serde::de::DeserializeOwned;

/// The type of an object, given the member it was found under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ObjectShape {
    /// An answer, or one of its members.
    Answer,
    Task,
    Update,
    Status,
    Message,
    Artifact,
    Part,
}

/// Parses the text as is, or else repaired. The error is that of the first attempt.
pub(super) fn read<T: DeserializeOwned>(said: &Json) -> Result<T, serde_json::Error> {
    match said.parse() {
        Ok(read) => Ok(read),
        Err(error) => match mended(said).and_then(|mended| mended.parse().ok()) {
            Some(read) => Ok(read),
            None => Err(error),
        },
    }
}

/// The text with missing members filled in. `None` if it isn't an object.
pub(super) fn mended(said: &Json) -> Option<Json> {
    let mut members: Members = said.parse().ok()?;
    let shape = ObjectShape::of(&members);
    // 0.3 distinguishes answers by it.
    if let Some(kind) = shape.kind(&members).filter(|_| members.find("kind").is_none()) {
        members.0.push(("kind".to_owned(), Json::of(kind)));
    }
    Some(mend(shape, members))
}

fn mend(shape: ObjectShape, Members(mut members): Members) -> Json {
    for (name, value) in &mut members {
        *value = match (shape, name.as_str()) {
            (ObjectShape::Answer | ObjectShape::Task, "task") => one(ObjectShape::Task, value),
            (ObjectShape::Answer, "statusUpdate" | "status_update" | "artifactUpdate" | "artifact_update") => {
                one(ObjectShape::Update, value)
            }
            (ObjectShape::Task | ObjectShape::Update, "status") => one(ObjectShape::Status, value),
            (ObjectShape::Answer | ObjectShape::Status, "message") => one(ObjectShape::Message, value),
            (ObjectShape::Task, "history") => all(ObjectShape::Message, value),
            (ObjectShape::Task, "artifacts") => all(ObjectShape::Artifact, value),
            (ObjectShape::Update, "artifact") => one(ObjectShape::Artifact, value),
            (ObjectShape::Message | ObjectShape::Artifact, "parts") => all(ObjectShape::Part, value),
            (ObjectShape::Status, "timestamp") => time(value),
            _ => continue,
        };
    }
    let add = |members: &mut Vec<(String, Json)>, names: &[&str], value: &dyn Fn() -> Option<Json>| {
        let is_there = members.iter().any(|(name, value)| names.contains(&name.as_str()) && value.get() != "null");
        if !is_there && let (Some(value), Some(name)) = (value(), names.first()) {
            members.retain(|(known, _)| !names.contains(&known.as_str()));
            members.push(((*name).to_owned(), value));
        }
    };
    let nothing = || Some(Json::of(""));
    match shape {
        ObjectShape::Task => add(&mut members, &["contextId", "context_id", "sessionId"], &nothing),
        ObjectShape::Update => {
            add(&mut members, &["contextId", "context_id"], &nothing);
            add(&mut members, &["taskId", "task_id"], &nothing);
        }
        ObjectShape::Message => {
            add(&mut members, &["messageId", "message_id"], &nothing);
            add(&mut members, &["parts"], &|| Json::from_text("[]").ok());
        }
        ObjectShape::Artifact => {
            add(&mut members, &["artifactId", "artifact_id"], &|| Some(Json::of("artifact")));
            add(&mut members, &["parts"], &|| Json::from_text("[]").ok());
        }
        ObjectShape::Part => {
            let kind = ["text", "file", "data"].into_iter().find(|kind| members.iter().any(|(name, _)| name == kind));
            if !members.iter().any(|(name, _)| matches!(name.as_str(), "kind" | "type")) {
                members.extend(kind.map(|kind| ("kind".to_owned(), Json::of(kind))));
            }
        }
        ObjectShape::Answer | ObjectShape::Status => {}
    }
    let members = match shape {
        // Before 0.3 the kind of a part was called its type.
        ObjectShape::Part => members.into_iter().map(|(name, value)| (renamed(&name, "type", "kind"), value)).collect(),
        ObjectShape::Message => named(members),
        ObjectShape::Task => {
            members.into_iter().map(|(name, value)| (renamed(&name, "sessionId", "contextId"), value)).collect()
        }
        ObjectShape::Answer | ObjectShape::Update | ObjectShape::Status | ObjectShape::Artifact => members,
    };
    Json::of(&Members(members))
}

fn renamed(name: &str, from: &str, to: &str) -> String {
    if name == from { to.to_owned() } else { name.to_owned() }
}

/// A message without an id gets one derived from its content, so equal messages get equal ids.
fn named(mut members: Vec<(String, Json)>) -> Vec<(String, Json)> {
    let words = Json::of(&Members(members.clone()));
    if let Some((_, id)) = members.iter_mut().find(|(name, id)| name == "messageId" && id.get() == "\"\"") {
        let hash = words
            .get()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        *id = Json::of(&format!("unnamed-{hash:016x}"));
    }
    members
}

fn one(shape: ObjectShape, value: &Json) -> Json {
    value.parse().map_or_else(|_| value.clone(), |members| mend(shape, members))
}

fn all(shape: ObjectShape, value: &Json) -> Json {
    match value.parse::<Vec<Json>>() {
        Ok(values) => {
            let mended = values.iter().enumerate().map(|(index, value)| match shape {
                ObjectShape::Artifact => one(shape, &numbered(index, value)),
                _ => one(shape, value),
            });
            Json::of(&mended.collect::<Vec<_>>())
        }
        Err(_) => value.clone(),
    }
}

/// Artifacts without ids are numbered.
fn numbered(index: usize, value: &Json) -> Json {
    let Ok(Members(mut members)) = value.parse::<Members>() else { return value.clone() };
    if !members.iter().any(|(name, _)| matches!(name.as_str(), "artifactId" | "artifact_id")) {
        members.push(("artifactId".to_owned(), Json::of(&format!("artifact-{index}"))));
    }
    Json::of(&Members(members))
}

/// A time without a zone is UTC. An invalid time becomes `null`.
fn time(value: &Json) -> Json {
    let Ok(text) = value.parse::<String>() else { return null() };
    let is_time = |text: &str| text.parse::<Timestamp>().is_ok();
    let text = text.trim().replacen(' ', "T", 1);
    match (is_time(&text), is_time(&format!("{text}Z"))) {
        (true, _) => Json::of(&text),
        (false, true) => Json::of(&format!("{text}Z")),
        (false, false) => null(),
    }
}

fn null() -> Json {
    Json::from_text("null").expect("null is JSON")
}

// === impl ObjectShape ===

impl ObjectShape {
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Task => Some("task"),
            Self::Message => Some("message"),
            Self::Update => Some("status-update"),
            Self::Answer | Self::Status | Self::Artifact | Self::Part => None,
        }
    }

    fn kind(self, members: &Members) -> Option<&'static str> {
        match self {
            Self::Update if members.find("artifact").is_some() => Some("artifact-update"),
            shape => shape.name(),
        }
    }

    fn of(members: &Members) -> Self {
        let has = |name: &str| members.find(name).is_some();
        if has("parts") {
            Self::Message
        } else if has("taskId") || has("task_id") {
            Self::Update
        } else if has("status") {
            Self::Task
        } else {
            Self::Answer
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_a2a_wire::{SendMessageResponse, StreamResponse, Task, TaskState, v03};

    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    #[test]
    fn members_that_real_servers_omit_are_filled_in() {
        // fasta2a: no zone. python-a2a: no context, parts by `type`, artifacts without ids.
        let task: v03::TaskV03 = read(&json(
            r#"{"id":"t","status":{"state":"completed","timestamp":"2026-11-16T09:27:03.123456",
                "message":{"role":"agent","parts":[{"type":"text","text":"hi"}]}},
                "artifacts":[{"parts":[{"type":"text","text":"done"},{"kind":"data","data":{"n":42.0}}]}]}"#,
        ))
        .unwrap();
        let task = Task::from(task);
        assert_eq!((task.context_id.as_str(), task.status.state), ("", TaskState::TaskStateCompleted));
        assert_eq!(task.status.timestamp, "2026-11-16T09:27:03.123Z".parse().ok());
        let message = task.status.message.unwrap();
        assert!(message.message_id.starts_with("unnamed-"), "{message:?}");
        let artifact = &task.artifacts.unwrap()[0];
        assert_eq!(Json::of(&artifact.parts).get(), r#"[{"text":"done"},{"data":{"n":42.0}}]"#);

        let new: SendMessageResponse = read(&json(
            r#"{"task":{"id":"t","status":{"state":"TASK_STATE_WORKING","timestamp":"2026-11-16 09:27:03"},
                "history":[{"role":"ROLE_USER","parts":[{"text":"a"}]}]}}"#,
        ))
        .unwrap();
        let SendMessageResponse::Task(task) = new else { panic!("{new:?}") };
        assert_eq!(task.status.timestamp, "2026-11-16T09:27:03Z".parse().ok());
        let event: StreamResponse = read(&json(
            r#"{"statusUpdate":{"taskId":"t","status":{"state":"TASK_STATE_COMPLETED","timestamp":"yesterday"}}}"#,
        ))
        .unwrap();
        let StreamResponse::StatusUpdate(update) = event else { panic!("{event:?}") };
        assert_eq!((update.status.timestamp, update.context_id.as_str()), (None, ""));
    }

    #[test]
    fn unrelated_json_stays_unreadable() {
        for text in ["[]", "{}", r#"{"task":{"id":7}}"#, r#"{"task":{"id":"t","status":{"state":"DONE"}}}"#] {
            read::<SendMessageResponse>(&json(text)).unwrap_err();
        }
    }
}
