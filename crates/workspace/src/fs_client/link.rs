//! The connection to the host: one SSH channel that carries requests and events, restored when it breaks.
//!
//! When it breaks, requests that a program waits for fail. What was acknowledged already is kept: the host says how far it
//! came, and the rest is sent again. New requests wait a moment for the next connection, also those that could be
//! answered from memory. When the host refuses the key, the lease has ended, and everything fails from then on.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use bytes::Bytes;
use fuser::Errno;
use russh::{ChannelMsg, client};
use tokio::sync::mpsc;

use super::{
    journal::Journal,
    listing_parts::{ListingParts, TooManyParts},
};
use crate::{
    fs_connect::{LinkFailure, LinkTerms, connect},
    fs_wire::{FrameBuffer, FsEvent, FsListing, FsReply, FsRequest, FsWelcome, VERSION},
    mount::MountError,
};

/// Runs once the host has answered.
pub(super) type Then = Box<dyn FnOnce(Result<FsReply, Errno>) + Send>;

/// Whoever uses the link.
pub(super) trait LinkUser: Send + Sync + 'static {
    /// Connected, to a host that may know nothing of earlier connections: then no file is open there any more.
    fn on_connected(&self, handles: EarlierFileHandles);

    fn on_event(&self, event: FsEvent);

    /// The whole of a folder. Called before the request for it is answered.
    fn on_listing(&self, listing: &FsListing) -> Result<(), Errno>;

    /// The connection broke. Perhaps the lease has ended: nothing may be shown before that is known.
    fn on_disconnected(&self);

    /// The lease has ended, or the host can't be reached for longer than requests wait.
    fn on_lost(&self);
}

#[derive(Debug)]
pub(super) struct Link(Mutex<LinkState>);

struct LinkState {
    phase: LinkPhase,
    next_id: u32,
    /// In the order in which they are sent.
    pending: BTreeMap<u32, PendingFsRequest>,
    /// Connections after the first.
    outages: u32,
    /// Nothing new is accepted.
    is_closing: bool,
    /// Has what was acknowledged and is pending.
    journal: Option<Journal>,
}

struct PendingFsRequest {
    frame: Bytes,
    then: Then,
    /// The path of what was acknowledged already. Otherwise, somebody waits for it.
    acknowledged: Option<Vec<u8>>,
    since: Instant,
}

/// What becomes of a request when the connection breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OnDisconnect<'a> {
    /// A program waits for it and gets an error.
    Fail,
    /// It was already acknowledged. It is sent again until the host has carried it out.
    Resend { path: &'a [u8] },
}

/// Whether the host still knows the handles of files that earlier connections opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EarlierFileHandles {
    Open,
    Forgotten,
}

enum LinkPhase {
    Up(mpsc::UnboundedSender<Bytes>),
    Down { since: Instant, is_reported: bool },
    Ended,
}

/// Why a connection is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServeEnd {
    Connection,
    /// Reported by the host. Connecting again is pointless.
    Lease,
}

/// How long a request waits for a broken connection to be restored.
const GRACE: Duration = Duration::from_secs(3);
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
const TICK: Duration = Duration::from_millis(100);
const CLOSE_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// How much content the host may push, and of files up to which size.
const PUSH_BYTES: u64 = 128 << 20;
const PUSH_FILE: u64 = 512 << 10;

// === impl Link ===

impl Link {
    pub(super) fn new(journal: Option<Journal>) -> Self {
        let phase = LinkPhase::Down { since: Instant::now(), is_reported: false };
        let (pending, is_closing) = (BTreeMap::new(), false);
        Self(Mutex::new(LinkState { phase, next_id: 1, pending, outages: 0, is_closing, journal }))
    }

    /// A request that another process acknowledged.
    pub(super) fn adopt(&self, id: u32, frame: Vec<u8>, then: Then) {
        let mut state = self.lock();
        state.next_id = state.next_id.max(id.saturating_add(1));
        let acknowledged = Some(Vec::new());
        state.pending.insert(id, PendingFsRequest { frame: frame.into(), then, acknowledged, since: Instant::now() });
    }

