//! The single writer thread: collects waiting jobs into one transaction, commits once, and only then answers.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TrySendError};
use tokio::sync::oneshot;

use super::{
    cache::{MemoryChanges, WriterCache},
    connection::{ConcurrentWrites, Connection},
    database::Database,
    disk_health::{DiskHealth, fault_of},
    lookup_cache::LookupCache,
    notices,
    statements::Statements,
};
use crate::{Error, Result, StorageFault, WakeHint, WakeListener, metrics::StoreMetrics};

/// How many calls may wait. Beyond that, the caller gets an error and can retry.
const MAX_QUEUED_WRITES: usize = 8192;
/// How many jobs share a commit.
pub(crate) const MAX_BATCH: usize = 512;
/// After this long without a change, the write-ahead log is checkpointed into the database.
const IDLE_CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(5);
/// Checkpoint interval under constant load.
const MAX_CHECKPOINT_INTERVAL: Duration = Duration::from_secs(60);
/// How often an unusable database is retried.
const REOPEN_INTERVAL: Duration = Duration::from_secs(1);
/// A write without effect.
pub(super) const TOUCH: &str =
    "insert into meta (key, value) values ('touched', 1) on conflict (key) do update set value = meta.value + 1";

/// The hub's listener, once it has registered.
pub(super) type WakeListenerCell = OnceLock<WakeListener>;

/// What a job can access: the open transaction and the writer's memory.
pub(super) struct WriteTransaction<'a, 'c> {
    pub(super) connection: &'c Connection,
    pub(super) statements: &'a mut Statements<'c>,
    pub(super) cache: &'a mut WriterCache,
    pub(super) directory: &'a mut LookupCache,
    pub(super) woken: &'a mut Vec<WakeHint>,
    pub(super) measures: &'a StoreMetrics,
}

/// How a job's changes are undone when it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UndoMode {
    /// With a savepoint of its own, which costs a copy of every changed page.
    Savepoint,
    /// Not at all: the job promises to refuse before its first write. If it fails later anyway, the entire transaction
    /// is undone and no job in it is reported as successful.
    Promise,
}

/// Whether a job's changes are kept, and how to answer its caller after the commit.
struct JobResult {
    keep: bool,
    /// The disk or the file failed under the job. Then the entire transaction is aborted.
    fault: Option<StorageFault>,
    finish: JobReply,
}

type JobReply = Box<dyn FnOnce(std::result::Result<(), Error>) + Send>;
/// Does its work, or learns that there is no transaction.
type JobFn = Box<dyn FnOnce(Option<&mut WriteTransaction<'_, '_>>) -> JobResult + Send>;

struct WriteJob {
    undo: UndoMode,
    work: JobFn,
}

#[derive(Debug)]
pub(super) struct Writer {
    jobs: Sender<WriteJob>,
}

/// Shared by the store and its writer.
pub(super) struct WriterShared {
    pub(super) listener: Arc<WakeListenerCell>,
    pub(super) measures: Arc<StoreMetrics>,
    pub(super) condition: DiskHealth,
}

struct WriterThread {
    database: Database,
    cache: WriterCache,
    directory: LookupCache,
    listener: Arc<WakeListenerCell>,
    measures: Arc<StoreMetrics>,
    condition: DiskHealth,
    /// A job that arrived on a lost connection and waits for the next one.
    held: Option<WriteJob>,
}

/// Why the thread stopped serving on one connection.
enum WriterStop {
    Closed,
    /// The connection is no longer usable.
    Reopen(CacheValidity),
}

/// Whether the writer's memory matches the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheValidity {
    Right,
    /// It is unknown whether the newest transaction was stored.
    Doubtful,
}

/// A transaction that was, as far as is known, not committed.
struct FailedCommit {
    error: rusqlite::Error,
    memory: CacheValidity,
}

/// Tracks when the write-ahead log must be checkpointed.
#[derive(Debug)]
struct CheckpointTimer {
    /// The first and the newest write since the last checkpoint.
    written: Option<(Instant, Instant)>,
}

// === impl Writer ===

