//! The conversation with an executor of the reference implementation about one delegation, in the place of the A2A
//! conversation: the same events, from its messages.

use std::{collections::VecDeque, time::Duration};

use attache_client::{Backoff, egress::EgressGuard};
use attache_protocol::{
    DelegationId, Secret, Timestamp,
    env::Env,
    wire::{
        awcp::{ARCHIVE, AwcpDone, AwcpErrorCode, AwcpInvite, AwcpStart},
        base64,
        delegation::DelegationFailure,
    },
};
use attache_workspace::{archive, mount::GuardCommand, ssh::make_key};
use reqwest::StatusCode;

use super::{
    exchange::ExchangeFolders,
    executor_client::{ExecutorClient, ExecutorError, TaskEvents},
    messages::{
        CompatAccept, CompatDone, CompatEvent, CompatFailure, CompatHandle, CompatHeader, CompatInvite, CompatLease,
        CompatResult, CompatSnapshot, CompatStart, brief, read, written,
    },
    work_copy::WorkCopy,
};
use crate::delegator::{FIRST_CONTACT_TIMEOUT, PeerTimings, RemoteEvent};

/// What a conversation needs of the daemon.
#[derive(Debug)]
pub(crate) struct CompatTerms {
    pub(crate) url: String,
    pub(crate) guard: EgressGuard,
    pub(crate) credential: Option<Secret<String>>,
    /// The program that owns a copy of the folder.
    pub(crate) copies: Option<GuardCommand>,
    pub(crate) folders: ExchangeFolders,
    pub(crate) env: Env,
    pub(crate) pace: PeerTimings,
}

#[derive(Debug)]
pub(crate) struct CompatConversation {
    delegation: DelegationId,
    /// The same as text.
    id: String,
    terms: CompatTerms,
    client: ExecutorClient,
    invite: CompatInvite,
    /// The private half of the copy's key, once there is an invitation to answer.
    key: Option<Secret<String>>,
    step: CompatStep,
    snapshot: Option<CompatSnapshot>,
    events: VecDeque<RemoteEvent>,
    backoff: Backoff,
    must_back_off: bool,
    was_sent: bool,
    created_at: Timestamp,
}

#[derive(Debug)]
enum CompatStep {
    Invite,
    AwaitStart,
    Copy(Box<AwcpStart>),
    Start(Box<OutgoingFolder>),
    /// Without events, they have to be asked for.
    Follow(Box<WorkCopy>, Option<Box<TaskEvents>>),
    Over,
}

/// A packed folder on its way.
#[derive(Debug)]
struct OutgoingFolder {
    copy: WorkCopy,
    message: Vec<u8>,
    /// An earlier attempt may have arrived.
    may_be_there: bool,
}

const MAX_SUMMARY: usize = 1 << 20;
const MAX_HIGHLIGHTS: usize = 100;

// === impl CompatConversation ===

impl CompatConversation {
    pub(crate) fn new(invite: &AwcpInvite, delegation: DelegationId, terms: CompatTerms) -> Self {
        let client = ExecutorClient::new(&terms.guard, &terms.url);
        let credential = terms.credential.as_ref().map(|credential| credential.expose().clone());
        let (backoff, created_at) = (Backoff::new(terms.pace.retry.0, terms.pace.retry.1), terms.env.now());
        Self {
            delegation,
            id: delegation.to_string(),
            invite: CompatInvite::of(invite, credential),
            terms,
            client,
            key: None,
            step: CompatStep::Invite,
            snapshot: None,
            events: VecDeque::new(),
            backoff,
            must_back_off: false,
            was_sent: false,
            created_at,
        }
    }

    /// Resumes a conversation only to report its end.
    pub(crate) fn resumed(mut self) -> Self {
        self.was_sent = true;
        self
    }

    pub(crate) async fn back_off(&mut self) {
        if std::mem::take(&mut self.must_back_off) {
            tokio::time::sleep(self.backoff.next(&self.terms.env)).await;
        }
    }

