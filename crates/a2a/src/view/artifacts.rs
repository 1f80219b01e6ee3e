//! Artifacts of a task as they change, and the answer assembled from chunks.

use attache_a2a_wire::{Artifact, ArtifactUpdate, Part, StreamResponse};
use attache_protocol::wire::event::{ArtifactChange, Event};

use super::{ANSWER, TaskView, bounds, event_data, outcome};

// === impl TaskView ===

impl TaskView {
    pub(super) fn changed(&mut self, event: &Event) -> Vec<StreamResponse> {
        let Ok(change) = event.data.parse::<ArtifactChange>() else { return Vec::new() };
        let ArtifactChange { artifact_id, name, parts, append, last_chunk } = change;
        let piece = event_data::artifact(&artifact_id, name, parts);
        // The first piece of an artifact starts it: clients drop pieces of unknown artifacts.
        let known = self.artifact_at(&artifact_id).filter(|_| append);
        match known {
            Some(at) => piece.parts.iter().for_each(|part| event_data::append(&mut self.artifacts[at].parts, part)),
            None => self.put(piece.clone()),
        }
        if self.artifact_size.takes_artifact(&piece) {
            self.is_truncated |= self.artifact_size.trim_artifacts(&mut self.artifacts);
        }
        vec![self.artifact_update(piece, known.is_some(), last_chunk)]
    }

    pub(super) fn artifact_at(&self, id: &str) -> Option<usize> {
        self.artifacts.iter().position(|artifact| artifact.artifact_id == id)
    }

    pub(super) fn put(&mut self, artifact: Artifact) {
        match self.artifact_at(&artifact.artifact_id) {
            Some(at) => self.artifacts[at] = artifact,
            None => self.artifacts.push(artifact),
        }
    }

    pub(super) fn artifact_update(&self, artifact: Artifact, append: bool, last: bool) -> StreamResponse {
        StreamResponse::ArtifactUpdate(ArtifactUpdate {
            task_id: self.id.clone(),
            context_id: self.context.clone(),
            artifact,
            append: Some(append),
            last_chunk: Some(last),
            metadata: Some(self.metadata(None, None)),
        })
    }

    /// Sends only what follows the streamed part of the answer, if the final answer continues it. If nothing is left,
    /// nothing is sent.
    pub(super) fn answered(&mut self, parts: Vec<Part>) -> Option<StreamResponse> {
        let streamed = self.artifact_at(ANSWER).filter(|_| !self.is_truncated);
        let streamed = streamed.and_then(|at| event_data::plain_text(&self.artifacts[at].parts));
        if let Some(rest) = streamed.and_then(|streamed| outcome::rest(&parts, streamed)) {
            return (!rest.is_empty()).then(|| self.answer_goes_on(rest, true));
        }
        let whole = event_data::artifact(ANSWER, None, parts);
        self.put(whole.clone());
        Some(self.artifact_update(whole, false, true))
    }

    /// The task holds the answer exactly as watchers assembled it.
    pub(super) fn answer_goes_on(&mut self, parts: Vec<Part>, last: bool) -> StreamResponse {
        let piece = event_data::artifact(ANSWER, None, parts);
        let known = self.artifact_at(ANSWER);
        match known {
            Some(at) => {
                let parts = &mut self.artifacts[at].parts;
                piece.parts.iter().for_each(|part| event_data::go_on(parts, part));
                self.is_truncated |= bounds::trim_answer(parts);
            }
            None => self.put(piece.clone()),
        }
        self.artifact_update(piece, known.is_some(), last)
    }
}
