//! A folder that was lent to us: from START to the last word.

use std::{path::PathBuf, time::Duration};

use attache_protocol::{
    Secret, Timestamp,
    rules::{assignment::Key, delegation::Terms},
    wire::{
        awcp::{AccessMode, Done, Error, ErrorCode, Invite, Message, Start},
        output::OutputLocation,
    },
};
use attache_workspace::mount::{self, Ended, Forward, Mounted, Mounting, Place, Unmounted};
use tokio::time::Instant;

use super::{Collaborator, Outcome, Turn};

/// It is ours until it ends. Dropping it unmounts the folder, and the host hears that nobody works any more.
#[derive(Debug)]
pub struct Lent {
    role: Collaborator,
    key: Key,
    invite: Invite,
    terms: Terms,
    deadline: Timestamp,
    /// The same by a clock that nobody sets.
    ends: Instant,
    /// What the host should know about how it was mounted.
    notes: Option<String>,
    mount_point: PathBuf,
    /// Until it is mounted.
    started: Option<(Start, Secret<String>, Place)>,
    mounted: Option<Held>,
    outcome: Outcome,
    has_ended: bool,
}

#[derive(Debug)]
struct Held {
    mounted: Mounted,
    _forward: Option<Forward>,
    _turn: Turn,
}

/// What the host is told of work that is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkDone {
    pub final_summary: String,
    /// The files to look at.
    pub highlights: Vec<String>,
    pub notes: Option<String>,
    /// Where the rest is, when the summary is not all that was printed.
    pub full_output: Option<OutputLocation>,
}

/// Why work on it must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Over {
    /// The host said so, with these words.
    Host(Box<Message>),
    /// The lease is over.
    Expired,
    /// The folder is not there any more.
    Gone(Ended),
}

/// How long the host may take to show the folder once more before the work counts as done.
const LAST_LOOK: Duration = Duration::from_secs(10);
/// The guard unmounts a moment after the runtime would have.
const GRACE: Duration = Duration::from_secs(2);

// === impl Lent ===

impl Lent {
    pub(super) fn new(
        role: Collaborator,
        key: Key,
        invite: Invite,
        started: (Start, Secret<String>, Place),
        (terms, deadline): (Terms, Timestamp),
        outcome: Outcome,
    ) -> Self {
        let mount_point = started.2.mount_point();
        let started = Some(started);
        let ends = Instant::now() + terms.ttl;
        let (mounted, notes, has_ended) = (None, None, false);
        Self { role, key, invite, terms, deadline, ends, notes, mount_point, started, mounted, outcome, has_ended }
    }

    pub const fn invite(&self) -> &Invite {
        &self.invite
    }

    pub const fn access_mode(&self) -> AccessMode {
        self.terms.access_mode
    }

    pub const fn deadline(&self) -> Timestamp {
        self.deadline
    }

    /// Where the folder is, once it is mounted.
    pub fn mount_point(&self) -> &std::path::Path {
        &self.mount_point
    }

    /// Waits for its turn and mounts the folder. An error is the last word, and [`fail`](Self::fail) says it.
    pub async fn mount(&mut self) -> Result<(), Error> {
        let Some((start, private_key, place)) = self.started.take() else { return Ok(()) };
        let options = self.role.options();
        let turn = options.scheduler.turn(&self.key.caller, &self.key.delegation).await;
        let failed = |code, message: String| Error::new(&self.key.delegation, code, message);
        let endpoint = start.mount.endpoint;
        let forward = match &endpoint.tunnel {
            Some(tunnel) => Some(
                Forward::open(options.tunnels.dial(tunnel))
                    .await
                    .map_err(|error| failed(ErrorCode::MountFailed, format!("no port for the tunnel: {error}")))?,
            ),
            None => None,
        };
        let (host, port) = match &forward {
            Some(forward) => (forward.address().ip().to_string(), forward.address().port()),
            None => (endpoint.host, endpoint.port),
        };
        let wishes =
            start.mount.mount_options.and_then(|wishes| wishes.parse::<Vec<String>>().ok()).unwrap_or_default();
        let (wishes, ignored) = mount::harmless_options(wishes);
        if !ignored.is_empty() {
            self.notes = Some(format!("These mount options were not followed: {}.", ignored.join(", ")));
        }
        let mounting = Mounting {
            host,
            port,
            user: endpoint.user,
            locator: start.mount.export_locator,
            host_key: start.mount.host_key.unwrap_or_default(),
            private_key,
            access_mode: self.terms.access_mode,
            lasts: self.ends.duration_since(Instant::now()) + GRACE,
            options: wishes,
        };
        let mounted = mount::mount(&options.guard, place, mounting).await.map_err(|error| {
            // Whatever became of it then, it came too late.
            let is_over = Instant::now() >= self.ends;
            if is_over {
                tracing::info!(%error, "a folder was not mounted before its lease was over");
                return failed(ErrorCode::Expired, "the lease was over before the folder was mounted".to_owned());
            }
            Error { hint: error.hint(), ..failed(error.code(), error.to_string()) }
        })?;
        self.role.record(&self.key, |entry| entry, "mount");
        self.mounted = Some(Held { mounted, _forward: forward, _turn: turn });
        Ok(())
    }

