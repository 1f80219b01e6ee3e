//! One connection of a channel: authentication, frames, and how it ends. Independent of the transport.

use std::{collections::VecDeque, net::IpAddr, time::Duration};

use attache_protocol::{
    AgentId, ChannelId, Code, Json, RunId, RuntimeId, TenantId, json,
    secret::SecretHash,
    wire::{
        channel::Transport,
        envelope::{Action, Envelope, FrameType},
        run::SandboxLimit,
    },
};
use attache_store::{
    WriteContext,
    record::{ClaimedRunRecord, channel::ChannelConnection},
};
use tokio::time::Instant;

use super::{
    frame_text::PendingRequest,
    outbox::{FollowedRun, OutgoingFrame},
    reply_cache::{FrameRepeat, ReplyCache},
    response::{self, FrameDraft, FrameRefusal},
};
use crate::{
    Handle, Principal, PrincipalKind,
    bus::{MultiWatch, Topic},
};

/// How long a connection may stay unauthenticated.
const AUTHENTICATION_TIMEOUT: Duration = Duration::from_secs(10);

/// The peer's frame format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChannelDialect {
    Envelope,
    /// The small frames of 004.
    Plain,
}

/// How the peer reached the hub.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionOrigin {
    pub(crate) transport: Transport,
    pub(crate) dialect: ChannelDialect,
    pub(crate) address: Option<IpAddr>,
}

/// Why a session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The peer closed the connection.
    Closed,
    /// The connection broke.
    Lost,
    Silent,
    /// Replaced by a newer connection or channel.
    Superseded,
    Unauthenticated,
    Drained,
    /// The connection limit for its class is reached.
    Crowded,
    /// The only run the peer followed has ended.
    Finished,
}

#[derive(Debug)]
pub(crate) struct ChannelSession {
    pub(super) hub: Handle,
    pub(super) origin: ConnectionOrigin,
    pub(super) principal: Option<Principal>,
    pub(super) bell: MultiWatch,
    pub(super) open: Option<Box<OpenChannel>>,
    pub(super) ready: VecDeque<OutgoingFrame>,
    pub(super) replies: ReplyCache,
    began_at: Instant,
    heard_at: Instant,
    /// When the peer was first pinged since then, or since the hub stalled.
    asked_at: Option<Instant>,
    ticked_at: Instant,
    /// When to retry after a store failure.
    pub(super) retry_at: Option<Instant>,
    pub(super) attempts: u8,
    /// Why the peer lost access, and until when it may still ask.
    pub(super) unwelcome: Option<(FrameRefusal, Instant)>,
    ending: Option<SessionEnd>,
}

/// The state of a peer with a channel.
#[derive(Debug)]
pub(super) struct OpenChannel {
    pub(super) channel: ChannelId,
    pub(super) tenant: TenantId,
    /// The peer's name in frames.
    pub(super) peer: String,
    /// Set for a worker channel.
    pub(super) worker: Option<(RuntimeId, AgentId)>,
    /// The hash of the resume token issued by this connection. A different one in the store means the channel was taken
    /// over.
    pub(super) token: SecretHash,
    pub(super) number: u64,
    pub(super) credits: u32,
    /// The run limits the worker enforces.
    pub(super) enforces: Vec<SandboxLimit>,
    /// The newest frame given to the connection.
    pub(super) sent: i64,
    /// The newest frame in the outbox, as far as known.
    pub(super) head: i64,
    /// What the peer has acknowledged, and how much of it is stored.
    pub(super) acked: i64,
    pub(super) stored: i64,
    pub(super) store_due: Option<Instant>,
    /// The newest seq received from a peer that numbers its frames, and how much of it was acknowledged.
    pub(super) heard: i64,
    pub(super) told: i64,
    /// Whether to check the outbox, and the agent's queue.
    pub(super) look: bool,
    pub(super) claim: bool,
    /// A claim just made, so that its frame doesn't have to read it again.
    pub(super) fresh: Option<Box<ClaimedRunRecord>>,
    /// Followed runs with new events.
    pub(super) moved: Vec<RunId>,
    pub(super) follows: Vec<FollowedRun>,
    /// Questions about runs that were not claimed over a channel, so that no frame delivers their answers.
    pub(super) asked: Vec<PendingRequest>,
    /// For plain frames, which carry no epoch: the epoch of each task.
    pub(super) epochs: Vec<(RunId, i64)>,
    pub(super) messages: (Option<Instant>, u32),
}

/// The result of an action.
#[derive(Debug)]
pub(super) enum ActionReply {
    /// The response payload.
    Now(Json),
    /// The response follows as an outbox frame.
    Later,
}

// === impl OpenChannel ===

impl OpenChannel {
    pub(super) const fn connection(&self) -> ChannelConnection {
        ChannelConnection { channel: self.channel, resume: self.token }
    }
}

