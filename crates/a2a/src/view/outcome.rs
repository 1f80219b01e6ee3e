//! The outcome of a run as artifacts, a final message and a state.

use attache_a2a_wire::{Artifact, Part, PartContent, TaskState};
use attache_protocol::{Json, rules::run::FailureCode, wire::output::OutputLocation};
use serde::Deserialize;

use super::{EVENTS, event_data};

pub(super) struct TaskOutcome {
    pub(super) state: TaskState,
    /// The artifacts the agent named.
    pub(super) artifacts: Vec<Artifact>,
    /// The plain answer, if the agent made nothing else of it.
    pub(super) answer: Option<Vec<Part>>,
    /// The final status message.
    pub(super) said: Option<Vec<Part>>,
    /// Whether that message is the entire answer.
    pub(super) is_reply: bool,
}

#[derive(Default, Deserialize)]
struct RunOutputData {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    details: Option<Json>,
    #[serde(default)]
    artifact_refs: Option<Vec<Json>>,
    #[serde(default)]
    message: Option<OutputMessageData>,
    #[serde(default)]
    artifacts: Option<Vec<OutputArtifactData>>,
    #[serde(default)]
    reply: Option<String>,
}

#[derive(Deserialize)]
struct OutputMessageData {
    parts: Vec<Part>,
}

#[derive(Deserialize)]
struct OutputArtifactData {
    #[serde(default)]
    artifact_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    parts: Vec<Part>,
}

#[derive(Default, Deserialize)]
struct FailureData {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<OutputMessageData>,
}

// === impl TaskOutcome ===

impl TaskOutcome {
    pub(super) fn completed(output: Option<&Json>, origin: &str) -> Self {
        let full = output.and_then(OutputLocation::of);
        let output: RunOutputData = output.and_then(|output| output.parse().ok()).unwrap_or_default();
        let is_reply = output.reply.as_deref() == Some("message");
        let said = output.message.map(|message| message.parts).filter(|parts| !parts.is_empty());
        let made = output.artifacts.unwrap_or_default();
        let is_plain = made.is_empty() && said.is_none();
        let mut artifacts: Vec<Artifact> = made.into_iter().enumerate().map(named).collect();
        let refs = output.artifact_refs.unwrap_or_default();
        artifacts.extend(refs.iter().filter_map(|entry| stored(entry, origin, full.as_ref())));
        let text = output.text.filter(|text| !text.is_empty());
        let details = output.details.filter(|details| details.get() != "null");
        let plain: Vec<Part> = text.map(Part::text).into_iter().chain(details.map(Part::data)).collect();
        let plain = Some(plain).filter(|parts| is_plain && !parts.is_empty());
        let (answer, said) = if is_reply { (None, said.or(plain)) } else { (plain, said) };
        Self { state: TaskState::TaskStateCompleted, artifacts, answer, is_reply: is_reply && said.is_some(), said }
    }

    pub(super) fn failed(output: Option<&Json>) -> Self {
        let failure: FailureData = output.and_then(|output| output.parse().ok()).unwrap_or_default();
        let is_rejected = failure.code.as_deref() == Some(FailureCode::Rejected.as_str());
        let state = if is_rejected { TaskState::TaskStateRejected } else { TaskState::TaskStateFailed };
        Self::ending(state, failure)
    }

    pub(super) fn cancelled(output: Option<&Json>) -> Self {
        let failure: FailureData = output.and_then(|output| output.parse().ok()).unwrap_or_default();
        Self::ending(TaskState::TaskStateCanceled, failure)
    }

    fn ending(state: TaskState, failure: FailureData) -> Self {
        let said = failure.message.map(|message| message.parts).filter(|parts| !parts.is_empty());
        let said = said.or_else(|| failure.error.map(|error| vec![Part::text(error)]));
        Self { state, artifacts: Vec::new(), answer: None, said, is_reply: false }
    }
}

fn named((at, made): (usize, OutputArtifactData)) -> Artifact {
    let id = made.artifact_id.unwrap_or_else(|| format!("artifact-{}", at + 1));
    event_data::artifact(&id, made.name, made.parts)
}

/// A file stored by the hub: a link that needs the caller's own credential.
fn stored(entry: &Json, origin: &str, full: Option<&OutputLocation>) -> Option<Artifact> {
    let id: String = entry.parse().ok().filter(|id: &String| id.starts_with("art_"))?;
    let url = Part::new(PartContent::Url(format!("{origin}/api/v1/artifacts/{id}")));
    let artifact = event_data::artifact(&id, None, vec![url]);
    match full.filter(|full| full.artifact_id.is_some_and(|whole| whole.to_string() == id)) {
        // The answer is only a part of this.
        Some(OutputLocation { bytes, .. }) => {
            let metadata = format!(r#"{{"{EVENTS}":{{"full_output":{{"bytes":{bytes}}}}}}}"#);
            Some(Artifact { name: Some("output".to_owned()), metadata: Json::from_text(metadata).ok(), ..artifact })
        }
        None => Some(artifact),
    }
}

/// The rest of the answer after the streamed part. `None` if it doesn't continue it.
pub(super) fn rest(parts: &[Part], streamed: &str) -> Option<Vec<Part>> {
    let (Part { content: PartContent::Text(text), .. }, others) = parts.split_first()? else { return None };
    let rest = match text.strip_prefix(streamed) {
        Some(rest) => rest,
        // A trailing newline makes no difference.
        None if text.trim_end() == streamed.trim_end() => "",
        None => return None,
    };
    let rest = (!rest.is_empty()).then(|| Part::text(rest));
    Some(rest.into_iter().chain(others.iter().cloned()).collect())
}
