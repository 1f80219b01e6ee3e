//! The conversation with the remote over A2A: one task, heard as a stream where there is one and by asking otherwise. What a
//! broken network swallowed is said and asked again, for as long as the delegation lasts.

mod card;
mod interpreter;

use std::{collections::VecDeque, time::Duration};

use attache_client::{
    Backoff,
    a2a::{self, PeerClient, PeerCredentials, PeerEventStream, PeerInterface},
    egress::{self, EgressGuard, EgressPolicy, EgressRule},
};
use attache_protocol::{
    DelegationId, Timestamp,
    env::Env,
    rules::delegation::LeaseTerms,
    wire::{
        a2a::{A2aRole, Fault, GetTask, Message, SendConfiguration, SendMessage, SendMessageResponse, StreamResponse},
        awcp::{self, AwcpErrorCode, EXTENSION},
        delegation::DelegationFailure,
    },
};

use crate::awcp_policy::TrustedPeer as Listed;
pub(super) use interpreter::RemoteEvent;
use interpreter::TaskInterpreter;

/// How often things are tried again.
#[derive(Debug, Clone, Copy)]
pub struct PeerTimings {
    /// Between two tries: at first, and at most.
    pub retry: (Duration, Duration),
    /// Between two questions to a remote that does not stream.
    pub poll: Duration,
    /// How long the end of a delegation waits for the remote to hear of it; after that it is told in the background.
    pub tell: Duration,
}

/// One remote, and one task there.
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
    /// What has to be said next, until it is known to have arrived.
    outbox: Option<Message>,
    source: RemoteEventSource,
    events: VecDeque<RemoteEvent>,
    backoff: Backoff,
    must_back_off: bool,
    was_sent: bool,
    begun: Timestamp,
}

#[derive(Debug)]
enum RemoteEventSource {
    Nothing,
    Stream(Box<PeerEventStream>),
    Poll,
}

/// Why a step did not work.
enum ConversationError {
    Passing(String),
    Final(DelegationFailure),
}

