//! The one thread that writes: it gathers waiting jobs into one transaction, commits once, and only then answers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::{cache::Cache, directory::Directory, open, owner, statements::Statements};
use crate::{Error, Listener, Result, Woken, measure::Measures};

/// How many calls may wait; beyond that the caller is told to come back.
const QUEUE: usize = 8192;
/// How many jobs share a commit.
pub(crate) const BATCH: usize = 512;
/// After this long without work the log file is folded back into the database.
const IDLE: Duration = Duration::from_secs(5);

/// The hub's listener, once it has registered.
pub(super) type Ear = OnceLock<Listener>;

/// What a job sees: the open transaction and the writer's memory.
pub(super) struct Transaction<'a, 'c> {
    pub(super) connection: &'c Connection,
    pub(super) statements: &'a mut Statements<'c>,
    pub(super) cache: &'a mut Cache,
    pub(super) directory: &'a mut Directory,
    pub(super) woken: &'a mut Vec<Woken>,
    pub(super) measures: &'a Measures,
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
type Work = Box<dyn FnOnce(&mut Transaction<'_, '_>) -> Settled + Send>;

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
    cache: Cache,
    directory: Directory,
    listener: Arc<Ear>,
    measures: Arc<Measures>,
}

/// Why the thread stopped serving on one connection.
enum Stop {
    Closed,
    /// A commit failed: neither the connection nor the memory can be trusted.
    Distrusted,
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(
        path: PathBuf,
        listener: Arc<Ear>,
        measures: Arc<Measures>,
    ) -> Result<(Self, std::thread::JoinHandle<()>)> {
        let owner = owner::become_owner(&path)?;
        let connection = open::writer(&path)?;
        let cache = Cache::rebuild(&connection)?;
        let (jobs, waiting) = crossbeam_channel::bounded(QUEUE);
        let thread = Thread { path, cache, directory: Directory::default(), listener, measures };
        let handle = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                thread.run(connection, &waiting);
                drop(owner);
            })
            .map_err(|error| Error::Internal(format!("cannot start the writer: {error}")))?;
        Ok((Self { jobs }, handle))
    }

    /// Runs `job` in the next transaction. An outer error undoes what the job did; an inner one is its answer, and
    /// what it wrote stays.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        undo: Undo,
        job: impl FnOnce(&mut Transaction<'_, '_>) -> Result<Result<T>> + Send + 'static,
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
    fn run(mut self, mut connection: Connection, waiting: &Receiver<Job>) {
        while let Stop::Distrusted = self.serve(&connection, waiting) {
            tracing::error!("reopening the database");
            match self.reopen(waiting) {
                Some(reopened) => connection = reopened,
                None => return,
            }
        }
    }

    fn serve(&mut self, connection: &Connection, waiting: &Receiver<Job>) -> Stop {
        let mut statements = match Statements::prepare(connection) {
            Ok(statements) => statements,
            Err(error) => {
                tracing::error!(%error, "the database cannot be used");
                return Stop::Distrusted;
            }
        };
        let mut written_since_fold = false;
        loop {
            match waiting.recv_timeout(IDLE) {
                Ok(first) => {
                    let jobs = std::iter::once(first).chain(waiting.try_iter().take(BATCH - 1));
                    if let Err(error) = self.commit(connection, &mut statements, jobs) {
                        tracing::error!(%error, "a commit failed");
                        return Stop::Distrusted;
                    }
                    written_since_fold = true;
                }
                Err(RecvTimeoutError::Timeout) => {
                    if std::mem::take(&mut written_since_fold) {
                        fold(connection);
                    }
                }
                // The last connection to close would fold the log, but that may be a reader's, which cannot: a store
                // that was closed is one whole file, also for somebody who copies it.
                Err(RecvTimeoutError::Disconnected) => {
                    fold(connection);
                    return Stop::Closed;
                }
            }
        }
    }

    /// Until the database opens again, whoever asks is refused. None when nobody can ask any more.
    fn reopen(&mut self, waiting: &Receiver<Job>) -> Option<Connection> {
        loop {
            let opened = open::writer(&self.path).and_then(|connection| Ok((Cache::rebuild(&connection)?, connection)));
            match opened {
                Ok((cache, connection)) => {
                    self.cache = cache;
                    self.directory.forget();
                    return Some(connection);
                }
                Err(error) => tracing::error!(%error, "the database cannot be reopened"),
            }
            drop(waiting.recv().ok()?);
        }
    }

    fn commit<'c>(
        &mut self,
        connection: &'c Connection,
        statements: &mut Statements<'c>,
        jobs: impl Iterator<Item = Job>,
    ) -> rusqlite::Result<()> {
        let begun = Instant::now();
        let mut finishes: Vec<Finish> = Vec::new();
        let mut woken = Vec::new();
        let mut outcome = statements.begin.execute([]).map(drop);
        for job in jobs {
            finishes.extend(self.settle(connection, statements, job, &mut woken, &mut outcome));
        }
        let outcome = outcome.and_then(|()| statements.commit.execute([]).map(drop));
        self.measures.commit_micros.observe_time(begun.elapsed());
        self.measures.batch.observe(u64::try_from(finishes.len()).unwrap_or(u64::MAX));
        for finish in finishes {
            finish(outcome.as_ref().copied().map_err(|_| Error::Unknown));
        }
        if let Some(listener) = self.listener.get()
            && outcome.is_ok()
            && !woken.is_empty()
        {
            woken.sort_unstable();
            woken.dedup();
            listener(&woken);
        }
        outcome
    }

    /// One job. A panic counts as a failure, so one bad call cannot stop the writer. `outcome` becomes an error when the
    /// whole transaction has to be given up.
    fn settle<'c>(
        &mut self,
        connection: &'c Connection,
        statements: &mut Statements<'c>,
        job: Job,
        woken: &mut Vec<Woken>,
        outcome: &mut rusqlite::Result<()>,
    ) -> Option<Finish> {
        if outcome.is_ok() && job.undo == Undo::Savepoint {
            *outcome = execute(connection, "savepoint job");
        }
        let mark = woken.len();
        let changes = connection.total_changes();
        let mut transaction = Transaction {
            connection,
            statements,
            cache: &mut self.cache,
            directory: &mut self.directory,
            woken: &mut *woken,
            measures: &self.measures,
        };
        let settled = catch_unwind(AssertUnwindSafe(|| (job.work)(&mut transaction)));
        if matches!(&settled, Ok(settled) if settled.keep) {
            self.cache.keep();
        } else {
            self.cache.roll_back();
            self.directory.forget();
            woken.truncate(mark);
            if outcome.is_ok() {
                *outcome = undo(connection, job.undo, changes);
            }
        }
        if outcome.is_ok() && job.undo == Undo::Savepoint {
            *outcome = execute(connection, "release job");
        }
        match settled {
            Ok(settled) => Some(settled.finish),
            Err(_) => {
                tracing::error!("a write panicked and was undone");
                None
            }
        }
    }
}

fn execute(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}

fn undo(connection: &Connection, undo: Undo, changes_before: u64) -> rusqlite::Result<()> {
    match undo {
        Undo::Savepoint => execute(connection, "rollback to job"),
        Undo::Promise if connection.total_changes() == changes_before => Ok(()),
        Undo::Promise => Err(rusqlite::Error::InvalidQuery),
    }
}

/// Moves what is in the write-ahead log into the database. One that fails costs nothing but a longer log.
fn fold(connection: &Connection) {
    let _ = connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()));
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Internal(error.to_string())
    }
}