impl Writer {
    pub(super) fn start(
        database: Database,
        WriterShared { listener, measures, condition }: WriterShared,
    ) -> Result<(Self, std::thread::JoinHandle<()>)> {
        let (connection, owner) = database.own()?;
        let cache = WriterCache::rebuild(&connection)?;
        let (jobs, waiting) = crossbeam_channel::bounded(MAX_QUEUED_WRITES);
        let directory = LookupCache::default();
        let thread = WriterThread { database, cache, directory, listener, measures, condition, held: None };
        let handle = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || {
                let is_complete = thread.run(connection, &waiting);
                owner.end(is_complete);
            })
            .map_err(|error| Error::Internal(format!("cannot start the writer: {error}")))?;
        Ok((Self { jobs }, handle))
    }

    /// Whether no job waits.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Runs `job` in the next transaction. An outer error undoes the job's changes. An inner one is its answer, and its
    /// changes are kept.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        undo: UndoMode,
        job: impl FnOnce(&mut WriteTransaction<'_, '_>) -> Result<Result<T>> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let work: JobFn = Box::new(move |transaction| {
            let done = match transaction {
                Some(transaction) => job(transaction),
                None => Err(Error::Unknown),
            };
            let (keep, value) = match done {
                Ok(value) => (true, value),
                Err(error) => (false, Err(error)),
            };
            let fault = match &value {
                // A damaged page only concerns the job that hit it.
                Err(Error::Unwritable(StorageFault::Damaged)) => None,
                Err(Error::Unwritable(fault)) => Some(*fault),
                _ => None,
            };
            let finish: JobReply = Box::new(move |committed| {
                // The caller may be gone; then the answer isn't needed.
                let _ = answer.send(committed.and(value));
            });
            JobResult { keep, fault, finish }
        });
        match self.jobs.try_send(WriteJob { undo, work }) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(Error::Overloaded),
            Err(TrySendError::Disconnected(_)) => return Err(Error::Internal("the store is closed".to_owned())),
        }
        // A dropped answer means that the job panicked. The panic was logged and undone.
        answered.await.unwrap_or_else(|_| Err(Error::Internal("the write failed unexpectedly".to_owned())))
    }
}

// === impl WriterThread ===

impl WriterThread {
    /// Returns true if everything is in the database at the end.
    fn run(mut self, mut connection: Connection, waiting: &Receiver<WriteJob>) -> bool {
        while let WriterStop::Reopen(memory) = self.serve(&connection, waiting) {
            drop(connection);
            match self.reopen(memory, waiting) {
                Some(reopened) => connection = reopened,
                None => return false,
            }
        }
        true
    }

