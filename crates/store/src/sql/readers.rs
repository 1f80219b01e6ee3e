//! A few threads with read-only connections, so that reads neither wait for the writer nor block the async runtime.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crossbeam_channel::{Sender, TrySendError};
use tokio::sync::oneshot;

use super::{connection::Connection, database::Database};
use crate::{Error, Result, metrics::StoreMetrics};

const THREADS: usize = 3;
const MAX_QUEUED_READS: usize = 4096;
/// How long a reader whose connection was lost waits at least until it tries to connect again, and as long as the last try
/// took. In between, reads fail at once.
const MIN_RECONNECT_INTERVAL: Duration = Duration::from_millis(20);

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    queries: Sender<ReadJob>,
}

// === impl Readers ===

impl Readers {
    pub(super) fn start(
        database: &Database,
        measures: &Arc<StoreMetrics>,
    ) -> Result<(Self, Vec<std::thread::JoinHandle<()>>)> {
        let (queries, waiting) = crossbeam_channel::bounded::<ReadJob>(MAX_QUEUED_READS);
        let mut threads = Vec::with_capacity(THREADS);
        for number in 0..THREADS {
            let mut connection = database.reader()?;
            let (waiting, measures, database) = (waiting.clone(), Arc::clone(measures), database.clone());
            let thread = std::thread::Builder::new()
                .name(format!("store-reader-{number}"))
                .spawn(move || {
                    let mut next_attempt = Instant::now();
                    for query in waiting {
                        if connection.is_lost() && Instant::now() >= next_attempt {
                            let begun = Instant::now();
                            match database.reader() {
                                Ok(reopened) => connection = reopened,
                                Err(_) => next_attempt = Instant::now() + begun.elapsed().max(MIN_RECONNECT_INTERVAL),
                            }
                        }
                        let begun = Instant::now();
                        query(&connection);
                        measures.read_micros.observe_time(begun.elapsed());
                    }
                })
                .map_err(|error| Error::Internal(format!("cannot start a reader: {error}")))?;
            threads.push(thread);
        }
        Ok((Self { queries }, threads))
    }

    /// Runs `query` in one read transaction, for a consistent view.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let query: ReadJob = Box::new(move |connection| {
            let read = || connection.snapshot(query);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(read));
            if outcome.is_err() && !connection.is_autocommit() {
                // Otherwise the next read would see the same old moment.
                let _ = connection.roll_back();
            }
            let _ = answer.send(outcome);
        });
        match self.queries.try_send(query) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => return Err(Error::Overloaded),
            Err(TrySendError::Disconnected(_)) => return Err(Error::Internal("the store is closed".to_owned())),
        }
        match answered.await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(Error::Internal("the read failed unexpectedly".to_owned())),
        }
    }
}
