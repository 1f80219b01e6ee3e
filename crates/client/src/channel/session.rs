//! The task that keeps a channel connected: connects, registers or resumes, exchanges frames, and reconnects when the
//! connection breaks.

use std::{sync::Arc, time::Duration};

use attache_protocol::{
    ChannelId, Code,
    env::Env,
    wire::envelope::{
        Ack, Envelope, EnvelopeHeader, FrameRefusalBody, FrameToken, FrameType, HubFrame, Register, RegisterResponse,
        Resume, ResumeResponse,
    },
};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, timeout},
};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use super::{
    ChannelEvent, ChannelOpening, ChannelPeer, ChannelSend, ChannelState, Options, OutgoingContent, ReplyExpectation,
    pending::PendingReplies,
    socket::{ChannelEndpoint, ChannelSocket},
};
use crate::{Backoff, Error, HubRefusal, Result};

/// The field a hub names if it doesn't know our newest frame.
const LAST_SEQ: &str = "payload.last_seq";

pub(crate) struct ChannelTask {
    endpoint: Arc<ChannelEndpoint>,
    options: Options,
    peer: Arc<dyn ChannelPeer>,
    queue: mpsc::Receiver<ChannelSend>,
    told: watch::Sender<ChannelState>,
    close: CancellationToken,
    renewed: Arc<Notify>,
    /// The state for resuming the channel.
    memory: Option<ResumeState>,
    pending: PendingReplies,
}

/// Signals from the owner of a channel to its task.
pub(crate) struct ChannelSignals {
    pub(crate) close: CancellationToken,
    /// Reconnect: the credential was replaced.
    pub(crate) renewed: Arc<Notify>,
}

/// Why a connection ended.
enum ConnectionEnd {
    Broken(Error),
    /// Reopened at once, without notifying anyone.
    Renewed,
}

/// Kept between two connections.
struct ResumeState {
    channel: ChannelId,
    token: FrameToken,
    /// The newest frame received from the hub.
    last_seq: i64,
    /// The newest frame we sent.
    sent: i64,
}

/// One open connection.
struct ChannelConnection {
    socket: ChannelSocket,
    /// Message id of the request that opens the channel, until it is answered.
    opening: Option<String>,
    heard_at: Instant,
    /// The first ping since then, or since this process last stalled.
    asked_at: Option<Instant>,
    pings: u64,
    /// Received but not yet acknowledged.
    unacknowledged: bool,
}

/// How long the hub may take to answer `register` or `resume`.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a write may block before the connection is dropped.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long saying goodbye may take.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of frames acknowledged together.
const MAX_WRITE_BATCH: u32 = 32;

// === impl ChannelTask ===

impl ChannelTask {
    pub(crate) fn new(
        endpoint: Arc<ChannelEndpoint>,
        options: Options,
        peer: Arc<dyn ChannelPeer>,
        queue: mpsc::Receiver<ChannelSend>,
        told: watch::Sender<ChannelState>,
        ChannelSignals { close, renewed }: ChannelSignals,
    ) -> Self {
        Self { endpoint, options, peer, queue, told, close, renewed, memory: None, pending: PendingReplies::default() }
    }

    /// Maintains the channel until it is closed.
    pub(crate) async fn run(mut self) {
        let (retry, unwanted) = (self.options.pace.retry, self.options.pace.unwanted);
        let mut backoff = Backoff::new(retry.0, retry.1);
        let mut slow = Backoff::new(unwanted.0, unwanted.1);
        while !self.close.is_cancelled() {
            let (end, lived) = self.live().await;
            let error = match end {
                ConnectionEnd::Broken(error) => error,
                ConnectionEnd::Renewed => {
                    self.pending.fail(&self.endpoint.broken("the channel is reconnecting with a new credential"));
                    continue;
                }
            };
            self.pending.fail(&error);
            if self.close.is_cancelled() {
                break;
            }
            if lived {
                backoff.reset();
                slow.reset();
            }
            tracing::debug!(%error, "the channel broke and will reconnect");
            self.told.send_replace(ChannelState::Broken(error.clone()));
            self.peer.receive(ChannelEvent::Broken(error.clone()));
            let backoff = if error.is_passing() { &mut backoff } else { &mut slow };
            let wait = backoff.next(&self.options.hub.env);
            self.meanwhile(tokio::time::sleep(wait)).await;
        }
        self.queue.close();
        while let Some(outgoing) = self.queue.recv().await {
            outgoing.fail(self.endpoint.broken("the channel was closed"));
        }
    }

