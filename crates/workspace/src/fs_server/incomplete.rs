//! Files with a write that was refused. With write-back, programs were told that it was done, and the next thing that many do
//! is to move the file over the good one.

use std::{
    collections::{BTreeSet, HashMap},
    io,
};

use crate::{export::ExportRefusal, fs_wire::FsRequest};

#[derive(Debug, Default)]
pub(super) struct IncompleteFiles {
    paths: BTreeSet<Vec<u8>>,
    /// The paths of open files, by their numbers.
    open: HashMap<u64, Vec<u8>>,
}

/// Whoever has more than this harms only their own work.
const MAX_PATHS: usize = 4096;

// === impl IncompleteFiles ===

impl IncompleteFiles {
    /// Refuses to replace something by a file that isn't complete.
    pub(super) fn check(&self, request: &FsRequest<'_>, exists: impl Fn(&[u8]) -> bool) -> Result<(), ExportRefusal> {
        match *request {
            FsRequest::Rename { from, to, .. } | FsRequest::Replace { from, to, .. }
                if self.paths.contains(from) && exists(to) =>
            {
                Err(ExportRefusal::Io(io::Error::other("a write to the file was refused, so it replaces no other")))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn note(&mut self, request: &FsRequest<'_>, is_done: bool) {
        match *request {
            FsRequest::Open { handle, path, flags, .. } if is_done => {
                if flags.truncate || flags.exclusive {
                    self.paths.remove(path);
                }
                self.open.insert(handle, path.to_vec());
            }
            FsRequest::Close { handle, .. } => drop(self.open.remove(&handle)),
            FsRequest::Write { handle, .. }
            | FsRequest::Allocate { handle, .. }
            | FsRequest::Copy { to: handle, .. }
                if !is_done =>
            {
                self.add(handle);
            }
            FsRequest::SetHandleAttributes { handle, ref change, .. } if change.size.is_some() => match is_done {
                true => drop(self.open.get(&handle).map(|path| self.paths.remove(path))),
                false => self.add(handle),
            },
            FsRequest::SetAttributes { path, ref change, .. } if is_done && change.size.is_some() => {
                self.paths.remove(path);
            }
            FsRequest::RemoveFile { path, .. } | FsRequest::RemoveVersion { path, .. } if is_done => {
                self.paths.remove(path);
            }
            FsRequest::Rename { from, to, .. } | FsRequest::Replace { from, to, .. } if is_done => {
                match self.paths.remove(from) {
                    true => self.paths.insert(to.to_vec()),
                    false => self.paths.remove(to),
                };
                for path in self.open.values_mut().filter(|path| *path == from) {
                    *path = to.to_vec();
                }
            }
            _ => {}
        }
    }

    fn add(&mut self, handle: u64) {
        if let Some(path) = self.open.get(&handle)
            && self.paths.len() < MAX_PATHS
        {
            self.paths.insert(path.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs_wire::FsOpenFlags;

    const ID: u32 = 1;

    fn open(handle: u64, path: &[u8], truncate: bool) -> FsRequest<'_> {
        let flags = FsOpenFlags { write: true, create: true, truncate, ..FsOpenFlags::default() };
        FsRequest::Open { id: ID, handle, path, flags, mode: 0o644 }
    }

    const fn write(handle: u64) -> FsRequest<'static> {
        FsRequest::Write { id: ID, handle, offset: 0, data: b"" }
    }

    const fn rename<'a>(from: &'a [u8], to: &'a [u8]) -> FsRequest<'a> {
        FsRequest::Rename { id: ID, from, to, replace: true }
    }

    #[test]
    fn a_file_with_a_refused_write_replaces_nothing() {
        let mut files = IncompleteFiles::default();
        files.note(&open(1, b"tmp", true), true);
        files.note(&write(1), true);
        assert!(files.check(&rename(b"tmp", b"file"), |_| true).is_ok());
        files.note(&write(1), false);
        files.note(&FsRequest::Close { id: ID, handle: 1 }, true);
        assert!(files.check(&rename(b"tmp", b"file"), |_| true).is_err());
        // To a free name it can go, and stays what it is.
        assert!(files.check(&rename(b"tmp", b"other"), |_| false).is_ok());
        files.note(&rename(b"tmp", b"other"), true);
        assert!(files.check(&rename(b"other", b"file"), |_| true).is_err());
        // Until it is written anew.
        files.note(&open(2, b"other", true), true);
        assert!(files.check(&rename(b"other", b"file"), |_| true).is_ok());
    }

    #[test]
    fn a_new_file_with_the_name_is_another_one() {
        for request in [FsRequest::RemoveFile { id: ID, path: b"tmp" }, rename(b"good", b"tmp"), open(3, b"tmp", true)]
        {
            let mut files = IncompleteFiles::default();
            files.note(&open(1, b"tmp", false), true);
            files.note(&write(1), false);
            files.note(&request, false);
            assert!(files.check(&rename(b"tmp", b"file"), |_| true).is_err());
            files.note(&request, true);
            assert!(files.check(&rename(b"tmp", b"file"), |_| true).is_ok());
        }
    }
}
