//! The connection to the host: one SSH channel that carries requests and events, restored when it breaks.
//!
//! When it breaks, requests under way fail: nobody knows whether the host carried them out. New ones wait a moment for
//! the next connection, also those that could be answered from memory. When the host refuses the key, the lease has ended, and everything fails from then on.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use attache_protocol::Secret;
use fuser::Errno;
use russh::{
    ChannelMsg, Limits, Preferred, SshId, cipher, client, compression,
    keys::{Algorithm, PrivateKey, PrivateKeyWithHashAlg, PublicKey, PublicKeyOrCertificate},
};
use tokio::sync::mpsc;

use crate::{
    fs_wire::{FrameBuffer, FsEvent, FsListing, FsReply, FsRequest, SUBSYSTEM, VERSION},
    mount::MountError,
};

/// Where the host is, and what opens it.
#[derive(Debug, Clone)]
pub(super) struct LinkTerms {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) user: String,
    pub(super) locator: String,
    pub(super) host_key: String,
    pub(super) private_key: Secret<String>,
}

/// Runs once the host has answered.
pub(super) type Then = Box<dyn FnOnce(Result<FsReply, Errno>) + Send>;

/// Whoever uses the link.
pub(super) trait LinkUser: Send + Sync + 'static {
    /// Connected: requests that have to come before any other, such as those that open files again.
    fn on_connected(&self) -> Vec<Vec<u8>>;

    fn on_event(&self, event: FsEvent);

    /// The whole of a folder. Called before the request for it is answered.
    fn on_listing(&self, listing: &FsListing);

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
    pending: HashMap<u32, Then>,
    /// Requests that wait for a connection.
    held: VecDeque<(Instant, u32, Vec<u8>)>,
    /// Connections after the first.
    outages: u32,
}

enum LinkPhase {
    Up(mpsc::UnboundedSender<Vec<u8>>),
    Down { since: Instant, is_reported: bool },
    Ended,
}

/// Why a link could not be made.
enum LinkFailure {
    /// It may work later.
    Passing(String),
    Final(MountError),
}

struct PinnedHost(PublicKey);

/// How long a request waits for a broken connection to be restored.
const GRACE: Duration = Duration::from_secs(3);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(3);
const MAX_MISSED_KEEPALIVES: usize = 2;
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
const TICK: Duration = Duration::from_millis(100);
/// How much can be on its way to us. The host's own windows are smaller.
const CHANNEL_WINDOW: u32 = 16 << 20;
/// How much content the host may push, and of files up to which size.
const PUSH_BYTES: u64 = 128 << 20;
const PUSH_FILE: u64 = 512 << 10;

// === impl Link ===

impl Link {
    pub(super) fn new() -> Self {
        let phase = LinkPhase::Down { since: Instant::now(), is_reported: false };
        let (pending, held) = (HashMap::new(), VecDeque::new());
        Self(Mutex::new(LinkState { phase, next_id: 1, pending, held, outages: 0 }))
    }

