//! Size limits of a task: however much an agent outputs, its task fits into one response.
//!
//! The newest content is kept. The rest is in the run's events, and the final result is always complete.

use attache_a2a_wire::{Artifact, Message, Part, PartContent};

use super::{ANSWER, event_data};

/// Maximum size of a task, as JSON.
const MAX_TASK: usize = 4_500_000;
/// How much of a streamed answer, of artifacts and of messages a running task keeps.
const MAX_ANSWER: usize = 1 << 20;
const MAX_ARTIFACTS: usize = 2 << 20;
const MAX_HISTORY: usize = 1 << 20;
/// An eighth more may accumulate before the oldest content is dropped.
const SLACK: usize = 8;
/// Accounted per message or artifact, besides its parts.
const OVERHEAD: usize = 256;

/// The remaining size of a task.
pub(super) struct TaskSizeBudget {
    left: usize,
    is_full: bool,
}

// === impl TaskSizeBudget ===

impl TaskSizeBudget {
    pub(super) const fn new() -> Self {
        Self { left: MAX_TASK, is_full: false }
    }

    /// Whether something didn't fit.
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

    /// The newest items that fit, in order.
    pub(super) fn newest<T: Clone>(&mut self, all: &[T], weight: fn(&T) -> usize) -> Vec<T> {
        let fitting = all.iter().rev().take_while(|item| self.takes(weight(item))).count();
        all[all.len() - fitting..].to_vec()
    }
}

/// Keeps the end of a streamed text. Trimmed rarely, so the cost per piece stays low.
pub(super) fn trim_answer(parts: &mut [Part]) -> bool {
    let [Part { content: PartContent::Text(text), .. }] = parts else { return false };
    let is_long = text.len() > 2 * MAX_ANSWER;
    if is_long {
        text.drain(..text.ceil_char_boundary(text.len() - MAX_ANSWER));
    }
    is_long
}

/// The size of streamed content, updated incrementally, so nothing is measured twice.
#[derive(Debug, Clone, Default)]
pub(super) struct StreamedSize {
    weight: usize,
}

impl StreamedSize {
    /// Adds a message. Returns whether the oldest must be dropped.
    pub(super) fn takes_message(&mut self, said: &Message) -> bool {
        self.weight += message(said);
        self.weight > MAX_HISTORY + MAX_HISTORY / SLACK
    }

    /// The same for a piece of an artifact.
    pub(super) fn takes_artifact(&mut self, piece: &Artifact) -> bool {
        self.weight += artifact(piece);
        self.weight > MAX_ARTIFACTS + MAX_ARTIFACTS / SLACK
    }

    /// Drops the oldest messages. The newest always stays.
    pub(super) fn trim_history(&mut self, history: &mut Vec<Message>) -> bool {
        let mut room = TaskSizeBudget { left: MAX_HISTORY, is_full: false };
        let fitting = history.iter().rev().take_while(|said| room.takes(message(said))).count();
        history.drain(..history.len() - fitting.max(1).min(history.len()));
        self.weight = history.iter().map(message).sum();
        room.is_full
    }

    /// Drops the oldest parts of the oldest artifacts. The answer has its own limit.
    pub(super) fn trim_artifacts(&mut self, artifacts: &mut Vec<Artifact>) -> bool {
        let is_answer = |made: &Artifact| made.artifact_id == ANSWER;
        let mut total: usize = artifacts.iter().filter(|made| !is_answer(made)).map(artifact).sum();
        let is_heavy = total > MAX_ARTIFACTS;
        artifacts.retain_mut(|made| {
            if is_answer(made) || total <= MAX_ARTIFACTS {
                return true;
            }
            let mut dropped = 0;
            while total > MAX_ARTIFACTS && dropped + 1 < made.parts.len() {
                total -= part(&made.parts[dropped]);
                dropped += 1;
            }
            made.parts.drain(..dropped);
            let stays = total <= MAX_ARTIFACTS;
            if !stays {
                total -= artifact(made);
            }
            stays
        });
        self.weight = total;
        is_heavy
    }
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
        PartContent::Text(text) | PartContent::Url(text) => event_data::written(text),
        PartContent::Raw(raw) => raw.len(),
        PartContent::Data(data) => data.get().len(),
    };
    content + part.metadata.as_ref().map_or(0, |metadata| metadata.get().len()) + 64
}
