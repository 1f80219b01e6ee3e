//! What an agent outside has made and said of one task so far.

use attache_hub::in_process::Output;
use attache_protocol::wire::{
    a2a::{Artifact, ArtifactUpdate, Content, Message, Part},
    event::ArtifactChange,
    run::{OutputArtifact, OutputMessage},
};

#[derive(Debug, Default)]
pub(super) struct Made {
    artifacts: Vec<Artifact>,
}

/// The longest text that goes into one event.
const LONGEST: usize = 16 * 1024;
const LONGEST_ID: usize = 200;

// === impl Made ===

impl Made {
    /// An artifact as a whole. `None` if it is known as it is.
    pub(super) fn whole(&mut self, artifact: Artifact) -> Option<ArtifactChange> {
        let change = change(&artifact);
        match self.find(&artifact.artifact_id) {
            Some(known) if *known == artifact => return None,
            Some(known) => *known = artifact,
            None => self.artifacts.push(artifact),
        }
        Some(change)
    }

    /// A piece of one, or the whole.
    pub(super) fn piece(&mut self, update: ArtifactUpdate) -> ArtifactChange {
        let ArtifactUpdate { artifact, append, last_chunk, .. } = update;
        let change = change(&artifact);
        let last_chunk = last_chunk.unwrap_or(false);
        match (append.unwrap_or(false), self.find(&artifact.artifact_id)) {
            (true, Some(known)) => {
                join(&mut known.parts, artifact.parts);
                ArtifactChange { append: true, last_chunk, ..change }
            }
            (false, Some(known)) => {
                *known = artifact;
                ArtifactChange { last_chunk, ..change }
            }
            (true | false, None) => {
                self.artifacts.push(artifact);
                ArtifactChange { last_chunk, ..change }
            }
        }
    }

    fn find(&mut self, id: &str) -> Option<&mut Artifact> {
        self.artifacts.iter_mut().find(|known| known.artifact_id == id)
    }

    /// Everything, as the run's answer.
    pub(super) fn output(&self, message: Option<&Message>) -> Output {
        let parts: Vec<&Part> = self.artifacts.iter().flat_map(|artifact| &artifact.parts).collect();
        let made = texts(parts.into_iter());
        let said = message.map(|message| texts(message.parts.iter())).unwrap_or_default();
        let mut output = Output::text(if made.is_empty() { said } else { made }).artifacts(self.artifacts());
        output.message = message.map(said_at_last);
        output
    }

    pub(super) fn artifacts(&self) -> Vec<OutputArtifact> {
        let one = |artifact: &Artifact| OutputArtifact {
            artifact_id: Some(short(&artifact.artifact_id)),
            name: artifact.name.clone(),
            parts: artifact.parts.clone(),
        };
        self.artifacts.iter().filter(|artifact| !artifact.parts.is_empty()).map(one).collect()
    }
}

pub(super) fn said_at_last(message: &Message) -> OutputMessage {
    OutputMessage { parts: message.parts.clone() }
}

/// The texts among the parts, one below the other.
pub(super) fn texts<'a>(parts: impl Iterator<Item = &'a Part>) -> String {
    let text = |part: &'a Part| match &part.content {
        Content::Text(text) => Some(text.as_str()),
        Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
    };
    parts.filter_map(text).collect::<Vec<_>>().join("\n")
}

/// What a message says, short enough for an event; empty if it has no text.
pub(super) fn words(message: &Message) -> String {
    texts(message.parts.iter()).chars().take(LONGEST).collect()
}

fn change(artifact: &Artifact) -> ArtifactChange {
    let change = ArtifactChange::new(short(&artifact.artifact_id), artifact.parts.clone());
    ArtifactChange { name: artifact.name.clone(), ..change }
}

fn short(id: &str) -> String {
    let line: String = id.chars().filter(|letter| !letter.is_control()).take(LONGEST_ID).collect();
    if line.is_empty() { "artifact".to_owned() } else { line }
}

/// Text that goes on is one text.
fn join(parts: &mut Vec<Part>, more: Vec<Part>) {
    for part in more {
        let is_plain = |part: &Part| part.filename.is_none() && part.metadata.is_none();
        match (parts.last_mut(), &part) {
            (
                Some(last @ Part { content: Content::Text(_), .. }),
                Part { content: Content::Text(text), media_type, .. },
            ) if is_plain(last) && is_plain(&part) && last.media_type == *media_type => {
                if let Content::Text(known) = &mut last.content {
                    known.push_str(text);
                }
            }
            _ => parts.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, texts: &[&str]) -> Artifact {
        Artifact {
            artifact_id: id.to_owned(),
            name: None,
            description: None,
            parts: texts.iter().map(|text| Part::text(*text)).collect(),
            metadata: None,
            extensions: vec![],
        }
    }

    fn update(artifact: Artifact, append: bool) -> ArtifactUpdate {
        let (task_id, context_id) = ("t".to_owned(), "c".to_owned());
        ArtifactUpdate { task_id, context_id, artifact, append: Some(append), last_chunk: None, metadata: None }
    }

    #[test]
    fn pieces_become_what_the_whole_is_and_the_whole_is_then_no_news() {
        let mut made = Made::default();
        let first = made.piece(update(artifact("a", &["one "]), true));
        assert!(!first.append, "what nobody has seen begins anew");
        assert!(made.piece(update(artifact("a", &["two"]), true)).append);
        made.piece(update(artifact("b", &["x"]), false));
        assert_eq!(made.whole(artifact("a", &["one two"])), None);
        assert_eq!(made.whole(artifact("b", &["x"])), None);
        let other = ArtifactChange::new("b", vec![Part::text("y")]);
        assert_eq!(made.whole(artifact("b", &["y"])), Some(other));
        let output = made.output(None);
        assert_eq!(output.text, "one two\ny");
        let one = |id: &str, text: &str| OutputArtifact {
            artifact_id: Some(id.to_owned()),
            name: None,
            parts: vec![Part::text(text)],
        };
        assert_eq!(output.artifacts, [one("a", "one two"), one("b", "y")]);
    }

    #[test]
    fn ids_of_strangers_fit_into_events() {
        assert_eq!(
            (short("a\nb"), short("\u{7}"), short(&"x".repeat(300)).len()),
            ("ab".into(), "artifact".into(), 200)
        );
    }
}
