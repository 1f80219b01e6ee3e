//! The connection to the host: requests are sent without waiting for the answers of earlier ones, up to a limit, and what the
//! host reports in between is kept.

use std::{
    collections::{BTreeMap, HashMap},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel},
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use russh::{ChannelMsg, client};
use rustix::io::Errno;
use tokio::sync::mpsc;

use super::host_view::HostView;
use crate::{
    fs_connect::{LinkFailure, LinkTerms, connect},
    fs_wire::{FrameBuffer, FsEvent, FsReply, FsRequest, VERSION},
    mount::attache_fs::FLUSH_TIMEOUT,
};

/// What wakes the program up.
pub(super) enum SyncEvent {
    /// From the connection with this number.
    Host(u64, Box<FsEvent>),
    LinkLost(u64, LinkLoss),
    /// Something may have changed in the copy.
    LocalChange,
    /// Nobody works in the copy any more.
    Closing,
}

/// Why the host can't be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LinkLoss {
    #[error("the connection to the host is lost")]
    Broken,
    #[error("the lease has ended")]
    Ended,
    #[error("the folder has more entries than a copy can have")]
    TooLarge,
    #[error("it could not be sent in time")]
    Late,
}

/// What the host answered: an error is a number as Linux has them.
pub(super) type HostAnswer = Result<FsReply, i32>;

pub(super) struct HostLink {
    inbox: Receiver<SyncEvent>,
    wakes: SyncSender<SyncEvent>,
    out: Option<mpsc::UnboundedSender<Bytes>>,
    connection: u64,
    next_id: u32,
    next_handle: u64,
    /// Requests without an answer, and about how many bytes they and their answers have.
    in_flight: BTreeMap<u32, usize>,
    in_flight_bytes: usize,
    answers: HashMap<u32, HostAnswer>,
    /// Open at the host, and files that are not complete yet: a lost connection leaves them behind.
    pub(super) handles: Vec<u64>,
    pub(super) staged: Vec<Vec<u8>>,
    pub(super) view: HostView,
    pub(super) has_local_change: bool,
    pub(super) is_closing: bool,
    /// The end of the lease: nothing is done after it.
    pub(super) ends: Option<Instant>,
    /// When the host last answered, or got something to do.
    progress: Instant,
    loss: Option<LinkLoss>,
}

const MAX_IN_FLIGHT: usize = 8 << 20;
/// So many events wait to be taken, each of which can have a frame of content. The host waits then.
const MAX_WAKES: usize = 64;
/// What a request takes besides its content.
const PER_REQUEST: usize = 512;
/// How long the host can take to report its tree, and to answer.
const TREE_TIMEOUT: Duration = Duration::from_secs(600);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// How often the time is looked at, at the end.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How often folders that were not listed are asked for, while they are moved to and fro.
const MAX_LISTINGS: usize = 1000;

// === impl HostLink ===

impl HostLink {
    /// Also returns how others wake it.
    pub(super) fn new() -> (Self, SyncSender<SyncEvent>) {
        let (wakes, inbox) = sync_channel(MAX_WAKES);
        let link = Self {
            inbox,
            wakes: wakes.clone(),
            out: None,
            connection: 0,
            next_id: 1,
            next_handle: 1,
            in_flight: BTreeMap::new(),
            in_flight_bytes: 0,
            answers: HashMap::new(),
            handles: Vec::new(),
            staged: Vec::new(),
            view: HostView::default(),
            has_local_change: false,
            is_closing: false,
            ends: None,
            progress: Instant::now(),
            loss: None,
        };
        (link, wakes)
    }

    /// Connects, and waits for the tree. What earlier connections left at the host is cleaned up.
    pub(super) fn connect(&mut self, terms: &LinkTerms) -> Result<(), LinkFailure> {
        self.connection += 1;
        (self.loss, self.view) = (None, HostView::default());
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        self.answers.clear();
        let (out, requests) = mpsc::unbounded_channel();
        let hello = FsRequest::Hello {
            version: VERSION,
            locator: terms.locator.as_bytes(),
            push_bytes: 0,
            push_file: 0,
            mount: terms.mount,
        };
        let _ = out.send(hello.write().into());
        let failed = |error: std::io::Error| LinkFailure::Passing(error.to_string());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (ready, connected) = channel();
        let (terms, wakes, number) = (terms.clone(), self.wakes.clone(), self.connection);
        let serve = move || runtime.block_on(serve(&terms, requests, &wakes, number, &ready));
        thread::Builder::new().name("attache-sync-link".to_owned()).spawn(serve).map_err(failed)?;
        connected.recv().unwrap_or_else(|_| Err(LinkFailure::Passing("the connection ended".to_owned())))?;
        self.out = Some(out);
        let passing = |loss: LinkLoss| LinkFailure::Passing(loss.to_string());
        self.wait_for_tree().map_err(passing)?;
        for handle in std::mem::take(&mut self.handles) {
            let _ = self.ask(0, |id| FsRequest::Close { id, handle }.write()).map_err(passing)?;
        }
        for path in std::mem::take(&mut self.staged) {
            let _ = self.ask(0, |id| FsRequest::RemoveFile { id, path: &path }.write()).map_err(passing)?;
        }
        self.list_all().map_err(passing)
    }

