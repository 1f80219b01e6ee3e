//! The room for what waits, and what is said of that which found none.

use attache_protocol::{Json, wire::adapter};

use crate::progress::ProgressItem;

/// Of progress, and of artifacts: neither takes the other's place.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct BacklogSize {
    pub(super) progress: usize,
    pub(super) artifacts: usize,
}

/// What waits at most: room for all that a built-in adapter usually says in one run.
pub(super) const MAX_PROGRESS_BYTES: usize = 4 << 20;
/// The same for what the agent made, which no result repeats.
pub(super) const MAX_ARTIFACT_BYTES: usize = 32 << 20;

// === impl BacklogSize ===

impl BacklogSize {
    /// The part that the piece belongs to.
    pub(super) const fn of(&mut self, piece: &ProgressItem) -> &mut usize {
        if is_artifact(piece) { &mut self.artifacts } else { &mut self.progress }
    }

    /// That so much is missing; none when nothing is.
    pub(super) fn loss_notice(self) -> Option<ProgressItem> {
        let message = match self {
            Self { progress: 0, artifacts: 0 } => return None,
            Self { progress, artifacts: 0 } => format!(
                "{progress} pieces of progress are missing here: the hub was away or too slow; the result is whole"
            ),
            Self { progress, artifacts } => format!(
                "{artifacts} artifacts and {progress} pieces of progress are missing here: the hub was away or too slow; \
                 the result comes without these artifacts"
            ),
        };
        Some(ProgressItem::Log(Json::of(&adapter::AdapterLogLine::new("warning", message))))
    }
}

pub(super) const fn is_artifact(piece: &ProgressItem) -> bool {
    matches!(piece, ProgressItem::Artifact(_))
}
