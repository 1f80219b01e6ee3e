//! Events of a stream, as JSON pages and as server-sent events.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    EventKind, Json, Timestamp,
    rules::run::RunStatus,
    wire::part::{Part, PartContent},
};

/// One event. `seq` starts at 1 and has no gaps within its stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    pub seq: i64,
    #[serde(rename = "type")]
    pub kind: String,
    pub at: Timestamp,
    pub data: Json,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EventPage {
    pub events: Vec<Event>,
    /// Pass it as `after` to continue.
    pub next: i64,
    /// The run's state when the page was read.
    pub status: RunStatus,
}

/// The data of `snapshot.repaired`: these events were removed, and this is the state they led to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SnapshotRepair {
    pub missing: SeqRange,
    pub snapshot: Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeqRange {
    pub from: i64,
    pub to: i64,
}

/// The data of `artifact.changed`: a complete artifact or a piece of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactChange {
    /// The worker's id for it, unique within the run: 1 to 200 printable characters.
    pub artifact_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub parts: Vec<Part>,
    /// Appends the parts to those with the same id instead of replacing them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub append: bool,
    /// No more parts follow for this id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub last_chunk: bool,
}

/// The length of an artifact's description.
const MAX_SHOWN: usize = 120;

// === impl Event ===

impl Event {
    /// `None` for a kind that this build does not know.
    pub fn event_kind(&self) -> Option<EventKind> {
        EventKind::parse(&self.kind)
    }
}

// === impl ArtifactChange ===

impl ArtifactChange {
    /// A complete artifact.
    pub fn new(artifact_id: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { artifact_id: artifact_id.into(), name: None, parts, append: false, last_chunk: false }
    }

    /// The display name.
    pub fn title(&self) -> &str {
        self.name.as_deref().filter(|name| !name.trim().is_empty()).unwrap_or(&self.artifact_id)
    }

    /// The content in one short line.
    pub fn about(&self) -> String {
        match self.excerpt("a file") {
            (line, 0) => line,
            (line, more) => format!("{line} (and {more} more)"),
        }
    }

    /// The first part in one short line, and how many more there are. `unnamed` stands for a file without name and type.
    pub fn excerpt(&self, unnamed: &str) -> (String, usize) {
        let Some(first) = self.parts.first() else { return (String::new(), 0) };
        let kind = first.media_type.as_deref().unwrap_or(unnamed);
        let text = match (&first.content, &first.filename) {
            (PartContent::Text(text), _) => text.as_str(),
            (PartContent::Url(url), _) => url.as_str(),
            (PartContent::Raw(_), Some(name)) => name.as_str(),
            (PartContent::Raw(_), None) => kind,
            (PartContent::Data(data), _) => data.get(),
        };
        let mut words = text.split_whitespace().flat_map(|word| [" ", word]).skip(1).flat_map(str::chars);
        let mut line: String = words.by_ref().take(MAX_SHOWN).collect();
        if words.next().is_some() {
            line.push('…');
        }
        (line, self.parts.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_described_in_one_short_line() {
        let about = |parts: &str| {
            let change: ArtifactChange =
                serde_json::from_str(&format!(r#"{{"artifact_id":"a1","name":" ","parts":{parts}}}"#)).unwrap();
            (change.title().to_owned(), change.about())
        };
        let said = |text: &str| ("a1".to_owned(), text.to_owned());
        assert_eq!(about(r#"[{"text":"one\n  two "}]"#), said("one two"));
        assert_eq!(about(r#"[{"raw":"AA==","filename":"a.bin"},{"text":""}]"#), said("a.bin (and 1 more)"));
        assert_eq!(about(r#"[{"raw":"AA==","mediaType":"image/png"}]"#), said("image/png"));
        assert_eq!(about(r#"[{"url":"https://example.org/x"}]"#), said("https://example.org/x"));
        assert_eq!(about(r#"[{"data":{"n":1.0}}]"#), said(r#"{"n":1.0}"#));
        assert_eq!(about("[]"), said(""));
        let long = "x".repeat(200);
        assert_eq!(about(&format!(r#"[{{"text":"{long}"}}]"#)), said(&format!("{}…", &long[..120])));
    }
}
