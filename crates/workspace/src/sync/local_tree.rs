//! The copy at the remote. The agent that works in it may swap anything for a link at any moment, so every step goes through
//! the descriptor of a folder and follows no link.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write as _},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
};

use attache_os::{
    folder_watcher::{FolderWatcher, max_watched},
    path_handle::{self, PathHandle, attributes_of},
};
use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, mkdirat, renameat, renameat_with, symlinkat, unlinkat},
    io::Errno,
};

use super::{
    free_space,
    paths::{is_carried, join, parent_and_name},
};
use crate::export::{FileAttributes, FileKind, FileTime, root, set_times};

pub(crate) struct LocalTree {
    path: PathBuf,
    root: OwnedFd,
    /// What is written is completed here, and then gets its name.
    staging: PathBuf,
    staged: u64,
    watcher: Option<Arc<FolderWatcher>>,
}

/// Everything that is there.
#[derive(Debug, Default)]
pub(crate) struct LocalScan {
    pub(crate) entries: BTreeMap<Vec<u8>, FileAttributes>,
    /// Folders that can't be read, so their content is unknown.
    pub(crate) unreadable: Vec<Vec<u8>>,
}

/// A complete file that has no name yet. Dropping it removes it.
pub(crate) struct StagedFile {
    pub(crate) file: File,
    path: PathBuf,
}

/// Whether a file is as it was.
pub(crate) fn is_same(one: &FileAttributes, other: &FileAttributes) -> bool {
    let version = |it: &FileAttributes| (it.kind, it.mode, it.inode, it.size, it.modified, it.changed);
    match one.kind {
        // Its times say that something in it changed.
        FileKind::Folder => other.kind == FileKind::Folder,
        _ => version(one) == version(other),
    }
}

// === impl LocalTree ===

impl LocalTree {
    /// `staging` must be on the same file system, out of the agent's reach.
    pub(crate) fn open(path: &Path, staging: PathBuf, watcher: Option<Arc<FolderWatcher>>) -> io::Result<Self> {
        let root = path_handle::root(path)?;
        Ok(Self { path: path.to_owned(), root, staging, staged: 0, watcher })
    }

    /// Looks at everything. An error if the folder itself isn't there any more: that nothing is in it means nothing then.
    pub(crate) fn scan(&self) -> io::Result<LocalScan> {
        let mut scan = LocalScan::default();
        let own = attributes_of(&self.root)?;
        let there = attributes_of(path_handle::root(&self.path)?)?;
        if (own.device, own.inode) != (there.device, there.inode) {
            return Err(io::Error::other("the folder was replaced"));
        }
        let (mut folders, mut watched) = (vec![Vec::new()], 0);
        while let Some(folder) = folders.pop() {
            let found = match PathHandle::find(&self.root, &folder) {
                Ok(found) if found.attributes.is_folder() => found,
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(_) => {
                    scan.unreadable.push(folder);
                    continue;
                }
            };
            // Watch before listing, so that no change in between is missed.
            if let Some(watcher) = self.watcher.as_ref().filter(|_| watched < max_watched()) {
                watched += usize::from(watcher.watch(&found).is_ok());
            }
            let entries = found.reopen(OFlags::RDONLY | OFlags::DIRECTORY).map_err(Into::into).and_then(root::entries);
            let Ok(entries) = entries else {
                scan.unreadable.push(folder);
                continue;
            };
            for entry in entries {
                let Ok((name, attributes)) = entry else {
                    scan.unreadable.push(folder.clone());
                    break;
                };
                let path = join(&folder, &name);
                if attributes.kind == FileKind::Special || attributes.mount_root || !is_carried(&path) {
                    continue;
                }
                if attributes.is_folder() {
                    folders.push(path.clone());
                }
                scan.entries.insert(path, attributes);
            }
        }
        Ok(scan)
    }

    pub(crate) fn attributes(&self, path: &[u8]) -> Option<FileAttributes> {
        PathHandle::find(&self.root, path).ok().map(|found| found.attributes)
    }

    pub(crate) fn open_file(&self, path: &[u8]) -> Result<File, Errno> {
        let found = PathHandle::find(&self.root, path)?;
        match found.attributes.kind {
            FileKind::File => found.reopen(OFlags::RDONLY).map(Into::into),
            _ => Err(Errno::LOOP),
        }
    }

    pub(crate) fn read_link(&self, path: &[u8]) -> Result<Vec<u8>, Errno> {
        PathHandle::find(&self.root, path)?.target()
    }

