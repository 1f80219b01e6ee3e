//! The output of an outside agent for one task so far.

use attache_a2a_wire::{Artifact, ArtifactUpdate, Message, Part, PartContent};
use attache_hub::in_process::AgentOutput;
use attache_protocol::{
    Json,
    wire::{
        event::ArtifactChange,
        run::{OutputArtifact, OutputMessage},
    },
};

#[derive(Debug, Default)]
pub(super) struct PeerOutput {
    pieces: Vec<PeerArtifact>,
    bytes: usize,
}

/// The agent sends more than fits into the memory that one task may take here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooMuchOutput;

#[derive(Debug)]
struct PeerArtifact {
    artifact: Artifact,
    /// It was streamed in pieces: its texts are one text.
    is_continued: bool,
}

/// The longest text in one event.
const MAX_TEXT: usize = 16 * 1024;
const MAX_ID: usize = 200;
/// The most that is kept of one task, over all streams.
const MAX_BYTES: usize = 64 << 20;
const MAX_ARTIFACTS: usize = 10_000;

// === impl PeerOutput ===

impl PeerOutput {
    /// Records a complete artifact. `None` if it is unchanged.
    pub(super) fn whole(&mut self, artifact: Artifact) -> Result<Option<ArtifactChange>, TooMuchOutput> {
        let known = self.find(&artifact.artifact_id);
        if known.as_ref().is_some_and(|known| known.artifact == artifact) {
            return Ok(None);
        }
        let before = known.map_or(0, |known| weight(&known.artifact));
        self.admit(before, &artifact)?;
        let change = change(&artifact);
        match self.find(&artifact.artifact_id) {
            Some(known) => known.artifact = artifact,
            None => self.pieces.push(PeerArtifact::new(artifact)),
        }
        Ok(Some(change))
    }

    /// Records a piece of an artifact, or a complete one.
    pub(super) fn piece(&mut self, update: ArtifactUpdate) -> Result<ArtifactChange, TooMuchOutput> {
        let ArtifactUpdate { artifact, append, last_chunk, .. } = update;
        let append = append.unwrap_or(false);
        let replaced = self.find(&artifact.artifact_id).filter(|_| !append);
        let before = replaced.map_or(0, |known| weight(&known.artifact));
        self.admit(before, &artifact)?;
        let change = change(&artifact);
        let last_chunk = last_chunk.unwrap_or(false);
        Ok(match (append, self.find(&artifact.artifact_id)) {
            (true, Some(known)) => {
                known.is_continued = true;
                // An empty text only marks the end.
                known.artifact.parts.extend(artifact.parts.into_iter().filter(says_something));
                ArtifactChange { append: true, last_chunk, ..change }
            }
            (false, Some(known)) => {
                *known = PeerArtifact::new(artifact);
                ArtifactChange { last_chunk, ..change }
            }
            (true | false, None) => {
                self.pieces.push(PeerArtifact::new(artifact));
                ArtifactChange { last_chunk, ..change }
            }
        })
    }

