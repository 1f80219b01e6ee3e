//! One report to the hub while it is being made of pieces.

use attache_protocol::{
    Json,
    wire::{adapter, run::ProgressRequest},
};

use crate::progress::Piece;

/// A call in the making: one piece, or several texts of a kind joined. One report is one event at the hub and one frame
/// of a channel, whichever way it takes.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) piece: Piece,
    encoded: usize,
}

/// A call with this much text, as JSON, is made at once. With one more piece of 4 KiB, every character of it escaped,
/// it is still an event that the hub takes.
const FULL: usize = 32 << 10;

// === impl Batch ===

impl Batch {
    pub(super) fn new(piece: Piece) -> Self {
        let encoded = match &piece {
            Piece::Chunk(text) | Piece::Thought(text) => Json::of(text).get().len(),
            Piece::Progress { .. } | Piece::Usage(_) | Piece::Log(_) | Piece::ToolCall(_) | Piece::Artifact(_) => 0,
        };
        Self { piece, encoded }
    }

    /// Takes more text of the same kind, or gives the piece back.
    pub(super) fn join(&mut self, piece: Piece) -> Result<(), Piece> {
        match (&mut self.piece, piece) {
            (Piece::Chunk(text), Piece::Chunk(more)) | (Piece::Thought(text), Piece::Thought(more)) => {
                self.encoded += Json::of(&more).get().len();
                text.push_str(&more);
                Ok(())
            }
            (_, piece) => Err(piece),
        }
    }

    pub(super) const fn is_text(&self) -> bool {
        matches!(self.piece, Piece::Chunk(_) | Piece::Thought(_))
    }

    /// Nothing can join it any more.
    pub(super) const fn is_complete(&self) -> bool {
        !self.is_text() || self.encoded >= FULL
    }

    pub(super) fn request(self, epoch: i64, report: i64) -> ProgressRequest {
        let request = ProgressRequest { epoch: Some(epoch), report: Some(report), ..ProgressRequest::default() };
        let said = |text: String| Some(Json::of(&adapter::Text { text }));
        match self.piece {
            Piece::Progress { message, percent, usage } => ProgressRequest { message, percent, usage, ..request },
            Piece::Usage(usage) => ProgressRequest { usage: Some(usage), ..request },
            Piece::Chunk(text) => ProgressRequest { chunk: said(text), ..request },
            Piece::Thought(text) => ProgressRequest { thought: said(text), ..request },
            Piece::Log(line) => ProgressRequest { log: Some(line), ..request },
            Piece::ToolCall(call) => ProgressRequest { tool_call: Some(call), ..request },
            Piece::Artifact(artifact) => ProgressRequest { artifact: Some(artifact), ..request },
        }
    }
}