/// How long an agent is looked for that has not answered once.
const FIRST_CONTACT_TIMEOUT: Duration = Duration::from_secs(60);

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
        let begun = env.now();
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
            begun,
        }
    }

    /// One that only has to be told that it is over.
    pub(super) fn resumed(mut self, task: Option<String>) -> Self {
        self.was_sent = true;
        if let Some(task) = task {
            self.interpreter.set_task(task);
        }
        self
    }

    /// Finds the card and holds it against what is to be lent. Nothing is said to the remote yet.
    pub(super) async fn connect(&mut self) -> Result<(), RemoteEvent> {
        match self.discover().await {
            Ok(()) => Ok(()),
            Err(trouble) => Err(self.event_of_error(trouble)),
        }
    }

    /// A pause before the next try, if the last one failed.
    pub(super) async fn back_off(&mut self) {
        if std::mem::take(&mut self.must_back_off) {
            tokio::time::sleep(self.backoff.next(&self.env)).await;
        }
    }

    /// START is what is said next.
    pub(super) fn start(&mut self, start: &awcp::AwcpStart) {
        let mut said = message(self.delegation, &awcp::AwcpMessage::Start(start.clone()));
        said.task_id = self.interpreter.task().map(str::to_owned);
        self.outbox = Some(said);
        self.source = RemoteEventSource::Nothing;
        self.events.clear();
        self.interpreter.mark_started();
    }

    /// Nothing was sent that could have arrived.
    pub(super) const fn was_never_sent(&self) -> bool {
        !self.was_sent
    }

    /// The next thing that the remote makes known. It ends only with the future.
    pub(super) async fn next(&mut self) -> RemoteEvent {
        loop {
            match self.events.pop_front() {
                Some(RemoteEvent::ReadTask) => {
                    if let Err(trouble) = self.poll_task().await {
                        // What is not known yet is asked for again.
                        self.events.push_front(RemoteEvent::ReadTask);
                        return self.event_of_error(trouble);
                    }
                    continue;
                }
                Some(heard) => return heard,
                None => {}
            }
            self.back_off().await;
            if let Err(trouble) = self.step().await {
                return self.event_of_error(trouble);
            }
        }
    }

    fn event_of_error(&mut self, trouble: ConversationError) -> RemoteEvent {
        match trouble {
            // Nobody waits an hour for an agent that was never there.
            ConversationError::Passing(reason)
                if self.peer.is_none()
                    && !self.was_sent
                    && self.env.now().since(self.begun) >= FIRST_CONTACT_TIMEOUT =>
            {
                RemoteEvent::Lost(DelegationFailure {
                    code: AwcpErrorCode::TaskFailed,
                    message: format!("the agent at {} cannot be reached: {reason}", self.url),
                    hint: "Check that its hub is running and that this machine reaches it. Nothing was lent."
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
                Some(Ok(told)) => {
                    self.backoff.reset();
                    self.events.extend(self.interpreter.interpret(told.what));
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
        let found = found.map_err(|error| classify_error(&self.url, &error))?;
        card::check(&found.card, self.terms).map_err(ConversationError::Final)?;
        let interface = PeerInterface::choose(&found.card).map_err(|error| classify_error(&self.url, &error))?;
        if !is_same_origin(&interface.url, &self.url) {
            // A key goes to the place that a person named, and to no other.
            let elsewhere = egress::origin(&interface.url);
            return Err(ConversationError::Final(DelegationFailure {
                code: AwcpErrorCode::Declined,
                message: format!("the card at {} sends callers to {elsewhere}", self.url),
                hint: format!(
                    "If that is meant, a person allows it there: attache delegations allow --peer {}",
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

    /// Says it, and goes on listening where it was answered. The same words have the same id, so that a remote that heard
    /// them before gives the same answer.
    async fn send(&mut self, peer: &PeerClient, message: Message) -> Result<(), ConversationError> {
        let is_first = message.task_id.is_none();
        self.was_sent = true;
        let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
        let request = SendMessage { tenant: None, message, configuration: Some(configuration), metadata: None };
        let said = if peer.capabilities().streaming == Some(true) {
            peer.stream(request).await.map(|events| self.source = RemoteEventSource::Stream(Box::new(events)))
        } else {
            peer.send(request).await.map(|told| {
                self.source = RemoteEventSource::Poll;
                let event = match told.what {
                    SendMessageResponse::Task(task) => StreamResponse::Task(task),
                    SendMessageResponse::Message(message) => StreamResponse::Message(message),
                };
                self.events.extend(self.interpreter.interpret(event));
            })
        };
        match said {
            Ok(()) => {
                self.outbox = None;
                self.backoff.reset();
                Ok(())
            }
            Err(error) if error.is_passing() => Err(passing(&error)),
            // The task is not what it was: it says itself what became of it.
            Err(error) if !is_first && error.fault().is_some() => {
                self.outbox = None;
                self.poll_task().await?;
                let has_ended =
                    self.events.iter().any(|heard| matches!(heard, RemoteEvent::Done(_) | RemoteEvent::Failed(_)));
                if has_ended { Ok(()) } else { Err(classify_error(&self.url, &error)) }
            }
            Err(error) => Err(classify_error(&self.url, &error)),
        }
    }

    /// Takes up the stream of the task again, or goes over to asking.
    async fn follow(&mut self, peer: &PeerClient) -> Result<(), ConversationError> {
        let Some(task) = self.interpreter.task().map(str::to_owned) else {
            // The answer to INVITE was lost, and with it the task's name.
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
            // A task that is over, or a peer that cannot: both show when the task is read.
            Err(_) => self.source = RemoteEventSource::Poll,
        }
        // What happened since the last event, also where a stream begins without it.
        self.poll_task().await
    }

    /// Reads the task as it is now.
    async fn poll_task(&mut self) -> Result<(), ConversationError> {
        let (Some(peer), Some(task)) = (&self.peer, self.interpreter.task()) else { return Ok(()) };
        let request = GetTask { tenant: None, id: task.to_owned(), history_length: Some(0) };
        let told = peer.get(request).await.map_err(|error| {
            if error.fault() == Some(Fault::TaskNotFound) {
                let message = "the remote no longer knows the task".to_owned();
                let hint = "Its hub may have lost its data. Delegate again.".to_owned();
                return ConversationError::Final(DelegationFailure { code: AwcpErrorCode::TaskFailed, message, hint });
            }
            classify_error(&self.url, &error)
        })?;
        self.events.extend(self.interpreter.on_task(&told.what));
        Ok(())
    }

    /// Tells the remote that it is over, and cancels its task. `Err` when it could not be told.
    pub(super) async fn notify_end(&mut self, code: AwcpErrorCode, why: &str) -> Result<(), String> {
        let told = |trouble| match trouble {
            ConversationError::Passing(reason) => reason,
            ConversationError::Final(failure) => failure.message,
        };
        if self.peer.is_none() {
            self.discover().await.map_err(told)?;
        }
        let Some(peer) = self.peer.clone() else { return Ok(()) };
        if self.interpreter.task().is_none() {
            // INVITE may have arrived and its answer not; said again it is answered with the same task.
            self.send(&peer, self.invite.clone()).await.map_err(told)?;
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
            message: why.to_owned(),
            hint: code.hint().to_owned(),
        };
        let mut message = message(self.delegation, &awcp::AwcpMessage::Error(error));
        message.task_id = Some(task.clone());
        let configuration = SendConfiguration { return_immediately: Some(true), ..SendConfiguration::default() };
        let request = SendMessage { tenant: None, message, configuration: Some(configuration), metadata: None };
        // A remote that is over already, or hears nothing while it works, is cancelled all the same.
        if let Err(error) = peer.send(request).await {
            tracing::debug!(delegation.id = %self.delegation, %error, "ERROR was not taken");
        }
        match peer.cancel(&task).await {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.fault(), Some(Fault::TaskNotCancelable | Fault::TaskNotFound)) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A message of AWCP. Its id says which one it is, so that saying it twice is saying it once.
fn message(delegation: DelegationId, said: &awcp::AwcpMessage) -> Message {
    let id = format!("{delegation}-{}", said.kind().to_ascii_lowercase());
    let mut message = Message::new(id, A2aRole::User, vec![said.part()]);
    message.extensions = vec![EXTENSION.to_owned()];
    message
}

/// A person listed the peer, so its host is called although it may be private. No other is.
pub(super) fn guard_for(url: &str) -> EgressGuard {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let rule = host.and_then(|host| host.parse::<EgressRule>().ok());
    EgressGuard::new(EgressPolicy { allow: rule.into_iter().collect() })
}

/// The usual names of this machine are one place.
fn is_same_origin(one: &str, another: &str) -> bool {
    let normal =
        |url: &str| egress::origin(url).replacen("//localhost", "//127.0.0.1", 1).replacen("//[::1]", "//127.0.0.1", 1);
    normal(one) == normal(another)
}

fn passing(error: &a2a::Error) -> ConversationError {
    ConversationError::Passing(error.to_string())
}

fn classify_error(url: &str, error: &a2a::Error) -> ConversationError {
    if error.is_passing() {
        return passing(error);
    }
    let (code, hint) = match error {
        a2a::Error::Denied { .. } => (
            AwcpErrorCode::AuthFailed,
            format!("Name the key for this agent: attache delegations allow --peer {url} --key-file FILE"),
        ),
        _ => (AwcpErrorCode::TaskFailed, "Check the URL, and that the agent is there: `attache agents`.".to_owned()),
    };
    ConversationError::Final(DelegationFailure { code, message: format!("{url}: {error}"), hint })
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
