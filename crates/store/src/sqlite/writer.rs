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

use super::{
    cache::Cache,
    condition::{Condition, fault_of, look_closer},
    directory::Directory,
    open, owner,
    statements::Statements,
};
use crate::{Error, Fault, Listener, Result, Woken, measure::Measures};

/// How many calls may wait; beyond that the caller is told to come back.
const QUEUE: usize = 8192;
/// How many jobs share a commit.
pub(crate) const BATCH: usize = 512;
/// After this long without a change the log file is folded back into the database.
const IDLE: Duration = Duration::from_secs(5);
/// And when something changes all the time, so often.
const FOLD_AT_LEAST_EVERY: Duration = Duration::from_secs(60);
/// How often a database that cannot be used is tried again.
const REOPEN_EVERY: Duration = Duration::from_secs(1);
/// A write that means nothing.
pub(super) const TOUCH: &str =
    "insert into meta (key, value) values ('touched', 1) on conflict (key) do update set value = value + 1";

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
    /// The disk or the file failed under the job: then the whole transaction is given up.
    fault: Option<Fault>,
    finish: Finish,
}

type Finish = Box<dyn FnOnce(std::result::Result<(), Error>) + Send>;
/// Does its work, or is told that there is no transaction to do it in.
type Work = Box<dyn FnOnce(Option<&mut Transaction<'_, '_>>) -> Settled + Send>;

struct Job {
    undo: Undo,
    work: Work,
}

#[derive(Debug)]
pub(super) struct Writer {
    jobs: Sender<Job>,
}

/// What the store and its writer both look at.
pub(super) struct Shared {
    pub(super) listener: Arc<Ear>,
    pub(super) measures: Arc<Measures>,
    pub(super) condition: Condition,
}

struct Thread {
    path: PathBuf,
    cache: Cache,
    directory: Directory,
    listener: Arc<Ear>,
    measures: Arc<Measures>,
    condition: Condition,
}

/// Why the thread stopped serving on one connection.
enum Stop {
    Closed,
    /// The connection cannot be used any more.
    Reopen(Memory),
}

/// Whether the writer's memory is what the file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Right,
    /// Nobody knows whether the newest transaction was stored.
    Doubtful,
}

/// A transaction that was not committed, as far as anybody knows.
struct Failed {
    error: rusqlite::Error,
    memory: Memory,
}