    /// Waits until there is a reason to stop.
    pub async fn over(&mut self) -> Over {
        let ends = self.ends;
        let mounted = self.mounted.as_ref();
        let gone = async {
            match mounted {
                Some(held) => held.mounted.gone().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            last = self.outcome.last() => Over::Host(Box::new(last)),
            () = tokio::time::sleep_until(ends) => Over::Expired,
            ended = gone => Over::Gone(ended),
        }
    }

    /// The work is done. Everything is with the host when this returns; if it cannot be, that is what it answers.
    pub async fn done(mut self, work: WorkDone) -> Message {
        let WorkDone { final_summary, highlights, notes, full_output } = work;
        let is_there = match &self.mounted {
            Some(held) => held.mounted.is_alive(LAST_LOOK).await,
            None => false,
        };
        let ended = self.unmount().await;
        let delegation_id = self.key.delegation.clone();
        let error = |code, text: &str| Message::Error(Error::new(&self.key.delegation, code, text));
        let why = ended.map(|ended| ended.why);
        let last = if Instant::now() >= self.ends || why == Some(Ended::Expired) {
            error(ErrorCode::Expired, "the lease was over before the work was done")
        } else if !is_there || why != Some(Ended::Asked) {
            error(ErrorCode::TaskFailed, "the folder was taken away while the agent worked in it")
        } else {
            let outages = ended.map_or(0, |ended| ended.outages);
            let told = [notes, self.notes.take(), outages_note(outages)].into_iter().flatten().collect::<Vec<_>>();
            let notes = Some(told.join("\n")).filter(|notes| !notes.is_empty());
            Message::Done(Done { delegation_id, final_summary, highlights, notes, full_output })
        };
        self.end(last)
    }

    /// It will not be done. The folder is unmounted when this returns.
    pub async fn fail(mut self, error: Error) -> Message {
        self.unmount().await;
        self.end(Message::Error(error))
    }

    /// An error of this delegation.
    pub fn error(&self, code: ErrorCode, message: impl Into<String>) -> Error {
        Error::new(&self.key.delegation, code, message)
    }

    /// What there is to say once work on it had to stop.
    pub fn error_of(&self, over: &Over) -> Error {
        match over {
            Over::Host(last) => match &**last {
                Message::Error(error) => error.clone(),
                _ => self.error(ErrorCode::Cancelled, "the delegation has ended"),
            },
            Over::Expired | Over::Gone(Ended::Expired) => {
                self.error(ErrorCode::Expired, "the lease was over before the work was done")
            }
            Over::Gone(Ended::Asked | Ended::Died | Ended::Unguarded) => {
                self.error(ErrorCode::TaskFailed, "the mount of the folder was lost while the agent worked in it")
            }
        }
    }

    async fn unmount(&mut self) -> Option<Unmounted> {
        drop(self.started.take());
        match self.mounted.take() {
            Some(Held { mounted, .. }) => Some(mounted.unmount().await),
            None => None,
        }
    }

    fn end(&mut self, last: Message) -> Message {
        self.has_ended = true;
        self.role.end(&self.key, last)
    }
}

/// For the host: what was on its way when the connection broke did not arrive.
fn outages_note(outages: u32) -> Option<String> {
    let times = match outages {
        0 => return None,
        1 => "once".to_owned(),
        more => format!("{more} times"),
    };
    Some(format!(
        "The connection to the folder broke {times} and was made again. Files that were being written then may be incomplete: \
         look at the diff."
    ))
}

impl Drop for Lent {
    fn drop(&mut self) {
        if !self.has_ended {
            let error = self.error(ErrorCode::TaskFailed, "whoever worked on it is gone");
            self.role.end(&self.key, Message::Error(error));
        }
    }
}
