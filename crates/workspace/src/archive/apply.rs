//! Applies what came back to a copy of the folder: only what differs from what was sent counts as a change, so that a program
//! that loses modes, links or times on the way changes none of them here.

use std::{collections::BTreeSet, path::Path};

use rustix::io::Errno;

use super::{
    ArchiveError, ArchiveLimits, IsCancelled, SentFiles, check_cancelled,
    folder::{make_dirs, mode, prefix, read_file, written_at},
    hash,
    zip_reader::{ZipArchive, check_path},
};
use crate::{
    export::{FileKind, show},
    sync::{
        local_tree::LocalTree,
        paths::{conflict_name, parent_and_name},
    },
};

/// What became of an archive.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AppliedArchive {
    /// How many files were written or removed.
    pub changed: usize,
    /// The archive doesn't have the folder, so nothing was changed.
    pub is_absent: bool,
    /// What was also changed here meanwhile, or is something else here: a remark for each path.
    pub conflicts: Vec<String>,
}

/// One run over an archive.
struct ArchiveChanges<'a> {
    tree: LocalTree,
    archive: &'a ZipArchive<'a>,
    prefix: String,
    sent: &'a SentFiles,
    limits: ArchiveLimits,
    is_cancelled: IsCancelled<'a>,
    applied: AppliedArchive,
}

/// Applies the part of an archive that is below `name` to a copy in which `sent` was packed. `staging` is an empty folder on
/// the same file system. Blocking.
pub fn apply(
    archive: &ZipArchive<'_>,
    name: &str,
    sent: &SentFiles,
    (folder, staging): (&Path, &Path),
    limits: ArchiveLimits,
    is_cancelled: IsCancelled<'_>,
) -> Result<AppliedArchive, ArchiveError> {
    let prefix = prefix(name);
    let is_there = |path: &String| path == name || path.starts_with(&prefix);
    if !archive.entries.keys().any(is_there) {
        return Ok(AppliedArchive { is_absent: true, ..AppliedArchive::default() });
    }
    let tree = LocalTree::open(folder, staging.to_owned(), None)?;
    let applied = AppliedArchive::default();
    let mut changes = ArchiveChanges { tree, archive, prefix, sent, limits, is_cancelled, applied };
    changes.remove_absent()?;
    changes.write_changed()?;
    Ok(changes.applied)
}

// === impl ArchiveChanges ===

impl ArchiveChanges<'_> {
    /// Files that were sent and didn't come back, and the folders that are empty because of that.
    fn remove_absent(&mut self) -> Result<(), ArchiveError> {
        let (archive, sent) = (self.archive, self.sent);
        let mut folders: BTreeSet<&str> = BTreeSet::new();
        for (path, sent) in sent {
            check_cancelled(self.is_cancelled)?;
            if archive.entries.get(&format!("{}{path}", self.prefix)).is_some_and(|entry| !entry.is_folder) {
                continue;
            }
            match self.hash_here(path)? {
                None => continue,
                Some(here) if here == *sent => {}
                Some(_) => {
                    self.conflict(path, "the remote removed it, but it was changed here: it stays");
                    continue;
                }
            }
            self.tree.remove(path.as_bytes(), FileKind::File).map_err(std::io::Error::from)?;
            self.applied.changed += 1;
            folders.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
        }
        // The innermost first. One with something else in it stays.
        for folder in folders.into_iter().rev() {
            if !self.archive.entries.get(&format!("{}{folder}", self.prefix)).is_some_and(|entry| entry.is_folder) {
                let _ = self.tree.remove(folder.as_bytes(), FileKind::Folder);
            }
        }
        Ok(())
    }

    fn write_changed(&mut self) -> Result<(), ArchiveError> {
        let archive = self.archive;
        for (full, entry) in &archive.entries {
            check_cancelled(self.is_cancelled)?;
            let Some(path) = full.strip_prefix(&self.prefix).filter(|path| !path.is_empty()) else { continue };
            if entry.is_folder {
                if make_dirs(&self.tree, path).is_err() {
                    self.conflict(path, "something other than a folder is here: it stays");
                }
                continue;
            }
            let content = archive.content(full)?;
            if self.sent.get(path) != Some(&hash(&content)) {
                self.write(path, &content, entry.is_executable)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, path: &str, content: &[u8], is_executable: bool) -> Result<(), ArchiveError> {
        if let Some((above, _)) = path.rsplit_once('/')
            && make_dirs(&self.tree, above).is_err()
        {
            self.conflict(path, "its folder is something else here: it was left out");
            return Ok(());
        }
        let found = self.tree.attributes(path.as_bytes());
        let here = self.hash_here(path)?;
        if here == Some(hash(content)) {
            return Ok(());
        }
        if let Some(found) = found
            && found.kind != FileKind::File
        {
            self.conflict(path, "something other than a file is here, which was not sent: it stays");
            return Ok(());
        }
        let staged = self.tree.stage_data(content)?;
        let written = written_at(&staged)?;
        let is_as_sent = here.as_ref() == self.sent.get(path) || found.is_none();
        if is_as_sent {
            let mode = found.as_ref().map_or(mode(is_executable), |found| found.mode);
            match self.tree.put(path.as_bytes(), &staged, (mode, written), found.as_ref()) {
                Ok(_) => {
                    self.applied.changed += 1;
                    return Ok(());
                }
                // It has just been changed here.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::STALE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let aside = conflict_name(path.as_bytes(), |name| self.tree.attributes(name).is_some());
        self.tree.put(&aside, &staged, (mode(is_executable), written), None)?;
        self.applied.changed += 1;
        let (_, name) = parent_and_name(&aside);
        self.conflict(path, &format!("it was also changed here: the remote's version is in {}", show(name)));
        Ok(())
    }

    /// `None` if there is no file.
    fn hash_here(&self, path: &str) -> Result<Option<[u8; 32]>, ArchiveError> {
        debug_assert!(check_path(path).is_ok(), "paths of archives were checked");
        match self.tree.attributes(path.as_bytes()) {
            Some(found) if found.kind == FileKind::File => {}
            _ => return Ok(None),
        }
        match read_file(&self.tree, path.as_bytes(), self.limits) {
            Ok(content) => Ok(Some(hash(&content))),
            // It was removed in between.
            Err(ArchiveError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            // It isn't what was sent.
            Err(ArchiveError::FolderTooLarge { .. }) => Ok(Some([0; 32])),
            Err(error) => Err(error),
        }
    }

    fn conflict(&mut self, path: &str, what: &str) {
        self.applied.conflicts.push(format!("{}: {what}", show(path.as_bytes())));
    }
}
