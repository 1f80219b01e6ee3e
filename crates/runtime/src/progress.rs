//! Progress on its way to the hub: pieces of the adapter's stream, gathered into few calls without changing their order.

use std::time::Duration;

use attache_client::Hub;
use attache_protocol::{
    Json, RunId, json,
    wire::{
        adapter::{self, event},
        event::{Event, kind},
        run::ProgressRequest,
    },
};
use serde::Deserialize;
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};

use tokio_util::task::AbortOnDropHandle;

use crate::{link::Link, stop::Stop};

/// One thing that the adapter said while it worked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Progress { message: Option<String>, percent: Option<f64> },
    Chunk(String),
    Thought(String),
    Log(Json),
    ToolCall(Json),
}

/// A call in the making. The hub makes events of its members in a fixed order, so a piece only fits behind those.
#[derive(Debug, Default)]
struct Batch {
    last: Option<u8>,
    progress: (Option<String>, Option<f64>),
    chunk: String,
    thought: String,
    log: Option<Json>,
    tool_call: Option<Json>,
}

/// Sends the pieces of one run in the background.
#[derive(Debug)]
pub(crate) struct Progress {
    pieces: mpsc::Sender<Piece>,
    task: AbortOnDropHandle<()>,
}

/// Who reports, and to whom.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    pub(crate) hub: Hub,
    pub(crate) run: RunId,
    pub(crate) epoch: i64,
    pub(crate) stop: Stop,
    pub(crate) link: Link,
}

/// What the hub has of this claim already, so that a replay after a restart is not told twice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    progress: usize,
    log: usize,
    tool_call: usize,
    /// In bytes, because pieces of text are joined on the way.
    chunk: usize,
    thought: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextForm {
    Object { text: String },
    Plain(String),
}

/// How long the first piece of a batch waits for others.
const GATHER: Duration = Duration::from_millis(50);
/// A batch with this much text is sent at once.
const FULL: usize = 4 << 10;
/// Longer texts are cut. Twice this, with every character escaped, is still an event that the hub takes.
const LARGEST: usize = 4 << 10;
/// The hub's limit for an event is 64 KiB.
const LARGEST_JSON: usize = 60 << 10;
/// How many pieces wait while the hub is slow; what comes after is dropped, for progress must not delay the result.
const WAITING: usize = 256;
const CALL_TIME: Duration = Duration::from_secs(10);
const PUSH_TIME: Duration = Duration::from_secs(1);
const DRAIN_TIME: Duration = Duration::from_secs(5);

// === impl Piece ===

impl Piece {
    /// Reads an event of the adapter's stream; none when it is of a kind that this runtime does not relay.
    pub(crate) fn read(name: &str, data: &str) -> Option<Self> {
        match name {
            event::PROGRESS => {
                let adapter::Progress { message, percent } = serde_json::from_str(data).ok()?;
                let message = message.map(|message| cut(message).remove(0));
                Some(Self::Progress { message, percent: percent.map(|percent| percent.clamp(0.0, 100.0)) })
            }
            event::CHUNK => text(data).map(Self::Chunk),
            event::THOUGHT => text(data).map(Self::Thought),
            event::LOG => Some(Self::Log(relayed(data, &['{', '"'])?)),
            event::TOOL_CALL => match relayed(data, &['{']) {
                Some(call) => Some(Self::ToolCall(call)),
                None => Some(Self::Log(Json::of(&format!("a tool call of {} bytes cannot be shown", data.len())))),
            },
            _ => None,
        }
    }

    /// The first thing that the hub hears of a started run.
    pub(crate) fn begun(device_name: Option<&str>) -> Self {
        let message = device_name.map_or_else(|| "Started.".to_owned(), |name| format!("Started on {name}."));
        Self::Progress { message: Some(message), percent: None }
    }

    /// The place of its member in the hub's order.
    const fn rank(&self) -> u8 {
        match self {
            Self::Progress { .. } => 0,
            Self::Chunk(_) => 1,
            Self::Thought(_) => 2,
            Self::Log(_) => 3,
            Self::ToolCall(_) => 4,
        }
    }

    /// Cuts a long text at a character's end.
    fn split(self) -> Vec<Self> {
        match self {
            Self::Chunk(text) => cut(text).into_iter().map(Self::Chunk).collect(),
            Self::Thought(text) => cut(text).into_iter().map(Self::Thought).collect(),
            other => vec![other],
        }
    }
}

fn text(data: &str) -> Option<String> {
    match serde_json::from_str(data).ok()? {
        TextForm::Object { text } | TextForm::Plain(text) => Some(text),
    }
}

