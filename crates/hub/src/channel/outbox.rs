//! Drains the outbox: reads pending frames, claims against credits, turns events of followed runs into frames, and
//! returns one text at a time, so that a slow peer doesn't grow memory.

use std::time::Duration;

use attache_protocol::{
    EventKind, Json, RunId,
    wire::{
        envelope::{FrameType, MAX_FRAME},
        event::SeqRange,
    },
};
use attache_store::record::channel::{FollowRecord, OutboxFrame};
use tokio::time::Instant;

use super::{
    frame_text::{self, FrameAddress, PendingRequest, PendingRequestKind},
    response::{FrameDraft, object},
    session::{ChannelDialect, ChannelSession, SessionEnd},
};
use crate::{bus::Topic, error::about, start_secrets::InputRecipient};

/// How many references are read at once. Their texts are rendered in smaller groups.
const BATCH: usize = 32;
/// Events become frames only while fewer than this are unsent. The run's own stream keeps the rest.
const MAX_UNSENT_FRAMES: i64 = 256;
/// The delay after a failed store call.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A text for the peer.
#[derive(Debug)]
pub(crate) struct OutgoingFrame {
    /// The frame's position in the outbox. `None` if it is not durable.
    pub(crate) seq: Option<i64>,
    pub(crate) text: String,
    /// Set on the last frame of a followed run.
    pub(crate) ends: Option<RunId>,
}

/// A run the peer follows.
#[derive(Debug, Clone)]
pub(super) struct FollowedRun {
    pub(super) run: RunId,
    /// The request that created it.
    pub(super) message: String,
    /// The run's newest event sent over this connection.
    told: Option<i64>,
}

// === impl FollowedRun ===

impl FollowedRun {
    pub(super) fn new(follow: FollowRecord) -> Self {
        // Nothing was pushed yet: the first event is next.
        let told = (follow.pushed == 0).then_some(0);
        Self { run: follow.run, message: follow.message, told }
    }
}

// === impl ChannelSession ===

impl ChannelSession {
    /// The next text for the peer, if any.
    pub(crate) async fn next_frame(&mut self) -> Option<OutgoingFrame> {
        loop {
            if !self.is_credential_valid() {
                return None;
            }
            if let Some(outgoing) = self.ready.pop_front() {
                if let (Some(seq), Some(open)) = (outgoing.seq, &mut self.open) {
                    open.sent = open.sent.max(seq);
                }
                return Some(outgoing);
            }
            if let Some(notice) = self.acknowledgement() {
                return Some(notice);
            }
            let open = self.open.as_mut()?;
            let waits = open.head.max(open.sent) - open.sent;
            // Deliver what was claimed before claiming more.
            if open.look {
                self.look().await;
            } else if open.claim && open.credits > 0 && !self.hub.is_draining() {
                self.claim().await;
            } else if !open.moved.is_empty() && waits < MAX_UNSENT_FRAMES {
                self.push().await;
            } else {
                return None;
            }
        }
    }

    /// The peer already has the frames up to this one. They are not acknowledged, so they can be read again.
    pub(crate) fn skip_to(&mut self, seq: i64) {
        if let Some(open) = &mut self.open {
            open.sent = open.sent.max(seq.min(open.head));
        }
    }

    /// Whether the run has ended and all of it was sent.
    pub(crate) async fn has_sent_end(&self, run: RunId) -> bool {
        let Some(open) = &self.open else { return false };
        let store = self.hub.store();
        let ended = store.run(open.tenant, run).await.is_ok_and(|run| run.state.status().is_terminal());
        ended
            && store.follows(open.channel).await.is_ok_and(|follows| follows.iter().all(|follow| follow.run != run))
            && store.frames(open.channel, open.sent, 1).await.is_ok_and(|frames| frames.frames.is_empty())
    }

    /// Acknowledges received frames to a peer that numbers them.
    fn acknowledgement(&mut self) -> Option<OutgoingFrame> {
        let open = self.open.as_mut().filter(|open| open.told < open.heard)?;
        open.told = open.heard;
        let payload = object("ack", &[("seq", &open.heard.to_string())]);
        let text = FrameDraft::new(FrameType::Notification, &open.peer, payload).text(&self.hub);
        Some(OutgoingFrame { seq: None, text, ends: None })
    }

