//! What the hub has not heard yet of a run: in its order, within a bound, kept while the hub is away.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::{
    Json,
    wire::{adapter, run::ProgressRequest},
};
use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use crate::progress::Piece;

/// Filled by whoever listens to the adapter and emptied by one teller.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    state: Mutex<State>,
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Made and not yet taken by the hub; it is repeated as it is.
    call: Option<ProgressRequest>,
    /// The call after it, in the making.
    batch: Batch,
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// How many pieces found no room and are not confessed yet.
    dropped: usize,
    closed: bool,
}

/// A call in the making. The hub makes events of its members in a fixed order, so a piece only fits behind those.
#[derive(Debug, Default)]
struct Batch {
    last: Option<u8>,
    encoded: usize,
    progress: (Option<String>, Option<f64>),
    chunk: String,
    thought: String,
    log: Option<Json>,
    tool_call: Option<Json>,
}

/// How long the first piece of a call waits for others.
const GATHER: Duration = Duration::from_millis(50);
/// A call with this much text, as JSON, is made at once. With one more piece of 4 KiB, every character of it escaped,
/// it is still an event that the hub takes.
const FULL: usize = 32 << 10;
/// What waits at most: room for all that a built-in adapter usually says in one run.
const LIMIT: usize = 4 << 20;

// === impl Backlog ===

impl Backlog {
    /// Takes the piece if there is room. It never waits: progress must not delay the result.
    pub(crate) fn push(&self, piece: Piece) {
        {
            let mut state = self.state();
            // After a gap there must be real room again, or there would be a gap after every piece.
            let room = if state.dropped > 0 { LIMIT / 2 } else { LIMIT };
            if state.bytes + piece.cost() > room {
                state.dropped += 1;
                return;
            }
            state.confess();
            state.add(piece);
        }
        self.moved.notify_one();
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        {
            let mut state = self.state();
            state.closed = true;
            state.confess();
        }
        self.moved.notify_one();
    }

    /// Gives up what still waits; only the news of that remains.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        let batch = usize::from(!std::mem::take(&mut state.batch).is_empty());
        let call = usize::from(state.call.take().is_some());
        state.dropped += state.pieces.len() + batch + call;
        state.pieces.clear();
        state.bytes = 0;
        state.confess();
    }

    /// The call to make now: the last one again until it is told. None when all is told and nothing more comes.
    pub(crate) async fn next(&self, epoch: i64) -> Option<ProgressRequest> {
        let mut until = None;
        loop {
            {
                let mut state = self.state();
                if let Some(call) = &state.call {
                    return Some(call.clone());
                }
                let complete = state.gather();
                if state.batch.is_empty() {
                    if state.closed {
                        return None;
                    }
                } else if complete || until.is_some_and(|until| Instant::now() >= until) {
                    let call = std::mem::take(&mut state.batch).request(epoch);
                    state.call = Some(call.clone());
                    return Some(call);
                } else {
                    until.get_or_insert_with(|| Instant::now() + GATHER);
                }
            }
            match until {
                Some(until) => _ = timeout_at(until, self.moved.notified()).await,
                None => self.moved.notified().await,
            }
        }
    }

    /// The hub took the call, or will never take it.
    pub(crate) fn told(&self) {
        self.state().call = None;
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    fn add(&mut self, piece: Piece) {
        self.bytes += piece.cost();
        self.pieces.push_back(piece);
    }

    /// Says what is missing, where it is missing.
    fn confess(&mut self) {
        let dropped = std::mem::take(&mut self.dropped);
        if dropped > 0 {
            let message = format!(
                "{dropped} pieces of progress are missing here: the hub was away or too slow; the result is whole"
            );
            self.add(Piece::Log(Json::of(&adapter::LogLine { level: "warning".to_owned(), message })));
        }
    }

    /// Moves what fits into the batch; true when the batch need not wait for more.
    fn gather(&mut self) -> bool {
        while !self.batch.is_full() {
            let Some(piece) = self.pieces.pop_front() else { return self.closed };
            let cost = piece.cost();
            if let Err(piece) = self.batch.add(piece) {
                self.pieces.push_front(piece);
                return true;
            }
            self.bytes -= cost;
        }
        true
    }
}

// === impl Batch ===

