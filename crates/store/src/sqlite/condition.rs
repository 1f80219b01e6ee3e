//! Whether the database can be written: what SQLite says when it fails, and the word for everybody who asks.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::ErrorCode;

use crate::{Error, Fault};

/// A write that lies back less far proves that the next one is possible.
const FRESH: Duration = Duration::from_secs(5);

/// What is known of the disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Condition(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    fault: Option<Fault>,
    written: Option<Instant>,
}

// === impl Condition ===

impl Condition {
    /// Something was written and flushed.
    pub(super) fn written(&self) {
        let before = {
            let mut state = self.state();
            state.written = Some(Instant::now());
            state.fault.take()
        };
        if before.is_some() {
            tracing::info!("the database can be written again");
        }
    }

    /// Logged once for as long as it stays the same.
    pub(super) fn failed(&self, fault: Fault, details: &dyn std::fmt::Display) {
        let before = {
            let mut state = self.state();
            state.written = None;
            state.fault.replace(fault)
        };
        if before != Some(fault) {
            tracing::error!(%details, "nothing can be written: {fault}");
        }
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.state().fault
    }

    pub(super) fn is_fresh(&self) -> bool {
        let state = self.state();
        state.fault.is_none() && state.written.is_some_and(|at| at.elapsed() < FRESH)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is wrong with the disk or the file, if it is that what SQLite complains about.
pub(super) fn fault_of(error: &rusqlite::Error) -> Option<Fault> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(Fault::DiskFull),
        ErrorCode::ReadOnly => Some(Fault::ReadOnly),
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen | ErrorCode::FileLockingProtocolFailed => Some(Fault::Io),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Some(Fault::Damaged),
        _ => None,
    }
}

/// SQLite says of many things only that a file could not be written. A file of our own beside it says why.
pub(super) fn look_closer(fault: Fault, database: &Path) -> Fault {
    if fault != Fault::Io {
        return fault;
    }
    let name = format!(".attache-probe-{}", std::process::id());
    let probe = database.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&probe)
        .and_then(|mut file| file.write_all(&[0; 4096]).and_then(|()| file.sync_all()));
    let _ = std::fs::remove_file(&probe);
    written.err().and_then(|error| Fault::of_io(&error)).unwrap_or(fault)
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match fault_of(&error) {
            Some(fault) => Self::Unwritable(fault),
            None => Self::Internal(error.to_string()),
        }
    }
}
