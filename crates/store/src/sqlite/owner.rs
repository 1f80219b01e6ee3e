//! One writer per database: it keeps in memory what it has written, so a second one would write over it.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, TryLockError},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// How long an earlier writer, of a store that was dropped or a program that is just ending, may take to finish.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Becomes the database's owner, for as long as the file is open. The system lets go of it when the process ends, however
/// that happens.
pub(super) fn become_owner(database: &Path) -> Result<File> {
    become_owner_within(PATIENCE, database)
}

fn become_owner_within(patience: Duration, database: &Path) -> Result<File> {
    // SQLite follows a link, and so does the lock.
    let path = lock_of(&fs::canonicalize(database).unwrap_or_else(|_| database.to_owned()));
    let failed =
        |error: std::io::Error| Error::Internal(format!("cannot lock the database {}: {error}", path.display()));
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    let since = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if since.elapsed() < patience => thread::sleep(LOOK_EVERY),
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Internal(format!(
                    "the database {} belongs to a hub that is running; stop that one first",
                    database.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// Beside the database and not the database itself: closing a second handle on that would drop SQLite's own locks.
fn lock_of(database: &Path) -> PathBuf {
    let mut name = database.file_name().map_or_else(OsString::new, OsString::from);
    name.push("-owner");
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
        let waiting = thread::spawn(move || become_owner(&path).map(drop));
        drop(first);
        waiting.join().unwrap().unwrap();
    }
}