// === impl ChannelSession ===

impl ChannelSession {
    pub(crate) fn new(hub: Handle, origin: ConnectionOrigin, principal: Option<Principal>) -> Self {
        let now = Instant::now();
        let mut session = Self {
            bell: MultiWatch::new(hub.bus()),
            hub,
            origin,
            principal: None,
            open: None,
            ready: VecDeque::new(),
            replies: ReplyCache::default(),
            began_at: now,
            heard_at: now,
            asked_at: None,
            ticked_at: now,
            retry_at: None,
            attempts: 0,
            unwelcome: None,
            ending: None,
        };
        if let Some(principal) = principal {
            session.bind(principal);
        }
        session
    }

    /// The principal, once authenticated.
    pub(crate) const fn principal(&self) -> Option<&Principal> {
        self.principal.as_ref()
    }

    pub(crate) const fn dialect(&self) -> ChannelDialect {
        self.origin.dialect
    }

    pub(crate) fn channel(&self) -> Option<ChannelId> {
        self.open.as_ref().map(|open| open.channel)
    }

    pub(crate) fn connection(&self) -> Option<ChannelConnection> {
        self.open.as_ref().map(|open| open.connection())
    }

    /// Handles a single frame as a request, whatever its type.
    pub(crate) async fn settle(&mut self, by: &Principal, text: &str) -> Result<Option<String>, FrameRefusal> {
        let envelope = Envelope::parse(text)?;
        let action = Action::read(&envelope)?;
        match self.act(by, &envelope, action).await? {
            ActionReply::Now(payload) => Ok(Some(response::yes_text(&self.hub, &envelope.header.msg_id, payload))),
            ActionReply::Later => {
                let payload = response::done(envelope.action().as_deref());
                Ok(Some(response::yes_text(&self.hub, &envelope.header.msg_id, payload)))
            }
        }
    }

    /// The frame that announces that the hub is about to stop.
    pub(crate) fn drain_frame(&self) -> Option<String> {
        let open = self.open.as_ref()?;
        match self.origin.dialect {
            ChannelDialect::Envelope => {
                let payload = response::object("drain", &[]);
                Some(FrameDraft::new(FrameType::Notification, &open.peer, payload).text(&self.hub))
            }
            ChannelDialect::Plain => None,
        }
    }

    pub(crate) const fn ending(&self) -> Option<SessionEnd> {
        self.ending
    }

    pub(crate) const fn end(&mut self, ending: SessionEnd) {
        if self.ending.is_none() {
            self.ending = Some(ending);
        }
    }

    /// The peer must send something this often, and is pinged as often.
    pub(super) fn heartbeat(&self) -> Duration {
        (self.hub.options().heartbeat_timeout / 4).min(Duration::from_secs(30))
    }

    /// The peer gave a sign of life.
    pub(crate) fn mark_seen(&mut self) {
        self.heard_at = Instant::now();
        self.asked_at = None;
        if let Some(open) = &self.open {
            self.hub.live_channels().mark_seen(open.connection());
        }
    }

    /// Handles one frame from the peer. Returns the immediate reply.
    pub(crate) async fn receive(&mut self, text: &str) -> Option<String> {
        self.mark_seen();
        let replaced = json::replace_lone_surrogates(text.as_bytes());
        let text = std::str::from_utf8(&replaced).unwrap_or(text);
        match self.origin.dialect {
            ChannelDialect::Envelope => self.receive_envelope(text).await,
            ChannelDialect::Plain => self.receive_plain(text).await,
        }
    }

    async fn receive_envelope(&mut self, text: &str) -> Option<String> {
        let envelope = match Envelope::parse(text) {
            Ok(envelope) => envelope,
            Err(error) => {
                let parent = error.msg_id.clone();
                return Some(self.refuse(None, parent.as_deref(), &error.into()));
            }
        };
        let parent = Some(envelope.header.msg_id.as_str());
        let by = match self.authenticate_frame(&envelope).await {
            Ok(by) => by,
            Err(refusal) => return Some(self.refuse(envelope.action().as_deref(), parent, &refusal)),
        };
        match self.replies.find(&envelope) {
            Some(FrameRepeat::Same(reply)) => {
                let reply = (!reply.is_empty()).then(|| reply.to_owned());
                self.note_seq(&envelope);
                return reply;
            }
            Some(FrameRepeat::Reused) => {
                self.note_seq(&envelope);
                let refusal = FrameRefusal::new(Code::KeyReused, "This msg_id was already used for a different frame.");
                return Some(self.refuse(envelope.action().as_deref(), parent, &refusal));
            }
            None => {}
        }
        let action = match Action::read(&envelope) {
            Ok(action) => action,
            Err(error) => {
                self.note_seq(&envelope);
                return Some(self.refuse_and_keep(envelope.action().as_deref(), &envelope, &error.into()));
            }
        };
        let name = action.name().map(str::to_owned).or_else(|| envelope.action());
        let outcome = self.act(&by, &envelope, action).await;
        self.note_seq(&envelope);
        match outcome {
            Ok(ActionReply::Now(payload)) if envelope.header.kind == FrameType::Request => {
                let draft = FrameDraft { parent, ..FrameDraft::new(FrameType::Response, self.peer(), payload) };
                let text = draft.text(&self.hub);
                self.replies.keep(&envelope, &text);
                Some(text)
            }
            Ok(ActionReply::Now(_)) => {
                self.replies.keep(&envelope, "");
                None
            }
            Ok(ActionReply::Later) => None,
            Err(refusal) => Some(self.refuse_and_keep(name.as_deref(), &envelope, &refusal)),
        }
    }

