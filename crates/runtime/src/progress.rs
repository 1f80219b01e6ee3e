//! Progress on its way to the hub: the pieces of the adapter's stream, told in the background and in their order.

use std::{sync::Arc, time::Duration};

use attache_client::{Backoff, Hub};
use attache_protocol::{
    Code, EventKind, Json, RunId,
    env::Env,
    json,
    wire::{
        adapter::{self, event},
        event::Event,
        run::ProgressRequest,
        usage::Used,
    },
};
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    backlog::{Backlog, Loss},
    link::Link,
    speak::Ways,
    stop::Stop,
};

/// One thing that the adapter said while it worked.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Piece {
    Progress {
        message: Option<String>,
        percent: Option<f64>,
        usage: Option<Json>,
    },
    /// The total so far, and nothing else. The hub's stream does not show it, so a replay tells it again.
    Usage(Json),
    Chunk(String),
    Thought(String),
    Log(Json),
    ToolCall(Json),
    Artifact(Json),
}

/// Tells the pieces of one run in the background.
#[derive(Debug)]
pub(crate) struct Progress {
    untold: Untold,
    task: AbortOnDropHandle<()>,
}

/// Adds to the progress of a run.
#[derive(Debug, Clone)]
pub(crate) struct Teller(Arc<Backlog>);

/// What the hub has not heard yet, and how to tell it.
#[derive(Debug, Clone)]
pub(crate) struct Untold {
    claimant: Claimant,
    backlog: Arc<Backlog>,
}

/// What became of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// The hub took it, or never will.
    Settled,
    /// The log of the run takes nothing more.
    Full,
    NotNow,
}

/// Who reports, and to whom.
#[derive(Debug, Clone)]
pub(crate) struct Claimant {
    pub(crate) ways: Ways,
    pub(crate) run: RunId,
    pub(crate) epoch: i64,
    pub(crate) stop: Stop,
    pub(crate) link: Link,
    pub(crate) env: Env,
}

/// What the hub has of this claim already, so that a replay after a restart is not told twice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    progress: usize,
    log: usize,
    tool_call: usize,
    artifact: usize,
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

/// Longer texts are cut.
const LARGEST: usize = 4 << 10;
/// The hub's limit for an event is 64 KiB.
const LARGEST_JSON: usize = 60 << 10;
/// The hub's limit for an artifact.
const LARGEST_ARTIFACT: usize = 1 << 20;
/// The hub's limit for an account of the cost.
const LARGEST_USAGE: usize = 16 << 10;
/// What a piece costs beside its text.
const OVERHEAD: usize = 64;
const CALL_TIME: Duration = Duration::from_secs(10);
/// How long a question waits for what was said before it.
const CATCH_UP: Duration = Duration::from_secs(1);
/// How long progress may hold up the result.
const DRAIN_TIME: Duration = Duration::from_millis(1800);
/// The same for what holds an artifact: up to a mebibyte, over any line.
const ARTIFACT_TIME: Duration = Duration::from_secs(30);
/// How long a hub that is there may take nothing of the rest before the result goes without the progress in it, and
/// without the artifacts.
const SLOW: Duration = Duration::from_secs(12);
const SLOWEST: Duration = Duration::from_secs(90);
/// How long progress may hold up the result of a hub that takes it piece by piece.
const LONGEST: Duration = Duration::from_secs(120);

// === impl Piece ===

impl Piece {
    /// Reads an event of the adapter's stream; none when it is of a kind that this runtime does not relay.
    pub(crate) fn read(name: &str, data: &str) -> Option<Self> {
        match name {
            event::PROGRESS => {
                let adapter::Progress { message, percent, usage } = serde_json::from_str(data).ok()?;
                let message = message.map(|message| cut(message).remove(0));
                let percent = percent.map(|percent| percent.clamp(0.0, 100.0));
                match (message, percent, usage.filter(countable)) {
                    (None, None, Some(usage)) => Some(Self::Usage(usage)),
                    (message, percent, usage) => Some(Self::Progress { message, percent, usage }),
                }
            }
            event::CHUNK => text(data).map(Self::Chunk),
            event::THOUGHT => text(data).map(Self::Thought),
            event::LOG => Some(Self::Log(relayed(data, &['{', '"'], LARGEST_JSON)?)),
            event::TOOL_CALL => match relayed(data, &['{'], LARGEST_JSON) {
                Some(call) => Some(Self::ToolCall(call)),
                None => Some(Self::Log(Json::of(&format!("a tool call of {} bytes cannot be shown", data.len())))),
            },
            event::ARTIFACT => match artifact(data) {
                Ok(artifact) => Some(Self::Artifact(artifact)),
                Err(why) => {
                    let message = format!("an artifact of {} bytes cannot be shown: {why}", data.len());
                    Some(Self::Log(Json::of(&adapter::LogLine::new("warning", message))))
                }
            },
            _ => None,
        }
    }

