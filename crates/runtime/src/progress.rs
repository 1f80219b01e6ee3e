//! Sends progress to the hub: the items of the adapter's stream, in the background and in order.

use std::{sync::Arc, time::Duration};

use attache_client::{Backoff, HubClient};
use attache_protocol::{
    Code, EventKind, Json, RunId,
    env::Env,
    json,
    wire::{
        adapter::{self, event},
        event::Event,
        run::ProgressRequest,
        usage::ReportedUsage,
    },
};
use serde::Deserialize;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    backlog::{Backlog, DiscardScope},
    hub_transport::HubTransport,
    link::HubLink,
    shutdown::StopSignal,
};

/// One item of the adapter's stream.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ProgressItem {
    Progress {
        message: Option<String>,
        percent: Option<f64>,
        usage: Option<Json>,
    },
    /// Only the usage total so far. The hub's stream doesn't show it, so a replay sends it again.
    Usage(Json),
    Chunk(String),
    Thought(String),
    Log(Json),
    ToolCall(Json),
    Artifact(Json),
}

/// Sends the items of one run in the background.
#[derive(Debug)]
pub(crate) struct ProgressReporter {
    pending: PendingProgress,
    task: AbortOnDropHandle<()>,
}

/// Adds items to the progress of a run.
#[derive(Debug, Clone)]
pub(crate) struct ProgressSender(Arc<Backlog>);

/// The items that the hub has not received yet, and how to send them.
#[derive(Debug, Clone)]
pub(crate) struct PendingProgress {
    claimant: ClaimContext,
    backlog: Arc<Backlog>,
}

/// The outcome of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SendOutcome {
    /// The hub accepted it, or never will.
    Settled,
    /// The log of the run is full.
    Full,
    NotNow,
}

/// The claim that reports, and the way to the hub.
#[derive(Debug, Clone)]
pub(crate) struct ClaimContext {
    pub(crate) transport: HubTransport,
    pub(crate) run: RunId,
    pub(crate) epoch: i64,
    pub(crate) stop: StopSignal,
    pub(crate) link: HubLink,
    pub(crate) env: Env,
}

/// What the hub already has of this claim, so that a replay after a restart sends nothing twice.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct DeliveredProgress {
    progress: usize,
    log: usize,
    tool_call: usize,
    artifact: usize,
    /// In bytes, because texts are joined.
    chunk: usize,
    thought: usize,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TextPayload {
    Object { text: String },
    Plain(String),
}

/// Longer texts are split.
const MAX_TEXT: usize = 4 << 10;
/// The hub's limit for an event is 64 KiB.
const MAX_JSON: usize = 60 << 10;
/// The hub's limit for an artifact.
const MAX_ARTIFACT: usize = 1 << 20;
/// The hub's limit for usage.
const MAX_USAGE: usize = 16 << 10;
/// The overhead of an item besides its text.
const OVERHEAD: usize = 64;
const PROGRESS_CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a question waits for earlier items to be sent.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(1);
/// How long progress can delay the result.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(1800);
/// The same with an artifact: up to 1 MiB, over any connection.
const ARTIFACT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a reachable hub can accept nothing before the remaining progress, and then the artifacts, are discarded so
/// that the result can be reported.
const PROGRESS_STALL_TIMEOUT: Duration = Duration::from_secs(12);
const ARTIFACT_STALL_TIMEOUT: Duration = Duration::from_secs(90);
/// How long progress can delay the result if the hub keeps accepting items.
const TOTAL_DRAIN_TIMEOUT: Duration = Duration::from_secs(120);

// === impl ProgressItem ===

impl ProgressItem {
    /// Reads an event of the adapter's stream. `None` if the runtime doesn't relay its kind.
    pub(crate) fn read(name: &str, data: &str) -> Option<Self> {
        match name {
            event::PROGRESS => {
                let adapter::AdapterProgress { message, percent, usage } = serde_json::from_str(data).ok()?;
                let message = message.map(|message| cut(message).remove(0));
                let percent = percent.map(|percent| percent.clamp(0.0, 100.0));
                match (message, percent, usage.filter(countable)) {
                    (None, None, Some(usage)) => Some(Self::Usage(usage)),
                    (message, percent, usage) => Some(Self::Progress { message, percent, usage }),
                }
            }
            event::CHUNK => text(data).map(Self::Chunk),
            event::THOUGHT => text(data).map(Self::Thought),
            event::LOG => Some(Self::Log(relayed(data, &['{', '"'], MAX_JSON)?)),
            event::TOOL_CALL => match relayed(data, &['{'], MAX_JSON) {
                Some(call) => Some(Self::ToolCall(call)),
                None => Some(Self::Log(Json::of(&format!("a tool call of {} bytes can't be shown", data.len())))),
            },
            event::ARTIFACT => match artifact(data) {
                Ok(artifact) => Some(Self::Artifact(artifact)),
                Err(why) => {
                    let message = format!("an artifact of {} bytes can't be shown: {why}", data.len());
                    Some(Self::Log(Json::of(&adapter::AdapterLogLine::new("warning", message))))
                }
            },
            _ => None,
        }
    }

