//! A few threads with read-only connections, so that reads neither wait for the writer nor block the async runtime.

use std::{path::Path, sync::Arc, time::Instant};

use crossbeam_channel::{Sender, TrySendError};
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::open;
use crate::{Error, Result, metrics::StoreMetrics};

const THREADS: usize = 3;
const MAX_QUEUED_READS: usize = 4096;

type ReadJob = Box<dyn FnOnce(&Connection) + Send>;

#[derive(Debug)]
pub(super) struct Readers {
    queries: Sender<ReadJob>,
}

// === impl Readers ===

impl Readers {
    pub(super) fn start(path: &Path, measures: &Arc<StoreMetrics>) -> Result<(Self, Vec<std::thread::JoinHandle<()>>)> {
        let (queries, waiting) = crossbeam_channel::bounded::<ReadJob>(MAX_QUEUED_READS);
        let mut threads = Vec::with_capacity(THREADS);
        for number in 0..THREADS {
            let connection = open::reader(path)?;
            let (waiting, measures) = (waiting.clone(), Arc::clone(measures));
            let thread = std::thread::Builder::new()
                .name(format!("store-reader-{number}"))
                .spawn(move || {
                    for query in waiting {
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
            let read = || -> Result<T> {
                let snapshot = connection.unchecked_transaction()?;
                query(&snapshot)
            };
            let _ = answer.send(std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)));
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