    /// What the run used, of whatever this is; none where it does not say.
    pub(crate) fn usage_alone(self) -> Option<Self> {
        match self {
            Self::Usage(usage) | Self::Progress { usage: Some(usage), .. } => Some(Self::Usage(usage)),
            Self::Progress { usage: None, .. }
            | Self::Chunk(_)
            | Self::Thought(_)
            | Self::Log(_)
            | Self::ToolCall(_)
            | Self::Artifact(_) => None,
        }
    }

    /// What it takes of the room for what waits.
    pub(crate) fn cost(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Progress { message, .. } => message.as_ref().map_or(0, String::len),
                Self::Chunk(text) | Self::Thought(text) => text.len(),
                Self::Log(json) | Self::ToolCall(json) | Self::Artifact(json) | Self::Usage(json) => json.get().len(),
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

/// An account of the cost that the hub would refuse is left out: it must not hold up what else was said.
pub(crate) fn countable(usage: &Json) -> bool {
    usage.get().len() <= LARGEST_USAGE && Used::read(usage).is_ok()
}

fn text(data: &str) -> Option<String> {
    match serde_json::from_str(data).ok()? {
        TextForm::Object { text } | TextForm::Plain(text) => Some(text),
    }
}

/// JSON that the hub takes as one event: of the right kind, neither too large nor too deep.
fn relayed(data: &str, starts: &[char], largest: usize) -> Option<Json> {
    let fits = data.starts_with(starts) && data.len() <= largest && json::depth(data.as_bytes()) < json::MAX_DEPTH;
    if fits { Json::from_text(data).ok() } else { None }
}

/// An artifact that the hub takes, as it came.
fn artifact(data: &str) -> Result<Json, String> {
    let change: adapter::ArtifactChange = serde_json::from_str(data).map_err(|error| json::explain(&error))?;
    if change.parts.is_empty() {
        return Err("it has no parts".to_owned());
    }
    relayed(data, &['{'], LARGEST_ARTIFACT).ok_or_else(|| "it is too large or nests too deep".to_owned())
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

// === impl Progress ===

impl Progress {
    /// Counts the reports of the claim after `report`.
    pub(crate) fn start(claimant: Claimant, report: i64) -> Self {
        let untold = Untold { claimant, backlog: Arc::new(Backlog::after(report)) };
        let teller = untold.clone();
        Self { untold, task: AbortOnDropHandle::new(tokio::spawn(async move { teller.tell_all().await })) }
    }

    pub(crate) fn push(&self, piece: Piece) {
        self.teller().push(piece);
    }

    /// A way to add to it.
    pub(crate) fn teller(&self) -> Teller {
        Teller(self.untold.backlog.clone())
    }

    /// Waits a little until everything is told. What the hub has not heard by then comes back, to be told before the result.
    pub(crate) async fn finish(mut self) -> Option<Untold> {
        let (backlog, link) = (&self.untold.backlog, &self.untold.claimant.link);
        backlog.close();
        if !link.is_away() && timeout(DRAIN_TIME, &mut self.task).await.is_ok() {
            return None;
        }
        self.task.abort();
        // Two tellers at once would tell things twice.
        let _ = (&mut self.task).await;
        Some(self.untold)
    }
}

// === impl Teller ===

impl Teller {
    /// Waits a moment until the hub has heard what was pushed so far.
    pub(crate) async fn caught_up(&self) {
        self.0.caught_up(CATCH_UP).await;
    }

    /// What the run used in all, where its agent told that.
    pub(crate) fn push_usage(&self, usage: Option<Json>) {
        if let Some(usage) = usage {
            self.push(Piece::Usage(usage));
        }
    }

    pub(crate) fn push(&self, piece: Piece) {
        for piece in piece.split() {
            if !matches!(&piece, Piece::Chunk(text) | Piece::Thought(text) if text.is_empty()) {
                self.0.push(piece);
            }
        }
    }
}

// === impl Untold ===

impl Untold {
    /// Tells what comes until nothing more will, however long the hub is away meanwhile.
    async fn tell_all(&self) {
        let Self { claimant, backlog } = self;
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let mut returns = claimant.link.returns();
        while let Some(call) = backlog.next(claimant.epoch).await {
            match claimant.tell(&call).await {
                Told::Settled => {
                    backlog.told();
                    backoff.reset();
                }
                Told::Full => backlog.fill_up(),
                Told::NotNow => tokio::select! {
                    () = tokio::time::sleep(backoff.next(&claimant.env)) => {}
                    Ok(()) = returns.changed() => {}
                },
            }
        }
    }

    /// Tells the rest, but not for long: the result is due. Whether the result may follow now; it may not while the hub is
    /// away, for then it would overtake what comes before it.
    pub(crate) async fn tell_rest(&self) -> bool {
        let Self { claimant, backlog } = self;
        let end = Instant::now() + DRAIN_TIME;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
        while let Some(call) = backlog.next(claimant.epoch).await {
            let told = if call.artifact.is_some() {
                // One that is broken off would begin from its first byte the next time.
                claimant.tell(&call).await
            } else {
                timeout_at(end, claimant.tell(&call)).await.unwrap_or(Told::NotNow)
            };
            match told {
                Told::Settled => backlog.told(),
                Told::Full => backlog.fill_up(),
                Told::NotNow => tokio::time::sleep(backoff.next(&claimant.env)).await,
            }
            if Instant::now() >= end {
                self.lose_patience();
                return false;
            }
        }
        true
    }

    /// The hub has just taken some of it.
    pub(crate) fn is_moving(&self) -> bool {
        let (_, quiet) = self.backlog.patience();
        quiet < DRAIN_TIME
    }

    /// Gives up what a hub that is there does not take. That something is missing is told all the same, however long
    /// that takes.
    fn lose_patience(&self) {
        let Self { claimant, backlog } = self;
        let (all, quiet) = backlog.patience();
        let loss = if claimant.link.is_away() {
            return backlog.begin_anew();
        } else if quiet >= SLOWEST {
            Loss::Everything
        } else if quiet >= SLOW || all >= LONGEST {
            Loss::Progress
        } else {
            return;
        };
        tracing::warn!(run.id = %claimant.run, ?loss, "the hub is too slow to hear all that comes before the result");
        backlog.abandon(loss);
    }
}

// === impl Claimant ===

impl Claimant {
    /// What the hub refuses is lost, and only the news that the claim is gone matters.
    async fn tell(&self, request: &ProgressRequest) -> Told {
        let time = if request.artifact.is_some() { ARTIFACT_TIME } else { CALL_TIME };
        match timeout(time, self.ways.progress(self.run, request)).await {
            Ok(Ok(answer)) => {
                self.link.heard();
                if answer.is_some_and(|answer| answer.status.is_terminal()) {
                    self.stop.set("the run has ended at the hub");
                }
                Told::Settled
            }
            Ok(Err(error)) if crate::report::is_final(&error) => {
                self.stop.set(error.to_string());
                Told::Settled
            }
            Ok(Err(error)) if error.code() == Some(Code::LogFull) => {
                tracing::warn!(run.id = %self.run, "the log of the run is full; what follows is not told, its end is");
                Told::Full
            }
            Ok(Err(error)) => {
                tracing::debug!(run.id = %self.run, %error, "progress was not told");
                if error.is_passing() || error.is_denied() {
                    self.link.failed(&error);
                }
                if error.is_passing() { Told::NotNow } else { Told::Settled }
            }
            Err(_) => {
                tracing::debug!(run.id = %self.run, "progress was not told in time");
                Told::NotNow
            }
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
        match event.event_kind() {
            Some(EventKind::TaskClaimed) => *self = Self::default(),
            Some(EventKind::TaskProgress) => self.progress += 1,
            Some(EventKind::TaskLog) => self.log += 1,
            Some(EventKind::TaskToolCall) => self.tool_call += 1,
            Some(EventKind::ArtifactChanged) => self.artifact += 1,
            Some(EventKind::TaskChunk) => self.chunk += length(),
            Some(EventKind::TaskThought) => self.thought += length(),
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
            Piece::Artifact(_) => one(&mut self.artifact, piece),
            Piece::Usage(_) => Some(piece),
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

    #[test]
    fn only_what_the_hub_takes_is_read() {
        assert_eq!(Piece::read("permission", "{}"), None);
        assert_eq!(Piece::read("chunk", "not json"), None);
        assert_eq!(Piece::read("log", "17"), None);
        let deep = format!("{}{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        let said = Piece::Log(Json::of("a tool call of 600 bytes cannot be shown"));
        assert_eq!(Piece::read("tool_call", &deep), Some(said));
        assert_eq!(
            Piece::read("progress", r#"{"percent":250}"#),
            Some(Piece::Progress { message: None, percent: Some(100.0), usage: None })
        );
        let usage = r#"{"tokens":7,"model":"x"}"#;
        let read = |data: &str| Piece::read("progress", &format!(r#"{{{data}"usage":{usage}}}"#));
        assert_eq!(read(""), Some(Piece::Usage(raw(usage))));
        let message = Some("m".to_owned());
        let both = Piece::Progress { message: message.clone(), percent: None, usage: Some(raw(usage)) };
        assert_eq!(read(r#""message":"m","#), Some(both));
        let strange = Piece::Progress { message, percent: None, usage: None };
        assert_eq!(Piece::read("progress", r#"{"message":"m","usage":{"tokens":-1}}"#), Some(strange));
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
