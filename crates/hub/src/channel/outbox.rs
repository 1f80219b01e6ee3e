//! Empties the outbox: looks at what waits, claims against credits, turns events of followed runs into frames, and hands out
//! one text at a time, so that a slow peer never grows memory.

use std::time::Duration;

use attache_protocol::{
    EventKind, Json, RunId,
    wire::{
        envelope::{FrameType, MAX_FRAME},
        event::SeqRange,
    },
};
use attache_store::record::channel::{FollowRecord, Frame};
use tokio::time::Instant;

use super::{
    frame_text::{self, FrameAddress, PendingRequest, PendingRequestKind},
    response::{FrameDraft, object},
    session::{ChannelDialect, ChannelSession, SessionEnd},
};
use crate::{bus::Topic, error::about, start_secrets::InputRecipient};

/// How many references are read at once; their texts are made in smaller groups.
const BATCH: usize = 32;
/// Events become frames only while fewer than this wait to be sent: the run's own stream keeps the rest.
const MAX_UNSENT_FRAMES: i64 = 256;
/// After the store failed to answer.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// A text for the peer.
#[derive(Debug)]
pub(crate) struct OutgoingFrame {
    /// The frame's place in the outbox; `None` for what need not survive.
    pub(crate) seq: Option<i64>,
    pub(crate) text: String,
    /// The last frame of a run that the peer followed.
    pub(crate) ends: Option<RunId>,
}

/// A run that the peer follows.
#[derive(Debug, Clone)]
pub(super) struct FollowedRun {
    pub(super) run: RunId,
    /// The request that made it.
    pub(super) message: String,
    /// The run's newest event that was sent over this connection.
    told: Option<i64>,
}

// === impl FollowedRun ===

impl FollowedRun {
    pub(super) fn new(follow: FollowRecord) -> Self {
        // Nothing was pushed yet: the first event is the next.
        let told = (follow.pushed == 0).then_some(0);
        Self { run: follow.run, message: follow.message, told }
    }
}

// === impl ChannelSession ===

impl ChannelSession {
    /// The next text for the peer, if there is one right now.
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
            // What was claimed is handed over before the next is claimed.
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

    /// The peer has the frames up to this one; they are not acknowledged, so they can be read again.
    pub(crate) fn skip_to(&mut self, seq: i64) {
        if let Some(open) = &mut self.open {
            open.sent = open.sent.max(seq.min(open.head));
        }
    }

    /// Whether the run has ended and nothing of it is left to send.
    pub(crate) async fn has_sent_end(&self, run: RunId) -> bool {
        let Some(open) = &self.open else { return false };
        let store = self.hub.store();
        let ended = store.run(open.tenant, run).await.is_ok_and(|run| run.state.status().is_terminal());
        ended
            && store.follows(open.channel).await.is_ok_and(|follows| follows.iter().all(|follow| follow.run != run))
            && store.frames(open.channel, open.sent, 1).await.is_ok_and(|frames| frames.frames.is_empty())
    }

    /// Tells a peer that numbers its frames how far they were heard.
    fn acknowledgement(&mut self) -> Option<OutgoingFrame> {
        let open = self.open.as_mut().filter(|open| open.told < open.heard)?;
        open.told = open.heard;
        let payload = object("ack", &[("seq", &open.heard.to_string())]);
        let text = FrameDraft::new(FrameType::Notification, &open.peer, payload).text(&self.hub);
        Some(OutgoingFrame { seq: None, text, ends: None })
    }