/// JSON that the hub takes as one event: of the right kind, neither too large nor too deep.
fn relayed(data: &str, starts: &[char]) -> Option<Json> {
    let fits = data.starts_with(starts) && data.len() <= LARGEST_JSON && json::depth(data.as_bytes()) < json::MAX_DEPTH;
    if fits { Json::from_text(data).ok() } else { None }
}

fn cut(mut text: String) -> Vec<String> {
    let mut parts = Vec::new();
    while text.len() > LARGEST {
        let rest = text.split_off(text.floor_char_boundary(LARGEST));
        parts.push(std::mem::replace(&mut text, rest));
    }
    parts.push(text);
    parts
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
            Piece::Chunk(text) => self.chunk.push_str(&text),
            Piece::Thought(text) => self.thought.push_str(&text),
            Piece::Log(line) => self.log = Some(line),
            Piece::ToolCall(call) => self.tool_call = Some(call),
        }
        Ok(())
    }

    fn is_full(&self) -> bool {
        self.chunk.len() + self.thought.len() >= FULL
    }

    fn request(self, epoch: i64) -> ProgressRequest {
        let said = |text: String| (!text.is_empty()).then(|| Json::of(&adapter::Text { text }));
        ProgressRequest {
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

// === impl Progress ===

impl Progress {
    pub(crate) fn start(claimant: Claimant) -> Self {
        let (pieces, waiting) = mpsc::channel(WAITING);
        Self { pieces, task: AbortOnDropHandle::new(tokio::spawn(relay(claimant, waiting))) }
    }

    pub(crate) async fn push(&self, piece: Piece) {
        for piece in piece.split() {
            if matches!(&piece, Piece::Chunk(text) | Piece::Thought(text) if text.is_empty()) {
                continue;
            }
            if self.pieces.send_timeout(piece, PUSH_TIME).await.is_err() {
                tracing::warn!("progress is dropped: the hub does not keep up");
            }
        }
    }

    /// Waits a little until everything is told.
    pub(crate) async fn finish(self) {
        drop(self.pieces);
        if timeout(DRAIN_TIME, self.task).await.is_err() {
            tracing::warn!("the hub was too slow to hear all progress; the result follows without it");
        }
    }
}

async fn relay(claimant: Claimant, mut waiting: mpsc::Receiver<Piece>) {
    let mut kept = None;
    loop {
        let first = match kept.take() {
            Some(piece) => piece,
            None => match waiting.recv().await {
                Some(piece) => piece,
                None => return,
            },
        };
        let mut batch = Batch::default();
        let _ = batch.add(first);
        let until = Instant::now() + GATHER;
        while !batch.is_full() {
            let Ok(Some(piece)) = timeout_at(until, waiting.recv()).await else { break };
            if let Err(piece) = batch.add(piece) {
                kept = Some(piece);
                break;
            }
        }
        claimant.tell(batch.request(claimant.epoch)).await;
    }
}

// === impl Claimant ===

impl Claimant {
    /// Progress that cannot be told is lost; only the news that the claim is gone matters.
    async fn tell(&self, request: ProgressRequest) {
        match timeout(CALL_TIME, self.hub.progress(self.run, &request)).await {
            Ok(Ok(answer)) => {
                self.link.heard();
                if answer.status.is_terminal() {
                    self.stop.set("the run has ended at the hub");
                }
            }
            Ok(Err(error)) if crate::report::is_final(&error) => self.stop.set(error.to_string()),
            Ok(Err(error)) => {
                tracing::debug!(run.id = %self.run, %error, "progress was not told");
                if error.is_passing() || error.is_denied() {
                    self.link.failed(&error);
                }
            }
            Err(_) => tracing::debug!(run.id = %self.run, "progress was not told in time"),
        }
    }
}

// === impl Known ===

impl Known {
    /// Reads the run's stream at the hub from the claim on.
    pub(crate) async fn read(hub: &Hub, run: RunId) -> Result<Self, attache_client::Error> {
        let (mut known, mut after) = (Self::default(), 0);
        loop {
            let page = hub.run_events(run, after, None).await?;
            if page.events.is_empty() || page.next <= after {
                // The runtime's own `begun` is not part of the adapter's replay.
                known.progress = known.progress.saturating_sub(1);
                return Ok(known);
            }
            after = page.next;
            for event in &page.events {
                known.count(event);
            }
        }
    }

    fn count(&mut self, event: &Event) {
        let length = || event.data.text_member("text").map_or(0, |text| text.len());
        match event.kind.as_str() {
            "task.claimed" => *self = Self::default(),
            kind::PROGRESS => self.progress += 1,
            kind::LOG => self.log += 1,
            kind::TOOL_CALL => self.tool_call += 1,
            kind::CHUNK => self.chunk += length(),
            kind::THOUGHT => self.thought += length(),
            _ => {}
        }
    }

    /// What of a replayed piece the hub does not have yet.
    pub(crate) fn without(&mut self, piece: Piece) -> Option<Piece> {
        let one = |left: &mut usize, piece| {
            let new = *left == 0;
            *left = left.saturating_sub(1);
            new.then_some(piece)
        };
        let some = |left: &mut usize, text: String| {
            let skipped = text.floor_char_boundary((*left).min(text.len()));
            *left -= (*left).min(text.len());
            (skipped < text.len()).then(|| text[skipped..].to_owned())
        };
        match piece {
            Piece::Progress { .. } => one(&mut self.progress, piece),
            Piece::Log(_) => one(&mut self.log, piece),
            Piece::ToolCall(_) => one(&mut self.tool_call, piece),
            Piece::Chunk(text) => some(&mut self.chunk, text).map(Piece::Chunk),
            Piece::Thought(text) => some(&mut self.thought, text).map(Piece::Thought),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    fn requests(pieces: Vec<Piece>) -> Vec<String> {
        let mut batches = vec![Batch::default()];
        for piece in pieces {
            if let Err(piece) = batches.last_mut().unwrap().add(piece) {
                batches.push(Batch::default());
                batches.last_mut().unwrap().add(piece).unwrap();
            }
        }
        batches.into_iter().map(|batch| serde_json::to_string(&batch.request(3)).unwrap()).collect()
    }

    #[test]
    fn pieces_share_a_call_as_long_as_their_order_holds() {
        let pieces = vec![
            Piece::read("progress", r#"{"message":"m","percent":5}"#).unwrap(),
            Piece::read("chunk", r#"{"text":"a"}"#).unwrap(),
            Piece::read("chunk", r#""b""#).unwrap(),
            Piece::read("log", r#"{"level":"info","message":"l"}"#).unwrap(),
            Piece::read("log", r#""second""#).unwrap(),
            Piece::read("tool_call", r#"{"n":1.0}"#).unwrap(),
            Piece::read("thought", r#"{"text":"hm"}"#).unwrap(),
            Piece::read("chunk", r#"{"text":"c"}"#).unwrap(),
        ];
        assert_eq!(
            requests(pieces),
            [
                r#"{"epoch":3,"message":"m","percent":5.0,"chunk":{"text":"ab"},"log":{"level":"info","message":"l"}}"#,
                r#"{"epoch":3,"log":"second","tool_call":{"n":1.0}}"#,
                r#"{"epoch":3,"thought":{"text":"hm"}}"#,
                r#"{"epoch":3,"chunk":{"text":"c"}}"#,
            ]
        );
        assert_eq!(Piece::read("permission", "{}"), None);
        assert_eq!(Piece::read("chunk", "not json"), None);
        assert_eq!(Piece::read("log", "17"), None);
        let deep = format!("{}{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        let said = Piece::Log(Json::of("a tool call of 600 bytes cannot be shown"));
        assert_eq!(Piece::read("tool_call", &deep), Some(said));
        assert_eq!(
            Piece::read("progress", r#"{"percent":250}"#),
            Some(Piece::Progress { message: None, percent: Some(100.0) })
        );
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let parts = cut("é".repeat(LARGEST));
        assert_eq!(parts.iter().map(String::len).collect::<Vec<_>>(), [LARGEST, LARGEST]);
        assert_eq!(parts.concat(), "é".repeat(LARGEST));
    }

    #[test]
    fn a_replay_tells_only_what_is_new() {
        let at = attache_protocol::Timestamp::default();
        let event = |kind: &str, data: &str| Event { seq: 1, kind: kind.to_owned(), at, data: raw(data) };
        let mut known = Known::default();
        for event in [
            event("task.chunk", r#"{"text":"of the claim before"}"#),
            event("task.claimed", "{}"),
            event("task.chunk", r#"{"text":"abc"}"#),
            event("task.log", "{}"),
        ] {
            known.count(&event);
        }
        let replay = [
            Piece::Chunk("ab".into()),
            Piece::Log(raw("1")),
            Piece::Chunk("cde".into()),
            Piece::Log(raw("2")),
            Piece::Chunk("f".into()),
        ];
        let told: Vec<Piece> = replay.into_iter().filter_map(|piece| known.without(piece)).collect();
        assert_eq!(told, [Piece::Chunk("de".into()), Piece::Log(raw("2")), Piece::Chunk("f".into())]);
    }
}