    /// The usage that this item reports, if any.
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

    /// Its size in the backlog.
    pub(crate) fn cost(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Progress { message, .. } => message.as_ref().map_or(0, String::len),
                Self::Chunk(text) | Self::Thought(text) => text.len(),
                Self::Log(json) | Self::ToolCall(json) | Self::Artifact(json) | Self::Usage(json) => json.get().len(),
            }
    }

    /// Splits a long text between characters.
    fn split(self) -> Vec<Self> {
        match self {
            Self::Chunk(text) => cut(text).into_iter().map(Self::Chunk).collect(),
            Self::Thought(text) => cut(text).into_iter().map(Self::Thought).collect(),
            other => vec![other],
        }
    }
}

/// Whether the hub would accept this usage. Otherwise it is omitted, so that it doesn't hold up anything else.
pub(crate) fn countable(usage: &Json) -> bool {
    usage.get().len() <= MAX_USAGE && ReportedUsage::read(usage).is_ok()
}

fn text(data: &str) -> Option<String> {
    match serde_json::from_str(data).ok()? {
        TextPayload::Object { text } | TextPayload::Plain(text) => Some(text),
    }
}

/// JSON that the hub accepts as one event: of the right kind, neither too large nor too deep.
fn relayed(data: &str, starts: &[char], largest: usize) -> Option<Json> {
    let fits = data.starts_with(starts) && data.len() <= largest && json::depth(data.as_bytes()) < json::MAX_DEPTH;
    if fits { Json::from_text(data).ok() } else { None }
}

/// An artifact that the hub accepts, verbatim.
fn artifact(data: &str) -> Result<Json, String> {
    let change: adapter::ArtifactChange = serde_json::from_str(data).map_err(|error| json::explain(&error))?;
    if change.parts.is_empty() {
        return Err("it has no parts".to_owned());
    }
    relayed(data, &['{'], MAX_ARTIFACT).ok_or_else(|| "it is too large or nests too deep".to_owned())
}

fn cut(mut text: String) -> Vec<String> {
    let mut parts = Vec::new();
    while text.len() > MAX_TEXT {
        let rest = text.split_off(text.floor_char_boundary(MAX_TEXT));
        parts.push(std::mem::replace(&mut text, rest));
    }
    parts.push(text);
    parts
}

// === impl ProgressReporter ===

impl ProgressReporter {
    /// Numbers the reports of the claim after `report`.
    pub(crate) fn start(claimant: ClaimContext, report: i64) -> Self {
        let untold = PendingProgress { claimant, backlog: Arc::new(Backlog::after(report)) };
        let teller = untold.clone();
        Self { pending: untold, task: AbortOnDropHandle::new(tokio::spawn(async move { teller.send_all().await })) }
    }

    pub(crate) fn push(&self, piece: ProgressItem) {
        self.sender().push(piece);
    }

    /// A handle to add items.
    pub(crate) fn sender(&self) -> ProgressSender {
        ProgressSender(self.pending.backlog.clone())
    }

    /// Waits briefly until everything is sent. Returns what the hub has not received, to be sent before the result.
    pub(crate) async fn finish(mut self) -> Option<PendingProgress> {
        let (backlog, link) = (&self.pending.backlog, &self.pending.claimant.link);
        backlog.close();
        if !link.is_away() && timeout(DRAIN_TIMEOUT, &mut self.task).await.is_ok() {
            return None;
        }
        self.task.abort();
        // Two senders at once would send things twice.
        let _ = (&mut self.task).await;
        Some(self.pending)
    }
}

// === impl ProgressSender ===

