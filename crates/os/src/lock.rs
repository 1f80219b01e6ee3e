//! Locks between processes: a private file, locked for as long as it stays open. The system releases the lock when the
//! process ends, for whatever reason.

use std::{
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::io::Errno;

use crate::{look_up, private_file::open_or_create};

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

/// What keeps somebody from being alone in folders.
#[derive(Debug, thiserror::Error)]
pub enum FolderLockError {
    #[error("{} is in use", .0.display())]
    Busy(PathBuf),
    /// Whoever works there may be unseen.
    #[error("{}: {source}", .path.display())]
    Unreachable { path: PathBuf, source: io::Error },
}

impl FolderLock {
    /// Held together with others like it. `None` if somebody is alone there for longer than the timeout.
    pub fn shared(folder: &Path, timeout: Duration) -> io::Result<Option<Self>> {
        let file = look_up::open_folder(folder)?.ok_or(Errno::ACCESS)?;
        let is_locked = retried(timeout, || locked(file.try_lock_shared()))?;
        Ok(is_locked.then(|| Self(vec![file])))
    }

    /// Held by nobody else. Waits for others who are alone there, which takes them a while, and until the timeout for those
    /// who share it. A folder that isn't there, that this user can't open, or that a file system doesn't lock, is left out.
    pub fn alone<'a>(folders: impl IntoIterator<Item = &'a Path>, timeout: Duration) -> Result<Self, FolderLockError> {
        let folders: Vec<&Path> = folders.into_iter().collect();
        let mut waited = Duration::ZERO;
        loop {
            let (mut held, mut busy) = (Self(Vec::new()), false);
            for folder in &folders {
                let unreachable = |source| FolderLockError::Unreachable { path: folder.to_path_buf(), source };
                let Some(file) = open_if_there(folder).map_err(unreachable)? else { continue };
                match holder(&file) {
                    Ok(None) => held.0.push(file),
                    Ok(Some(holder)) if waited >= holder.patience(timeout) => {
                        return Err(FolderLockError::Busy(folder.to_path_buf()));
                    }
                    Ok(Some(_)) => busy = true,
                    Err(error) if look_up::has_no_locks(&error) => {}
                    Err(source) => return Err(unreachable(source)),
                }
            }
            if !busy {
                return Ok(held);
            }
            drop(held);
            std::thread::sleep(RETRY_INTERVAL);
            waited += RETRY_INTERVAL;
        }
    }
}

fn open_if_there(folder: &Path) -> io::Result<Option<File>> {
    match look_up::open_folder(folder) {
        Err(error) if look_up::is_absent(&error) => Ok(None),
        opened => opened,
    }
}

/// Who has a folder.
enum Holder {
    Shared,
    Alone,
}

impl Holder {
    /// How long one waits for it.
    fn patience(&self, timeout: Duration) -> Duration {
        match self {
            Self::Shared => timeout,
            Self::Alone => timeout.max(ALONE_TIMEOUT),
        }
    }
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
        assert!(matches!(alone(), Err(FolderLockError::Busy(busy)) if busy == folder));
        drop((one, other));
        let held = alone().unwrap();
        assert!(shared().is_none());
        drop(held);
        assert!(shared().is_some());
    }

    /// Whoever works in a folder chooses its mode.
    #[cfg(all(target_os = "linux", not(attache_portable)))]
    #[test]
    fn a_closed_folder_is_locked_as_well() {
        use crate::look_up::tests::{as_ordinary_user, set_mode};

        as_ordinary_user(|| {
            let parent = tempfile::tempdir().unwrap();
            let folder = parent.path().canonicalize().unwrap().join("folder");
            std::fs::create_dir(&folder).unwrap();
            set_mode(&folder, 0o000);
            let shared = FolderLock::shared(&folder, Duration::ZERO).unwrap();
            assert!(shared.is_some());
            set_mode(&folder, 0o300);
            let alone = FolderLock::alone([folder.as_path()], Duration::ZERO);
            assert!(matches!(alone, Err(FolderLockError::Busy(busy)) if busy == folder));
        });
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
        assert!(matches!(alone(), Err(FolderLockError::Busy(busy)) if busy == folder));
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
