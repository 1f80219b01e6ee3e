//! Files that are only there while a process needs them, so that nobody puts another file in their place. Several processes
//! can share one, and the last removes it. After a crash, it stays until the next one that shares it ends, or until
//! [`remove_unused`].

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, openat, renameat, renameat_with, statat, unlinkat,
    },
    io::Errno,
};

use crate::system::beneath::folder_without_links;

/// Held as long as the file has to stay.
#[derive(Debug)]
pub struct Placeholder {
    path: PathBuf,
    content: &'static str,
    /// With a shared lock. Whoever gets the exclusive one removes the file.
    file: File,
}

/// How often a file is looked at that others create and remove meanwhile.
const ATTEMPTS: usize = 100;

/// Removes the file if it is a placeholder that nobody holds.
pub fn remove_unused(path: &Path, content: &'static str) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    let file = match open(&folder, name) {
        Err(Errno::NOENT) => return Ok(()),
        file => File::from(file?),
    };
    if has_content(&file, content)? && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        unlinkat(&folder, name, AtFlags::empty())?;
    }
    Ok(())
}

/// The folder of a path. No part of it can be a link: somebody could have put it there meanwhile.
fn parent(path: &Path) -> io::Result<(OwnedFd, &Path)> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    Ok((folder_without_links(folder)?, Path::new(name)))
}

fn open(folder: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::empty())
}

fn has_content(file: &File, content: &str) -> io::Result<bool> {
    let mut text = Vec::new();
    if file.metadata()?.is_file() {
        file.take(content.len() as u64 + 1).read_to_end(&mut text)?;
    }
    Ok(text == content.as_bytes())
}

// === impl Placeholder ===

impl Placeholder {
    /// Holds the placeholder, which is created if nothing is there. `None` if something else is. `unique` names no other
    /// file of the folder.
    pub fn hold(path: &Path, content: &'static str, unique: &str) -> io::Result<Option<Self>> {
        let (folder, name) = parent(path)?;
        for _ in 0..ATTEMPTS {
            let file = match open(&folder, name) {
                Err(Errno::NOENT) => match create(&folder, name, content, unique) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                    file => return Ok(Some(Self { path: path.to_owned(), content, file: file? })),
                },
                // A link.
                Err(Errno::LOOP) => return Ok(None),
                file => File::from(file?),
            };
            if !has_content(&file, content)? {
                return Ok(None);
            }
            let is_locked = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
            // Whoever was last may have removed it before it was locked.
            let same = |found: rustix::fs::Stat| rustix::fs::fstat(&file).is_ok_and(|own| own.st_ino == found.st_ino);
            if is_locked && statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(same) {
                return Ok(Some(Self { path: path.to_owned(), content, file }));
            }
            std::thread::yield_now();
        }
        Err(io::Error::other(format!("{} is created and removed all the time", path.display())))
    }
}

/// It gets its name with its content, and locked.
fn create(folder: &OwnedFd, name: &Path, content: &str, unique: &str) -> io::Result<File> {
    let temporary = [name.as_os_str().as_bytes(), b".", unique.as_bytes()].concat();
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, &temporary[..], flags, Mode::from_raw_mode(0o644))?);
    let named = file.write_all(content.as_bytes()).and_then(|()| {
        flock(&file, FlockOperation::NonBlockingLockShared)?;
        match renameat_with(folder, &temporary[..], folder, name, RenameFlags::NOREPLACE) {
            // Not every file system can refuse to replace.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(folder, &temporary[..], folder, name)?),
            named => Ok(named?),
        }
    });
    if named.is_err() {
        let _ = unlinkat(folder, &temporary[..], AtFlags::empty());
    }
    named.map(|()| file)
}

impl Drop for Placeholder {
    fn drop(&mut self) {
        // A process that was just forked may have the same lock for a moment, so closing the file isn't enough.
        let _ = flock(&self.file, FlockOperation::Unlock);
        if let Err(error) = remove_unused(&self.path, self.content) {
            tracing::warn!(path = %self.path.display(), %error, "couldn't remove a placeholder");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_holder_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = root.join("place");
        let hold = |unique: &str| Placeholder::hold(&path, "held\n", unique).unwrap();
        let (first, second) = (hold("1").unwrap(), hold("2").unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "held\n");
        drop(first);
        remove_unused(&path, "held\n").unwrap();
        assert!(path.exists(), "it is still held");
        drop(second);
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0);
        // After a crash.
        fs::write(&path, "held\n").unwrap();
        drop(hold("3").unwrap());
        assert!(!path.exists());
        fs::write(&path, "held\n").unwrap();
        remove_unused(&path, "held\n").unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_somebodys_own_stays() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let path = root.join("place");
        fs::write(&path, "own\n").unwrap();
        assert!(Placeholder::hold(&path, "held\n", "1").unwrap().is_none());
        remove_unused(&path, "held\n").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "own\n");
        // No link is followed, and none on the way.
        fs::write(root.join("other"), "held\n").unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(Placeholder::hold(&path, "held\n", "1").unwrap().is_none());
        std::os::unix::fs::symlink(&root, root.join("way")).unwrap();
        assert!(Placeholder::hold(&root.join("way/new"), "held\n", "1").is_err());
        assert!(root.join("other").exists() && !root.join("new").exists());
    }
}