impl ProgressSender {
    /// Waits briefly until the hub has received everything pushed so far.
    pub(crate) async fn caught_up(&self) {
        self.0.caught_up(CATCH_UP_TIMEOUT).await;
    }

    /// Pushes the total usage of the run, if the agent reported it.
    pub(crate) fn push_usage(&self, usage: Option<Json>) {
        if let Some(usage) = usage {
            self.push(ProgressItem::Usage(usage));
        }
    }

    pub(crate) fn push(&self, piece: ProgressItem) {
        for piece in piece.split() {
            if !matches!(&piece, ProgressItem::Chunk(text) | ProgressItem::Thought(text) if text.is_empty()) {
                self.0.push(piece);
            }
        }
    }
}

// === impl PendingProgress ===

impl PendingProgress {
    /// Sends items until no more will follow, however long the hub is away.
    async fn send_all(&self) {
        let Self { claimant, backlog } = self;
        let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));
        let mut returns = claimant.link.hub_back();
        while let Some(call) = backlog.next(claimant.epoch).await {
            match claimant.send(&call).await {
                SendOutcome::Settled => {
                    backlog.mark_sent();
                    backoff.reset();
                }
                SendOutcome::Full => backlog.fill_up(),
                SendOutcome::NotNow => tokio::select! {
                    () = tokio::time::sleep(backoff.next(&claimant.env)) => {}
                    Ok(()) = returns.changed() => {}
                },
            }
        }
    }

    /// Sends the rest, but not for long: the result is due. Returns whether the result can follow now. It can't while
    /// the hub is away, because it would overtake the progress.
    pub(crate) async fn drain(&self) -> bool {
        let Self { claimant, backlog } = self;
        let end = Instant::now() + DRAIN_TIMEOUT;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));
        while let Some(call) = backlog.next(claimant.epoch).await {
            let sent = if call.artifact.is_some() {
                // An interrupted upload would start from the first byte again.
                claimant.send(&call).await
            } else {
                timeout_at(end, claimant.send(&call)).await.unwrap_or(SendOutcome::NotNow)
            };
            match sent {
                SendOutcome::Settled => backlog.mark_sent(),
                SendOutcome::Full => backlog.fill_up(),
                SendOutcome::NotNow => tokio::time::sleep(backoff.next(&claimant.env)).await,
            }
            if Instant::now() >= end {
                self.discard_if_stalled();
                return false;
            }
        }
        true
    }

    /// The hub has just accepted some of it.
    pub(crate) fn is_moving(&self) -> bool {
        let (_, quiet) = self.backlog.drain_times();
        quiet < DRAIN_TIMEOUT
    }

    /// Discards what a reachable hub doesn't accept. The notice of missing items is still sent, however long that
    /// takes.
    fn discard_if_stalled(&self) {
        let Self { claimant, backlog } = self;
        let (all, quiet) = backlog.drain_times();
        let loss = if claimant.link.is_away() {
            return backlog.restart_drain_timer();
        } else if quiet >= ARTIFACT_STALL_TIMEOUT {
            DiscardScope::Everything
        } else if quiet >= PROGRESS_STALL_TIMEOUT || all >= TOTAL_DRAIN_TIMEOUT {
            DiscardScope::Progress
        } else {
            return;
        };
        tracing::warn!(run.id = %claimant.run, ?loss, "the hub is too slow; discarding progress before the result");
        backlog.abandon(loss);
    }
}

// === impl ClaimContext ===

impl ClaimContext {
    /// Items that the hub refuses are lost. Only a lost claim matters.
    async fn send(&self, request: &ProgressRequest) -> SendOutcome {
        let time = if request.artifact.is_some() { ARTIFACT_TIMEOUT } else { PROGRESS_CALL_TIMEOUT };
        match timeout(time, self.transport.progress(self.run, request)).await {
            Ok(Ok(answer)) => {
                self.link.hub_answered();
                if answer.is_some_and(|answer| answer.status.is_terminal()) {
                    self.stop.set("the run has ended at the hub");
                }
                SendOutcome::Settled
            }
            Ok(Err(error)) if crate::report::is_final(&error) => {
                self.stop.set(error.to_string());
                SendOutcome::Settled
            }
            Ok(Err(error)) if error.code() == Some(Code::LogFull) => {
                tracing::warn!(run.id = %self.run, "the log of the run is full; only its end is still reported");
                SendOutcome::Full
            }
            Ok(Err(error)) => {
                tracing::debug!(run.id = %self.run, %error, "failed to send progress");
                if error.is_passing() || error.is_denied() {
                    self.link.failed(&error);
                }
                if error.is_passing() { SendOutcome::NotNow } else { SendOutcome::Settled }
            }
            Err(_) => {
                tracing::debug!(run.id = %self.run, "timed out sending progress");
                SendOutcome::NotNow
            }
        }
    }
}