    /// One connection, from opening to end. Also returns whether the hub accepted the channel.
    async fn live(&mut self) -> (ConnectionEnd, bool) {
        let endpoint = self.endpoint.clone();
        let socket = match self.meanwhile(endpoint.open()).await {
            Some(Ok(socket)) => socket,
            Some(Err(error)) => return (ConnectionEnd::Broken(error), false),
            None => return (ConnectionEnd::Broken(self.endpoint.broken("the channel was closed")), false),
        };
        let now = Instant::now();
        let mut session =
            ChannelConnection { socket, opening: None, heard_at: now, asked_at: None, pings: 0, unacknowledged: false };
        let renewed = self.renewed.clone();
        let end = match self.begin(&mut session).await {
            Ok(()) => tokio::select! {
                spoken = self.speak(&mut session) => match spoken {
                    Ok(()) => ConnectionEnd::Broken(self.endpoint.broken("the hub closed the channel")),
                    Err(error) => ConnectionEnd::Broken(error),
                },
                () = renewed.notified() => ConnectionEnd::Renewed,
            },
            Err(error) => ConnectionEnd::Broken(error),
        };
        (end, session.opening.is_none())
    }

    /// Waits for something, failing everything that should be sent in the meantime. `None` if the channel is closed
    /// meanwhile.
    async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Some(done),
                Some(outgoing) = self.queue.recv() => {
                    outgoing.fail(self.endpoint.broken("the channel isn't open"));
                }
                () = self.close.cancelled() => return None,
            }
        }
    }

    /// Asks the hub to open the channel, resuming the previous one if possible.
    async fn begin(&mut self, session: &mut ChannelConnection) -> Result<()> {
        let payload = match &self.memory {
            Some(ResumeState { channel, token, last_seq, .. }) => {
                Resume { channel_id: *channel, resume_token: token.clone(), last_seq: *last_seq }.payload()
            }
            None => {
                let Options { peer_role, capabilities, tools, device_info, extensions, .. } = &self.options;
                let register = Register {
                    peer_role: Some(*peer_role),
                    capabilities: Some(capabilities.clone()),
                    tools: tools.clone(),
                    device_info: device_info.clone(),
                    running: self.peer.running(),
                    extensions: extensions.clone(),
                };
                register.payload()
            }
        };
        let msg_id = self.options.hub.env.uuid().simple().to_string();
        session.opening = Some(msg_id.clone());
        let header = header(&self.options.hub.env, FrameType::Request, msg_id, String::new(), None);
        self.write(session, Message::text(Envelope { header, metadata: None, payload }.to_text())).await
    }

    /// Exchanges frames until the connection ends.
    async fn speak(&mut self, session: &mut ChannelConnection) -> Result<()> {
        let opening = tokio::time::sleep(OPEN_TIMEOUT);
        tokio::pin!(opening);
        loop {
            let ping = self.options.pace.ping;
            let due = session.due(ping);
            let read = tokio::select! {
                () = self.close.cancelled() => return self.leave(session).await,
                read = session.socket.next() => Some(read),
                () = &mut opening, if session.opening.is_some() => {
                    return Err(self.endpoint.broken("the hub didn't open the channel in time"));
                }
                Some(outgoing) = self.queue.recv(), if session.opening.is_none() => {
                    self.send(session, outgoing).await?;
                    None
                }
                () = tokio::time::sleep_until(due) => {
                    // Input that arrived while this process was stalled is read before the timer is checked. It shows
                    // after the runtime had a turn.
                    tokio::task::yield_now().await;
                    match session.socket.next().now_or_never() {
                        Some(read) => Some(read),
                        // A late timer means that this process stalled.
                        None if session.asked_at.is_some() && due.elapsed() < ping / 2 => {
                            return Err(self.endpoint.broken("the hub stopped responding"));
                        }
                        None => {
                            session.asked_at = None;
                            self.ping(session).await?;
                            None
                        }
                    }
                }
            };
            if let Some(read) = read {
                session.heard_at = Instant::now();
                session.asked_at = None;
                let mut next = Some(read);
                let mut together = 0;
                while let Some(read) = next {
                    match read {
                        None => return Ok(()),
                        Some(Ok(message)) => self.receive(session, message).await?,
                        Some(Err(error)) => return Err(self.endpoint.broken(error)),
                    }
                    together += 1;
                    // Frames that are already here are read before everything is acknowledged at once.
                    next = if together < MAX_WRITE_BATCH { session.socket.next().now_or_never() } else { None };
                }
                self.acknowledge(session).await?;
            }
        }
    }

    async fn receive(&mut self, session: &mut ChannelConnection, message: Message) -> Result<()> {
        match message {
            Message::Text(text) => {
                let understood =
                    Envelope::parse_of_any_size(text.as_str()).and_then(|frame| Ok((HubFrame::read(&frame)?, frame)));
                match understood {
                    Ok((told, frame)) => self.take(session, told, frame).await?,
                    Err(error) => tracing::warn!(%error, "can't parse a frame from the hub"),
                }
            }
            Message::Pong(data) => {
                if let Ok(number) = data.as_ref().try_into().map(u64::from_be_bytes) {
                    self.pending.ponged(number);
                }
            }
            // The connection below may stay open for longer, and the work would continue without a recipient.
            Message::Close(_) => {
                let _ = timeout(CLOSE_TIMEOUT, session.socket.flush()).await;
                return Err(self.endpoint.broken("the hub closed the channel"));
            }
            Message::Binary(_) | Message::Ping(_) | Message::Frame(_) => {}
        }
        Ok(())
    }

    /// Handles one frame, in order and once.
    async fn take(&mut self, session: &mut ChannelConnection, told: HubFrame, frame: Envelope) -> Result<()> {
        let parent = frame.header.parent_id.clone();
        if session.opening.is_some() && parent == session.opening {
            return self.opened(session, told).await;
        }
        if let (Some(seq), Some(memory)) = (frame.header.seq, &mut self.memory) {
            session.unacknowledged = true;
            // The hub resends frames it doesn't know to have arrived.
            if seq <= memory.last_seq {
                return Ok(());
            }
            memory.last_seq = seq;
        }
        let parent = parent.unwrap_or_default();
        match told {
            HubFrame::Answer { payload, .. } => self.pending.answered(&parent, Ok(payload)),
            HubFrame::Refused { error, action } => {
                tracing::debug!(code = error.code, ?action, "the hub refused a frame");
                self.pending.answered(&parent, Err(refused(error)));
            }
            HubFrame::Ack(seq) => self.pending.acknowledged(seq),
            HubFrame::Execute(run) => self.peer.receive(ChannelEvent::Execute(Box::new(run.claimed()))),
            HubFrame::Cancel(cancelled) => self.peer.receive(ChannelEvent::Cancel(cancelled.task_run_id)),
            HubFrame::Input(given) => {
                self.peer.receive(ChannelEvent::Input {
                    run: given.task_run_id,
                    parts: given.parts,
                    input_id: given.input_id,
                    msg_id: frame.header.msg_id,
                });
            }
            HubFrame::WorktreeDecisions => self.peer.receive(ChannelEvent::WorktreeDecisions),
            HubFrame::Drain => self.peer.receive(ChannelEvent::Drain),
            HubFrame::Other { .. } => self.peer.receive(ChannelEvent::Other(frame)),
        }
        Ok(())
    }

    /// Handles the answer to `register` or `resume`.
    async fn opened(&mut self, session: &mut ChannelConnection, told: HubFrame) -> Result<()> {
        let strange = |error: serde_json::Error| self.endpoint.strange(format!("the channel's opening ({error})"));
        let opened = match (told, &mut self.memory) {
            (HubFrame::Answer { payload, .. }, Some(memory)) => {
                let ResumeResponse { resume_token, repaired, .. } = payload.parse().map_err(strange)?;
                memory.token = resume_token;
                if let Some(repaired) = repaired {
                    memory.last_seq = memory.last_seq.max(repaired.to);
                }
                ChannelOpening::Resumed(repaired)
            }
            (HubFrame::Answer { payload, .. }, None) => {
                let RegisterResponse { channel_id, resume_token, .. } = payload.parse().map_err(strange)?;
                self.memory = Some(ResumeState { channel: channel_id, token: resume_token, last_seq: 0, sent: 0 });
                ChannelOpening::Registered
            }
            (HubFrame::Refused { error, .. }, Some(_))
                if error.code == Code::ResumeRefused.as_str() || error.field.as_deref() == Some(LAST_SEQ) =>
            {
                // The token was used by a connection whose answer got lost, or the hub was restored from an older copy
                // and doesn't know our frames. We register again and name our running work, so it stays ours.
                self.memory = None;
                return self.begin(session).await;
            }
            (HubFrame::Refused { error, .. }, _) => return Err(refused(error)),
            _ => return Err(self.endpoint.strange("it sent an unexpected response when the channel was opened")),
        };
        session.opening = None;
        if let Some(ResumeState { channel, .. }) = self.memory {
            self.told.send_replace(ChannelState::Connected(channel));
            self.peer.receive(ChannelEvent::Connected { channel, opened });
        }
        Ok(())
    }

    async fn send(&mut self, session: &mut ChannelConnection, outgoing: ChannelSend) -> Result<()> {
        let ChannelSend { what, want } = outgoing;
        let OutgoingContent::Frame { kind, msg_id, to, payload } = what else {
            if let ReplyExpectation::Pong(heard) = want {
                self.pending.ping(session.pings + 1, heard);
            }
            return self.ping(session).await;
        };
        let mut seq = None;
        match want {
            ReplyExpectation::Answer(answer) => self.pending.ask(msg_id.clone(), answer),
            ReplyExpectation::Ack(told) => {
                if let Some(memory) = &mut self.memory {
                    memory.sent += 1;
                    seq = Some(memory.sent);
                    self.pending.tell(memory.sent, msg_id.clone(), told);
                }
            }
            ReplyExpectation::Nothing | ReplyExpectation::Pong(_) => {}
        }
        let header = header(&self.options.hub.env, kind, msg_id, to, seq);
        self.write(session, Message::text(Envelope { header, metadata: None, payload }.to_text())).await
    }

    /// Acknowledges received frames, several at once if more are already waiting.
    async fn acknowledge(&mut self, session: &mut ChannelConnection) -> Result<()> {
        let Some(ResumeState { last_seq, .. }) = self.memory else { return Ok(()) };
        if !session.unacknowledged || session.opening.is_some() {
            return Ok(());
        }
        session.unacknowledged = false;
        let env = &self.options.hub.env;
        let header = header(env, FrameType::Notification, env.uuid().simple().to_string(), String::new(), None);
        let frame = Envelope { header, metadata: None, payload: Ack { seq: last_seq }.payload() };
        self.write(session, Message::text(frame.to_text())).await
    }

    async fn ping(&self, session: &mut ChannelConnection) -> Result<()> {
        session.asked_at.get_or_insert_with(Instant::now);
        session.pings += 1;
        let data = session.pings.to_be_bytes().to_vec();
        self.write(session, Message::Ping(data.into())).await
    }

    async fn leave(&self, session: &mut ChannelConnection) -> Result<()> {
        let _ = timeout(CLOSE_TIMEOUT, session.socket.close(None)).await;
        Err(self.endpoint.broken("the channel was closed"))
    }

    async fn write(&self, session: &mut ChannelConnection, message: Message) -> Result<()> {
        match timeout(WRITE_TIMEOUT, session.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(self.endpoint.broken(error)),
            Err(_) => Err(self.endpoint.broken("the hub isn't reading")),
        }
    }
}