    /// Whether there is no use in asking: the lease has ended, or the host has been away for too long.
    pub(super) fn is_lost(&self) -> bool {
        let state = self.lock();
        state.is_closing || state.phase.is_lost()
    }

    /// Whether the host is connected. If not, what is known from it is not to be used: the lease may have ended.
    pub(super) fn is_up(&self) -> bool {
        matches!(self.lock().phase, LinkPhase::Up(_))
    }

    /// How often the connection broke and was restored.
    pub(super) fn outages(&self) -> u32 {
        self.lock().outages
    }

    /// Sends a request. Returns what would have run after it, if there is no use in sending it.
    pub(super) fn call(
        &self,
        on_disconnect: OnDisconnect<'_>,
        make: impl FnOnce(u32) -> Vec<u8>,
        then: Then,
    ) -> Result<(), Then> {
        let mut state = self.lock();
        if state.is_closing || state.phase.is_lost() {
            return Err(then);
        }
        let id = state.next_id;
        state.next_id = state.next_id.checked_add(1).unwrap_or(1);
        let frame = Bytes::from(make(id));
        let acknowledged = match on_disconnect {
            OnDisconnect::Fail => None,
            OnDisconnect::Resend { path } => Some(path.to_vec()),
        };
        if let (Some(path), Some(journal)) = (&acknowledged, &mut state.journal)
            && let Err(error) = journal.append(path, &frame)
        {
            tracing::warn!(%error, "can't write the journal of unconfirmed changes");
            state.journal = None;
        }
        if let LinkPhase::Up(out) = &state.phase {
            let _ = out.send(frame.clone());
        }
        state.pending.insert(id, PendingFsRequest { frame, then, acknowledged, since: Instant::now() });
        Ok(())
    }

    /// Sends a request that gets no reply.
    pub(super) fn tell(&self, request: &FsRequest<'_>) {
        if let LinkPhase::Up(out) = &self.lock().phase {
            let _ = out.send(request.write().into());
        }
    }

    /// Accepts nothing new, and waits until everything that was acknowledged is carried out. What isn't by then has
    /// failed.
    pub(super) fn close(&self, time: Duration) {
        self.lock().is_closing = true;
        let since = Instant::now();
        while since.elapsed() < time && self.lock().has_acknowledged() {
            std::thread::sleep(CLOSE_POLL_INTERVAL);
        }
        self.end();
    }

    /// Whether the answer to a request is missing.
    fn awaits(&self, id: u32) -> bool {
        self.lock().pending.contains_key(&id)
    }

    fn answer(&self, id: u32, result: Result<FsReply, Errno>) {
        let mut state = self.lock();
        let pending = state.pending.remove(&id);
        state.trim_journal();
        drop(state);
        if let Some(pending) = pending {
            (pending.then)(result);
        }
    }

    /// The host answers. What it hasn't carried out yet is sent to it, in the same order as before.
    fn resume(&self, out: &mpsc::UnboundedSender<Bytes>, welcome: &FsWelcome) {
        let mut state = self.lock();
        let mut done = Vec::new();
        let carried_out = welcome.carried_out.unwrap_or(0);
        let pending = std::mem::take(&mut state.pending);
        let has_sent = state.next_id > 1;
        for (id, pending) in pending {
            if pending.acknowledged.is_some() && id <= carried_out {
                let failure = welcome.failed.iter().find(|(failed, _)| *failed == id);
                let result = failure.map_or(Ok(FsReply::EMPTY), |(_, errno)| Err(errno_from(*errno)));
                done.push((pending.then, result));
            } else if pending.acknowledged.is_some() && has_sent && welcome.carried_out.is_none() {
                // The host has forgotten this mount. Nobody knows how far it came.
                done.push((pending.then, Err(Errno::EIO)));
            } else {
                let _ = out.send(pending.frame.clone());
                state.pending.insert(id, pending);
            }
        }
        state.phase = LinkPhase::Up(out.clone());
        drop(state);
        for (then, result) in done {
            then(result);
        }
    }

