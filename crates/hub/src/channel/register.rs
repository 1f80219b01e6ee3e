//! Opens and resumes channels: `register`, `resume`, acknowledgements, and messages about the channel itself.

use std::time::Duration;

use attache_protocol::{
    Actor, ChannelId, Code, Json, Secret,
    rules::run::RunStatus,
    secret::{Kind, SecretHash},
    wire::{
        channel::PeerRole,
        envelope::{FrameToken, Register, RegisterResponse, Resume, ResumeRepair, ResumeResponse},
    },
};
use attache_store::record::{
    Pagination, RunFilter,
    channel::{self, NewChannel},
};
use tokio::time::Instant;

use super::{
    outbox::FollowedRun,
    response::{FrameRefusal, yes},
    session::{ActionReply, ChannelDialect, ChannelSession, OpenChannel, SessionEnd, close_unless_taken_over},
};
use crate::{
    Error, Principal,
    bus::Topic,
    check,
    identity::{Action, PrincipalKind},
    render,
};

const MAX_DEVICE: usize = 16 * 1024;
const MAX_CAPABILITIES: usize = 64;
const MAX_RUNNING: usize = 1000;
const MAX_MESSAGE: usize = 4 * 1024;
/// Messages per peer and minute.
const MESSAGES: (u32, Duration) = (30, Duration::from_secs(60));
/// Acknowledgements are written with this delay, so that many become one write.
const STORE_DELAY: Duration = Duration::from_millis(50);
const MAX_SNAPSHOT: usize = 100;

// === impl ChannelSession ===

impl ChannelSession {
    pub(super) async fn register(&mut self, by: &Principal, request: Register) -> Result<ActionReply, FrameRefusal> {
        let token = Kind::Resume.generate(self.hub.env());
        let id = self.hub.env().channel_id();
        let channel = self.open_channel(by, id, request, token.hash()).await?;
        let registered = RegisterResponse {
            agent_id: channel.agent,
            channel_id: channel.id,
            resume_token: FrameToken(token),
            heartbeat_ms: u64::try_from(self.heartbeat().as_millis()).unwrap_or(u64::MAX),
        };
        Ok(ActionReply::Now(yes("register", &Json::of(&registered))))
    }

    /// Opens a channel with an id chosen by the caller.
    pub(crate) async fn open_channel(
        &mut self,
        by: &Principal,
        id: ChannelId,
        request: Register,
        resume: SecretHash,
    ) -> Result<channel::ChannelRecord, FrameRefusal> {
        let (peer_role, worker) = role(by, request.peer_role)?;
        let tools = request.tools.unwrap_or_else(empty_list);
        self.hub.live_channels().check_tools(tools.clone()).await?;
        let capabilities = request.capabilities.unwrap_or_default();
        if capabilities.len() > MAX_CAPABILITIES {
            return Err(FrameRefusal::wrong("payload.capabilities", "must have at most 64 entries"));
        }
        for capability in &capabilities {
            check::token("capabilities", capability, 1..=64)?;
        }
        if let Some(device) = &request.device_info {
            check::object("device_info", device, MAX_DEVICE)?;
        }
        if request.running.as_ref().is_some_and(|running| running.len() > MAX_RUNNING) {
            return Err(FrameRefusal::wrong("payload.running", "must have at most 1000 entries"));
        }
        let extensions = request.extensions.filter(|_| worker.is_some());
        if let Some(extensions) = &extensions {
            check::extensions("extensions", extensions)?;
        }
        let new = NewChannel {
            id,
            node: self.hub.node(),
            transport: self.origin.transport,
            peer_role,
            account_ref: account_ref(by),
            runtime: worker.map(|(runtime, _)| runtime),
            capabilities: Json::of(&capabilities),
            native_protocol: Some(self.origin.dialect.protocol().to_owned()),
            tools,
            device_info: request.device_info,
            address: self.origin.address.map(|address| address.to_string()),
            resume,
            running: request.running.filter(|_| worker.is_some()),
        };
        let live = self.hub.live_channels();
        let gate = live.gate(id).await;
        let opened = self.hub.store().open_channel(self.context(by), new).await;
        let channel = opened.map_err(|error| Error::from_store("tenant", error))?;
        let number = live.number();
        live.connect(id, number);
        drop(gate);
        if let (Some((runtime, _)), Some(extensions)) = (worker, extensions) {
            self.hub.declare_extensions(runtime, &extensions).await?;
        }
        self.leave_other(by, id).await;
        self.enter(by, &channel, number, resume, 0).await;
        Ok(channel)
    }