// === impl ChannelConnection ===

impl ChannelConnection {
    /// When to ping an idle connection and, after the ping, when to give up.
    fn due(&self, ping: Duration) -> Instant {
        match self.asked_at {
            None => self.heard_at + ping,
            Some(asked_at) => (self.heard_at + 2 * ping).max(asked_at + ping),
        }
    }
}

// === impl ChannelSend ===

impl ChannelSend {
    /// Reports that it can't be sent.
    fn fail(self, error: Error) {
        match self.want {
            ReplyExpectation::Nothing => {}
            ReplyExpectation::Ack(told) | ReplyExpectation::Pong(told) => _ = told.send(Err(error)),
            ReplyExpectation::Answer(answer) => _ = answer.send(Err(error)),
        }
    }
}

fn header(env: &Env, kind: FrameType, msg_id: String, to: String, seq: Option<i64>) -> EnvelopeHeader {
    let timestamp = env.now().millis() / 1000;
    let to = if to.is_empty() { "hub".to_owned() } else { to };
    // The hub knows who we are from the credential.
    EnvelopeHeader { msg_id, parent_id: None, kind, from: "peer".to_owned(), to, timestamp, seq }
}

/// Converts a refusal to the HTTP error type, so that callers needn't care which transport was used.
fn refused(error: FrameRefusalBody) -> Error {
    let FrameRefusalBody { code, message, hint, task_run, .. } = error;
    let code = Code::from_text(&code).unwrap_or(Code::Internal);
    let conflict = task_run.and_then(|run| run.parse().ok());
    let status = code.http_status();
    let hint = hint.unwrap_or_else(|| code.hint().to_owned());
    Error::Refused(Box::new(HubRefusal { code, message, hint, remedy: None, status, conflict, decided: None }))
}