    pub(crate) fn start(&mut self, start: &AwcpStart) {
        self.step = CompatStep::Copy(Box::new(start.clone()));
    }

    pub(crate) const fn was_never_sent(&self) -> bool {
        !self.was_sent
    }

    /// The next event of the remote. Never returns without one.
    pub(crate) async fn next(&mut self) -> RemoteEvent {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.back_off().await;
            match self.step().await {
                Ok(()) => self.backoff.reset(),
                Err(error) => return self.event_of(error),
            }
        }
    }

    /// Cancels it at the remote. `Err` if the remote wasn't notified.
    pub(crate) async fn notify_end(&mut self) -> Result<(), String> {
        self.client.cancel(&self.id).await.map_err(|error| error.to_string())
    }

    fn event_of(&mut self, error: ExecutorError) -> RemoteEvent {
        let is_new = matches!(self.step, CompatStep::Invite);
        match error {
            ExecutorError::Passing(reason)
                if is_new && self.terms.env.now().since(self.created_at) >= FIRST_CONTACT_TIMEOUT =>
            {
                self.lost(
                    format!("can't reach the executor at {}: {reason}", self.terms.url),
                    "Check that it is running.",
                )
            }
            ExecutorError::Passing(reason) => {
                if let CompatStep::Follow(_, events) = &mut self.step {
                    *events = None;
                }
                self.must_back_off = true;
                RemoteEvent::Unreachable(reason)
            }
            ExecutorError::Status { status: StatusCode::PAYLOAD_TOO_LARGE, text } => self.lost(
                format!("the archive of the folder is too large for {}: {text}", self.terms.url),
                "Share less with --include or --exclude, or have its owner raise the body size limit: \
                 app.use(express.json({ limit: '200mb' })) before its router.",
            ),
            ExecutorError::Status { text, .. } | ExecutorError::Final(text) => self.lost(
                format!("{}: {text}", self.terms.url),
                "Check the URL: it must point to the executor's AWCP routes, and often ends in /awcp.",
            ),
        }
    }

    fn lost(&self, message: String, hint: &str) -> RemoteEvent {
        RemoteEvent::Lost(DelegationFailure { code: AwcpErrorCode::TaskFailed, message, hint: hint.to_owned() })
    }

    async fn step(&mut self) -> Result<(), ExecutorError> {
        match std::mem::replace(&mut self.step, CompatStep::Over) {
            CompatStep::Invite => {
                self.step = CompatStep::Invite;
                self.invite().await
            }
            CompatStep::Copy(start) => {
                if let Err(failure) = self.copy(&start).await {
                    self.events.push_back(RemoteEvent::Lost(failure));
                }
                Ok(())
            }
            CompatStep::Start(folder) => self.send(folder).await,
            CompatStep::Follow(copy, events) => self.follow(copy, events).await,
            step @ (CompatStep::AwaitStart | CompatStep::Over) => {
                self.step = step;
                std::future::pending().await
            }
        }
    }

    async fn invite(&mut self) -> Result<(), ExecutorError> {
        self.was_sent = true;
        let answer = self.client.post(written("INVITE", &self.id, &self.invite)).await?;
        let answer = answer.get().as_bytes();
        let invalid =
            |error: String| ExecutorError::Final(format!("the answer to INVITE isn't an AWCP message: {error}"));
        let header: CompatHeader = read(answer).map_err(invalid)?;
        if header.delegation_id != self.id {
            return Err(invalid("it names another delegation".to_owned()));
        }
        match &*header.kind {
            "ACCEPT" => {
                let accept: CompatAccept = read(answer).map_err(invalid)?;
                let pair = make_key(&self.terms.env);
                self.key = Some(pair.private);
                self.step = CompatStep::AwaitStart;
                let accept = accept.into_ours(self.delegation, pair.public);
                self.events.push_back(RemoteEvent::Accept(Box::new(accept)));
                Ok(())
            }
            "ERROR" => {
                let failure: CompatFailure = read(answer).map_err(invalid)?;
                self.end(RemoteEvent::Failed(failure.into_ours()));
                Ok(())
            }
            other => Err(invalid(format!("it is {}", brief(other)))),
        }
    }

    /// Copies the folder and packs it.
    async fn copy(&mut self, start: &AwcpStart) -> Result<(), DelegationFailure> {
        let missing = |message: &str| DelegationFailure {
            code: AwcpErrorCode::DepMissing,
            message: message.to_owned(),
            hint: "Use the daemon of `attache`.".to_owned(),
        };
        let guard = self.terms.copies.as_ref().ok_or_else(|| missing("this daemon can't copy folders"))?;
        let key = self.key.take().ok_or_else(|| missing("the folder was not accepted"))?;
        let mut copy = WorkCopy::open(guard, &self.terms.folders, start, key, &self.terms.env).await?;
        let archive = copy.pack().await?;
        let text = format!("sending {} files ({} bytes packed)", copy.count(), archive.len());
        self.events.push_back(RemoteEvent::Message(text));
        let lease = CompatLease { expires_at: start.lease.expires_at, access_mode: start.lease.access_mode };
        let transport_handle = CompatHandle {
            transport: ARCHIVE.to_owned(),
            checksum: archive::checksum(&archive),
            workspace_base64: base64::encode(&archive),
        };
        drop(archive);
        let message = written("START", &self.id, &CompatStart { lease, transport_handle });
        self.step = CompatStep::Start(Box::new(OutgoingFolder { copy, message, may_be_there: false }));
        Ok(())
    }

    async fn send(&mut self, mut folder: Box<OutgoingFolder>) -> Result<(), ExecutorError> {
        // The other side doesn't keep events for which nobody has subscribed.
        let events = match self.client.events(&self.id).await {
            Ok(events) => events,
            Err(error) => {
                self.step = CompatStep::Start(folder);
                return Err(error);
            }
        };
        let message = folder.message.clone();
        let answered = self.client.post(message).await;
        // Only a refusal has a header.
        let refused = answered.as_ref().ok().map(|answer| answer.get().as_bytes());
        let refused = refused.filter(|answer| read::<CompatHeader>(answer).is_ok_and(|header| header.kind == "ERROR"));
        let refused = refused.and_then(|answer| read::<CompatFailure>(answer).ok());
        if let Some(failure) = refused {
            self.end(RemoteEvent::Failed(failure.into_ours()));
            return Ok(());
        }
        match answered {
            // It takes no second START.
            Err(ExecutorError::Status { status, .. }) if folder.may_be_there && status.is_server_error() => {
                self.step = CompatStep::Follow(Box::new(folder.copy), None);
            }
            Ok(_) => self.step = CompatStep::Follow(Box::new(folder.copy), Some(Box::new(events))),
            Err(error) => {
                folder.may_be_there = true;
                self.step = CompatStep::Start(folder);
                return Err(error);
            }
        }
        Ok(())
    }

    async fn follow(&mut self, copy: Box<WorkCopy>, events: Option<Box<TaskEvents>>) -> Result<(), ExecutorError> {
        let Some(mut events) = events else { return self.look(copy).await };
        let event = match events.next().await {
            Ok(event) => event,
            Err(error) => {
                self.step = CompatStep::Follow(copy, None);
                return Err(error);
            }
        };
        match event {
            Some(CompatEvent::Status(status)) => {
                self.events.push_back(RemoteEvent::Working);
                self.events.extend(status.message.map(|text| RemoteEvent::Message(brief(&text))));
                self.step = CompatStep::Follow(copy, Some(events));
            }
            Some(CompatEvent::Snapshot(snapshot)) => {
                if snapshot.recommended || self.snapshot.as_ref().is_none_or(|held| !held.recommended) {
                    self.snapshot = Some(snapshot);
                }
                self.step = CompatStep::Follow(copy, Some(events));
            }
            Some(CompatEvent::Done(done)) => self.finish(copy, done).await?,
            Some(CompatEvent::Error(failure)) => {
                self.end(RemoteEvent::Failed(failure.into_ours()));
                self.acknowledge().await;
            }
            None => {
                self.step = CompatStep::Follow(copy, None);
                self.must_back_off = true;
            }
        }
        Ok(())
    }

    /// The stream is gone: asks what has happened, and listens again.
    async fn look(&mut self, copy: Box<WorkCopy>) -> Result<(), ExecutorError> {
        let result = match self.client.result(&self.id).await {
            Ok(result) => result,
            Err(error) => {
                self.step = CompatStep::Follow(copy, None);
                return Err(error);
            }
        };
        match &*result.status {
            "completed" => {
                let CompatResult { summary, highlights, snapshot_base64, .. } = result;
                self.hold(snapshot_base64);
                let done = CompatDone { summary: summary.unwrap_or_default(), highlights, ..CompatDone::default() };
                self.finish(copy, done).await?;
            }
            "error" => {
                let failure = result.error.unwrap_or_else(|| CompatFailure::of(AwcpErrorCode::TaskFailed, "it failed"));
                self.end(RemoteEvent::Failed(failure.into_ours()));
                self.acknowledge().await;
            }
            "running" => {
                let events = self.client.events(&self.id).await;
                let (events, failed) = match events {
                    Ok(events) => (Some(Box::new(events)), None),
                    Err(error) => (None, Some(error)),
                };
                self.step = CompatStep::Follow(copy, events);
                return failed.map_or(Ok(()), Err);
            }
            _ => {
                let lost = self.lost("the remote no longer knows the task".to_owned(), "Delegate again.");
                self.end(lost);
            }
        }
        Ok(())
    }

    fn hold(&mut self, snapshot_base64: Option<String>) {
        self.snapshot = snapshot_base64.map(|snapshot_base64| CompatSnapshot {
            snapshot_id: String::new(),
            summary: String::new(),
            highlights: None,
            snapshot_base64,
            recommended: true,
        });
    }

    /// The work is done: brings its result into the folder, and reports it.
    async fn finish(&mut self, copy: Box<WorkCopy>, done: CompatDone) -> Result<(), ExecutorError> {
        if self.snapshot.is_none() {
            // It came before the stream, or never.
            match self.client.result(&self.id).await {
                Ok(result) => self.hold(result.snapshot_base64),
                Err(error) => {
                    self.step = CompatStep::Follow(copy, None);
                    return Err(error);
                }
            }
        }
        let archive = match self.snapshot.take().map(|snapshot| base64::decode(&snapshot.snapshot_base64)) {
            Some(None) => return Err(ExecutorError::Final("the result isn't base64".to_owned())),
            archive => archive.flatten(),
        };
        let event = match copy.finish(archive).await {
            Ok(notes) => RemoteEvent::Done(AwcpDone {
                delegation_id: self.id.clone(),
                final_summary: done.summary.chars().take(MAX_SUMMARY).collect(),
                highlights: done
                    .highlights
                    .unwrap_or_default()
                    .iter()
                    .take(MAX_HIGHLIGHTS)
                    .map(|it| brief(it))
                    .collect(),
                notes: Some(notes.join("\n")).filter(|notes| !notes.is_empty()),
                full_output: None,
            }),
            Err(failure) => RemoteEvent::Lost(failure),
        };
        let is_done = matches!(event, RemoteEvent::Done(_));
        self.end(event);
        if is_done {
            self.acknowledge().await;
        }
        Ok(())
    }

    fn end(&mut self, event: RemoteEvent) {
        self.step = CompatStep::Over;
        self.events.push_back(event);
    }

    /// So that the other side can forget it. It does so anyway after a while.
    async fn acknowledge(&self) {
        let told: Duration = self.terms.pace.tell;
        if !matches!(tokio::time::timeout(told, self.client.acknowledge(&self.id)).await, Ok(Ok(()))) {
            tracing::debug!(delegation.id = self.id, "the remote wasn't told that its result has arrived");
        }
    }
}
