//! Coalesces text that arrives in small pieces into larger ones, with a short delay at most.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;

use crate::{
    EventSink,
    output::{COALESCE_INTERVAL, MAX_CHUNK},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextStreamKind {
    Answer,
    Thought,
}

/// One stream of text events.
#[derive(Debug)]
pub(crate) struct TextStream {
    kind: TextStreamKind,
    events: EventSink,
    pending: Arc<Mutex<String>>,
    flusher: Option<JoinHandle<()>>,
}

// === impl TextStream ===

impl TextStream {
    pub(crate) fn new(kind: TextStreamKind, events: EventSink) -> Self {
        Self { kind, events, pending: Arc::default(), flusher: None }
    }

    pub(crate) fn push(&mut self, text: &str) {
        let held = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            pending.push_str(text);
            while pending.len() >= MAX_CHUNK {
                let end = pending.floor_char_boundary(MAX_CHUNK);
                let piece = pending.drain(..end).collect::<String>();
                self.kind.emit(&self.events, piece);
            }
            !pending.is_empty()
        };
        if held && self.flusher.as_ref().is_none_or(JoinHandle::is_finished) {
            let (kind, events, pending) = (self.kind, self.events.clone(), self.pending.clone());
            self.flusher = Some(tokio::spawn(async move {
                tokio::time::sleep(COALESCE_INTERVAL).await;
                flush(kind, &events, &pending);
            }));
        }
    }

    /// Sends the buffered text now, so that it stays before what comes next.
    pub(crate) fn flush(&mut self) {
        flush(self.kind, &self.events, &self.pending);
    }
}

impl Drop for TextStream {
    fn drop(&mut self) {
        if let Some(flusher) = self.flusher.take() {
            flusher.abort();
        }
        self.flush();
    }
}

fn flush(kind: TextStreamKind, events: &EventSink, pending: &Mutex<String>) {
    // Sent under the lock, so that pieces keep their order.
    let mut pending = pending.lock().unwrap_or_else(PoisonError::into_inner);
    if !pending.is_empty() {
        kind.emit(events, std::mem::take(&mut *pending));
    }
}

// === impl TextStreamKind ===

impl TextStreamKind {
    fn emit(self, events: &EventSink, text: String) {
        match self {
            Self::Answer => events.chunk(text),
            Self::Thought => events.thought(text),
        }
    }
}
