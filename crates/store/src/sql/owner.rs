//! Ensures one writer per database: it caches what it has written, so a second one would overwrite it.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_os::lock;

use crate::{Error, Result, StorageFault};

/// How long an earlier writer, of a dropped store or an exiting program, may take to finish.
const OWNER_LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Becomes the database's owner for as long as the file is open. The system releases it when the process ends, however
/// that happens.
pub(super) fn become_owner(database: &Path) -> Result<File> {
    become_owner_within(OWNER_LOCK_TIMEOUT, database)
}

fn become_owner_within(patience: Duration, database: &Path) -> Result<File> {
    // SQLite follows symlinks, and so does the lock.
    let path = lock_of(&fs::canonicalize(database).unwrap_or_else(|_| database.to_owned()));
    let failed = |error: std::io::Error| match StorageFault::of_io(&error) {
        Some(fault) => Error::Unwritable(fault),
        None => Error::Internal(format!("cannot lock the database {}: {error}", path.display())),
    };
    match lock::acquire_blocking(&path, patience).map_err(failed)? {
        Some(file) => Ok(file),
        None => Err(Error::Unusable {
            what: format!("the database {} belongs to a hub that is running", database.display()),
            hint: "Stop that one first.",
        }),
    }
}

/// Refuses a database that was in use when its hub ended and whose write-ahead log is missing: the newest writes were
/// in it.
pub(super) fn refuse_lost_log(owner: &File, database: &Path) -> Result<()> {
    let was_open = owner.metadata().is_ok_and(|metadata| metadata.len() > 0);
    let is_used = fs::metadata(database).is_ok_and(|metadata| metadata.len() > 0);
    if !was_open || !is_used || beside(database, "-wal").exists() {
        return Ok(());
    }
    let name = database.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Err(Error::Unusable {
        what: format!("{name}-wal is gone, and the hub was not stopped properly: the newest writes may be lost"),
        hint: "Put the file back beside the database, or restore a backup (docs/backup.md). To start with what is left, remove hub.db-owner.",
    })
}

/// Marks the database as in use. A hub that shuts down cleanly undoes it with [`mark_closed`].
pub(super) fn mark_open(mut owner: &File) {
    let _ = owner.set_len(0).and_then(|()| owner.write_all(b"open\n"));
}

pub(super) fn mark_closed(owner: &File) {
    let _ = owner.set_len(0);
}

/// Next to the database and not the database itself: closing a second handle to that would drop SQLite's own locks.
fn lock_of(database: &Path) -> PathBuf {
    beside(database, "-owner")
}

fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut name = database.file_name().map_or_else(OsString::new, OsString::from);
    name.push(suffix);
    database.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_has_one_owner_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hub.db");
        let first = become_owner(&path).unwrap();
        let error = become_owner_within(Duration::ZERO, &path).unwrap_err().to_string();
        assert!(error.contains("hub.db belongs to a hub that is running"), "{error}");
        fs::write(&path, "").unwrap();
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(become_owner_within(Duration::ZERO, &link).is_err(), "another name for the same database");
        let waiting = std::thread::spawn(move || become_owner(&path).map(drop));
        drop(first);
        waiting.join().unwrap().unwrap();
    }
}