    pub(super) async fn resume(&mut self, by: &Principal, request: Resume) -> Result<ActionReply, FrameRefusal> {
        if request.last_seq < 0 {
            return Err(FrameRefusal::wrong("payload.last_seq", "must not be negative"));
        }
        let fresh = Kind::Resume.generate(self.hub.env());
        let token = SecretHash::of(request.resume_token.0.expose());
        self.check_last_seq(by, request.channel_id, token, request.last_seq).await?;
        let resumed = self.resume_channel(by, request.channel_id, token, &fresh, request.last_seq).await?;
        Ok(ActionReply::Now(yes("resume", &Json::of(&resumed))))
    }

    /// A `last_seq` beyond the newest frame is the peer's mistake, and its token stays valid. Only a peer that could
    /// resume the channel learns this.
    async fn check_last_seq(
        &self,
        by: &Principal,
        id: ChannelId,
        token: SecretHash,
        last_seq: i64,
    ) -> Result<(), FrameRefusal> {
        let Ok(channel) = self.hub.store().channel(by.tenant, id).await else { return Ok(()) };
        if channel.principal == by.actor() && channel.resume == Some(token) && last_seq > channel.head {
            return Err(FrameRefusal::wrong("payload.last_seq", "is beyond the channel's newest frame"));
        }
        Ok(())
    }

    /// Resumes a channel where its peer left it.
    pub(crate) async fn resume_channel(
        &mut self,
        by: &Principal,
        id: ChannelId,
        token: SecretHash,
        fresh: &Secret<String>,
        last_seq: i64,
    ) -> Result<ResumeResponse, FrameRefusal> {
        let resume = channel::ChannelResume {
            channel: id,
            node: self.hub.node(),
            token,
            fresh: fresh.hash(),
            last_seq,
            address: self.origin.address.map(|address| address.to_string()),
        };
        let live = self.hub.live_channels();
        let gate = live.gate(id).await;
        let resumed = self.hub.store().resume_channel(self.context(by), resume).await;
        let resumed = resumed.map_err(|error| Error::from_store("channel", error))?;
        let number = live.number();
        live.connect(id, number);
        drop(gate);
        self.leave_other(by, id).await;
        let channel = resumed.channel;
        let from = resumed.missing.map_or_else(|| last_seq.min(channel.head), |(_, to)| to);
        self.enter(by, &channel, number, fresh.hash(), from).await;
        let snapshot = match resumed.missing {
            Some(_) => Some(self.snapshot(channel).await?),
            None => None,
        };
        Ok(ResumeResponse {
            resume_token: FrameToken(fresh.clone()),
            resumed_from: from,
            repaired: resumed.missing.map(|(from, to)| ResumeRepair { from, to }),
            snapshot,
            heartbeat_ms: u64::try_from(self.heartbeat().as_millis()).unwrap_or(u64::MAX),
        })
    }

    /// A connection has one channel: the previous one counts as disconnected.
    async fn leave_other(&mut self, by: &Principal, id: ChannelId) {
        if let Some(before) = self.open.take_if(|before| before.channel != id) {
            self.bell.remove_topic(Topic::Channel(before.channel));
            close_unless_taken_over(&self.hub, &before, by, "replaced").await;
        }
    }

