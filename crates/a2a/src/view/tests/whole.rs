//! Property test: a task plus its following updates is complete, wherever a client joins.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    super::*,
    questions::{permission, waiting},
    *,
};

/// A client's state of a task: artifacts are appended or replaced, the status is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelClient {
    state: TaskState,
    message: Option<Message>,
    at: Option<Timestamp>,
    artifacts: Vec<Artifact>,
}

impl ModelClient {
    fn of(task: &Task) -> Self {
        Self {
            state: task.status.state,
            message: task.status.message.clone(),
            at: task.status.timestamp,
            artifacts: task.artifacts.clone().unwrap_or_default(),
        }
    }

    fn apply(&mut self, update: StreamResponse) {
        match update {
            StreamResponse::Task(task) => *self = Self::of(&task),
            StreamResponse::Message(_) => panic!("a view has no bare messages"),
            StreamResponse::StatusUpdate(update) => {
                let extra = update.metadata.unwrap().parse::<Value>().unwrap();
                // Transient updates are marked as such.
                if !matches!(extra[EVENTS]["kind"].as_str(), Some("thought" | "log" | "tool_call")) {
                    (self.state, self.message, self.at) =
                        (update.status.state, update.status.message, update.status.timestamp);
                }
            }
            StreamResponse::ArtifactUpdate(update) => {
                let known = self.artifacts.iter().position(|it| it.artifact_id == update.artifact.artifact_id);
                match (known, update.append) {
                    (Some(at), Some(true)) => self.artifacts[at].parts.extend(update.artifact.parts),
                    (Some(at), _) => self.artifacts[at] = update.artifact,
                    (None, Some(true)) => panic!("there is nothing to append to: {update:?}"),
                    (None, _) => self.artifacts.push(update.artifact),
                }
            }
        }
    }

    /// Merges consecutive texts.
    fn joined(mut self) -> Self {
        for artifact in &mut self.artifacts {
            let mut joined = Vec::new();
            artifact.parts.iter().for_each(|part| event_data::go_on(&mut joined, part));
            artifact.parts = joined;
        }
        self
    }
}

fn any_parts() -> impl Strategy<Value = Value> {
    let part = prop_oneof![
        "[a-c ]{0,3}".prop_map(|text| json!({"text": text})),
        Just(json!({"data": {"n": 1}, "mediaType": "application/json"})),
        Just(json!({"text": "t", "mediaType": "text/html"})),
    ];
    prop::collection::vec(part, 1..3).prop_map(Value::from)
}

fn any_event() -> impl Strategy<Value = (&'static str, Value)> {
    let name = || prop::sample::select(vec!["p", "q", "r"]);
    let artifact = (prop::sample::select(vec!["a", "b", ANSWER]), any_parts(), any::<bool>(), any::<bool>());
    prop_oneof![
        1 => Just(("task.claimed", json!({}))),
        1 => Just(("task.requeued", json!({}))),
        1 => "[a-c]{0,2}".prop_map(|text| ("task.progress", json!({"message": text}))),
        1 => "[a-c]{0,2}".prop_map(|text| ("task.thought", json!({"text": text}))),
        1 => "[a-c]{0,2}".prop_map(|text| ("task.log", json!({"message": text}))),
        1 => Just(("task.tool_call", json!({"name": "ls"}))),
        4 => "[a-c ]{0,3}".prop_map(|text| ("task.chunk", json!({"text": text}))),
        4 => artifact.prop_map(|(id, parts, append, last)| {
            ("artifact.changed", json!({"artifact_id": id, "parts": parts, "append": append, "last_chunk": last}))
        }),
        2 => name().prop_map(permission),
        2 => name().prop_map(|name| ("permission.decided", json!({"permission_request_id": name}))),
        1 => name().prop_map(|name| ("task.input_required", json!({"input_request_id": name, "prompt": name}))),
        1 => name().prop_map(|name| {
            ("task.input_received", json!({"input_id": "i", "input_request_id": name, "parts": [{"text": "x"}]}))
        }),
        2 => prop::sample::select(vec![json!("approval"), json!("input"), Value::Null]).prop_map(waiting),
    ]
}

fn any_end() -> impl Strategy<Value = Option<(&'static str, Value)>> {
    let output = ("[a-c ]{0,3}", any_parts(), 0..4).prop_map(|(text, parts, shape)| match shape {
        0 => json!({"text": text}),
        1 => json!({"text": text, "details": {"n": 1}}),
        2 => json!({"text": text, "artifacts": [{"artifact_id": "a", "parts": parts}]}),
        _ => json!({"text": text, "reply": "message"}),
    });
    prop_oneof![
        2 => Just(None),
        4 => output.prop_map(|output| Some(("task.completed", json!({"output": output})))),
        1 => Just(Some(("task.failed", json!({"output": {"error": "no"}})))),
        1 => Just(Some(("task.cancelled", json!({"output": {}})))),
    ]
}

proptest! {
    #[test]
    fn a_task_and_its_updates_are_complete(
        story in prop::collection::vec(any_event(), 0..24),
        end in any_end(),
    ) {
        let events: Vec<Event> =
            story.iter().chain(&end).enumerate().map(|(at, (kind, data))| event(at + 1, kind, data)).collect();
        let mut whole = begin();
        events.iter().for_each(|event| drop(whole.take(event)));
        let wanted = ModelClient::of(&whole.task(None)).joined();
        for joined_at in 0..=events.len() {
            let mut view = begin();
            events[..joined_at].iter().for_each(|event| drop(view.take(event)));
            let mut client = ModelClient::of(&view.task(None));
            for event in &events[joined_at..] {
                view.take(event).into_iter().for_each(|update| client.apply(update));
            }
            prop_assert_eq!(&client.joined(), &wanted, "joined after {} events", joined_at);
        }
    }
}
