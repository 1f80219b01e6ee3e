//! The A2A conversation with the remote about one task: streamed if the agent supports it, polled otherwise. Messages
//! and requests lost to a broken connection are repeated for as long as the delegation lasts.

mod card;
mod interpreter;

use std::{collections::VecDeque, time::Duration};

use attache_a2a_wire::{
    A2aRole, Fault, GetTask, Message, SendConfiguration, SendMessage, SendMessageResponse, StreamResponse,
};
use attache_client::{
    Backoff,
    a2a::{self, PeerClient, PeerCredentials, PeerEventStream, PeerInterface},
    egress::{EgressFailure, EgressGuard, EgressPolicy, EgressRule},
};
use attache_protocol::{
    DelegationId, Timestamp,
    env::Env,
    rules::delegation::LeaseTerms,
    wire::{
        awcp::{self, AwcpErrorCode, EXTENSION},
        delegation::DelegationFailure,
    },
};

use crate::awcp_policy::TrustedPeer as Listed;
pub(crate) use interpreter::RemoteEvent;
use interpreter::TaskInterpreter;

/// Intervals of retries and polls.
#[derive(Debug, Clone, Copy)]
pub struct PeerTimings {
    /// The delay between two attempts: initial and maximum.
    pub retry: (Duration, Duration),
    /// The interval of polls for a remote that doesn't stream.
    pub poll: Duration,
    /// How long the end of a delegation waits for the remote to be notified. After that, notification continues in the
    /// background.
    pub tell: Duration,
}

/// The conversation with one remote about one task.
#[derive(Debug)]
pub(super) struct RemoteConversation {
    delegation: DelegationId,
    url: String,
    credentials: PeerCredentials,
    terms: LeaseTerms,
    guard: EgressGuard,
    env: Env,
    pace: PeerTimings,
    peer: Option<PeerClient>,
    interpreter: TaskInterpreter,
    invite: Message,
    /// The next message to send, kept until it is known to have arrived.
    outbox: Option<Message>,
    source: RemoteEventSource,
    events: VecDeque<RemoteEvent>,
    backoff: Backoff,
    must_back_off: bool,
    was_sent: bool,
    created_at: Timestamp,
}

#[derive(Debug)]
enum RemoteEventSource {
    Nothing,
    Stream(Box<PeerEventStream>),
    Poll,
}

/// Why a step failed.
enum ConversationError {
    Passing(String),
    Final(DelegationFailure),
}

/// How long to look for an agent that has never answered.
pub(crate) const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_secs(60);

// === impl RemoteConversation ===

impl RemoteConversation {
    pub(super) fn new(
        invite: &awcp::AwcpInvite,
        delegation: DelegationId,
        listed: &Listed,
        credentials: PeerCredentials,
        terms: LeaseTerms,
        env: Env,
        pace: PeerTimings,
    ) -> Self {
        let invite = message(delegation, &awcp::AwcpMessage::Invite(invite.clone()));
        let created_at = env.now();
        Self {
            delegation,
            url: listed.url.clone(),
            credentials,
            terms,
            guard: guard_for(&listed.url).pinned(listed.pin),
            env,
            pace,
            peer: None,
            interpreter: TaskInterpreter::new(delegation),
            outbox: Some(invite.clone()),
            invite,
            source: RemoteEventSource::Nothing,
            events: VecDeque::new(),
            backoff: Backoff::new(pace.retry.0, pace.retry.1),
            must_back_off: false,
            was_sent: false,
            created_at,
        }
    }

    /// Resumes a conversation only to report its end.
    pub(super) fn resumed(mut self, task: Option<String>) -> Self {
        self.was_sent = true;
        if let Some(task) = task {
            self.interpreter.set_task(task);
        }
        self
    }