    /// Tells a device that decisions about worktrees wait for it. Not durable: the device's next heartbeat says it, too.
    pub(super) async fn announce_worktrees(&mut self) {
        let Some(open) = self.open.as_ref().filter(|_| self.origin.dialect == ChannelDialect::Envelope) else { return };
        let Some((_, agent)) = open.worker else { return };
        match self.hub.has_pending_worktrees(agent).await {
            Ok(true) => {
                let payload = object("worktree_decisions", &[]);
                let text = FrameDraft::new(FrameType::Notification, &open.peer, payload).text(&self.hub);
                self.ready.push_back(OutgoingFrame { seq: None, text, ends: None });
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(channel.id = %open.channel, %error, "decisions about worktrees could not be read");
            }
        }
    }

    /// The frame was written. For a peer that can't acknowledge, that counts as received.
    pub(crate) fn written(&mut self, seq: Option<i64>) {
        if self.origin.dialect == ChannelDialect::Plain
            && let Some(seq) = seq
        {
            let _ = self.acknowledged(seq);
        }
    }

    async fn claim(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        open.claim = false;
        let Some((runtime, agent)) = open.worker else { return };
        match self.hub.claim_next(runtime, Some(open.connection()), &open.enforces).await {
            Ok(Some(claimed)) => {
                open.fresh = Some(Box::new(claimed));
                open.credits -= 1;
                open.claim = true;
                open.look = true;
                let spent = open.credits == 0;
                self.hub.metrics().runs_claimed.add(1);
                if spent {
                    self.bell.remove_topic(Topic::Queue(agent));
                }
            }
            Ok(None) => {}
            // The store no longer shows the channel as connected: it was taken over.
            Err(attache_store::Error::NotFound) => open.look = true,
            Err(error) => {
                tracing::debug!(channel.id = %open.channel, %error, "a claim failed");
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
    }

    /// Turns the newest events of a followed run into frames.
    async fn push(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        let Some(run) = open.moved.last().copied() else { return };
        let limit = usize::try_from(MAX_UNSENT_FRAMES).unwrap_or(BATCH);
        let pushed = self.hub.store().push_events(open.connection(), run, i64::MAX, limit).await;
        open.moved.retain(|moved| *moved != run);
        match pushed {
            Ok(_) => open.look = true,
            // Another channel follows it now, or another connection has this channel.
            Err(attache_store::Error::NotFound) => {
                self.unfollow(run);
                self.check_ownership().await;
            }
            Err(error) => {
                tracing::debug!(run.id = %run, %error, "events could not be pushed");
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
            }
        }
    }

    fn unfollow(&mut self, run: RunId) {
        self.bell.remove_topic(Topic::Run(run));
        if let Some(open) = &mut self.open {
            open.follows.retain(|follow| follow.run != run);
            open.moved.retain(|moved| *moved != run);
        }
    }

    /// Reads the outbox and renders its first frames.
    async fn look(&mut self) {
        let Some(open) = self.open.as_mut() else { return };
        let (channel, sent) = (open.channel, open.sent);
        let frames = match self.hub.store().frames(channel, sent, BATCH).await {
            Ok(frames) => frames,
            Err(error) => {
                tracing::debug!(channel.id = %channel, %error, "the outbox could not be read");
                open.look = false;
                self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
                return;
            }
        };
        let Some(open) = self.open.as_mut() else { return };
        open.head = frames.head;
        // Frames dropped before they could be sent. The runs' own seqs show what is missing.
        open.sent = open.sent.max(frames.floor.min(frames.head));
        let Some((_, first)) = frames.frames.first() else {
            open.look = false;
            self.check_ownership().await;
            return;
        };
        let all = frames.frames.len();
        let mut taken = 1;
        let made = match *first {
            OutboxFrame::Event { run, seq } => {
                let group = frames
                    .frames
                    .iter()
                    .zip(seq..)
                    .take_while(|((_, frame), seq)| *frame == OutboxFrame::Event { run, seq: *seq });
                let places: Vec<i64> = group.map(|((place, _), _)| *place).collect();
                taken = places.len();
                self.make_events(run, seq, &places).await
            }
            frame => self.make_frame(frames.frames[0].0, frame).await,
        };
        if let Err(error) = &made {
            tracing::debug!(channel.id = %channel, %error, "a frame could not be made");
            self.retry_at = Some(Instant::now() + RETRY_INTERVAL);
        }
        // Anything after this read wakes the session.
        if let Some(open) = self.open.as_mut()
            && (made.is_err() || taken == all && all < BATCH)
        {
            open.look = false;
        }
    }

    /// Checks whether another connection or a newer channel replaced this one.
    async fn check_ownership(&mut self) {
        let Some(open) = &self.open else { return };
        match self.hub.store().channel(open.tenant, open.channel).await {
            Ok(channel) if channel.connected && channel.resume == Some(open.token) => {}
            Ok(_) | Err(attache_store::Error::NotFound) => self.end(SessionEnd::Superseded),
            Err(error) => tracing::debug!(channel.id = %open.channel, %error, "a channel could not be read"),
        }
    }

    async fn make_frame(&mut self, seq: i64, frame: OutboxFrame) -> crate::Result<()> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let to = FrameAddress { tenant: open.tenant, channel: open.channel, peer: &open.peer, seq };
        let text = match self.origin.dialect {
            ChannelDialect::Envelope => frame_text::frame(&self.hub, to, frame, open.fresh.take()).await.map(Some),
            ChannelDialect::Plain => super::plain::frame(&self.hub, to, frame, open.fresh.take()).await,
        };
        let text = match text {
            Ok(Some(text)) => text,
            // Nothing to send: skip this position in the outbox.
            Ok(None) => {
                open.sent = open.sent.max(seq);
                self.written(Some(seq));
                return Ok(());
            }
            // What it reported is gone for good. Fill the position in the outbox.
            Err(error) if error.code.http_status() < 500 => {
                let payload = object("nothing", &[]);
                let draft =
                    FrameDraft { seq: Some(seq), ..FrameDraft::new(FrameType::Notification, &open.peer, payload) };
                draft.text(&self.hub)
            }
            Err(error) => return Err(error),
        };
        if let (ChannelDialect::Plain, OutboxFrame::Execute { run, epoch }) = (self.origin.dialect, frame) {
            open.epochs.retain(|(known, _)| *known != run);
            open.epochs.push((run, epoch));
        }
        self.ready.push_back(OutgoingFrame { seq: Some(seq), text, ends: None });
        Ok(())
    }

    /// The texts of a run's consecutive events, read in one go.
    async fn make_events(&mut self, run: RunId, first: i64, places: &[i64]) -> crate::Result<()> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let store = self.hub.store();
        let mut read = store.run_events(open.tenant, run, first - 1, places.len()).await.map_err(about("run"))?;
        // A page may be too small for all of them, by size.
        while let Some(reached) = read.events.last().map(|event| event.seq)
            && read.events.len() < places.len()
            && reached < read.last_seq
        {
            let more = store.run_events(open.tenant, run, reached, places.len() - read.events.len()).await;
            let more = more.map_err(about("run"))?.events;
            if more.is_empty() {
                break;
            }
            read.events.extend(more);
        }
        let follow = match open.follows.iter_mut().find(|follow| follow.run == run) {
            Some(follow) => follow,
            None => {
                // Its last event was pushed before this connection started.
                let follow = store.follower(run).await.map_err(about("run"))?;
                let message = follow.map(|follow| follow.message).unwrap_or_default();
                open.follows.push(FollowedRun { run, message, told: None });
                open.follows.last_mut().expect("it was just pushed")
            }
        };
        let last = first - 1 + i64::try_from(places.len()).unwrap_or(0);
        let parent = Some(follow.message.as_str()).filter(|message| !message.is_empty());
        let (hub, peer) = (&self.hub, open.peer.as_str());
        let write = |seq: Option<i64>, (kind, payload, name): (FrameType, Json, Option<String>)| {
            let msg_id = name.or_else(|| seq.map(|place| frame_text::msg_id(open.channel, place)));
            FrameDraft { msg_id, parent, seq, ..FrameDraft::new(kind, peer, payload) }.text(hub)
        };
        let tenant = open.tenant;
        let mut ended = false;
        for (place, seq) in places.iter().zip(first..) {
            let expected = follow.told.map_or(seq, |told| told + 1);
            if expected < seq {
                let text = write(None, gap(run, SeqRange { from: expected, to: seq - 1 }));
                self.ready.push_back(OutgoingFrame { seq: None, text, ends: None });
            }
            let event = read.events.iter().find(|event| event.seq == seq);
            let told = follow.told.unwrap_or(seq - 1);
            let tell = match event {
                Some(event) if frame_text::is_settled(hub, tenant, event).await? => frame_text::plain_event,
                Some(_) | None => frame_text::event,
            };
            let words = match event {
                Some(event) => tell(run, event),
                None if told < seq => gap(run, SeqRange { from: seq, to: read.floor.max(seq) }),
                // Part of a reported gap. Fill the position in the outbox.
                None => (FrameType::Notification, object("nothing", &[]), None),
            };
            let reached = if event.is_some() { seq } else { read.floor.max(seq) };
            let is_last = event.is_some() && seq == read.last_seq && read.status.is_terminal();
            let mut text = write(Some(*place), words);
            if let Some(event) = event.filter(|_| text.len() > MAX_FRAME) {
                text = write(Some(*place), frame_text::reference(run, event, tell(run, event)));
            }
            self.ready.push_back(OutgoingFrame { seq: Some(*place), text, ends: is_last.then_some(run) });
            follow.told = Some(told.max(reached));
            ended |= is_last;
        }
        if ended {
            self.unfollow(run);
        } else if last < read.last_seq && !open.moved.contains(&run) {
            // More events are pending than the window allows.
            open.moved.push(run);
        }
        Ok(())
    }