    /// Counts an artifact that replaces `before` bytes.
    fn admit(&mut self, before: usize, artifact: &Artifact) -> Result<(), TooMuchOutput> {
        let bytes = self.bytes.saturating_sub(before).saturating_add(weight(artifact));
        if bytes > MAX_BYTES || self.pieces.len() >= MAX_ARTIFACTS {
            return Err(TooMuchOutput);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// As the agent sent them.
    pub(super) fn all(&self) -> Vec<Artifact> {
        self.pieces.iter().map(|piece| piece.artifact.clone()).collect()
    }

    pub(super) const fn is_nothing(&self) -> bool {
        self.pieces.is_empty()
    }

    fn find(&mut self, id: &str) -> Option<&mut PeerArtifact> {
        self.pieces.iter_mut().find(|known| known.artifact.artifact_id == id)
    }

    /// Everything, as the run's output.
    pub(super) fn output(&self, message: Option<&Message>) -> AgentOutput {
        let text = |piece: &PeerArtifact| texts(&piece.artifact.parts, if piece.is_continued { "" } else { "\n" });
        let made: Vec<String> = self.pieces.iter().map(text).filter(|text| !text.is_empty()).collect();
        let made = made.join("\n");
        let said = message.map(|message| texts(&message.parts, "\n")).unwrap_or_default();
        let mut output = AgentOutput::text(if made.is_empty() { said } else { made }).artifacts(self.artifacts());
        output.message = message.map(said_at_last);
        output
    }

    pub(super) fn artifacts(&self) -> Vec<OutputArtifact> {
        let one = |artifact: &Artifact| OutputArtifact {
            artifact_id: Some(short(&artifact.artifact_id)),
            name: artifact.name.clone(),
            parts: artifact.parts.clone(),
        };
        let artifacts = self.pieces.iter().map(|piece| &piece.artifact);
        artifacts.filter(|artifact| !artifact.parts.is_empty()).map(one).collect()
    }
}

pub(super) fn said_at_last(message: &Message) -> OutputMessage {
    OutputMessage { parts: message.parts.clone() }
}

// === impl PeerArtifact ===

impl PeerArtifact {
    const fn new(artifact: Artifact) -> Self {
        Self { artifact, is_continued: false }
    }
}

/// About what an artifact takes in memory, with everything the agent says about it.
fn weight(artifact: &Artifact) -> usize {
    let Artifact { artifact_id, name, description, parts, metadata, extensions } = artifact;
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    let json = |json: &Option<Json>| json.as_ref().map_or(0, |json| json.get().len());
    let part = |part: &Part| {
        let content = match &part.content {
            PartContent::Text(text) | PartContent::Url(text) | PartContent::Raw(text) => text.len(),
            PartContent::Data(data) => data.get().len(),
        };
        size_of::<Part>() + content + text(&part.filename) + text(&part.media_type) + json(&part.metadata)
    };
    let parts: usize = parts.iter().map(part).sum();
    let extensions: usize = extensions.iter().map(|name| size_of::<String>() + name.len()).sum();
    size_of::<Artifact>() + artifact_id.len() + text(name) + text(description) + json(metadata) + parts + extensions
}

/// Whether the part is more than an end marker.
fn says_something(part: &Part) -> bool {
    !matches!(&part.content, PartContent::Text(text) if text.is_empty())
}

/// The texts among the parts.
fn texts(parts: &[Part], between: &str) -> String {
    let text = |part: &'_ Part| match &part.content {
        PartContent::Text(text) => Some(text.clone()),
        PartContent::Raw(_) | PartContent::Url(_) | PartContent::Data(_) => None,
    };
    parts.iter().filter_map(text).collect::<Vec<_>>().join(between)
}

/// The text of a message, short enough for an event. Empty if there is none.
pub(super) fn words(message: &Message) -> String {
    texts(&message.parts, "\n").chars().take(MAX_TEXT).collect()
}

fn change(artifact: &Artifact) -> ArtifactChange {
    let change = ArtifactChange::new(short(&artifact.artifact_id), artifact.parts.clone());
    ArtifactChange { name: artifact.name.clone(), ..change }
}

fn short(id: &str) -> String {
    let line: String = id.chars().filter(|letter| !letter.is_control()).take(MAX_ID).collect();
    if line.is_empty() { "artifact".to_owned() } else { line }
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
    fn pieces_add_up_to_the_complete_artifact() {
        let mut made = PeerOutput::default();
        let first = made.piece(update(artifact("a", &["one "]), true)).unwrap();
        assert!(!first.append, "what nobody has seen begins anew");
        assert!(made.piece(update(artifact("a", &["two"]), true)).unwrap().append);
        made.piece(update(artifact("b", &["x"]), false)).unwrap();
        assert_eq!(made.whole(artifact("a", &["one ", "two"])), Ok(None));
        assert_eq!(made.whole(artifact("b", &["x"])), Ok(None));
        let other = ArtifactChange::new("b", vec![Part::text("y")]);
        assert_eq!(made.whole(artifact("b", &["y"])), Ok(Some(other)));
        let output = made.output(None);
        assert_eq!(output.text, "one two\ny");
        let one = |id: &str, texts: &[&str]| OutputArtifact {
            artifact_id: Some(id.to_owned()),
            name: None,
            parts: texts.iter().map(|text| Part::text(*text)).collect(),
        };
        assert_eq!(output.artifacts, [one("a", &["one ", "two"]), one("b", &["y"])]);
    }

    #[test]
    fn what_is_kept_is_limited() {
        let large = "x".repeat(MAX_BYTES / 4);
        let mut made = PeerOutput::default();
        // Replacing takes no more.
        for _ in 0..10 {
            made.whole(artifact("a", &[&large])).unwrap();
            made.whole(artifact("a", &["small"])).unwrap();
            made.piece(update(artifact("b", &[&large]), false)).unwrap();
        }
        made.piece(update(artifact("b", &[&large]), true)).unwrap();
        made.piece(update(artifact("c", &[&large]), false)).unwrap();
        assert_eq!(made.piece(update(artifact("b", &[&large]), true)), Err(TooMuchOutput));
        assert_eq!(made.whole(artifact("d", &[&large])), Err(TooMuchOutput));
        // Whatever is large about it.
        let json = || Json::of(&large);
        let about: [fn(&mut Artifact, String, Json); 8] = [
            |artifact, large, _| artifact.artifact_id.push_str(&large),
            |artifact, large, _| artifact.name = Some(large),
            |artifact, large, _| artifact.description = Some(large),
            |artifact, _, json| artifact.metadata = Some(json),
            |artifact, large, _| artifact.extensions.push(large),
            |artifact, large, _| artifact.parts[0].filename = Some(large),
            |artifact, large, _| artifact.parts[0].media_type = Some(large),
            |artifact, _, json| artifact.parts[0].metadata = Some(json),
        ];
        for enlarge in about {
            let mut made = PeerOutput::default();
            let sent = (0..5).take_while(|number| {
                let mut artifact = artifact(&number.to_string(), &["x"]);
                enlarge(&mut artifact, large.clone(), json());
                made.whole(artifact).is_ok()
            });
            assert_eq!(sent.count(), 3);
        }
        let mut made = PeerOutput::default();
        for number in 0..MAX_ARTIFACTS {
            made.whole(artifact(&number.to_string(), &[])).unwrap();
        }
        assert_eq!(made.whole(artifact("one more", &[])), Err(TooMuchOutput));
    }

    #[test]
    fn remote_ids_fit_into_events() {
        assert_eq!(
            (short("a\nb"), short("\u{7}"), short(&"x".repeat(300)).len()),
            ("ab".into(), "artifact".into(), 200)
        );
    }
}