    fn wait_for_tree(&mut self) -> Result<(), LinkLoss> {
        let until = Instant::now() + TREE_TIMEOUT;
        while !self.view.is_complete() {
            if Instant::now() > until {
                return Err(LinkLoss::Broken);
            }
            self.step(Duration::from_millis(100))?;
        }
        Ok(())
    }

    /// Completes the view. Whatever of the host isn't known yet would be taken for removed.
    pub(super) fn list_all(&mut self) -> Result<(), LinkLoss> {
        for _ in 0..MAX_LISTINGS {
            // The host sends everything again when it has lost track.
            self.wait_for_tree()?;
            let unlisted = self.view.unlisted();
            if unlisted.is_empty() {
                return Ok(());
            }
            self.list(&unlisted)?;
        }
        Err(LinkLoss::Broken)
    }

    pub(super) fn list(&mut self, folders: &[Vec<u8>]) -> Result<(), LinkLoss> {
        let mut asked = Vec::new();
        for path in folders {
            asked.push((path, self.send(4096, |id| FsRequest::List { id, path }.write())?));
        }
        for (path, id) in asked {
            match self.answer(id)?.map_err(Errno::from_raw_os_error) {
                Ok(_) => {}
                Err(Errno::ACCESS) => self.view.forget(path),
                Err(Errno::NOENT | Errno::NOTDIR) if !path.is_empty() => self.view.doubt(path),
                // Nobody knows what is in it, so nothing may be concluded.
                Err(_) => return Err(LinkLoss::Broken),
            }
        }
        Ok(())
    }

    pub(super) const fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    /// Sends a request, whose answer has about this many bytes. Waits while too much is under way.
    pub(super) fn send(&mut self, expected: usize, make: impl FnOnce(u32) -> Vec<u8>) -> Result<u32, LinkLoss> {
        while self.in_flight_bytes > MAX_IN_FLIGHT {
            self.step(self.answer_timeout())?;
        }
        self.check_time()?;
        self.note_progress();
        if let Some(loss) = &self.loss {
            return Err(loss.clone());
        }
        let id = self.next_id;
        self.next_id = self.next_id.checked_add(1).unwrap_or(1);
        let frame = make(id);
        let weight = PER_REQUEST + frame.len() + expected;
        self.in_flight.insert(id, weight);
        self.in_flight_bytes += weight;
        let is_sent = self.out.as_ref().is_some_and(|out| out.send(frame.into()).is_ok());
        if is_sent { Ok(id) } else { Err(self.loss.clone().unwrap_or(LinkLoss::Broken)) }
    }

    pub(super) fn answer(&mut self, id: u32) -> Result<HostAnswer, LinkLoss> {
        loop {
            if let Some(answer) = self.answers.remove(&id) {
                return Ok(answer);
            }
            if !self.in_flight.contains_key(&id) {
                return Err(LinkLoss::Broken);
            }
            self.step(self.answer_timeout())?;
        }
    }

    pub(super) fn ask(&mut self, expected: usize, make: impl FnOnce(u32) -> Vec<u8>) -> Result<HostAnswer, LinkLoss> {
        let id = self.send(expected, make)?;
        self.answer(id)
    }

    /// What is done here counts as progress, too.
    pub(super) fn note_progress(&mut self) {
        self.progress = Instant::now();
    }

    /// Fails if the lease is over, or if nobody works here any more and the host does nothing either.
    fn check_time(&self) -> Result<(), LinkLoss> {
        let is_over = self.ends.is_some_and(|ends| Instant::now() >= ends);
        let is_stuck = self.is_closing && !self.in_flight.is_empty() && self.progress.elapsed() > FLUSH_TIMEOUT;
        if is_over || is_stuck { Err(LinkLoss::Late) } else { Ok(()) }
    }