    fn serve(&mut self, connection: &Connection, waiting: &Receiver<WriteJob>) -> WriterStop {
        let mut statements = match Statements::prepare(connection) {
            Ok(statements) => statements,
            Err(error) => {
                self.failed(&error);
                return WriterStop::Reopen(CacheValidity::Right);
            }
        };
        let mut fold = CheckpointTimer { written: None };
        loop {
            match self.held.take().map_or_else(|| waiting.recv_timeout(fold.due_in()), Ok) {
                Ok(first) => {
                    if connection.is_lost() {
                        self.held = Some(first);
                        return WriterStop::Reopen(CacheValidity::Right);
                    }
                    let jobs = std::iter::once(first).chain(waiting.try_iter().take(MAX_BATCH - 1));
                    let changes = connection.total_changes();
                    match self.commit(connection, &mut statements, jobs) {
                        Ok(()) if connection.total_changes() != changes => {
                            self.condition.written();
                            fold.wrote();
                        }
                        Ok(()) => {}
                        Err(FailedCommit { error, memory }) => {
                            let fault = self.failed(&error);
                            // A full disk leaves the connection usable: the next transaction is a new attempt.
                            if fault != StorageFault::DiskFull || memory == CacheValidity::Doubtful {
                                return WriterStop::Reopen(memory);
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                // The last connection to close would checkpoint the log, but that may be a reader's, which can't. A
                // closed store must be one complete file, also for someone who copies it.
                Err(RecvTimeoutError::Disconnected) => {
                    checkpoint(connection, "truncate");
                    return WriterStop::Closed;
                }
            }
            if let Some(how) = fold.take_due() {
                checkpoint(connection, how);
            }
        }
    }

    fn failed(&self, error: &rusqlite::Error) -> StorageFault {
        let fault = self.database.probe(fault_of(error).unwrap_or(StorageFault::Io));
        self.condition.failed(fault, error);
        fault
    }

    /// Refuses all requests until the database can be written again. `None` once no more requests can arrive.
    fn reopen(&mut self, memory: CacheValidity, waiting: &Receiver<WriteJob>) -> Option<Connection> {
        loop {
            match self.open_again(memory) {
                Ok(connection) => return Some(connection),
                Err(Error::Unwritable(fault)) => {
                    self.condition.failed(self.database.probe(fault), &"it cannot be opened");
                }
                Err(error) => self.condition.failed(self.database.probe(StorageFault::Io), &error),
            }
            if let Some(job) = self.held.take() {
                self.refuse(job);
            }
            let next = Instant::now() + REOPEN_INTERVAL;
            while let Some(left) = next.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
                match waiting.recv_timeout(left) {
                    Ok(job) => self.refuse(job),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return None,
                }
            }
        }
    }

    /// SQLite silently opens a file that it can't write as read-only.
    fn open_again(&mut self, memory: CacheValidity) -> Result<Connection> {
        let connection = self.database.writer()?;
        if connection.is_readonly()? {
            return Err(Error::Unwritable(StorageFault::ReadOnly));
        }
        connection.execute_batch(TOUCH)?;
        if memory == CacheValidity::Doubtful {
            self.cache = WriterCache::rebuild(&connection)?;
        }
        self.directory.forget();
        self.condition.written();
        Ok(connection)
    }

    fn refuse(&self, job: WriteJob) {
        let fault = self.condition.fault().unwrap_or(StorageFault::Io);
        ((job.work)(None).finish)(Err(Error::Unwritable(fault)));
    }

    fn commit<'c>(
        &mut self,
        connection: &'c Connection,
        statements: &mut Statements<'c>,
        jobs: impl Iterator<Item = WriteJob>,
    ) -> std::result::Result<(), FailedCommit> {
        let begun = Instant::now();
        let mut finishes: Vec<JobReply> = Vec::new();
        let mut woken = Vec::new();
        let mut outcome = self.begin(connection);
        for job in jobs {
            finishes.extend(self.settle(connection, statements, job, &mut woken, &mut outcome));
        }
        // Anything that fails before the commit is certainly not stored.
        let mut memory = CacheValidity::Right;
        woken.sort_unstable();
        woken.dedup();
        let outcome = outcome
            .and_then(|()| self.tell_others(connection, &woken))
            .and_then(|()| connection.commit().inspect_err(|error| memory = after_failed_commit(error)));
        self.directory.end_transaction();
        self.measures.commit_micros.observe_time(begun.elapsed());
        self.measures.batch.observe(u64::try_from(finishes.len()).unwrap_or(u64::MAX));
        let Err(error) = outcome else {
            self.cache.commit();
            finishes.into_iter().for_each(|finish| finish(Ok(())));
            self.wake(&woken);
            return Ok(());
        };
        if !connection.is_autocommit() && connection.roll_back().is_err() {
            memory = CacheValidity::Doubtful;
        }
        self.cache.abandon();
        self.directory.forget();
        let answer = match memory {
            CacheValidity::Right => {
                Error::Unwritable(self.database.probe(fault_of(&error).unwrap_or(StorageFault::Io)))
            }
            CacheValidity::Doubtful => Error::Unknown,
        };
        for finish in finishes {
            finish(Err(answer.clone()));
        }
        Err(FailedCommit { error, memory })
    }

    /// Opens the transaction. If another writer wrote since our last one, what it changed is read again.
    fn begin(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        connection.begin()?;
        let upto = match connection.take_turn()? {
            ConcurrentWrites::None => return Ok(()),
            ConcurrentWrites::Listed { changes, upto } if self.catch_up(connection, &changes)? => Some(upto),
            ConcurrentWrites::Listed { .. } | ConcurrentWrites::Unknown => {
                self.cache = WriterCache::rebuild(connection)?;
                self.directory.forget();
                self.measures.memory_read();
                None
            }
        };
        connection.caught_up(upto)
    }

    /// Follows what other writers changed, one text per transaction. Returns false if everything must be read.
    fn catch_up(&mut self, connection: &Connection, texts: &[String]) -> rusqlite::Result<bool> {
        let mut changes = MemoryChanges::default();
        for text in texts {
            match serde_json::from_str(text) {
                Ok(later) => changes.followed_by(later),
                Err(_) => return Ok(false),
            }
        }
        let is_right = self.cache.catch_up(connection, &changes)?;
        self.directory.catch_up(&changes);
        Ok(is_right)
    }

    /// Tells the other writers what this transaction changed of what they remember, and what it wakes.
    fn tell_others(&self, connection: &Connection, woken: &[WakeHint]) -> rusqlite::Result<()> {
        if !connection.has_other_writers() {
            return Ok(());
        }
        let mut changes = self.cache.changes();
        self.directory.note_changes(&mut changes);
        let text = if changes.is_empty() { None } else { Some(json_of(&changes)?) };
        connection.tell_others(text.as_deref(), &notices::texts(woken))
    }

    fn wake(&self, woken: &[WakeHint]) {
        if let Some(listener) = self.listener.get()
            && !woken.is_empty()
        {
            listener(woken);
        }
    }

    /// Runs one job. A panic counts as a failure, so one bad call can't stop the writer. `outcome` becomes an error if
    /// the entire transaction must be aborted. After that no job runs, because its changes would be stored outside the
    /// transaction.
    fn settle<'c>(
        &mut self,
        connection: &'c Connection,
        statements: &mut Statements<'c>,
        job: WriteJob,
        woken: &mut Vec<WakeHint>,
        outcome: &mut rusqlite::Result<()>,
    ) -> Option<JobReply> {
        if outcome.is_ok() && job.undo == UndoMode::Savepoint {
            *outcome = connection.savepoint();
        }
        if outcome.is_err() {
            return Some((job.work)(None).finish);
        }
        let mark = woken.len();
        let changes = connection.total_changes();
        let mut transaction = WriteTransaction {
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
                Ok(JobResult { fault: Some(fault), .. }) => Err(error_of(*fault)),
                _ => undo(connection, job.undo, changes),
            };
        }
        if outcome.is_ok() && job.undo == UndoMode::Savepoint {
            *outcome = connection.release_savepoint();
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

/// Whether a transaction whose commit failed may still be in the file. If the disk was full or the file read-only, its
/// last frame isn't.
fn after_failed_commit(error: &rusqlite::Error) -> CacheValidity {
    match fault_of(error) {
        Some(StorageFault::DiskFull | StorageFault::ReadOnly) => CacheValidity::Right,
        Some(StorageFault::Io | StorageFault::Damaged | StorageFault::Unreachable | StorageFault::ServedElsewhere)
        | None => CacheValidity::Doubtful,
    }
}

fn json_of(changes: &MemoryChanges) -> rusqlite::Result<String> {
    serde_json::to_string(changes).map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

/// The error behind a job's answer.
fn error_of(fault: StorageFault) -> rusqlite::Error {
    let code = match fault {
        StorageFault::DiskFull => rusqlite::ffi::SQLITE_FULL,
        StorageFault::ReadOnly => rusqlite::ffi::SQLITE_READONLY,
        StorageFault::Io => rusqlite::ffi::SQLITE_IOERR,
        StorageFault::Damaged => rusqlite::ffi::SQLITE_CORRUPT,
        StorageFault::Unreachable | StorageFault::ServedElsewhere => rusqlite::ffi::SQLITE_PROTOCOL,
    };
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
}

fn undo(connection: &Connection, undo: UndoMode, changes_before: u64) -> rusqlite::Result<()> {
    match undo {
        UndoMode::Savepoint => connection.roll_back_to_savepoint(),
        UndoMode::Promise if connection.total_changes() == changes_before && !connection.is_aborted() => Ok(()),
        UndoMode::Promise => Err(rusqlite::Error::InvalidQuery),
    }
}

/// Checkpoints the write-ahead log. A failure only means a longer log.
fn checkpoint(connection: &Connection, how: &str) {
    if let Connection::Sqlite(connection) = connection {
        let _ = connection.query_row(&format!("pragma wal_checkpoint({how})"), [], |_| Ok(()));
    }
}

// === impl CheckpointTimer ===

impl CheckpointTimer {
    fn wrote(&mut self) {
        let now = Instant::now();
        self.written = Some((self.written.map_or(now, |(first, _)| first), now));
    }

    fn due_in(&self) -> Duration {
        let Some((first, newest)) = self.written else { return MAX_CHECKPOINT_INTERVAL };
        IDLE_CHECKPOINT_TIMEOUT
            .saturating_sub(newest.elapsed())
            .min(MAX_CHECKPOINT_INTERVAL.saturating_sub(first.elapsed()))
    }

    /// The mode of checkpoint that is due, if any: complete when idle, otherwise as far as readers allow.
    fn take_due(&mut self) -> Option<&'static str> {
        let (first, newest) = self.written?;
        let how = if newest.elapsed() >= IDLE_CHECKPOINT_TIMEOUT {
            "truncate"
        } else if first.elapsed() >= MAX_CHECKPOINT_INTERVAL {
            "passive"
        } else {
            return None;
        };
        self.written = None;
        Some(how)
    }
}
