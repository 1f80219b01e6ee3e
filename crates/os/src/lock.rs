//! Locks between processes: a private file, locked for as long as it stays open. The system releases the lock when the
//! process ends, for whatever reason.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    time::Duration,
};

use crate::private_file::open_or_create;

const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Blocks until the lock is free.
pub fn wait(path: &Path) -> io::Result<File> {
    let file = open_or_create(path)?;
    loop {
        match file.lock() {
            Ok(()) => return Ok(file),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Acquires the lock within the timeout. `None` if another process still holds it.
pub async fn acquire(path: &Path, timeout: Duration) -> io::Result<Option<File>> {
    let path = path.to_owned();
    tokio::task::spawn_blocking(move || acquire_blocking(&path, timeout)).await?
}

/// Like [`acquire`], but blocks the thread.
pub fn acquire_blocking(path: &Path, timeout: Duration) -> io::Result<Option<File>> {
    let file = open_or_create(path)?;
    let mut waited = Duration::ZERO;
    while !try_lock(&file)? {
        if waited >= timeout {
            return Ok(None);
        }
        std::thread::sleep(RETRY_INTERVAL);
        waited += RETRY_INTERVAL;
    }
    Ok(Some(file))
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_has_one_holder_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = wait(&path).unwrap();
        assert!(acquire(&path, Duration::ZERO).await.unwrap().is_none());
        assert!(acquire_blocking(&path, Duration::ZERO).unwrap().is_none());
        drop(held);
        let held = acquire(&path, Duration::ZERO).await.unwrap().unwrap();
        drop(held);
        assert!(acquire_blocking(&path, Duration::ZERO).unwrap().is_some());
    }
}