    /// Short enough to notice the end, which can also come while an answer is waited for.
    fn answer_timeout(&self) -> Duration {
        let rest = self.ends.map_or(ANSWER_TIMEOUT, |ends| ends.saturating_duration_since(Instant::now()));
        rest.min(if self.is_closing { LOOK_INTERVAL } else { ANSWER_TIMEOUT })
    }

    /// Waits for the next thing that happens. `false` if nothing did.
    pub(super) fn step(&mut self, timeout: Duration) -> Result<bool, LinkLoss> {
        self.check_time()?;
        if let Some(loss) = &self.loss {
            return Err(loss.clone());
        }
        self.take(timeout)
    }

    /// The same without a connection.
    pub(super) fn take(&mut self, timeout: Duration) -> Result<bool, LinkLoss> {
        match self.inbox.recv_timeout(timeout) {
            Ok(SyncEvent::Host(number, event)) if number == self.connection => {
                self.note(*event);
                if self.view.is_too_large() {
                    self.loss = Some(LinkLoss::TooLarge);
                    return Err(LinkLoss::TooLarge);
                }
            }
            Ok(SyncEvent::LinkLost(number, loss)) if number == self.connection => {
                self.out = None;
                self.loss = Some(loss.clone());
                return Err(loss);
            }
            Ok(SyncEvent::Host(..) | SyncEvent::LinkLost(..)) => {}
            Ok(SyncEvent::LocalChange) => self.has_local_change = true,
            Ok(SyncEvent::Closing) => {
                self.is_closing = true;
                self.note_progress();
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(false),
        }
        Ok(true)
    }

    fn note(&mut self, event: FsEvent) {
        let (id, answer) = match event {
            FsEvent::Done(reply) => (reply.id, Ok(reply)),
            FsEvent::Failed(failure) => (failure.id, Err(i32::try_from(failure.errno).unwrap_or(0))),
            FsEvent::Listing(listing) => {
                let (id, is_last, reply) = (listing.id, listing.is_last, FsReply::of_listing(&listing));
                self.view.apply(FsEvent::Listing(listing));
                if id == 0 || !is_last {
                    return;
                }
                (id, Ok(reply))
            }
            event => return self.view.apply(event),
        };
        if let Some(weight) = self.in_flight.remove(&id) {
            self.note_progress();
            self.in_flight_bytes -= weight;
            // More than was requested, or the file was smaller when it was requested.
            let answer = answer.and_then(|reply| match reply.data.len() > weight {
                true => Err(Errno::AGAIN.raw_os_error()),
                false => Ok(reply),
            });
            self.answers.insert(id, answer);
        }
    }
}

async fn serve(
    terms: &LinkTerms,
    mut requests: mpsc::UnboundedReceiver<Bytes>,
    wakes: &SyncSender<SyncEvent>,
    number: u64,
    ready: &Sender<Result<(), LinkFailure>>,
) {
    let (session, channel) = match connect(terms).await {
        Ok(connected) => connected,
        Err(failure) => {
            let _ = ready.send(Err(failure));
            return;
        }
    };
    let _ = ready.send(Ok(()));
    let loss = pump(channel, &mut requests, wakes, number).await;
    let _ = wakes.send(SyncEvent::LinkLost(number, loss));
    drop(session);
}

/// Sends and receives until the connection breaks, or nobody has requests any more.
async fn pump(
    channel: russh::Channel<client::Msg>,
    requests: &mut mpsc::UnboundedReceiver<Bytes>,
    wakes: &SyncSender<SyncEvent>,
    number: u64,
) -> LinkLoss {
    let (mut reader, writer) = channel.split();
    let reading = async {
        let mut frames = FrameBuffer::default();
        while let Some(message) = reader.wait().await {
            let data = match message {
                ChannelMsg::Data { data } => data,
                ChannelMsg::Eof | ChannelMsg::Close => return LinkLoss::Broken,
                _ => continue,
            };
            frames.extend(&data);
            loop {
                match frames.next().map(|frame| frame.map(FsEvent::read)) {
                    Ok(Some(Ok(FsEvent::Ended))) => return LinkLoss::Ended,
                    Ok(Some(Ok(event))) => {
                        let _ = wakes.send(SyncEvent::Host(number, Box::new(event)));
                    }
                    Ok(None) => break,
                    Ok(Some(Err(_))) | Err(_) => return LinkLoss::Broken,
                }
            }
        }
        LinkLoss::Broken
    };
    let writing = async {
        while let Some(frame) = requests.recv().await {
            if writer.data_bytes(frame).await.is_err() {
                break;
            }
        }
    };
    tokio::select! {
        loss = reading => loss,
        () = writing => LinkLoss::Broken,
    }
}