    /// Fetches the card and checks it against the terms. Sends the remote nothing yet.
    pub(super) async fn connect(&mut self) -> Result<(), RemoteEvent> {
        match self.discover().await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.event_of_error(error)),
        }
    }

    /// Waits before the next attempt, if the last one failed.
    pub(super) async fn back_off(&mut self) {
        if std::mem::take(&mut self.must_back_off) {
            tokio::time::sleep(self.backoff.next(&self.env)).await;
        }
    }

    /// Makes START the next message.
    pub(super) fn start(&mut self, start: &awcp::AwcpStart) {
        let mut start_message = message(self.delegation, &awcp::AwcpMessage::Start(start.clone()));
        start_message.task_id = self.interpreter.task().map(str::to_owned);
        self.outbox = Some(start_message);
        self.source = RemoteEventSource::Nothing;
        self.events.clear();
        self.interpreter.mark_started();
    }

    /// Nothing that could have arrived was sent.
    pub(super) const fn was_never_sent(&self) -> bool {
        !self.was_sent
    }

    /// The next event of the remote. Never returns without one.
    pub(super) async fn next(&mut self) -> RemoteEvent {
        loop {
            match self.events.pop_front() {
                Some(RemoteEvent::ReadTask) => {
                    if let Err(error) = self.poll_task().await {
                        // Still unknown, so it is read again.
                        self.events.push_front(RemoteEvent::ReadTask);
                        return self.event_of_error(error);
                    }
                    continue;
                }
                Some(event) => return event,
                None => {}
            }
            self.back_off().await;
            if let Err(error) = self.step().await {
                return self.event_of_error(error);
            }
        }
    }

    fn event_of_error(&mut self, error: ConversationError) -> RemoteEvent {
        match error {
            // Don't keep looking for an agent that has never answered.
            ConversationError::Passing(reason)
                if self.peer.is_none()
                    && !self.was_sent
                    && self.env.now().since(self.created_at) >= FIRST_CONTACT_TIMEOUT =>
            {
                RemoteEvent::Lost(DelegationFailure {
                    code: AwcpErrorCode::TaskFailed,
                    message: format!("can't reach the agent at {}: {reason}", self.url),
                    hint: "Check that its hub is running and reachable from this machine. The folder was not shared."
                        .to_owned(),
                })
            }
            ConversationError::Passing(reason) => {
                self.source = RemoteEventSource::Nothing;
                self.must_back_off = true;
                RemoteEvent::Unreachable(reason)
            }
            ConversationError::Final(failure) => RemoteEvent::Lost(failure),
        }
    }

    async fn step(&mut self) -> Result<(), ConversationError> {
        let Some(peer) = self.peer.clone() else { return self.discover().await };
        if let Some(message) = self.outbox.clone() {
            return self.send(&peer, message).await;
        }
        match &mut self.source {
            RemoteEventSource::Stream(events) => match events.next().await {
                Some(Ok(event)) => {
                    self.backoff.reset();
                    self.events.extend(self.interpreter.interpret(event.what));
                    Ok(())
                }
                Some(Err(error)) => Err(passing(&error)),
                None => {
                    self.source = RemoteEventSource::Nothing;
                    self.must_back_off = true;
                    Ok(())
                }
            },
            RemoteEventSource::Poll => {
                tokio::time::sleep(self.pace.poll).await;
                self.poll_task().await
            }
            RemoteEventSource::Nothing => self.follow(&peer).await,
        }
    }

    async fn discover(&mut self) -> Result<(), ConversationError> {
        let found = a2a::discover(&self.guard, &self.url, &self.credentials, &[]).await;
        let mut found = found.map_err(|error| classify_error(&self.url, &error))?;
        for interface in &mut found.card.supported_interfaces {
            interface.url = card::at_named_origin(&interface.url, &self.url);
        }
        card::check(&found.card, self.terms).map_err(ConversationError::Final)?;
        let interface = PeerInterface::choose(&found.card).map_err(|error| classify_error(&self.url, &error))?;
        // A key is sent only to the origin that a person named.
        if let Some(elsewhere) = interface.elsewhere(&self.url) {
            return Err(ConversationError::Final(DelegationFailure {
                code: AwcpErrorCode::Declined,
                message: format!("the card at {} directs callers to another origin, {elsewhere}", self.url),
                hint: format!(
                    "If that is intended, a person can allow that origin: attache delegations allow --peer {}",
                    interface.url
                ),
            }));
        }
        let peer = PeerClient::new(&self.guard, &found.card, self.credentials.clone());
        let peer = peer.map_err(|error| classify_error(&self.url, &error))?;
        self.peer = Some(peer.extended(vec![EXTENSION.to_owned()]));
        self.backoff.reset();
        Ok(())
    }

    /// Sends a message and continues with the source that answers it. A repeated message has the same id, so a remote
    /// that already received it gives the same answer.
    async fn send(&mut self, peer: &PeerClient, message: Message) -> Result<(), ConversationError> {
        let is_first = message.task_id.is_none();
        self.was_sent = true;
        let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
        let request = SendMessage { tenant: None, message, configuration: Some(configuration), metadata: None };
        let sent = if peer.capabilities().streaming == Some(true) {
            peer.stream(request).await.map(|events| self.source = RemoteEventSource::Stream(Box::new(events)))
        } else {
            peer.send(request).await.map(|response| {
                self.source = RemoteEventSource::Poll;
                let event = match response.what {
                    SendMessageResponse::Task(task) => StreamResponse::Task(task),
                    SendMessageResponse::Message(message) => StreamResponse::Message(message),
                };
                self.events.extend(self.interpreter.interpret(event));
            })
        };
        match sent {
            Ok(()) => {
                self.outbox = None;
                self.backoff.reset();
                Ok(())
            }
            Err(error) if error.is_passing() => Err(passing(&error)),
            // The task has moved on: read it to find out how.
            Err(error) if !is_first && error.fault().is_some() => {
                self.outbox = None;
                self.poll_task().await?;
                let has_ended =
                    self.events.iter().any(|event| matches!(event, RemoteEvent::Done(_) | RemoteEvent::Failed(_)));
                if has_ended { Ok(()) } else { Err(classify_error(&self.url, &error)) }
            }
            Err(error) => Err(classify_error(&self.url, &error)),
        }
    }

    /// Resumes the stream of the task, or falls back to polling.
    async fn follow(&mut self, peer: &PeerClient) -> Result<(), ConversationError> {
        let Some(task) = self.interpreter.task().map(str::to_owned) else {
            // The answer to INVITE was lost, and the task's id with it.
            self.outbox = Some(self.invite.clone());
            return Ok(());
        };
        if peer.capabilities().streaming != Some(true) {
            self.source = RemoteEventSource::Poll;
            return self.poll_task().await;
        }
        match peer.subscribe(&task).await {
            Ok(events) => self.source = RemoteEventSource::Stream(Box::new(events)),
            Err(error) if error.is_passing() => return Err(passing(&error)),
            // The task has ended, or the peer doesn't support it. Reading the task tells which.
            Err(_) => self.source = RemoteEventSource::Poll,
        }
        // Covers what happened since the last event, even if the stream starts later.
        self.poll_task().await
    }

    /// Reads the current state of the task.
    async fn poll_task(&mut self) -> Result<(), ConversationError> {
        let (Some(peer), Some(task)) = (&self.peer, self.interpreter.task()) else { return Ok(()) };
        let request = GetTask { tenant: None, id: task.to_owned(), history_length: Some(0) };
        let task = peer.get(request).await.map_err(|error| {
            if error.fault() == Some(Fault::TaskNotFound) {
                let message = "the remote no longer knows the task".to_owned();
                let hint = "Its hub may have lost data. Delegate again.".to_owned();
                return ConversationError::Final(DelegationFailure { code: AwcpErrorCode::TaskFailed, message, hint });
            }
            classify_error(&self.url, &error)
        })?;
        self.events.extend(self.interpreter.on_task(&task.what));
        Ok(())
    }

    /// Notifies the remote that the delegation ended, and cancels its task. `Err` if the remote wasn't notified.
    pub(super) async fn notify_end(&mut self, code: AwcpErrorCode, reason: &str) -> Result<(), String> {
        let text_of = |error| match error {
            ConversationError::Passing(text) => text,
            ConversationError::Final(failure) => failure.message,
        };
        if self.peer.is_none() {
            self.discover().await.map_err(text_of)?;
        }
        let Some(peer) = self.peer.clone() else { return Ok(()) };
        if self.interpreter.task().is_none() {
            // INVITE may have arrived without its answer. Sending it again returns the same task.
            self.send(&peer, self.invite.clone()).await.map_err(text_of)?;
            while self.interpreter.task().is_none() {
                if let RemoteEventSource::Stream(events) = &mut self.source
                    && let Some(Ok(event)) = events.next().await
                {
                    let _ = self.interpreter.interpret(event.what);
                } else {
                    return Err("the remote did not name its task".to_owned());
                }
            }
        }
        let Some(task) = self.interpreter.task().map(str::to_owned) else { return Ok(()) };
        let error = awcp::AwcpError {
            delegation_id: self.delegation.to_string(),
            code,
            message: reason.to_owned(),
            hint: code.hint().to_owned(),
        };
        let mut message = message(self.delegation, &awcp::AwcpMessage::Error(error));
        message.task_id = Some(task.clone());
        let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
        let request = SendMessage { tenant: None, message, configuration: Some(configuration), metadata: None };
        // A remote that has ended or ignores messages while it works is cancelled anyway.
        if let Err(error) = peer.send(request).await {
            tracing::debug!(delegation.id = %self.delegation, %error, "the remote did not accept ERROR");
        }
        match peer.cancel(&task).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.fault(), Some(Fault::TaskNotCancelable | Fault::TaskNotFound)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// An AWCP message. Its id names its kind, so sending it twice counts once.
fn message(delegation: DelegationId, content: &awcp::AwcpMessage) -> Message {
    let id = format!("{delegation}-{}", content.kind().to_ascii_lowercase());
    let mut message = Message::new(id, A2aRole::User, vec![content.part()]);
    message.extensions = vec![EXTENSION.to_owned()];
    message
}

/// A person listed the peer, so its host may be private. No other host is allowed.
pub(super) fn guard_for(url: &str) -> EgressGuard {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let rule = host.and_then(|host| host.parse::<EgressRule>().ok());
    EgressGuard::new(EgressPolicy { allow: rule.into_iter().collect() })
}

fn passing(error: &a2a::Error) -> ConversationError {
    ConversationError::Passing(reason(error))
}

/// Why a call failed. The error's own advice is for a hub that calls its peers.
fn reason(error: &a2a::Error) -> String {
    match error {
        a2a::Error::Call(EgressFailure::Unreachable { origin, reason }) => format!("can't reach {origin}: {reason}"),
        a2a::Error::Denied { origin, status } => format!("{origin} doesn't accept the key (status {status})"),
        _ => error.to_string(),
    }
}

fn classify_error(url: &str, error: &a2a::Error) -> ConversationError {
    if error.is_passing() {
        return passing(error);
    }
    let (code, hint) = match error {
        a2a::Error::Denied { .. } => (
            AwcpErrorCode::AuthFailed,
            format!("Set the key for this agent: attache delegations allow --peer {url} --key-file FILE"),
        ),
        _ => (AwcpErrorCode::TaskFailed, "Check the URL, and that the agent exists: `attache agents`.".to_owned()),
    };
    ConversationError::Final(DelegationFailure { code, message: format!("{url}: {}", reason(error)), hint })
}

// === impl PeerTimings ===

impl Default for PeerTimings {
    fn default() -> Self {
        Self {
            retry: (Duration::from_millis(250), Duration::from_secs(15)),
            poll: Duration::from_secs(1),
            tell: Duration::from_secs(5),
        }
    }
}
