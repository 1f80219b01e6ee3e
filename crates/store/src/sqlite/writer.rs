//! The one thread that writes: it gathers waiting jobs into one transaction, commits once, and only then answers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{cache::Cache, open};
use crate::{Error, Listener, Result, Woken};

/// How many calls may wait; beyond that the caller is told to come back.
const QUEUE: usize = 8192;
/// How many jobs share a commit.
pub(crate) const BATCH: usize = 512;
/// After this long without work the log file is folded back into the database.
const IDLE: Duration = Duration::from_secs(5);

/// The hub's listener, once it has registered.
pub(super) type Ear = OnceLock<Listener>;

/// What a job sees: the open transaction and the writer's memory.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    pub(super) cache: &'a mut Cache,
    pub(super) woken: &'a mut Vec<Woken>,
}

/// How a job's changes are undone when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Undo {
    /// By a savepoint of its own, which costs a copy of every page that the job changes.
    Savepoint,
    /// Not at all: the job promises to refuse before its first write. If it fails later all the same, the whole
    /// transaction is undone and nobody in it is told that it succeeded.
    Promise,
}

/// Whether a job's changes stay, and what to tell its caller after the commit.
struct Settled {
    keep: bool,
    finish: Finish,
}

type Finish = Box<dyn FnOnce(std::result::Result<(), Error>) + Send>;
type Work = Box<dyn FnOnce(&mut Transaction<'_>) -> Settled + Send>;

struct Job {
    undo: Undo,
    work: Work,
}

#[derive(Debug)]
pub(super) struct Writer {
    jobs: Sender<Job>,
}

struct Thread {
    path: PathBuf,
    connection: Connection,
    cache: Cache,
    listener: Arc<Ear>,
    /// A commit failed and the database could not be reopened yet.
    distrusted: bool,
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(path: PathBuf, listener: Arc<Ear>) -> Result<(Self, std::thread::JoinHandle<()>)> {
        let connection = open::writer(&path)?;
        let cache = Cache::rebuild(&connection)?;
        let (jobs, waiting) = crossbeam_channel::bounded(QUEUE);
        let thread = Thread { path, connection, cache, listener, distrusted: false };
        let handle = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || thread.run(&waiting))
            .map_err(|error| Error::Internal(format!("cannot start the writer: {error}")))?;
        Ok((Self { jobs }, handle))
    }

    /// Runs `job` in the next transaction. An outer error undoes what the job did; an inner one is its answer, and
    /// what it wrote stays.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        undo: Undo,
        job: impl FnOnce(&mut Transaction<'_>) -> Result<Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let work: Work = Box::new(move |transaction| {
            let (keep, value) = match job(transaction) {
                Ok(value) => (true, value),
                Err(error) => (false, Err(error)),
            };
            let finish: Finish = Box::new(move |committed| {
                // The caller may have gone away; then nobody needs the answer.
                let _ = answer.send(committed.and(value));
            });
            Settled { keep, finish }
        });
        match self.jobs.try_send(Job { undo, work }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(Error::Overloaded),
            Err(TrySendError::Disconnected(_)) => return Err(Error::Internal("the store is closed".to_owned())),
        }
        // A dropped answer means that the job panicked; the panic was logged and undone.
        answered.await.unwrap_or_else(|_| Err(Error::Internal("the write failed unexpectedly".to_owned())))
    }
}

// === impl Thread ===

impl Thread {
    fn run(mut self, waiting: &Receiver<Job>) {
        let mut written_since_fold = false;
        loop {
            match waiting.recv_timeout(IDLE) {
                Ok(first) => {
                    let rest = waiting.try_iter().take(BATCH - 1);
                    self.commit(std::iter::once(first).chain(rest));
                    written_since_fold = true;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if std::mem::take(&mut written_since_fold) {
                        self.fold();
                    }
                }
                // The last connection to close would fold the log, but that may be a reader's, which cannot: a store
                // that was closed is one whole file, also for somebody who copies it.
                Err(RecvTimeoutError::Disconnected) => return self.fold(),
            }
        }
    }

    /// Moves what is in the write-ahead log into the database. One that fails costs nothing but a longer log.
    fn fold(&self) {
        let _ = self.connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()));
    }

    fn commit(&mut self, jobs: impl Iterator<Item = Job>) {
        let mut finishes: Vec<Finish> = Vec::new();
        let mut woken = Vec::new();
        if self.distrusted {
            self.reopen();
        }
        let mut broken = match self.distrusted {
            true => Some(rusqlite::Error::InvalidQuery),
            false => self.execute("begin immediate").err(),
        };
        for job in jobs {
            if let Some(settled) = self.settle(job, &mut woken, &mut broken) {
                finishes.push(settled);
            }
        }
        let outcome = match broken {
            None => self.execute("commit"),
            Some(error) => Err(error),
        };
        if let Err(error) = &outcome {
            tracing::error!(%error, "a commit failed; reopening the database");
            self.reopen();
            woken.clear();
        }
        for finish in finishes {
            finish(outcome.as_ref().map(|()| ()).map_err(|_| Error::Unknown));
        }
        if let Some(listener) = self.listener.get()
            && !woken.is_empty()
        {
            woken.sort_unstable();
            woken.dedup();
            listener(&woken);
        }
    }

    /// One job. A panic counts as a failure, so one bad call cannot stop the writer.
    fn settle(&mut self, job: Job, woken: &mut Vec<Woken>, broken: &mut Option<rusqlite::Error>) -> Option<Finish> {
        if broken.is_none() && job.undo == Undo::Savepoint {
            *broken = self.execute("savepoint job").err();
        }
        let mark = woken.len();
        let changes = self.connection.total_changes();
        let mut transaction = Transaction { connection: &self.connection, cache: &mut self.cache, woken };
        let settled = catch_unwind(AssertUnwindSafe(|| (job.work)(&mut transaction)));
        if matches!(&settled, Ok(settled) if settled.keep) {
            self.cache.keep();
        } else {
            self.cache.roll_back();
            woken.truncate(mark);
            if broken.is_none() {
                *broken = self.undo(job.undo, changes).err();
            }
        }
        if broken.is_none() && job.undo == Undo::Savepoint {
            *broken = self.execute("release job").err();
        }
        match settled {
            Ok(settled) => Some(settled.finish),
            Err(_) => {
                tracing::error!("a write panicked and was undone");
                None
            }
        }
    }

    fn undo(&self, undo: Undo, changes_before: u64) -> rusqlite::Result<()> {
        match undo {
            Undo::Savepoint => self.execute("rollback to job"),
            Undo::Promise if self.connection.total_changes() == changes_before => Ok(()),
            Undo::Promise => Err(rusqlite::Error::InvalidQuery),
        }
    }

    fn execute(&self, sql: &str) -> rusqlite::Result<()> {
        self.connection.prepare_cached(sql)?.execute([]).map(drop)
    }

    /// After a failed commit neither the connection nor the memory can be trusted.
    fn reopen(&mut self) {
        let _ = self.connection.execute_batch("rollback");
        match open::writer(&self.path).and_then(|connection| Ok((Cache::rebuild(&connection)?, connection))) {
            Ok((cache, connection)) => {
                self.cache = cache;
                self.connection = connection;
                self.distrusted = false;
            }
            Err(error) => {
                self.distrusted = true;
                tracing::error!(%error, "the database cannot be reopened; the next write tries again");
            }
        }
    }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Internal(error.to_string())
    }
}
