//! A channel to a hub: a WebSocket that reconnects whenever it breaks, and that the hub recognizes.
//!
//! `Options -> ChannelHandle::connect -> ChannelHandle`. Incoming frames go to a [`ChannelPeer`], each once, and are
//! acknowledged after the peer has received them. Sending fails at once while the connection is broken: whether to
//! retry, and how, is up to the caller, who knows the alternatives.

mod pending;
mod session;
pub(crate) mod socket;

use std::{fmt, sync::Arc, time::Duration};

use attache_protocol::{
    ChannelId, InputId, Json, RunId,
    wire::{
        channel::PeerRole,
        envelope::{Envelope, FrameType, ResumeRepair},
        run::ClaimedRun,
        runtime::DeclaredExtension,
    },
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{Error, HubClientOptions, HubCredential, Result};

#[derive(Debug, Clone)]
pub struct Options {
    /// The hub's address, and the credential.
    pub hub: HubClientOptions,
    pub peer_role: PeerRole,
    /// Values from [`attache_protocol::wire::channel::CAPABILITIES`].
    pub capabilities: Vec<String>,
    /// `[{"name","description","input_schema","output_schema"}]`
    pub tools: Option<Json>,
    pub device_info: Option<Json>,
    /// The A2A extensions the peer supports.
    pub extensions: Option<Vec<DeclaredExtension>>,
    pub pace: ChannelTimings,
}

/// Intervals and timeouts of a channel.
#[derive(Debug, Clone, Copy)]
pub struct ChannelTimings {
    /// How often an idle connection is pinged. Twice that long without an answer, and it counts as broken.
    pub ping: Duration,
    /// The shortest and longest delay before a broken connection is reopened.
    pub retry: (Duration, Duration),
    /// The same if the server doesn't support channels: an older hub, or a proxy without WebSockets.
    pub unwanted: (Duration, Duration),
}

/// The owner of a channel. The channel's own task calls both methods, one after the other, so everything received
/// counts as running when the channel registers again. They must return quickly.
pub trait ChannelPeer: Send + Sync + 'static {
    /// The runs a worker is executing or hasn't reported yet. Its other claims go back to the queue.
    fn running(&self) -> Option<Vec<RunId>>;

    /// The frame is acknowledged afterwards.
    fn receive(&self, event: ChannelEvent);
}

#[derive(Debug, Clone, PartialEq)]
pub enum ChannelEvent {
    /// The hub knows this channel. Credits start at zero.
    Connected { channel: ChannelId, opened: ChannelOpening },
    /// The connection broke, or couldn't be opened. The channel keeps trying.
    Broken(Error),
    /// A run was claimed for this worker.
    Execute(Box<ClaimedRun>),
    /// The worker no longer holds this run.
    Cancel(RunId),
    /// Unsolicited input from the caller of a run.
    Input {
        run: RunId,
        parts: Json,
        /// For `inputs_taken` of `done` and `fail`. Hubs of before don't say it.
        input_id: Option<InputId>,
        /// The id of its frame. The same one may arrive again over a new connection.
        msg_id: String,
    },
    /// Decisions about worktrees wait for this device: [`crate::HubClient::pending_worktree_decisions`].
    WorktreeDecisions,
    /// The hub is about to shut down.
    Drain,
    /// Anything else, such as events of a run that an engine follows.
    Other(Envelope),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelOpening {
    /// Registered as a new channel, which replaced the previous one.
    Registered,
    /// The channel continues. Frames in the given range are lost.
    Resumed(Option<ResumeRepair>),
}

#[derive(Debug, Clone, PartialEq)]
pub enum ChannelState {
    Connecting,
    Connected(ChannelId),
    Broken(Error),
}

/// Sends over a channel. Clones share the channel, which closes with the last of them.
#[derive(Clone)]
pub struct ChannelHandle(Arc<ChannelShared>);

struct ChannelShared {
    outbox: mpsc::Sender<ChannelSend>,
    state: watch::Receiver<ChannelState>,
    address: String,
    env: attache_protocol::env::Env,
    close: CancellationToken,
    endpoint: Arc<socket::ChannelEndpoint>,
    /// Reopen the connection with another credential.
    renewed: Arc<Notify>,
    task: std::sync::Mutex<Option<AbortOnDropHandle<()>>>,
}

/// One frame to send, or a ping.
pub(crate) struct ChannelSend {
    pub(crate) what: OutgoingContent,
    pub(crate) want: ReplyExpectation,
}

pub(crate) enum OutgoingContent {
    Frame { kind: FrameType, msg_id: String, to: String, payload: Json },
    Ping,
}

pub(crate) enum ReplyExpectation {
    Nothing,
    /// The hub's acknowledgement.
    Ack(oneshot::Sender<Result<()>>),
    Answer(oneshot::Sender<Result<Json>>),
    Pong(oneshot::Sender<Result<()>>),
}

/// How many messages may be queued. Senders wait when the queue is full.
const MAX_OUTBOX: usize = 64;
/// How long a closing channel waits for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

// === impl ChannelHandle ===

impl ChannelHandle {
    /// Starts connecting, and keeps reconnecting until closed. Returns immediately.
    pub fn connect(options: Options, peer: Arc<dyn ChannelPeer>) -> Result<Self> {
        let endpoint = Arc::new(socket::ChannelEndpoint::new(&options.hub)?);
        let renewed = Arc::new(Notify::new());
        let (outbox, queue) = mpsc::channel(MAX_OUTBOX);
        let (told, state) = watch::channel(ChannelState::Connecting);
        let close = CancellationToken::new();
        let (address, env) = (endpoint.address().origin(), options.hub.env.clone());
        let signals = session::ChannelSignals { close: close.clone(), renewed: renewed.clone() };
        let keeper = session::ChannelTask::new(endpoint.clone(), options, peer, queue, told, signals);
        let task = std::sync::Mutex::new(Some(AbortOnDropHandle::new(tokio::spawn(keeper.run()))));
        Ok(Self(Arc::new(ChannelShared { outbox, state, address, env, close, endpoint, renewed, task })))
    }

