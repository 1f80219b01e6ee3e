//! A channel to a hub: one WebSocket that is opened again whenever it breaks, and that the hub recognises.
//!
//! `Options -> Channel::connect -> Channel`. What the hub says goes to a [`ChannelPeer`], each frame once, and is acknowledged
//! when the peer has heard it. What is said to the hub fails at once while the line is broken: whether to repeat it,
//! and over which way, is the caller's decision, for only the caller knows what else it has.

mod pending;
mod session;
pub(crate) mod socket;

use std::{fmt, sync::Arc, time::Duration};

use attache_protocol::{
    ChannelId, Json, RunId,
    wire::{
        channel::PeerRole,
        envelope::{Envelope, FrameType, ResumeRepair},
        run::ClaimedRun,
        runtime::DeclaredExtension,
    },
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{Error, HubCredential, HubOptions, Result};

#[derive(Debug, Clone)]
pub struct Options {
    /// Where the hub is, and who connects.
    pub hub: HubOptions,
    pub peer_role: PeerRole,
    /// Words of [`attache_protocol::wire::channel::CAPABILITIES`].
    pub capabilities: Vec<String>,
    /// `[{"name","description","input_schema","output_schema"}]`
    pub tools: Option<Json>,
    pub device_info: Option<Json>,
    /// The A2A extensions that the peer understands.
    pub extensions: Option<Vec<DeclaredExtension>>,
    pub pace: ChannelTimings,
}

/// How soon a channel notices and acts.
#[derive(Debug, Clone, Copy)]
pub struct ChannelTimings {
    /// How often a silent line is tried. One that stays silent for twice that long is broken.
    pub ping: Duration,
    /// The first and the longest wait before a broken line is opened again.
    pub retry: (Duration, Duration),
    /// The same where something answers that knows no channels: an older hub, or a proxy without WebSockets.
    pub unwanted: (Duration, Duration),
}

/// Whoever a channel speaks for. Both methods are called by the channel's own task, one after the other, so that what was
/// heard is known to be held when the channel registers anew. They must return quickly.
pub trait ChannelPeer: Send + Sync + 'static {
    /// The runs that a worker executes, or has not reported yet: its other claims go back to the queue.
    fn running(&self) -> Option<Vec<RunId>>;

    /// The frame is acknowledged afterwards.
    fn receive(&self, event: ChannelEvent);
}