    /// Whether there is no use in asking: the lease has ended, or the host has been away for too long.
    pub(super) fn is_lost(&self) -> bool {
        self.lock().phase.is_lost()
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
    pub(super) fn call(&self, make: impl FnOnce(u32) -> Vec<u8>, then: Then) -> Result<(), Then> {
        let mut state = self.lock();
        if state.phase.is_lost() {
            return Err(then);
        }
        let id = state.next_id;
        state.next_id = state.next_id.checked_add(1).unwrap_or(1);
        let frame = make(id);
        match &state.phase {
            LinkPhase::Up(out) => drop(out.send(frame)),
            LinkPhase::Down { .. } | LinkPhase::Ended => {
                state.held.push_back((Instant::now() + GRACE, id, frame));
            }
        }
        state.pending.insert(id, then);
        Ok(())
    }

    /// Sends a request that gets no reply.
    pub(super) fn tell(&self, request: &FsRequest<'_>) {
        if let LinkPhase::Up(out) = &self.lock().phase {
            let _ = out.send(request.write());
        }
    }

    fn answer(&self, id: u32, result: Result<FsReply, Errno>) {
        let then = self.lock().pending.remove(&id);
        if let Some(then) = then {
            then(result);
        }
    }

    fn connected(&self, out: mpsc::UnboundedSender<Vec<u8>>, first: Vec<Vec<u8>>, is_first: bool) {
        let mut state = self.lock();
        state.outages += u32::from(!is_first);
        for frame in first.into_iter().chain(std::mem::take(&mut state.held).into_iter().map(|(_, _, frame)| frame)) {
            let _ = out.send(frame);
        }
        state.phase = LinkPhase::Up(out);
    }

    fn disconnected(&self) {
        let mut state = self.lock();
        state.phase = LinkPhase::Down { since: Instant::now(), is_reported: false };
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        for (_, then) in pending {
            then(Err(Errno::EIO));
        }
    }

    fn end(&self) {
        let mut state = self.lock();
        state.phase = LinkPhase::Ended;
        state.held.clear();
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        for (_, then) in pending {
            then(Err(Errno::EIO));
        }
    }

    /// Fails requests that have waited long enough for a connection. `true` the first time that everybody has.
    fn expire(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        let mut late = Vec::new();
        while state.held.front().is_some_and(|(deadline, ..)| *deadline <= now) {
            if let Some((_, id, _)) = state.held.pop_front() {
                late.extend(state.pending.remove(&id));
            }
        }
        let is_news = match &mut state.phase {
            LinkPhase::Down { since, is_reported } if since.elapsed() > GRACE && !*is_reported => {
                *is_reported = true;
                true
            }
            _ => false,
        };
        drop(state);
        for then in late {
            then(Err(Errno::EIO));
        }
        is_news
    }

    fn lock(&self) -> MutexGuard<'_, LinkState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
                };
                let first = std::iter::once(hello.write()).chain(user.on_connected()).collect();
                link.connected(sender, first, ready.is_some());
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Ok(()));
                }
                serve(link, user, channel, out).await;
                drop(session);
                link.disconnected();
                user.on_disconnected();
            }
            Err(failure) => {
                if let Some(ready) = ready.take() {
                    let _ = ready.send(Err(match failure {
                        LinkFailure::Passing(reason) => MountError::Sshfs(reason),
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

async fn connect(terms: &LinkTerms) -> Result<(client::Handle<PinnedHost>, russh::Channel<client::Msg>), LinkFailure> {
    let passing = |error: russh::Error| LinkFailure::Passing(error.to_string());
    let refused = |reason: &str| LinkFailure::Final(MountError::KeyRefused(reason.to_owned()));
    let host_key = PublicKey::from_openssh(terms.host_key.trim())
        .map_err(|_| LinkFailure::Final(MountError::OtherHost("its key in START is unreadable".to_owned())))?;
    let key = PrivateKey::from_openssh(terms.private_key.expose())
        .map_err(|_| refused("the lease's private key is invalid"))?;
    let config = client::Config {
        client_id: SshId::Standard(Cow::Borrowed("SSH-2.0-attache")),
        limits: Limits::new(1 << 30, 1 << 30, Duration::from_secs(3600)),
        window_size: CHANNEL_WINDOW,
        channel_buffer_size: 256,
        preferred: Preferred {
            key: Cow::Borrowed(&[Algorithm::Ed25519]),
            cipher: Cow::Borrowed(&[cipher::AES_256_GCM]),
            compression: Cow::Borrowed(&[compression::NONE]),
            ..Preferred::DEFAULT
        },
        keepalive_interval: Some(KEEPALIVE_INTERVAL),
        keepalive_max: MAX_MISSED_KEEPALIVES,
        nodelay: true,
        ..client::Config::default()
    };
    let address = (terms.host.as_str(), terms.port);
    let connecting = async {
        let mut session =
            client::connect(Arc::new(config), address, PinnedHost(host_key)).await.map_err(|error| match error {
                russh::Error::UnknownKey => {
                    LinkFailure::Final(MountError::OtherHost("it shows another key".to_owned()))
                }
                error => passing(error),
            })?;
        let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
        if !session.authenticate_publickey(&terms.user, key).await.map_err(passing)?.success() {
            return Err(refused("permission denied"));
        }
        let mut channel = session.channel_open_session().await.map_err(passing)?;
        channel.request_subsystem(true, SUBSYSTEM).await.map_err(passing)?;
        loop {
            match channel.wait().await {
                Some(ChannelMsg::Success) => return Ok((session, channel)),
                Some(ChannelMsg::Failure) => {
                    let text = format!("the host doesn't offer {SUBSYSTEM}");
                    return Err(LinkFailure::Final(MountError::Terms(text)));
                }
                Some(_) => {}
                None => return Err(LinkFailure::Passing("the host closed the connection".to_owned())),
            }
        }
    };
    match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
        Ok(connected) => connected,
        Err(_) => Err(LinkFailure::Passing("the host does not answer".to_owned())),
    }
}

/// Sends and receives until the connection breaks.
async fn serve<U: LinkUser>(
    link: &Link,
    user: &U,
    channel: russh::Channel<client::Msg>,
    mut out: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    let (mut reader, writer) = channel.split();
    let reading = async {
        let mut frames = FrameBuffer::default();
        let mut folders = HashMap::new();
        while let Some(message) = reader.wait().await {
            let data = match message {
                ChannelMsg::Data { data } => data,
                ChannelMsg::Eof | ChannelMsg::Close => return,
                _ => continue,
            };
            frames.extend(&data);
            loop {
                match frames.next().map(|frame| frame.map(FsEvent::read)) {
                    Ok(Some(Ok(event))) => dispatch(link, user, event, &mut folders),
                    Ok(None) => break,
                    Ok(Some(Err(error))) | Err(error) => {
                        tracing::warn!(%error, "the host sent something that isn't attache-fs");
                        return;
                    }
                }
            }
        }
    };
    let writing = async {
        while let Some(frame) = out.recv().await {
            if writer.data_bytes(frame).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

fn dispatch<U: LinkUser>(link: &Link, user: &U, event: FsEvent, folders: &mut HashMap<(u32, Vec<u8>), FsListing>) {
    match event {
        FsEvent::Listing(part) => {
            let key = (part.id, part.path.clone());
            let is_last = part.is_last;
            let whole = match folders.remove(&key) {
                // A listing that began anew, because the first one was never finished.
                Some(earlier) if earlier.stamp != part.stamp => part,
                Some(mut earlier) => {
                    earlier.entries.extend(part.entries);
                    earlier
                }
                None => part,
            };
            if is_last {
                user.on_listing(&whole);
                if whole.id != 0 {
                    link.answer(whole.id, Ok(FsReply::of_listing(&whole)));
                }
            } else {
                folders.insert(key, whole);
            }
        }
        FsEvent::Done(reply) => link.answer(reply.id, Ok(reply)),
        FsEvent::Failed(failure) => {
            let errno = i32::try_from(failure.errno).unwrap_or(0);
            link.answer(failure.id, Err(Errno::from_i32(errno)));
        }
        event => user.on_event(event),
    }
}

impl client::Handler for PinnedHost {
    type Error = russh::Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, russh::Error> {
        Ok(matches!(shown, PublicKeyOrCertificate::PublicKey { key, .. } if key.key_data() == self.0.key_data()))
    }
}