    fn disconnected(&self) {
        let mut state = self.lock();
        if matches!(state.phase, LinkPhase::Up(_)) {
            state.phase = LinkPhase::Down { since: Instant::now(), is_reported: false };
        }
        let failed = state.take_pending(|pending| pending.acknowledged.is_none());
        drop(state);
        fail_all(failed);
    }

    fn end(&self) {
        let mut state = self.lock();
        state.phase = LinkPhase::Ended;
        let failed = state.take_pending(|_| true);
        drop(state);
        fail_all(failed);
    }

    /// Fails requests that have waited long enough for a connection. `true` the first time that everybody has.
    fn expire(&self) -> bool {
        let mut state = self.lock();
        let late = state.take_pending(|pending| pending.acknowledged.is_none() && pending.since.elapsed() > GRACE);
        let is_news = match &mut state.phase {
            LinkPhase::Down { since, is_reported } if since.elapsed() > GRACE && !*is_reported => {
                *is_reported = true;
                true
            }
            _ => false,
        };
        drop(state);
        fail_all(late);
        is_news
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl LinkState ===

impl LinkState {
    fn has_acknowledged(&self) -> bool {
        self.pending.values().any(|pending| pending.acknowledged.is_some())
    }

    /// Something was confirmed: what the journal has of it is of no use any more.
    fn trim_journal(&mut self) {
        let is_empty = !self.has_acknowledged();
        let Some(journal) = &mut self.journal else { return };
        let kept =
            self.pending.values().filter_map(|pending| Some((&pending.acknowledged.as_ref()?[..], &pending.frame[..])));
        let trimmed = match (is_empty, journal.is_large()) {
            (true, _) => journal.clear(),
            (false, true) => journal.rewrite(kept),
            (false, false) => Ok(()),
        };
        if let Err(error) = trimmed {
            tracing::warn!(%error, "can't write the journal of unconfirmed changes");
            self.journal = None;
        }
    }

    fn take_pending(&mut self, is_taken: impl Fn(&PendingFsRequest) -> bool) -> Vec<PendingFsRequest> {
        let ids: Vec<u32> = self.pending.iter().filter(|(_, pending)| is_taken(pending)).map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| self.pending.remove(id)).collect()
    }
}

fn fail_all(failed: Vec<PendingFsRequest>) {
    for pending in failed {
        (pending.then)(Err(Errno::EIO));
    }
}

fn errno_from(code: u32) -> Errno {
    Errno::from_i32(i32::try_from(code).unwrap_or(0))
}

impl LinkPhase {
    fn is_lost(&self) -> bool {
        match self {
            Self::Up(_) => false,
            Self::Down { since, .. } => since.elapsed() > GRACE,
            Self::Ended => true,
        }
    }
}

impl std::fmt::Debug for LinkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkState").field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

/// Connects and serves until the lease ends. Reports the outcome of the first connection.
pub(super) async fn run<U: LinkUser>(
    link: &Link,
    user: &U,
    terms: &LinkTerms,
    ready: std::sync::mpsc::Sender<Result<(), MountError>>,
) {
    let mut ready = Some(ready);
    let mut delay = RETRY.0;
    loop {
        let connected = tokio::select! {
            connected = connect(terms) => connected,
            () = expire_requests(link, user) => return,
        };
        match connected {
            Ok((session, channel)) => {
                delay = RETRY.0;
                let (sender, out) = mpsc::unbounded_channel();
                let hello = FsRequest::Hello {
                    version: VERSION,
                    locator: terms.locator.as_bytes(),
                    push_bytes: PUSH_BYTES,
                    push_file: PUSH_FILE,
                    mount: terms.mount,
                };
                let _ = sender.send(hello.write().into());
                let is_first = ready.is_some();
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Ok(()));
                }
                let on_welcome = |welcome: &FsWelcome| {
                    link.lock().outages += u32::from(!is_first);
                    let handles = if welcome.carried_out.is_some() || is_first {
                        EarlierFileHandles::Open
                    } else {
                        EarlierFileHandles::Forgotten
                    };
                    user.on_connected(handles);
                    link.resume(&sender, welcome);
                };
                let end = serve(link, user, channel, out, &on_welcome).await;
                if end == ServeEnd::Lease {
                    link.end();
                    user.on_lost();
                    return;
                }
                drop(session);
                link.disconnected();
                user.on_disconnected();
            }
            Err(failure) => {
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Err(match failure {
                        LinkFailure::Passing(reason) => MountError::Unreachable(reason),
                        LinkFailure::Refused(reason) => MountError::Terms(reason),
                        LinkFailure::Final(error) => error,
                    }));
                    return;
                }
                if let LinkFailure::Final(_) = failure {
                    link.end();
                    user.on_lost();
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(delay) => {}
                    () = expire_requests(link, user) => return,
                }
                delay = (delay * 2).min(RETRY.1);
            }
        }
    }
}