    /// The frame went out. A peer that cannot acknowledge has it when the connection has it.
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
        match self.hub.claim_next(runtime, Some(open.channel), &open.enforces).await {
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
            // The channel is not connected any more in the store's eyes: it was taken over.
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
        let pushed = self.hub.store().push_events(open.channel, run, i64::MAX, limit).await;
        open.moved.retain(|moved| *moved != run);
        match pushed {
            Ok(_) => open.look = true,
            // Somebody else follows it now.
            Err(attache_store::Error::NotFound) => self.unfollow(run),
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

    /// Reads what waits in the outbox and makes the texts of its first frames.
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
        // Frames that were given up before they could be sent; the runs' own numbers tell what is missing.
        open.sent = open.sent.max(frames.floor.min(frames.head));
        let Some((_, first)) = frames.frames.first() else {
            open.look = false;
            self.check_ownership().await;
            return;
        };
        let all = frames.frames.len();
        let mut taken = 1;
        let made = match *first {
            Frame::Event { run, seq } => {
                let group = frames
                    .frames
                    .iter()
                    .zip(seq..)
                    .take_while(|((_, frame), seq)| *frame == Frame::Event { run, seq: *seq });
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
        // Whatever comes after this reading rings the bell.
        if let Some(open) = self.open.as_mut()
            && (made.is_err() || taken == all && all < BATCH)
        {
            open.look = false;
        }
    }

    /// Another connection or a newer channel may have taken this one's place.
    async fn check_ownership(&mut self) {
        let Some(open) = &self.open else { return };
        match self.hub.store().channel(open.tenant, open.channel).await {
            Ok(channel) if channel.connected && channel.resume == Some(open.token) => {}
            Ok(_) | Err(attache_store::Error::NotFound) => self.end(SessionEnd::Superseded),
            Err(error) => tracing::debug!(channel.id = %open.channel, %error, "a channel could not be read"),
        }
    }

    async fn make_frame(&mut self, seq: i64, frame: Frame) -> crate::Result<()> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let to = FrameAddress { tenant: open.tenant, channel: open.channel, peer: &open.peer, seq };
        let text = match self.origin.dialect {
            ChannelDialect::Envelope => frame_text::frame(&self.hub, to, frame, open.fresh.take()).await.map(Some),
            ChannelDialect::Plain => super::plain::frame(&self.hub, to, frame, open.fresh.take()).await,
        };
        let text = match text {
            Ok(Some(text)) => text,
            // Nothing to tell: the place in the outbox is passed over.
            Ok(None) => {
                open.sent = open.sent.max(seq);
                self.written(Some(seq));
                return Ok(());
            }
            // What it told of is gone for good; the place in the outbox stays filled.
            Err(error) if error.code.http_status() < 500 => {
                let payload = object("nothing", &[]);
                let draft =
                    FrameDraft { seq: Some(seq), ..FrameDraft::new(FrameType::Notification, &open.peer, payload) };
                draft.text(&self.hub)
            }
            Err(error) => return Err(error),
        };
        if let (ChannelDialect::Plain, Frame::Execute { run, epoch }) = (self.origin.dialect, frame) {
            open.epochs.retain(|(known, _)| *known != run);
            open.epochs.push((run, epoch));
        }
        self.ready.push_back(OutgoingFrame { seq: Some(seq), text, ends: None });
        Ok(())
    }

    /// The texts of a run's consecutive events, read at once.
    async fn make_events(&mut self, run: RunId, first: i64, places: &[i64]) -> crate::Result<()> {
        let Some(open) = self.open.as_mut() else { return Ok(()) };
        let store = self.hub.store();
        let mut read = store.run_events(open.tenant, run, first - 1, places.len()).await.map_err(about("run"))?;
        // A page may weigh too much to hold all of them.
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
                // Its last event was pushed before this connection began.
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
                // It belongs to a gap that was told; the place in the outbox stays filled.
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
            // More of it waits than the window let in.
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

/// What is missing of a run's stream.
fn gap(run: RunId, missing: SeqRange) -> (FrameType, Json, Option<String>) {
    let members = [("task_run_id", format!("\"{run}\"")), ("missing", Json::of(&missing).get().to_owned())];
    let members: Vec<(&str, &str)> = members.iter().map(|(name, value)| (*name, value.as_str())).collect();
    (FrameType::Notification, object(EventKind::StreamGap.as_str(), &members), None)
}
