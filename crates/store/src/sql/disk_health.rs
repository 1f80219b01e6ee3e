//! Whether the database can be written: interprets the errors of SQLite and PostgreSQL, and shares the result.

use std::{
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rusqlite::ErrorCode;

use crate::{Error, StorageFault};

/// A write more recent than this proves that the next one is possible.
const FRESH: Duration = Duration::from_secs(5);

/// The known state of the disk. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct DiskHealth(Arc<Mutex<DiskState>>);

#[derive(Debug, Default)]
struct DiskState {
    fault: Option<StorageFault>,
    written: Option<Instant>,
}

// === impl DiskHealth ===

impl DiskHealth {
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

    /// Logged once per fault, as long as it stays the same.
    pub(super) fn failed(&self, fault: StorageFault, details: &dyn std::fmt::Display) {
        let before = {
            let mut state = self.state();
            state.written = None;
            state.fault.replace(fault)
        };
        if before != Some(fault) {
            tracing::error!(%details, "nothing can be written: {fault}");
        }
    }

    pub(super) fn fault(&self) -> Option<StorageFault> {
        self.state().fault
    }

    pub(super) fn is_fresh(&self) -> bool {
        let state = self.state();
        state.fault.is_none() && state.written.is_some_and(|at| at.elapsed() < FRESH)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, DiskState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fault of the disk or file behind an SQLite error, if it is one.
pub(super) fn fault_of(error: &rusqlite::Error) -> Option<StorageFault> {
    match error.sqlite_error_code()? {
        ErrorCode::DiskFull => Some(StorageFault::DiskFull),
        ErrorCode::ReadOnly => Some(StorageFault::ReadOnly),
        ErrorCode::SystemIoFailure | ErrorCode::CannotOpen => Some(StorageFault::Io),
        // SQLite has it for its write-ahead log only; here it stands for a broken connection.
        ErrorCode::FileLockingProtocolFailed => Some(StorageFault::Unreachable),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => Some(StorageFault::Damaged),
        _ => None,
    }
}

/// SQLite often only says that a file couldn't be written. Writing a file of our own next to it shows why.
pub(super) fn probe_disk(fault: StorageFault, database: &Path) -> StorageFault {
    if fault != StorageFault::Io {
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
    written.err().and_then(|error| StorageFault::of_io(&error)).unwrap_or(fault)
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        match fault_of(&error) {
            Some(fault) => Self::Unwritable(fault),
            None => Self::Internal(error.to_string()),
        }
    }
}
