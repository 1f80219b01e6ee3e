//! What a task may weigh: however much an agent said, its task stays something that one answer can carry.
//!
//! The newest is kept. What a task leaves out is in the run's own events, and what ended the run is always whole.

use attache_protocol::wire::a2a::{Artifact, Content, Message, Part};

use super::{ANSWER, said};

/// A whole task, as JSON.
const MAX_TASK: usize = 4_500_000;
/// What a task in the making keeps of an answer that is streamed, of artifacts and of messages.
const MAX_ANSWER: usize = 1 << 20;
const MAX_ARTIFACTS: usize = 2 << 20;
const MAX_HISTORY: usize = 1 << 20;
/// What a message or an artifact weighs beside its parts.
const OVERHEAD: usize = 256;

/// What is left of a task's weight.
pub(super) struct Room {
    left: usize,
    is_full: bool,
}

// === impl Room ===

impl Room {
    pub(super) const fn new() -> Self {
        Self { left: MAX_TASK, is_full: false }
    }

    /// Whether something did not fit.
    pub(super) const fn is_full(&self) -> bool {
        self.is_full
    }

    pub(super) const fn takes(&mut self, weight: usize) -> bool {
        match self.left.checked_sub(weight) {
            Some(left) => self.left = left,
            None => self.is_full = true,
        }
        !self.is_full
    }

    /// The newest of these that fit, in their order.
    pub(super) fn newest<T: Clone>(&mut self, all: &[T], weight: fn(&T) -> usize) -> Vec<T> {
        let fitting = all.iter().rev().take_while(|item| self.takes(weight(item))).count();
        all[all.len() - fitting..].to_vec()
    }
}

/// Keeps the newest end of a text that was streamed; cut rarely, so that it costs nothing by the piece.
pub(super) fn trim_answer(parts: &mut [Part]) -> bool {
    let [Part { content: Content::Text(text), .. }] = parts else { return false };
    let is_long = text.len() > 2 * MAX_ANSWER;
    if is_long {
        text.drain(..text.ceil_char_boundary(text.len() - MAX_ANSWER));
    }
    is_long
}

/// Drops the oldest parts of what was streamed piece by piece.
pub(super) fn trim_artifacts(artifacts: &mut Vec<Artifact>) -> bool {
    let is_streamed = |artifact: &&mut Artifact| artifact.artifact_id != ANSWER;
    let weight =
        |artifacts: &[Artifact]| artifacts.iter().filter(|it| it.artifact_id != ANSWER).map(artifact).sum::<usize>();
    let mut total = weight(artifacts);
    let is_heavy = total > MAX_ARTIFACTS;
    while total > MAX_ARTIFACTS {
        let Some(oldest) = artifacts.iter_mut().find(is_streamed) else { break };
        match oldest.parts.len() {
            0 | 1 => {
                let id = oldest.artifact_id.clone();
                artifacts.retain(|artifact| artifact.artifact_id != id);
            }
            _ => drop(oldest.parts.remove(0)),
        }
        total = weight(artifacts);
    }
    is_heavy
}

pub(super) fn trim_history(history: &mut Vec<Message>) -> bool {
    let mut room = Room { left: MAX_HISTORY, is_full: false };
    let fitting = history.iter().rev().take_while(|said| room.takes(message(said))).count();
    // The newest message is there, whatever it weighs.
    history.drain(..history.len() - fitting.max(1).min(history.len()));
    room.is_full
}

pub(super) fn message(message: &Message) -> usize {
    OVERHEAD + parts(&message.parts) + message.metadata.as_ref().map_or(0, |metadata| metadata.get().len())
}

pub(super) fn artifact(artifact: &Artifact) -> usize {
    OVERHEAD + parts(&artifact.parts)
}

fn parts(parts: &[Part]) -> usize {
    parts.iter().map(part).sum()
}

fn part(part: &Part) -> usize {
    let content = match &part.content {
        Content::Text(text) | Content::Url(text) => said::written(text),
        Content::Raw(raw) => raw.len(),
        Content::Data(data) => data.get().len(),
    };
    content + part.metadata.as_ref().map_or(0, |metadata| metadata.get().len()) + 64
}