/// Whether what was written has to be moved from the write-ahead log into the database.
#[derive(Debug)]
struct Fold {
    /// The first and the newest write since the last time.
    written: Option<(Instant, Instant)>,
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(
        path: PathBuf,
        Shared { listener, measures, condition }: Shared,
    ) -> Result<(Self, std::thread::JoinHandle<()>)> {
        let owner = owner::become_owner(&path)?;
        owner::refuse_lost_log(&owner, &path)?;
        let connection = open::writer(&path)?;
        owner::mark_open(&owner);
        let cache = Cache::rebuild(&connection)?;
        let (jobs, waiting) = crossbeam_channel::bounded(QUEUE);
        let thread = Thread { path, cache, directory: Directory::default(), listener, measures, condition };
        let handle = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                if thread.run(connection, &waiting) {
                    owner::mark_closed(&owner);
                }
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
            let done = match transaction {
                Some(transaction) => job(transaction),
                None => Err(Error::Unknown),
            };
            let (keep, value) = match done {
                Ok(value) => (true, value),
                Err(error) => (false, Err(error)),
            };
            let fault = match &value {
                // A damaged page is a matter of the job that met it.
                Err(Error::Unwritable(Fault::Damaged)) => None,
                Err(Error::Unwritable(fault)) => Some(*fault),
                _ => None,
            };
            let finish: Finish = Box::new(move |committed| {
                // The caller may have gone away; then nobody needs the answer.
                let _ = answer.send(committed.and(value));
            });
            Settled { keep, fault, finish }
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
    /// True when everything is in the database at the end.
    fn run(mut self, mut connection: Connection, waiting: &Receiver<Job>) -> bool {
        while let Stop::Reopen(memory) = self.serve(&connection, waiting) {
            drop(connection);
            match self.reopen(memory, waiting) {
                Some(reopened) => connection = reopened,
                None => return false,
            }
        }
        true
    }

    fn serve(&mut self, connection: &Connection, waiting: &Receiver<Job>) -> Stop {
        let mut statements = match Statements::prepare(connection) {
            Ok(statements) => statements,
            Err(error) => {
                self.failed(&error);
                return Stop::Reopen(Memory::Right);
            }
        };
        let mut fold = Fold { written: None };
        loop {
            match waiting.recv_timeout(fold.due_in()) {
                Ok(first) => {
                    let jobs = std::iter::once(first).chain(waiting.try_iter().take(BATCH - 1));
                    let changes = connection.total_changes();
                    match self.commit(connection, &mut statements, jobs) {
                        Ok(()) if connection.total_changes() != changes => {
                            self.condition.written();
                            fold.wrote();
                        }
                        Ok(()) => {}
                        Err(Failed { error, memory }) => {
                            let fault = self.failed(&error);
                            // A full disk leaves the connection as it is: the next transaction is a new try.
                            if fault != Fault::DiskFull || memory == Memory::Doubtful {
                                return Stop::Reopen(memory);
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The last connection to close would fold the log, but that may be a reader's, which cannot: a store
                // that was closed is one whole file, also for somebody who copies it.
                Err(RecvTimeoutError::Disconnected) => {
                    checkpoint(connection, "truncate");
                    return Stop::Closed;
                }
            }
            if let Some(how) = fold.take_due() {
                checkpoint(connection, how);
            }
        }
    }

    fn failed(&self, error: &rusqlite::Error) -> Fault {
        let fault = look_closer(fault_of(error).unwrap_or(Fault::Io), &self.path);
        self.condition.failed(fault, error);
        fault
    }

    /// Until the database can be written again, whoever asks is refused. None when nobody can ask any more.
    fn reopen(&mut self, memory: Memory, waiting: &Receiver<Job>) -> Option<Connection> {
        loop {
            match self.open_again(memory) {
                Ok(connection) => return Some(connection),
                Err(Error::Unwritable(fault)) => {
                    self.condition.failed(look_closer(fault, &self.path), &"it cannot be opened");
                }
                Err(error) => self.condition.failed(Fault::Io, &error),
            }
            let next = Instant::now() + REOPEN_EVERY;
            while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                match waiting.recv_timeout(left) {
                    Ok(job) => self.refuse(job),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            }
        }
    }

    /// SQLite opens a file that it cannot write for reading only, and says nothing.
    fn open_again(&mut self, memory: Memory) -> Result<Connection> {
        let connection = open::writer(&self.path)?;
        if connection.is_readonly("main")? {
            return Err(Error::Unwritable(Fault::ReadOnly));
        }
        connection.execute_batch(TOUCH)?;
        if memory == Memory::Doubtful {
            self.cache = Cache::rebuild(&connection)?;
        }
        self.directory.forget();
        self.condition.written();
        Ok(connection)
    }

    fn refuse(&self, job: Job) {
        let fault = self.condition.fault().unwrap_or(Fault::Io);
        ((job.work)(None).finish)(Err(Error::Unwritable(fault)));
    }

    fn commit<'c>(
        &mut self,
        connection: &'c Connection,
        statements: &mut Statements<'c>,
        jobs: impl Iterator<Item = Job>,
    ) -> std::result::Result<(), Failed> {
        let begun = Instant::now();
        let mut finishes: Vec<Finish> = Vec::new();
        let mut woken = Vec::new();
        let mut outcome = statements.begin.execute([]).map(drop);
        for job in jobs {
            finishes.extend(self.settle(connection, statements, job, &mut woken, &mut outcome));
        }
        // What fails before the commit is certainly not stored.
        let mut memory = Memory::Right;
        let outcome = outcome.and_then(|()| {
            statements.commit.execute([]).map(drop).inspect_err(|error| memory = after_failed_commit(error))
        });
        self.measures.commit_micros.observe_time(begun.elapsed());
        self.measures.batch.observe(u64::try_from(finishes.len()).unwrap_or(u64::MAX));
        let Err(error) = outcome else {
            self.cache.commit();
            finishes.into_iter().for_each(|finish| finish(Ok(())));
            self.wake(woken);
            return Ok(());
        };
        if !connection.is_autocommit() && connection.execute_batch("rollback").is_err() {
            memory = Memory::Doubtful;
        }
        self.cache.abandon();
        self.directory.forget();
        let answer = match memory {
            Memory::Right => Error::Unwritable(look_closer(fault_of(&error).unwrap_or(Fault::Io), &self.path)),
            Memory::Doubtful => Error::Unknown,
        };
        for finish in finishes {
            finish(Err(answer.clone()));
        }
        Err(Failed { error, memory })
    }

    fn wake(&self, mut woken: Vec<Woken>) {
        if let Some(listener) = self.listener.get()
            && !woken.is_empty()
        {
            woken.sort_unstable();
            woken.dedup();
            listener(&woken);
        }
    }

    /// One job. A panic counts as a failure, so one bad call cannot stop the writer. `outcome` becomes an error when the
    /// whole transaction has to be given up; from then on no job is done, for its changes would be stored by themselves.
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
        if outcome.is_err() {
            return Some((job.work)(None).finish);
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
        let settled = catch_unwind(AssertUnwindSafe(|| (job.work)(Some(&mut transaction))));
        if matches!(&settled, Ok(settled) if settled.keep) {
            self.cache.keep();
        } else {
            self.cache.roll_back();
            self.directory.forget();
            woken.truncate(mark);
            *outcome = match &settled {
                Ok(Settled { fault: Some(fault), .. }) => Err(error_of(*fault)),
                _ => undo(connection, job.undo, changes),
            };
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

/// Whether a transaction whose commit failed may be in the file all the same. Without room, or on a file that cannot be
/// written, its last frame is not.
fn after_failed_commit(error: &rusqlite::Error) -> Memory {
    match fault_of(error) {
        Some(Fault::DiskFull | Fault::ReadOnly) => Memory::Right,
        Some(Fault::Io | Fault::Damaged) | None => Memory::Doubtful,
    }
}

/// The error that a job turned into its answer.
fn error_of(fault: Fault) -> rusqlite::Error {
    let code = match fault {
        Fault::DiskFull => rusqlite::ffi::SQLITE_FULL,
        Fault::ReadOnly => rusqlite::ffi::SQLITE_READONLY,
        Fault::Io => rusqlite::ffi::SQLITE_IOERR,
        Fault::Damaged => rusqlite::ffi::SQLITE_CORRUPT,
    };
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
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
fn checkpoint(connection: &Connection, how: &str) {
    let _ = connection.query_row(&format!("pragma wal_checkpoint({how})"), [], |_| Ok(()));
}

// === impl Fold ===

impl Fold {
    fn wrote(&mut self) {
        let now = Instant::now();
        self.written = Some((self.written.map_or(now, |(first, _)| first), now));
    }

    fn due_in(&self) -> Duration {
        let Some((first, newest)) = self.written else { return FOLD_AT_LEAST_EVERY };
        IDLE.saturating_sub(newest.elapsed()).min(FOLD_AT_LEAST_EVERY.saturating_sub(first.elapsed()))
    }

    /// How to do it now, if it is time: wholly when nobody writes, else as far as readers let us.
    fn take_due(&mut self) -> Option<&'static str> {
        let (first, newest) = self.written?;
        let how = if newest.elapsed() >= IDLE {
            "truncate"
        } else if first.elapsed() >= FOLD_AT_LEAST_EVERY {
            "passive"
        } else {
            return None;
        };
        self.written = None;
        Some(how)
    }
}