/// Runs while there is no connection. Never returns.
async fn expire_requests<U: LinkUser>(link: &Link, user: &U) {
    loop {
        tokio::time::sleep(TICK).await;
        if link.expire() {
            user.on_lost();
        }
    }
}

/// Sends and receives until the connection breaks.
async fn serve<U: LinkUser>(
    link: &Link,
    user: &U,
    channel: russh::Channel<client::Msg>,
    mut out: mpsc::UnboundedReceiver<Bytes>,
    on_welcome: &impl Fn(&FsWelcome),
) -> ServeEnd {
    let (mut reader, writer) = channel.split();
    let reading = async {
        let mut frames = FrameBuffer::default();
        let mut folders = ListingParts::default();
        while let Some(message) = reader.wait().await {
            let data = match message {
                ChannelMsg::Data { data } => data,
                ChannelMsg::Eof | ChannelMsg::Close => return ServeEnd::Connection,
                _ => continue,
            };
            frames.extend(&data);
            loop {
                match frames.next().map(|frame| frame.map(FsEvent::read)) {
                    Ok(Some(Ok(FsEvent::Welcome(welcome)))) => on_welcome(&welcome),
                    Ok(Some(Ok(FsEvent::Ended))) => return ServeEnd::Lease,
                    Ok(Some(Ok(event))) => {
                        if let Err(error) = dispatch(link, user, event, &mut folders) {
                            tracing::warn!(%error, "closing the connection to the host");
                            return ServeEnd::Connection;
                        }
                    }
                    Ok(None) => break,
                    Ok(Some(Err(error))) | Err(error) => {
                        tracing::warn!(%error, "the host sent something that isn't attache-fs");
                        return ServeEnd::Connection;
                    }
                }
            }
        }
        ServeEnd::Connection
    };
    let writing = async {
        while let Some(frame) = out.recv().await {
            if writer.data_bytes(frame).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        end = reading => end,
        () = writing => ServeEnd::Connection,
    }
}

fn dispatch<U: LinkUser>(
    link: &Link,
    user: &U,
    event: FsEvent,
    folders: &mut ListingParts,
) -> Result<(), TooManyParts> {
    match event {
        FsEvent::Listing(part) => {
            if let Some(mut whole) = folders.add(part)? {
                if !link.awaits(whole.id) {
                    whole.id = 0;
                }
                let kept = user.on_listing(&whole);
                if whole.id != 0 {
                    link.answer(whole.id, kept.map(|()| FsReply::of_listing(&whole)));
                }
            }
        }
        FsEvent::Done(reply) => link.answer(reply.id, Ok(reply)),
        FsEvent::Failed(failure) => {
            link.answer(failure.id, Err(errno_from(failure.errno)));
        }
        event => user.on_event(event),
    }
    Ok(())
}