// === impl DeliveredProgress ===

impl DeliveredProgress {
    /// Reads the run's stream at the hub, starting with the claim.
    pub(crate) async fn read(hub: &HubClient, run: RunId) -> Result<Self, attache_client::Error> {
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

    /// The part of a replayed item that the hub doesn't have yet.
    pub(crate) fn without(&mut self, piece: ProgressItem) -> Option<ProgressItem> {
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
            ProgressItem::Progress { .. } => one(&mut self.progress, piece),
            ProgressItem::Log(_) => one(&mut self.log, piece),
            ProgressItem::ToolCall(_) => one(&mut self.tool_call, piece),
            ProgressItem::Artifact(_) => one(&mut self.artifact, piece),
            ProgressItem::Usage(_) => Some(piece),
            ProgressItem::Chunk(text) => some(&mut self.chunk, text).map(ProgressItem::Chunk),
            ProgressItem::Thought(text) => some(&mut self.thought, text).map(ProgressItem::Thought),
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
    fn only_items_that_the_hub_accepts_are_read() {
        assert_eq!(ProgressItem::read("permission", "{}"), None);
        assert_eq!(ProgressItem::read("chunk", "not json"), None);
        assert_eq!(ProgressItem::read("log", "17"), None);
        let deep = format!("{}{}", r#"{"a":"#.repeat(100), "}".repeat(100));
        let refused = ProgressItem::Log(Json::of("a tool call of 600 bytes can't be shown"));
        assert_eq!(ProgressItem::read("tool_call", &deep), Some(refused));
        assert_eq!(
            ProgressItem::read("progress", r#"{"percent":250}"#),
            Some(ProgressItem::Progress { message: None, percent: Some(100.0), usage: None })
        );
        let usage = r#"{"tokens":7,"model":"x"}"#;
        let read = |data: &str| ProgressItem::read("progress", &format!(r#"{{{data}"usage":{usage}}}"#));
        assert_eq!(read(""), Some(ProgressItem::Usage(raw(usage))));
        let message = Some("m".to_owned());
        let both = ProgressItem::Progress { message: message.clone(), percent: None, usage: Some(raw(usage)) };
        assert_eq!(read(r#""message":"m","#), Some(both));
        let strange = ProgressItem::Progress { message, percent: None, usage: None };
        assert_eq!(ProgressItem::read("progress", r#"{"message":"m","usage":{"tokens":-1}}"#), Some(strange));
    }

    #[test]
    fn long_texts_are_split_between_characters() {
        let parts = cut("é".repeat(MAX_TEXT));
        assert_eq!(parts.iter().map(String::len).collect::<Vec<_>>(), [MAX_TEXT, MAX_TEXT]);
        assert_eq!(parts.concat(), "é".repeat(MAX_TEXT));
    }

    #[test]
    fn a_replay_sends_only_what_is_new() {
        let at = attache_protocol::Timestamp::default();
        let event = |kind: &str, data: &str| Event { seq: 1, kind: kind.to_owned(), at, data: raw(data) };
        let mut known = DeliveredProgress::default();
        for event in [
            event("task.chunk", r#"{"text":"of the claim before"}"#),
            event("task.claimed", "{}"),
            event("task.chunk", r#"{"text":"abc"}"#),
            event("task.log", "{}"),
        ] {
            known.count(&event);
        }
        let replay = [
            ProgressItem::Chunk("ab".into()),
            ProgressItem::Log(raw("1")),
            ProgressItem::Chunk("cde".into()),
            ProgressItem::Log(raw("2")),
            ProgressItem::Chunk("f".into()),
        ];
        let told: Vec<ProgressItem> = replay.into_iter().filter_map(|piece| known.without(piece)).collect();
        assert_eq!(
            told,
            [ProgressItem::Chunk("de".into()), ProgressItem::Log(raw("2")), ProgressItem::Chunk("f".into())]
        );
    }
}
