//! The baseline: the least that any durable queue on SQLite must do, with our pragmas, batch limit and row sizes.
//!
//! Seven B-tree writes per run: the row and its queue entry; the claim's update, the removal of its queue entry and an
//! event; the completion's update and an event.

use std::{path::Path, time::Duration};

use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::{
    BenchResult,
    load::{self, INPUT_BYTES, LoadCaller, LoadMeasurement, OUTPUT_BYTES, QUEUES},
};

const MAX_BATCH: usize = 512;

enum BareQueueCall {
    Create { queue: usize, done: oneshot::Sender<i64> },
    Claim { queue: usize, done: oneshot::Sender<i64> },
    Complete { run: i64, done: oneshot::Sender<i64> },
}

struct BareQueueCaller {
    queue: usize,
    calls: crossbeam_channel::Sender<BareQueueCall>,
}

pub(super) async fn drive(folder: &Path, callers: usize, time: Duration) -> BenchResult<LoadMeasurement> {
    let connection = open(&folder.join("bare.db"))?;
    let (calls, waiting) = crossbeam_channel::bounded(8192);
    let writer = std::thread::spawn(move || write(&connection, &waiting));
    let callers = (0..callers).map(|number| BareQueueCaller { queue: number % QUEUES, calls: calls.clone() }).collect();
    drop(calls);
    let measured = load::drive(callers, time).await?;
    writer.join().map_err(|_| "the bare writer panicked")??;
    Ok(measured)
}

#[allow(clippy::disallowed_methods, reason = "the baseline has its own database")]
fn open(path: &Path) -> BenchResult<Connection> {
    let connection = Connection::open(path)?;
    connection.execute_batch(
        "pragma page_size = 4096; pragma journal_mode = wal; pragma synchronous = full;
         pragma wal_autocheckpoint = 4000; pragma cache_size = -4096;
         create table runs (id integer primary key, queue integer, state integer, epoch integer, lease integer,
            created integer, input text, output text);
         create index runs_queue on runs (queue, id) where state = 0;
         create table events (run integer, seq integer, at integer, type text, data text, primary key (run, seq))
            without rowid;",
    )?;
    connection.set_prepared_statement_cache_capacity(32);
    Ok(connection)
}

fn write(connection: &Connection, waiting: &crossbeam_channel::Receiver<BareQueueCall>) -> BenchResult<()> {
    let (input, output) = ("i".repeat(INPUT_BYTES), "o".repeat(OUTPUT_BYTES));
    let event = "insert into events (run, seq, at, type, data) values (?1, ?2, ?3, ?4, '{}')";
    let mut create =
        connection.prepare("insert into runs (queue, state, epoch, created, input) values (?1, 0, 0, ?2, ?3)")?;
    let mut claim = connection.prepare(
        "update runs set state = 1, epoch = epoch + 1, lease = ?2 where id =
            (select id from runs where queue = ?1 and state = 0 order by id limit 1) returning id",
    )?;
    let mut complete = connection.prepare("update runs set state = 2, output = ?2 where id = ?1")?;
    let mut event = connection.prepare(event)?;
    let mut at = 0_i64;
    while let Ok(first) = waiting.recv() {
        let mut answers = Vec::new();
        connection.execute_batch("begin immediate")?;
        for call in std::iter::once(first).chain(waiting.try_iter().take(MAX_BATCH - 1)) {
            at += 1;
            answers.push(match call {
                BareQueueCall::Create { queue, done } => {
                    create.execute(params![queue_number(queue), at, input])?;
                    (done, connection.last_insert_rowid())
                }
                BareQueueCall::Claim { queue, done } => {
                    let run: i64 = claim.query_row(params![queue_number(queue), at], |row| row.get(0))?;
                    event.execute(params![run, 1, at, "task.claimed"])?;
                    (done, run)
                }
                BareQueueCall::Complete { run, done } => {
                    complete.execute(params![run, output])?;
                    event.execute(params![run, 2, at, "task.completed"])?;
                    (done, run)
                }
            });
        }
        connection.execute_batch("commit")?;
        for (done, run) in answers {
            let _ = done.send(run);
        }
    }
    Ok(())
}

fn queue_number(queue: usize) -> i64 {
    i64::try_from(queue).unwrap_or(0)
}

// === impl BareQueueCaller ===

impl BareQueueCaller {
    async fn call(&self, make: impl FnOnce(oneshot::Sender<i64>) -> BareQueueCall) -> BenchResult<i64> {
        let (done, answered) = oneshot::channel();
        self.calls.try_send(make(done)).map_err(|_| "the bare queue is full")?;
        Ok(answered.await?)
    }
}

impl LoadCaller for BareQueueCaller {
    async fn cycle(&mut self) -> BenchResult<()> {
        let queue = self.queue;
        self.call(|done| BareQueueCall::Create { queue, done }).await?;
        let run = self.call(|done| BareQueueCall::Claim { queue, done }).await?;
        self.call(|done| BareQueueCall::Complete { run, done }).await?;
        Ok(())
    }
}