#[derive(Debug, Clone, PartialEq)]
pub enum ChannelEvent {
    /// The hub knows this channel. Credits start at none.
    Connected { channel: ChannelId, opened: ChannelOpening },
    /// The line broke, or could not be opened; the channel goes on trying.
    Broken(Error),
    /// A run was claimed for this worker.
    Execute(Box<ClaimedRun>),
    /// The worker does not hold this run any more.
    Cancel(RunId),
    /// The caller of a run said something without being asked.
    Input {
        run: RunId,
        parts: Json,
        /// The hub's name for it: the same one may come again over a new channel.
        msg_id: String,
    },
    /// The hub is about to leave.
    Drain,
    /// Anything else, such as the events of a run that an engine follows.
    Other(Envelope),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelOpening {
    /// As a new channel, which took over from the one before.
    Registered,
    /// The channel goes on; frames in the range are gone.
    Resumed(Option<ResumeRepair>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum ChannelState {
    Connecting,
    Connected(ChannelId),
    Broken(Error),
}

/// The way to speak. Clones speak over the same line, which ends with the last of them.
#[derive(Clone)]
pub struct ChannelHandle(Arc<Inner>);

struct Inner {
    outbox: mpsc::Sender<OutgoingMessage>,
    state: watch::Receiver<ChannelState>,
    address: String,
    env: attache_protocol::env::Env,
    close: CancellationToken,
    way: Arc<socket::ChannelEndpoint>,
    /// The line is to be opened again with another credential.
    renewed: Arc<Notify>,
    task: std::sync::Mutex<Option<AbortOnDropHandle<()>>>,
}

/// One frame to send, or a ping.
pub(crate) struct OutgoingMessage {
    pub(crate) what: OutgoingContent,
    pub(crate) want: ReplyExpectation,
}

pub(crate) enum OutgoingContent {
    Frame { kind: FrameType, msg_id: String, to: String, payload: Json },
    Ping,
}

pub(crate) enum ReplyExpectation {
    Nothing,
    /// The hub has it.
    Ack(oneshot::Sender<Result<()>>),
    Answer(oneshot::Sender<Result<Json>>),
    Pong(oneshot::Sender<Result<()>>),
}

/// What may wait to be written. Whoever has more waits.
const MAX_OUTBOX: usize = 64;
/// How long a closing channel may take to say goodbye.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

// === impl ChannelHandle ===

impl ChannelHandle {
    /// Starts to connect, and keeps at it until it is closed. Nothing is waited for.
    pub fn connect(options: Options, peer: Arc<dyn ChannelPeer>) -> Result<Self> {
        let way = Arc::new(socket::ChannelEndpoint::new(&options.hub)?);
        let renewed = Arc::new(Notify::new());
        let (outbox, queue) = mpsc::channel(MAX_OUTBOX);
        let (told, state) = watch::channel(ChannelState::Connecting);
        let close = CancellationToken::new();
        let (address, env) = (way.address().origin(), options.hub.env.clone());
        let signals = session::ChannelSignals { close: close.clone(), renewed: renewed.clone() };
        let keeper = session::ChannelTask::new(way.clone(), options, peer, queue, told, signals);
        let task = std::sync::Mutex::new(Some(AbortOnDropHandle::new(tokio::spawn(keeper.run()))));
        Ok(Self(Arc::new(Inner { outbox, state, address, env, close, way, renewed, task })))
    }

    /// Goes on with another credential of the same peer: the line is opened again with it, and the channel resumes.
    pub fn renew(&self, credential: &HubCredential) -> Result<()> {
        self.0.way.renew(credential)?;
        self.0.renewed.notify_one();
        Ok(())
    }

    pub fn state(&self) -> ChannelState {
        self.0.state.borrow().clone()
    }

    pub fn is_connected(&self) -> bool {
        matches!(*self.0.state.borrow(), ChannelState::Connected(_))
    }

    /// Moves whenever the line does.
    pub fn watch(&self) -> watch::Receiver<ChannelState> {
        self.0.state.clone()
    }

    /// Waits until the hub knows this channel.
    pub async fn connected(&self) {
        let mut state = self.watch();
        if state.wait_for(|state| matches!(state, ChannelState::Connected(_))).await.is_err() {
            // Closed for good.
            std::future::pending::<()>().await;
        }
    }

    /// Sends a request and waits for its answer, which may take as long as a person does. `msg_id` is the request's own
    /// name: the hub answers a name that it knows as it did before.
    pub async fn request(&self, msg_id: Option<String>, payload: Json) -> Result<Json> {
        self.request_to(String::new(), msg_id, payload).await
    }

    /// The same, addressed to an agent.
    pub async fn request_to(&self, to: String, msg_id: Option<String>, payload: Json) -> Result<Json> {
        let (answer, given) = oneshot::channel();
        let msg_id = msg_id.unwrap_or_else(|| self.name());
        let what = OutgoingContent::Frame { kind: FrameType::Request, msg_id, to, payload };
        self.send(OutgoingMessage { what, want: ReplyExpectation::Answer(answer) }).await?;
        given.await.unwrap_or_else(|_| Err(self.broken("the channel was closed")))
    }

    /// Sends a notification or a chunk and waits until the hub has it.
    pub async fn send_and_confirm(&self, kind: FrameType, payload: Json) -> Result<()> {
        let (taken, told) = oneshot::channel();
        let what = OutgoingContent::Frame { kind, msg_id: self.name(), to: String::new(), payload };
        self.send(OutgoingMessage { what, want: ReplyExpectation::Ack(taken) }).await?;
        told.await.unwrap_or_else(|_| Err(self.broken("the channel was closed")))
    }

    /// Sends a notification that need not survive.
    pub async fn notify(&self, payload: Json) -> Result<()> {
        let what =
            OutgoingContent::Frame { kind: FrameType::Notification, msg_id: self.name(), to: String::new(), payload };
        self.send(OutgoingMessage { what, want: ReplyExpectation::Nothing }).await
    }

    /// Proves that everything which the hub had written before this call has arrived.
    pub async fn confirm(&self) -> Result<()> {
        let (pong, heard) = oneshot::channel();
        self.send(OutgoingMessage { what: OutgoingContent::Ping, want: ReplyExpectation::Pong(pong) }).await?;
        heard.await.unwrap_or_else(|_| Err(self.broken("the channel was closed")))
    }

    /// Closes the line and waits until it is closed. The hub keeps the channel.
    pub async fn close(&self) {
        self.0.close.cancel();
        let task = self.0.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, task).await;
        }
    }

    async fn send(&self, outgoing: OutgoingMessage) -> Result<()> {
        let reason = match &*self.0.state.borrow() {
            ChannelState::Connected(_) => None,
            ChannelState::Connecting => Some("the channel is not open yet".to_owned()),
            ChannelState::Broken(error) => Some(format!("the channel is broken ({error})")),
        };
        match reason {
            Some(reason) => Err(self.broken(&reason)),
            None => self.0.outbox.send(outgoing).await.map_err(|_| self.broken("the channel was closed")),
        }
    }

    fn name(&self) -> String {
        self.0.env.uuid().simple().to_string()
    }

    fn broken(&self, reason: &str) -> Error {
        Error::Unreachable { address: self.0.address.clone(), reason: reason.to_owned() }
    }
}

impl fmt::Debug for ChannelHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({}, {:?})", self.0.address, self.state())
    }
}

// === impl Options ===

impl Options {
    /// A worker that streams, resumes and asks.
    pub fn worker(hub: HubOptions) -> Self {
        let capabilities = ["streaming", "resume", "permissions", "artifacts"].map(str::to_owned).into();
        Self {
            hub,
            peer_role: PeerRole::Worker,
            capabilities,
            tools: None,
            device_info: None,
            extensions: None,
            pace: ChannelTimings::default(),
        }
    }
}

// === impl ChannelTimings ===

impl Default for ChannelTimings {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(10),
            retry: (Duration::from_millis(50), Duration::from_secs(5)),
            unwanted: (Duration::from_secs(5), Duration::from_secs(60)),
        }
    }
}