    /// The same frame again gets the same refusal, even if it could succeed by then.
    fn refuse_and_keep(&mut self, action: Option<&str>, envelope: &Envelope, refusal: &FrameRefusal) -> String {
        let text = self.refuse(action, Some(&envelope.header.msg_id), refusal);
        if refusal.is_final() {
            self.replies.keep_refusal(envelope, &text);
        }
        text
    }

    pub(super) fn peer(&self) -> &str {
        self.open.as_ref().map_or(response::UNNAMED_PEER, |open| open.peer.as_str())
    }

    pub(super) fn refuse(&self, action: Option<&str>, parent: Option<&str>, refusal: &FrameRefusal) -> String {
        let payload = response::no(action, refusal);
        FrameDraft { parent, ..FrameDraft::new(FrameType::Response, self.peer(), payload) }.text(&self.hub)
    }

    /// A numbered frame has arrived, whatever its outcome.
    fn note_seq(&mut self, envelope: &Envelope) {
        let (Some(seq), Some(open)) = (envelope.header.seq, &mut self.open) else { return };
        if seq > open.heard {
            open.heard = seq;
        }
        // Also acknowledge a repeated frame: its acknowledgement was lost.
        open.told = open.told.min(open.heard - 1);
    }

    async fn act(&mut self, by: &Principal, envelope: &Envelope, action: Action) -> Result<ActionReply, FrameRefusal> {
        match action {
            Action::Register(register) => self.register(by, register).await,
            Action::Resume(resume) => self.resume(by, resume).await,
            // An HTTP request needs no channel.
            _ if self.open.is_none() && self.origin.transport != Transport::Sse => {
                Err(FrameRefusal::new(Code::NotRegistered, "This connection has no channel yet."))
            }
            Action::Ack(ack) => self.acknowledged(ack.seq),
            Action::Ready(ready) => self.ready(&ready),
            Action::Drain(_) => self.drain(),
            Action::Message(message) => self.message(by, message.message).await,
            Action::Chunk(chunk) => self.chunk(by, envelope, chunk).await,
            Action::Think(think) => self.think(by, envelope, think).await,
            Action::Log(log) => self.log(by, envelope, log).await,
            Action::Progress(progress) => self.progress(by, envelope, progress).await,
            Action::Extend(extend) => self.extend(by, extend).await,
            Action::Done(done) => self.done(by, done).await,
            Action::Fail(fail) => self.fail(by, fail).await,
            Action::Release(release) => self.release(by, release).await,
            Action::RequireApproval(ask) => self.require_approval(by, envelope, ask).await,
            Action::RequireInput(ask) => self.require_input(by, envelope, ask).await,
            Action::CallTool(call) => self.call_tool(by, envelope, call).await,
            Action::Execute(execute) => self.execute(by, envelope, execute).await,
            Action::Cancel(cancel) => self.cancel(by, cancel).await,
            Action::Input(input) => self.input(by, envelope, input).await,
            Action::Response(response) => self.response(by, envelope, response).await,
        }
    }

    /// When to call `tick` next.
    pub(crate) fn due(&self) -> Instant {
        let mut due = self.ticked_at + self.heartbeat();
        if self.principal.is_none() {
            due = due.min(self.began_at + AUTHENTICATION_TIMEOUT);
        }
        let open = self.open.as_ref();
        let others =
            [self.retry_at, self.unwelcome.as_ref().map(|(_, until)| *until), open.and_then(|open| open.store_due)];
        others.into_iter().flatten().fold(due, Instant::min)
    }