    async fn enter(
        &mut self,
        by: &Principal,
        channel: &channel::ChannelRecord,
        number: u64,
        token: SecretHash,
        from: i64,
    ) {
        self.bell.add_topic(Topic::Channel(channel.id));
        let follows = self.hub.store().follows(channel.id).await.unwrap_or_default();
        for follow in &follows {
            self.bell.add_topic(Topic::Run(follow.run));
        }
        let worker = match (channel.runtime, by.who) {
            (Some(_), PrincipalKind::Runtime { runtime, agent, .. }) => Some((runtime, agent)),
            _ => None,
        };
        self.open = Some(Box::new(OpenChannel {
            channel: channel.id,
            tenant: channel.tenant,
            peer: peer(by),
            worker,
            token,
            number,
            credits: 0,
            enforces: Vec::new(),
            sent: from,
            head: channel.head,
            acked: from,
            stored: from,
            store_due: None,
            heard: 0,
            told: 0,
            look: true,
            claim: false,
            fresh: None,
            moved: follows.iter().map(|follow| follow.run).collect(),
            follows: follows.into_iter().map(FollowedRun::new).collect(),
            asked: Vec::new(),
            epochs: Vec::new(),
            messages: (None, 0),
        }));
        self.mark_seen();
    }

    /// The state that removed frames led to: the channel, and the runs its peer works on or follows.
    async fn snapshot(&self, channel: channel::ChannelRecord) -> Result<Json, FrameRefusal> {
        let mut runs = Vec::new();
        if let Some(agent) = channel.agent {
            let filter = RunFilter { agent: Some(agent), status: Some(RunStatus::Running), ..RunFilter::default() };
            let page = Pagination { limit: MAX_SNAPSHOT, cursor: None };
            let listed = self.hub.store().runs(channel.tenant, filter, page).await;
            let listed = listed.map_err(|error| Error::from_store("run", error))?;
            runs.extend(listed.items.into_iter().filter(|run| run.channel == Some(channel.id)));
        }
        let open = self.open.as_ref().map(|open| open.follows.as_slice()).unwrap_or_default();
        for follow in open.iter().take(MAX_SNAPSHOT) {
            let run = self.hub.store().run(channel.tenant, follow.run).await;
            runs.push(run.map_err(|error| Error::from_store("run", error))?);
        }
        let runs = self.hub.show_runs(runs).await?;
        let channel = Json::of(&render::channel(channel));
        let text = format!(r#"{{"channel":{},"task_runs":{}}}"#, channel.get(), Json::of(&runs).get());
        Json::from_text(text).map_err(|error| Error::internal(&error).into())
    }

    /// The peer has received everything up to the seq.
    pub(super) fn acknowledged(&mut self, seq: i64) -> Result<ActionReply, FrameRefusal> {
        let Some(open) = &mut self.open else { return Ok(ActionReply::Later) };
        if seq < 0 || seq > open.sent {
            return Err(FrameRefusal::wrong("payload.seq", "is not the seq of a sent frame"));
        }
        if seq > open.acked {
            open.acked = seq;
            open.store_due.get_or_insert_with(|| Instant::now() + STORE_DELAY);
        }
        Ok(ActionReply::Now(yes("ack", &Json::empty_object())))
    }

    /// Stores the peer's acknowledgements.
    pub(super) async fn store_ack(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.store_due = None;
        if open.acked <= open.stored {
            return;
        }
        let (channel, seq) = (open.channel, open.acked);
        match self.hub.store().acknowledge(open.connection(), seq).await {
            Ok(()) => {
                if let Some(open) = &mut self.open {
                    open.stored = seq;
                }
            }
            Err(attache_store::Error::NotFound) => self.end(SessionEnd::Superseded),
            // The frames stay a little longer. The next acknowledgement covers this one.
            Err(error) => tracing::debug!(channel.id = %channel, %error, "an acknowledgement was not stored"),
        }
    }

    /// A message about the channel itself, stored only as an event of the channel.
    pub(super) async fn message(&mut self, by: &Principal, message: Json) -> Result<ActionReply, FrameRefusal> {
        check::sized("message", &message, MAX_MESSAGE)?;
        let Some(open) = &mut self.open else { return Ok(ActionReply::Later) };
        let (since, count) = &mut open.messages;
        if since.is_none_or(|since| since.elapsed() >= MESSAGES.1) {
            (*since, *count) = (Some(Instant::now()), 0);
        }
        if *count >= MESSAGES.0 {
            return Err(FrameRefusal::new(Code::TooManyRequests, "A channel accepts at most 30 messages per minute."));
        }
        *count += 1;
        let channel = open.channel;
        let kept = self.hub.store().channel_message(self.context(by), channel, message).await;
        kept.map_err(|error| Error::from_store("channel", error))?;
        Ok(ActionReply::Now(yes("message", &Json::empty_object())))
    }
}

/// The peer's allowed role. A device works by default, a person or program calls.
fn role(
    by: &Principal,
    wanted: Option<PeerRole>,
) -> Result<(PeerRole, Option<(attache_protocol::RuntimeId, attache_protocol::AgentId)>), FrameRefusal> {
    let works = |role: PeerRole| matches!(role, PeerRole::Worker | PeerRole::RemoteRuntime);
    match (by.who, wanted) {
        (PrincipalKind::Runtime { runtime, agent, .. }, wanted) => {
            let role = wanted.unwrap_or(PeerRole::Worker);
            Ok((role, works(role).then_some((runtime, agent))))
        }
        (PrincipalKind::Key { .. } | PrincipalKind::Outside { .. }, Some(role)) if works(role) => {
            let message = match by.who {
                PrincipalKind::Outside { .. } => "An outside agent works at its URL, not over a channel.",
                _ => "A person's key can't work for an agent.",
            };
            let mut refusal = FrameRefusal::new(Code::Forbidden, message).field("payload.peer_role");
            refusal.hint = "Pair a runtime, or register the agent at /api/a2a/register and use its key.".to_owned();
            Err(refusal)
        }
        (PrincipalKind::Key { .. } | PrincipalKind::Outside { .. }, wanted) => {
            check_open(by)?;
            Ok((wanted.unwrap_or(PeerRole::Host), None))
        }
        (PrincipalKind::Run { .. } | PrincipalKind::Anonymous { .. }, wanted) => {
            check_open(by)?;
            Ok((wanted.unwrap_or(PeerRole::Host), None))
        }
    }
}

/// Whether this caller may open a channel at all, in whatever role. Asked before a socket is opened for one, too.
pub(crate) fn check_open(by: &Principal) -> crate::Result<()> {
    match by.who {
        PrincipalKind::Runtime { .. } => Ok(()),
        // An engine creates runs and is told everything that happens to them, and its registration costs the hub work.
        PrincipalKind::Key { .. } | PrincipalKind::Outside { .. } => {
            by.may_all(Action::CreateRun)?;
            by.may(Action::SeeRuns)?.for_unowned();
            Ok(())
        }
        // A channel outlives its sockets, and the run.
        PrincipalKind::Run { .. } => Err(Error::forbidden("A run's token can't open a channel.")),
        PrincipalKind::Anonymous { .. } => Err(Error::unauthenticated("A channel requires a credential.")),
    }
}

fn account_ref(by: &Principal) -> String {
    match by.who {
        PrincipalKind::Runtime { agent, .. } | PrincipalKind::Outside { agent, .. } => Actor::Agent(agent),
        PrincipalKind::Key { .. } | PrincipalKind::Run { .. } | PrincipalKind::Anonymous { .. } => by.actor(),
    }
    .to_string()
}

fn peer(by: &Principal) -> String {
    match by.who {
        PrincipalKind::Key { key, .. } => key.to_string(),
        PrincipalKind::Runtime { agent, .. } | PrincipalKind::Outside { agent, .. } => agent.to_string(),
        PrincipalKind::Run { .. } | PrincipalKind::Anonymous { .. } => by.actor().to_string(),
    }
}

fn empty_list() -> Json {
    Json::from_text("[]").expect("[] is JSON")
}

// === impl ChannelDialect ===

impl ChannelDialect {
    const fn protocol(self) -> &'static str {
        match self {
            Self::Envelope => attache_protocol::wire::envelope::SUBPROTOCOL,
            Self::Plain => "attache.plain.v1",
        }
    }
}
