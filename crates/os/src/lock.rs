//! Locks between processes: a private file, locked for as long as it stays open. The system releases the lock when the
//! process ends, for whatever reason.

use std::{
    fs::{File, TryLockError},
    io,
    path::Path,
    time::Duration,
};

use rustix::fs::{Mode, OFlags};

use crate::private_file::open_or_create;

const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long those who are alone in a folder wait for each other.
const ALONE_TIMEOUT: Duration = Duration::from_secs(60);

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
    let is_locked = retried(timeout, || locked(file.try_lock()))?;
    Ok(is_locked.then_some(file))
}

/// Tries until it succeeds. `false` if it doesn't within the timeout.
fn retried(timeout: Duration, attempt: impl Fn() -> io::Result<bool>) -> io::Result<bool> {
    let mut waited = Duration::ZERO;
    while !attempt()? {
        if waited >= timeout {
            return Ok(false);
        }
        std::thread::sleep(RETRY_INTERVAL);
        waited += RETRY_INTERVAL;
    }
    Ok(true)
}

fn locked(tried: Result<(), TryLockError>) -> io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A lock on folders themselves, whoever else may write in them. What a program in one of them locks doesn't help it: the
/// others refuse, or wait.
#[derive(Debug)]
pub struct FolderLock(Vec<File>);

impl FolderLock {
    /// Held together with others like it. `None` if somebody is alone there for longer than the timeout.
    pub fn shared(folder: &Path, timeout: Duration) -> io::Result<Option<Self>> {
        let file = open_folder(folder)?;
        let is_locked = retried(timeout, || locked(file.try_lock_shared()))?;
        Ok(is_locked.then(|| Self(vec![file])))
    }

    /// Held by nobody else. Waits for others who are alone there, which takes them a while, and until the timeout for those
    /// who share it: their folder is the error. One that isn't there, or that a file system doesn't lock, is left out.
    pub fn alone<'a>(folders: impl IntoIterator<Item = &'a Path>, timeout: Duration) -> Result<Self, &'a Path> {
        let folders: Vec<&Path> = folders.into_iter().collect();
        let mut waited = Duration::ZERO;
        loop {
            let (mut held, mut busy) = (Self(Vec::new()), None);
            for folder in &folders {
                let Ok(file) = open_folder(folder) else { continue };
                match holder(&file) {
                    Ok(None) => held.0.push(file),
                    Ok(Some(Holder::Shared)) if waited >= timeout => return Err(folder),
                    Ok(Some(Holder::Alone)) if waited >= timeout.max(ALONE_TIMEOUT) => return Err(folder),
                    Ok(Some(_)) => busy = Some(folder),
                    Err(_) => {}
                }
            }
            if busy.is_none() {
                return Ok(held);
            }
            drop(held);
            std::thread::sleep(RETRY_INTERVAL);
            waited += RETRY_INTERVAL;
        }
    }
}

/// Who has a folder.
enum Holder {
    Shared,
    Alone,
}

/// Takes the lock, unless somebody has it.
fn holder(file: &File) -> io::Result<Option<Holder>> {
    if locked(file.try_lock())? {
        return Ok(None);
    }
    if !locked(file.try_lock_shared())? {
        return Ok(Some(Holder::Alone));
    }
    // Somebody else may have let go of it between the two.
    if locked(file.try_lock())? {
        return Ok(None);
    }
    file.unlock()?;
    Ok(Some(Holder::Shared))
}

impl Drop for FolderLock {
    /// Closing the file isn't enough: a child that is being started at this moment has it open, too.
    fn drop(&mut self) {
        for file in &self.0 {
            let _ = file.unlock();
        }
    }
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_many_users_or_one() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, missing) = (parent.path().join("folder"), parent.path().join("missing"));
        std::fs::create_dir(&folder).unwrap();
        let shared = || FolderLock::shared(&folder, Duration::ZERO).unwrap();
        let alone = || FolderLock::alone([parent.path(), &folder, &missing], Duration::ZERO);
        let (one, other) = (shared(), shared());
        assert!(one.is_some() && other.is_some());
        assert_eq!(alone().unwrap_err(), folder);
        drop((one, other));
        let held = alone().unwrap();
        assert!(shared().is_none());
        drop(held);
        assert!(shared().is_some());
    }

    /// Two who are alone in different folders meet in those above, where neither is in the other's way for long.
    #[test]
    fn those_who_are_alone_wait_for_each_other_and_name_only_who_shares() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let alone = || FolderLock::alone([parent.path(), &folder], Duration::ZERO);
        let other = FolderLock::alone([parent.path()], Duration::ZERO).unwrap();
        let user = FolderLock::shared(&folder, Duration::ZERO).unwrap();
        assert_eq!(alone().unwrap_err(), folder);
        drop(user);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| alone().is_ok());
            drop(other);
            assert!(waiting.join().unwrap());
        });
    }

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