    /// Handles timeouts. Returns whether to ping the peer.
    pub(crate) async fn tick(&mut self) -> bool {
        let now = Instant::now();
        if self.unwelcome.as_ref().is_some_and(|(_, until)| now >= *until)
            || self.principal.is_none() && now >= self.began_at + AUTHENTICATION_TIMEOUT
        {
            self.end(SessionEnd::Unauthenticated);
            return false;
        }
        let heartbeat = self.heartbeat();
        // A late tick means that the hub stalled, so the peer's time to answer starts over.
        if now >= self.ticked_at + 2 * heartbeat {
            self.asked_at = None;
        }
        if now.duration_since(self.heard_at) >= self.hub.options().heartbeat_timeout
            && self.asked_at.is_some_and(|asked_at| now >= asked_at + heartbeat)
        {
            self.end(SessionEnd::Silent);
            return false;
        }
        if self.retry_at.is_some_and(|at| now >= at) {
            self.retry_at = None;
            self.look_again();
        }
        if self.open.as_ref().and_then(|open| open.store_due).is_some_and(|at| now >= at) {
            self.store_ack().await;
        }
        if now < self.ticked_at + heartbeat {
            return false;
        }
        self.ticked_at = now;
        self.asked_at.get_or_insert(now);
        // Hints may be lost, so everything is checked now and then.
        self.look_again();
        self.check_credential().await;
        true
    }

    pub(super) fn look_again(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.look = true;
        open.claim = true;
        open.moved = open.follows.iter().map(|follow| follow.run).collect();
    }

    /// Resolves when something changed. Safe to drop and call again.
    pub(crate) async fn moved(&self) -> Vec<Topic> {
        self.bell.moved_topics().await
    }

    pub(crate) async fn note(&mut self, moved: Vec<Topic>) {
        for topic in moved {
            match (topic, &mut self.open) {
                (Topic::Runtime(_), _) => {
                    self.check_credential().await;
                    self.announce_worktrees().await;
                }
                (Topic::Key(_), _) => self.check_credential().await,
                (Topic::Channel(_), Some(open)) => open.look = true,
                (Topic::Queue(_), Some(open)) => open.claim = true,
                (Topic::Run(run), Some(open)) if !open.moved.contains(&run) => open.moved.push(run),
                (Topic::Asked(run), Some(_)) => self.answer_pending(run).await,
                _ => {}
            }
        }
    }

    pub(super) const fn is_credential_valid(&self) -> bool {
        self.unwelcome.is_none() && self.ending.is_none()
    }

    pub(super) fn context(&self, by: &Principal) -> WriteContext {
        self.hub.context(by)
    }

    /// The connection is gone. The channel keeps its claims, frames and token.
    pub(crate) async fn close(&mut self, otherwise: SessionEnd) {
        let ending = self.ending.unwrap_or(otherwise);
        self.store_ack().await;
        let (Some(open), Some(by)) = (self.open.take(), self.principal.clone()) else { return };
        self.return_unsent(&open, &by).await;
        let is_closed = close_unless_taken_over(&self.hub, &open, &by, ending.reason()).await;
        // A device says when it shuts down, but not when it only lost its connection or has opened another.
        if is_closed
            && ending == SessionEnd::Closed
            && let PrincipalKind::Runtime { runtime, .. } = by.who
            && let Err(error) = self.hub.store().disconnect_runtime(runtime, self.hub.now()).await
        {
            tracing::debug!(runtime.id = %runtime, %error, "could not record a disconnect");
        }
    }
}

/// Closes the channel and returns true, unless another connection has taken it over.
pub(super) async fn close_unless_taken_over(hub: &Handle, open: &OpenChannel, by: &Principal, reason: &str) -> bool {
    let live = hub.live_channels();
    let _gate = live.gate(open.channel).await;
    if !live.disconnect(open.channel, open.number) {
        return false;
    }
    let context = WriteContext::new(by.tenant, by.actor(), hub.now());
    match hub.store().close_connection(context, open.connection(), reason).await {
        Ok(was_current) => was_current,
        Err(error) => {
            tracing::warn!(channel.id = %open.channel, %error, "a channel could not be closed");
            true
        }
    }
}

impl Drop for ChannelSession {
    /// A session that was dropped without closing was cut off.
    fn drop(&mut self) {
        let (Some(open), Some(by)) = (self.open.take(), self.principal.clone()) else { return };
        let (hub, ending) = (self.hub.clone(), self.ending.unwrap_or(SessionEnd::Lost));
        self.hub.tasks().spawn(async move { close_unless_taken_over(&hub, &open, &by, ending.reason()).await });
    }
}

// === impl SessionEnd ===

impl SessionEnd {
    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Lost => "connection_lost",
            Self::Silent => "heartbeat_timeout",
            Self::Superseded => "superseded",
            Self::Unauthenticated => "unauthenticated",
            Self::Drained => "hub_stopped",
            Self::Crowded => "overloaded",
            Self::Finished => "finished",
        }
    }

    /// The WebSocket close code.
    pub(crate) const fn code(self) -> u16 {
        match self {
            Self::Closed | Self::Lost | Self::Finished => 1000,
            Self::Drained => 1001,
            Self::Crowded => 1013,
            Self::Silent | Self::Unauthenticated | Self::Superseded => 1008,
        }
    }
}
