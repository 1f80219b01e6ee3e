//! The limits of the backlog, and the notice for items that did not fit.

use attache_protocol::{Json, wire::adapter};

use crate::progress::ProgressItem;

/// Separate counters for progress and artifacts: neither takes the other's room.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct BacklogSize {
    pub(super) progress: usize,
    pub(super) artifacts: usize,
}

/// The limit of waiting progress: enough for what a built-in adapter usually sends in one run.
pub(super) const MAX_PROGRESS_BYTES: usize = 4 << 20;
/// The limit of waiting artifacts, which no result repeats.
pub(super) const MAX_ARTIFACT_BYTES: usize = 32 << 20;

// === impl BacklogSize ===

impl BacklogSize {
    /// The counter for this item.
    pub(super) const fn of(&mut self, piece: &ProgressItem) -> &mut usize {
        if is_artifact(piece) { &mut self.artifacts } else { &mut self.progress }
    }

    /// A notice of the missing items. `None` if nothing is missing.
    pub(super) fn loss_notice(self) -> Option<ProgressItem> {
        let message = match self {
            Self { progress: 0, artifacts: 0 } => return None,
            Self { progress, artifacts: 0 } => format!(
                "{progress} progress updates are missing here: the hub was away or too slow; the result is complete"
            ),
            Self { progress, artifacts } => format!(
                "{artifacts} artifacts and {progress} progress updates are missing here: the hub was away or too slow; \
                 the result does not contain these artifacts"
            ),
        };
        Some(ProgressItem::Log(Json::of(&adapter::AdapterLogLine::new("warning", message))))
    }
}

pub(super) const fn is_artifact(piece: &ProgressItem) -> bool {
    matches!(piece, ProgressItem::Artifact(_))
}
