//! Assembles one report to the hub from items.

use attache_protocol::{
    Json,
    wire::{adapter, run::ProgressRequest},
};

use crate::progress::ProgressItem;

/// A call being assembled: one item, or several texts of the same kind joined. One report is one event at the hub and
/// one frame of a channel, whichever transport carries it.
#[derive(Debug)]
pub(super) struct ProgressBatch {
    pub(super) piece: ProgressItem,
    encoded: usize,
}

/// A call with this much text (as JSON) is sent immediately. With one more item of 4 KiB, fully escaped, the event is
/// still within the hub's limit.
const MAX_BATCH: usize = 32 << 10;

// === impl ProgressBatch ===

impl ProgressBatch {
    pub(super) fn new(piece: ProgressItem) -> Self {
        let encoded = match &piece {
            ProgressItem::Chunk(text) | ProgressItem::Thought(text) => Json::of(text).get().len(),
            ProgressItem::Progress { .. }
            | ProgressItem::Usage(_)
            | ProgressItem::Log(_)
            | ProgressItem::ToolCall(_)
            | ProgressItem::Artifact(_) => 0,
        };
        Self { piece, encoded }
    }

    /// Joins another text of the same kind, or returns the item.
    pub(super) fn join(&mut self, piece: ProgressItem) -> Result<(), ProgressItem> {
        match (&mut self.piece, piece) {
            (ProgressItem::Chunk(text), ProgressItem::Chunk(more))
            | (ProgressItem::Thought(text), ProgressItem::Thought(more)) => {
                self.encoded += Json::of(&more).get().len();
                text.push_str(&more);
                Ok(())
            }
            (_, piece) => Err(piece),
        }
    }

    pub(super) const fn is_text(&self) -> bool {
        matches!(self.piece, ProgressItem::Chunk(_) | ProgressItem::Thought(_))
    }

    /// Nothing more can join it.
    pub(super) const fn is_complete(&self) -> bool {
        !self.is_text() || self.encoded >= MAX_BATCH
    }

    pub(super) fn request(self, epoch: i64, report: i64) -> ProgressRequest {
        let request = ProgressRequest { epoch: Some(epoch), report: Some(report), ..ProgressRequest::default() };
        let as_json = |text: String| Some(Json::of(&adapter::AdapterText { text }));
        match self.piece {
            ProgressItem::Progress { message, percent, usage } => {
                ProgressRequest { message, percent, usage, ..request }
            }
            ProgressItem::Usage(usage) => ProgressRequest { usage: Some(usage), ..request },
            ProgressItem::Chunk(text) => ProgressRequest { chunk: as_json(text), ..request },
            ProgressItem::Thought(text) => ProgressRequest { thought: as_json(text), ..request },
            ProgressItem::Log(line) => ProgressRequest { log: Some(line), ..request },
            ProgressItem::ToolCall(call) => ProgressRequest { tool_call: Some(call), ..request },
            ProgressItem::Artifact(artifact) => ProgressRequest { artifact: Some(artifact), ..request },
        }
    }
}