    /// Answers questions about a run that was not claimed over a channel.
    pub(super) async fn answer_pending(&mut self, run: RunId) {
        let Some(open) = &self.open else { return };
        let (tenant, worker) = (open.tenant, open.worker);
        let about_run: Vec<PendingRequest> = open.asked.iter().filter(|asked| asked.run == run).cloned().collect();
        let mut answered = Vec::new();
        for asked in &about_run {
            let payload = match asked.question {
                PendingRequestKind::Permission(permission) => {
                    match self.hub.store().permission(tenant, permission).await {
                        Ok(found) if found.settled.is_some() => frame_text::permission(&found),
                        Ok(_) | Err(_) => continue,
                    }
                }
                PendingRequestKind::Ask(ask) => match self.hub.store().worker_request(tenant, ask).await {
                    Ok(found) if found.state != attache_protocol::wire::input_request::WorkerRequestState::Pending => {
                        match worker {
                            Some((runtime, _)) => frame_text::answer(
                                &self.hub.ask_in_full(tenant, found, InputRecipient::Runtime(runtime)).await,
                            ),
                            None => frame_text::answer(&found),
                        }
                    }
                    Ok(_) | Err(_) => continue,
                },
            };
            let parent = Some(asked.request.as_str());
            let draft = FrameDraft { parent, ..FrameDraft::new(FrameType::Response, self.peer(), payload) };
            let text = draft.text(&self.hub);
            self.ready.push_back(OutgoingFrame { seq: None, text, ends: None });
            answered.push(asked.question);
        }
        let Some(open) = &mut self.open else { return };
        open.asked.retain(|asked| !answered.contains(&asked.question));
        if !open.asked.iter().any(|asked| asked.run == run) {
            self.bell.remove_topic(Topic::Asked(run));
        }
    }
}

/// A gap in a run's stream.
fn gap(run: RunId, missing: SeqRange) -> (FrameType, Json, Option<String>) {
    let members = [("task_run_id", format!("\"{run}\"")), ("missing", Json::of(&missing).get().to_owned())];
    let members: Vec<(&str, &str)> = members.iter().map(|(name, value)| (*name, value.as_str())).collect();
    (FrameType::Notification, object(EventKind::StreamGap.as_str(), &members), None)
}