    /// Switches to another credential of the same peer: reconnects with it and resumes the channel.
    pub fn renew(&self, credential: &HubCredential) -> Result<()> {
        self.0.endpoint.renew(credential)?;
        self.0.renewed.notify_one();
        Ok(())
    }

    pub fn state(&self) -> ChannelState {
        self.0.state.borrow().clone()
    }

    pub fn is_connected(&self) -> bool {
        matches!(*self.0.state.borrow(), ChannelState::Connected(_))
    }

    /// Notifies of every state change.
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

    /// Sends a request and waits for the answer, which may take as long as a person does. `msg_id` identifies the
    /// request: the hub repeats its answer to an id it knows.
    pub async fn request(&self, msg_id: Option<String>, payload: Json) -> Result<Json> {
        self.request_to(String::new(), msg_id, payload).await
    }

    /// The same, addressed to an agent.
    pub async fn request_to(&self, to: String, msg_id: Option<String>, payload: Json) -> Result<Json> {
        let (answer, given) = oneshot::channel();
        let msg_id = msg_id.unwrap_or_else(|| self.name());
        let what = OutgoingContent::Frame { kind: FrameType::Request, msg_id, to, payload };
        self.send(ChannelSend { what, want: ReplyExpectation::Answer(answer) }).await?;
        given.await.unwrap_or_else(|_| Err(self.broken("the channel was closed")))
    }

    /// Sends a notification or a chunk and waits until the hub has it.
    pub async fn send_and_confirm(&self, kind: FrameType, payload: Json) -> Result<()> {
        let (taken, told) = oneshot::channel();
        let what = OutgoingContent::Frame { kind, msg_id: self.name(), to: String::new(), payload };
        self.send(ChannelSend { what, want: ReplyExpectation::Ack(taken) }).await?;
        told.await.unwrap_or_else(|_| Err(self.broken("the channel was closed")))
    }

    /// Sends a notification that may get lost.
    pub async fn notify(&self, payload: Json) -> Result<()> {
        let what =
            OutgoingContent::Frame { kind: FrameType::Notification, msg_id: self.name(), to: String::new(), payload };
        self.send(ChannelSend { what, want: ReplyExpectation::Nothing }).await
    }

    /// Ensures that everything the hub wrote before this call has arrived.
    pub async fn confirm(&self) -> Result<()> {
        let (pong, heard) = oneshot::channel();
        self.send(ChannelSend { what: OutgoingContent::Ping, want: ReplyExpectation::Pong(pong) }).await?;
        heard.await.unwrap_or_else(|_| Err(self.broken("the channel was closed")))
    }

    /// Closes the connection and waits for that. The hub keeps the channel.
    pub async fn close(&self) {
        self.0.close.cancel();
        let task = self.0.task.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, task).await;
        }
    }

    async fn send(&self, outgoing: ChannelSend) -> Result<()> {
        let reason = match &*self.0.state.borrow() {
            ChannelState::Connected(_) => None,
            ChannelState::Connecting => Some("the channel isn't open yet".to_owned()),
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
    pub fn worker(hub: HubClientOptions) -> Self {
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