    pub(crate) fn make_dir(&self, path: &[u8], mode: u32) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        match mkdirat(&parent, name, Mode::from_raw_mode((mode & 0o777) | 0o700)) {
            Err(Errno::EXIST) if self.attributes(path).is_some_and(|found| found.is_folder()) => Ok(()),
            done => done,
        }
    }

    pub(crate) fn symlink(&self, path: &[u8], target: &[u8]) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        symlinkat(target, &parent, name)
    }

    /// A file or link, or an empty folder.
    pub(crate) fn remove(&self, path: &[u8], kind: FileKind) -> Result<(), Errno> {
        let (parent, name) = self.place(path)?;
        let flags = if kind == FileKind::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match unlinkat(&parent, name, flags) {
            Err(Errno::NOENT) => Ok(()),
            done => done,
        }
    }

    /// To a free name.
    pub(crate) fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let ((old, from), (new, to)) = (self.place(from)?, self.place(to)?);
        match renameat_with(&old, from, &new, to, RenameFlags::NOREPLACE) {
            Err(Errno::INVAL | Errno::NOSYS) => renameat(&old, from, &new, to),
            done => done,
        }
    }

    /// Returns what it is then, or what it was if somebody else has changed it in between.
    pub(crate) fn set_attributes(&self, path: &[u8], mode: u32, modified: FileTime) -> Result<FileAttributes, Errno> {
        let found = PathHandle::find(&self.root, path)?;
        if found.attributes.kind != FileKind::File {
            return Err(Errno::LOOP);
        }
        found.set_mode(mode & 0o777)?;
        set_times(&found, None, Some(modified))?;
        let now = found.current_attributes()?;
        let is_ours = (now.mode, now.modified, now.size) == (mode & 0o777, modified, found.attributes.size);
        Ok(if is_ours { now } else { found.attributes })
    }

    /// Whether a file of this size can be written without filling the disk.
    pub(crate) fn check_space(&self, size: u64) -> io::Result<()> {
        let free = free_space(&self.staging)?;
        if size < free {
            return Ok(());
        }
        let text = format!("a file of {size} bytes came into the folder, and only {free} are free here for copies");
        Err(io::Error::new(io::ErrorKind::StorageFull, text))
    }

    pub(crate) fn stage(&mut self) -> io::Result<StagedFile> {
        self.staged += 1;
        let path = self.staging.join(format!("staged-{}", self.staged));
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        Ok(StagedFile { file, path })
    }

    pub(crate) fn stage_data(&mut self, data: &[u8]) -> io::Result<StagedFile> {
        self.check_space(data.len() as u64)?;
        let mut staged = self.stage()?;
        staged.file.write_all(data)?;
        Ok(staged)
    }

    /// Gives a complete file its name, in place of what was found there. Returns its attributes, or those from before if
    /// somebody has changed it since.
    pub(crate) fn put(
        &self,
        path: &[u8],
        staged: &StagedFile,
        (mode, modified): (u32, FileTime),
        expected: Option<&FileAttributes>,
    ) -> io::Result<FileAttributes> {
        let handle = PathHandle::of(staged.file.try_clone()?.into())?;
        rustix::fs::fchmod(&staged.file, Mode::from_raw_mode(mode & 0o777))?;
        set_times(&handle, None, Some(modified))?;
        let now = self.attributes(path);
        let is_expected = match (&now, expected) {
            (None, None) => true,
            (Some(now), Some(expected)) => is_same(now, expected),
            _ => false,
        };
        if !is_expected {
            return Err(Errno::STALE.into());
        }
        let (parent, name) = self.place(path)?;
        let complete = attributes_of(&staged.file)?;
        renameat(CWD, &staged.path, &parent, name)?;
        let now = attributes_of(&staged.file)?;
        let is_ours = (now.mode, now.modified, now.size) == (complete.mode, complete.modified, complete.size);
        Ok(if is_ours { now } else { complete })
    }

    /// The folder of a path, which is created if it is missing, and the name in it.
    fn place<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a [u8]), Errno> {
        let (folder, name) = parent_and_name(path);
        match path_handle::folder(&self.root, folder) {
            Err(Errno::NOENT) if !folder.is_empty() => {
                self.make_dir(folder, 0o755)?;
                Ok((path_handle::folder(&self.root, folder)?, name))
            }
            found => Ok((found?, name)),
        }
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        // It isn't there any more if it has its name.
        let _ = std::fs::remove_file(&self.path);
    }
}