impl Batch {
    /// Takes the piece, or gives it back when it belongs behind something that is here already.
    fn add(&mut self, piece: Piece) -> Result<(), Piece> {
        let rank = piece.rank();
        let joins = matches!(piece, Piece::Chunk(_) | Piece::Thought(_)) && self.last == Some(rank);
        if !joins && self.last.is_some_and(|last| last >= rank) {
            return Err(piece);
        }
        self.last = Some(rank);
        match piece {
            Piece::Progress { message, percent } => self.progress = (message, percent),
            Piece::Chunk(text) => {
                self.encoded += Json::of(&text).get().len();
                self.chunk.push_str(&text);
            }
            Piece::Thought(text) => {
                self.encoded += Json::of(&text).get().len();
                self.thought.push_str(&text);
            }
            Piece::Log(line) => self.log = Some(line),
            Piece::ToolCall(call) => self.tool_call = Some(call),
        }
        Ok(())
    }

    const fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    const fn is_full(&self) -> bool {
        self.encoded >= FULL
    }

    fn request(self, epoch: i64) -> ProgressRequest {
        let said = |text: String| (!text.is_empty()).then(|| Json::of(&adapter::Text { text }));
        ProgressRequest {
            report: None,
            epoch: Some(epoch),
            message: self.progress.0,
            percent: self.progress.1,
            chunk: said(self.chunk),
            thought: said(self.thought),
            log: self.log,
            tool_call: self.tool_call,
            usage: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every call, each told at once.
    async fn calls(backlog: &Backlog) -> Vec<String> {
        let mut calls = Vec::new();
        while let Some(call) = backlog.next(3).await {
            calls.push(serde_json::to_string(&call).unwrap());
            backlog.told();
        }
        calls
    }

    #[tokio::test]
    async fn pieces_share_a_call_as_long_as_their_order_holds() {
        let backlog = Backlog::default();
        for (name, data) in [
            ("progress", r#"{"message":"m","percent":5}"#),
            ("chunk", r#"{"text":"a"}"#),
            ("chunk", r#""b""#),
            ("log", r#"{"level":"info","message":"l"}"#),
            ("log", r#""second""#),
            ("tool_call", r#"{"n":1.0}"#),
            ("thought", r#"{"text":"hm"}"#),
            ("chunk", r#"{"text":"c"}"#),
        ] {
            backlog.push(Piece::read(name, data).unwrap());
        }
        backlog.close();
        assert_eq!(
            calls(&backlog).await,
            [
                r#"{"epoch":3,"message":"m","percent":5.0,"chunk":{"text":"ab"},"log":{"level":"info","message":"l"}}"#,
                r#"{"epoch":3,"log":"second","tool_call":{"n":1.0}}"#,
                r#"{"epoch":3,"thought":{"text":"hm"}}"#,
                r#"{"epoch":3,"chunk":{"text":"c"}}"#,
            ]
        );
    }

    #[tokio::test]
    async fn a_call_is_repeated_until_it_is_told() {
        let backlog = Backlog::default();
        backlog.push(Piece::Chunk("a".into()));
        let first = backlog.next(1).await.map(|call| serde_json::to_string(&call).unwrap());
        backlog.push(Piece::Chunk("b".into()));
        backlog.close();
        assert_eq!(backlog.next(1).await.map(|call| serde_json::to_string(&call).unwrap()), first);
        backlog.told();
        assert_eq!(calls(&backlog).await, [r#"{"epoch":3,"chunk":{"text":"b"}}"#]);
    }

    #[tokio::test]
    async fn what_finds_no_room_is_dropped_and_confessed_once() {
        let backlog = Backlog::default();
        let pieces = LIMIT / Piece::Chunk("~".repeat(4096)).cost();
        for _ in 0..pieces + 7 {
            backlog.push(Piece::Chunk("~".repeat(4096)));
        }
        backlog.close();
        let calls = calls(&backlog).await;
        let text: usize = calls.iter().map(|call| call.matches('~').count()).sum();
        assert_eq!(text, pieces * 4096);
        assert!(calls.iter().all(|call| call.len() < 60 << 10), "every call fits");
        let confessed: Vec<&String> = calls.iter().filter(|call| call.contains("are missing here")).collect();
        assert!(matches!(confessed[..], [one] if one.contains("\"7 pieces of progress") && Some(one) == calls.last()));
    }

    #[tokio::test]
    async fn what_is_abandoned_is_confessed() {
        let backlog = Backlog::default();
        backlog.push(Piece::Chunk("a".into()));
        backlog.next(1).await.unwrap();
        backlog.push(Piece::Log(Json::of("l")));
        backlog.close();
        backlog.abandon();
        let calls = calls(&backlog).await;
        assert!(calls.len() == 1 && calls[0].contains("\"2 pieces of progress are missing here"), "{calls:?}");
    }
}
