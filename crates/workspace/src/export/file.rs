//! Open files of a lease: opening, reading and writing.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use attache_os::path_handle::WRITE;
use rustix::{
    fs::{FallocateFlags, Mode, OFlags, fallocate, openat},
    io::{Errno, pread, pwrite},
};

use super::{
    Export, ExportRefusal, ExportShared, FileAttributes, FileKind, LastWrite, OpenWrite,
    attributes::AttributeChange,
    audit::{ExportAuditEntry, ExportOperation},
    change::SPECIAL,
    connection::Ticket,
    content_rules::{IN_PLACE, admit_changed, admit_inside_log, read_masked},
    credentials::MaskKind,
    git_guard::trusted_git_file,
    held,
    lease_record::PathAfter,
    originals::{OriginalsStore, PendingChange},
    path::{ExportPath, check_length},
    root::{PathHandle, attributes_of},
};

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileOpenOptions {
    pub read: bool,
    pub write: bool,
    /// Every write goes to the end, whatever its offset.
    pub append: bool,
    pub truncate: bool,
    pub create: CreateMode,
    /// For a new file. The host's umask applies. Default: 0o644.
    pub mode: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CreateMode {
    #[default]
    Never,
    IfMissing,
    /// Refused if it exists.
    New,
}

/// The size of a file after space was reserved beyond its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeAfter {
    Extended,
    Unchanged,
}

/// An open file of the lease, usable from many threads at once. Dropping it closes it.
pub struct ExportFile {
    inner: Arc<ExportShared>,
    fd: OwnedFd,
    inode: u64,
    path: ExportPath,
    read: bool,
    write: bool,
    append: bool,
    /// Whether it is read with its credentials masked.
    masked: Option<MaskKind>,
    /// For a file that is open for writing.
    seen: Option<LastWrite>,
    /// Consecutive writes that are not in the audit yet.
    written: Mutex<Option<UnreportedWrite>>,
    /// Set if its connection is known.
    pub(super) ticket: Option<Ticket>,
}

#[derive(Debug, Clone, Copy)]
struct UnreportedWrite {
    bytes: u64,
    end: u64,
}

impl Export {
    pub fn open_file(&self, path: &[u8], how: &FileOpenOptions) -> Result<ExportFile, ExportRefusal> {
        if !how.writes() && how.create == CreateMode::Never {
            self.0.begin()?;
            let place = ExportPath::parse(path)?;
            let found = self.0.find_shown(&place)?;
            let fd = open_existing(&found, how)?;
            return Ok(self.0.opened(fd, found.attributes.inode, place, how));
        }
        check_length(path)?;
        let mut exists = None;
        let recorded = self.0.usage.record(&[path]);
        let done = recorded.and_then(|()| {
            self.0.carry_out(|keeper| {
                let place = ExportPath::parse(path)?;
                self.0.admit_file(&place)?;
                let found = self.0.find_shown(&place);
                exists = Some(found.is_ok());
                self.0.open_to_write(keeper, place, found, how)
            })
        });
        // If it was refused before it was looked up, look it up now, for the name of the operation.
        let exists =
            exists.unwrap_or_else(|| ExportPath::parse(path).is_ok_and(|place| self.0.find_shown(&place).is_ok()));
        let op = if exists { ExportOperation::Open } else { ExportOperation::Create };
        let bytes = (exists && how.truncate).then_some(0);
        self.0.journal.record(&ExportAuditEntry { op, path, to: None, bytes, outcome: done.as_ref().map(|_| ()) });
        done
    }
}

// === impl ExportShared ===

impl ExportShared {
    fn admit_file(&self, place: &ExportPath) -> Result<(), ExportRefusal> {
        if place.is_root() {
            return Err(ExportRefusal::IsADirectory);
        }
        self.admit(place.whole(), false)
    }

    fn open_to_write(
        self: &Arc<Self>,
        keeper: &mut OriginalsStore,
        place: ExportPath,
        found: Result<PathHandle, ExportRefusal>,
        how: &FileOpenOptions,
    ) -> Result<ExportFile, ExportRefusal> {
        let (fd, now, folder) = match found {
            Ok(_) if how.create == CreateMode::New => return Err(ExportRefusal::Exists),
            Ok(found) => {
                let fd = open_existing(&found, how)?;
                if how.writes() {
                    self.admit_in_place(keeper, &place, &found)?;
                    self.keep_in_place(keeper, &place, &found)?;
                    let open = held(&self.writing).get(&found.attributes.inode).map(|open| Arc::clone(&open.seen));
                    if let Some(seen) = open {
                        let seen = held(&seen);
                        self.keep_host_edit(keeper, place.whole(), &found, *seen)?;
                    }
                }
                if how.truncate {
                    rustix::fs::ftruncate(&fd, 0)?;
                }
                (fd, found.attributes, None)
            }
            Err(ExportRefusal::NotFound) if how.create != CreateMode::Never => {
                let (fd, folder) = self.create(keeper, &place, how)?;
                let now = attributes_of(&fd)?;
                (fd, now, Some((place.parent(), folder)))
            }
            Err(refusal) => return Err(refusal),
        };
        let inode = now.inode;
        let left =
            if how.writes() { Some(PathAfter::Writing { inode }) } else { folder.map(|_| PathAfter::of(Some(&now))) };
        let left = left.map(|left| (place.whole(), left));
        keeper.record_left(&folder.into_iter().chain(left).collect::<Vec<_>>());
        let mut opened = self.opened(fd, inode, place, how);
        if how.writes() {
            let now = attributes_of(&opened.fd)?;
            let seen = Arc::new(Mutex::new((now.size, now.modified)));
            let fresh = OpenWrite { path: opened.path.whole().to_vec(), handles: 0, seen };
            let mut writing = held(&self.writing);
            let writing = writing.entry(inode).or_insert(fresh);
            writing.handles += 1;
            opened.seen = Some(Arc::clone(&writing.seen));
            if how.truncate {
                *held(&writing.seen) = (now.size, now.modified);
            }
        }
        Ok(opened)
    }

    /// The new file, and the resulting state of its folder.
    fn create(
        &self,
        keeper: &mut OriginalsStore,
        place: &ExportPath,
        how: &FileOpenOptions,
    ) -> Result<(OwnedFd, PathAfter), ExportRefusal> {
        self.admit_new(place.whole())?;
        if trusted_git_file(place.whole()).is_some() {
            return Err(IN_PLACE);
        }
        let parent = self.root.folder(place.parent())?;
        keeper.keep_original(&self.root, place.whole(), None, PendingChange::LosesName, &|| self.check_live())?;
        keeper.keep_folder(&self.root, place.parent())?;
        self.usage.file()?;
        let flags = how.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(how.mode.unwrap_or(0o644) & 0o777);
        let created = openat(&parent, place.name(), flags, mode).inspect_err(|_| self.usage.release_file())?;
        // It may have the inode number of a deleted file.
        held(&self.sealed).remove(&attributes_of(&created)?.inode);
        Ok((created, PathAfter::of(Some(&attributes_of(&parent)?))))
    }

    fn opened(self: &Arc<Self>, fd: OwnedFd, inode: u64, path: ExportPath, how: &FileOpenOptions) -> ExportFile {
        let (inner, written) = (Arc::clone(self), Mutex::new(None));
        let (read, write, append) = (how.reads(), how.writes(), how.append);
        let masked = self.masked(path.whole());
        ExportFile { inner, fd, inode, path, read, write, append, masked, seen: None, written, ticket: None }
    }
}

// === impl FileOpenOptions ===

impl FileOpenOptions {
    const fn writes(&self) -> bool {
        self.write || self.append || self.truncate
    }

    const fn reads(&self) -> bool {
        self.read || !self.writes()
    }

    fn flags(&self) -> OFlags {
        let mut flags = match (self.reads(), self.writes()) {
            (true, true) => OFlags::RDWR,
            (false, true) => WRITE,
            (_, false) => OFlags::RDONLY,
        };
        flags.set(OFlags::APPEND, self.append);
        flags
    }
}

/// Reads until the buffer is full or the file ends.
pub(super) fn fill(fd: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<usize, ExportRefusal> {
    let mut filled = 0;
    while filled < buffer.len() {
        match pread(fd, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(filled)
}

fn open_existing(found: &PathHandle, how: &FileOpenOptions) -> Result<OwnedFd, ExportRefusal> {
    is_file(found)?;
    Ok(found.reopen(how.flags())?)
}

fn is_file(found: &PathHandle) -> Result<(), ExportRefusal> {
    match found.attributes.kind {
        FileKind::File => Ok(()),
        FileKind::Folder => Err(ExportRefusal::IsADirectory),
        FileKind::Link => Err(Errno::LOOP.into()),
        FileKind::Special => Err(SPECIAL),
    }
}

// === impl ExportFile ===

impl ExportFile {
    pub(super) const fn inner(&self) -> &Arc<ExportShared> {
        &self.inner
    }

    pub(super) const fn descriptor(&self) -> &OwnedFd {
        &self.fd
    }

    pub(super) fn path(&self) -> &[u8] {
        self.path.whole()
    }

    pub(super) const fn is_for_writing(&self) -> bool {
        self.write
    }

    /// Returns how many bytes were read: zero at the end of the file.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, ExportRefusal> {
        self.inner.begin()?;
        if !self.read {
            return Err(ExportRefusal::Invalid);
        }
        let filled = match self.masked {
            None => fill(&self.fd, offset, buffer)?,
            Some(masked) => read_masked(&self.fd, masked, offset, buffer)?,
        };
        // Bytes read while the lease ended are not returned.
        self.inner.check_live()?;
        Ok(filled)
    }

    /// Writes all bytes, or returns why not.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), ExportRefusal> {
        let recorded = if self.continues(offset) { Ok(()) } else { self.inner.usage.record(&[self.path.whole()]) };
        let done = recorded.and_then(|()| self.inner.usage.operation()).and_then(|()| {
            let _under_way = self.inner.gate.read().unwrap_or_else(PoisonError::into_inner);
            self.inner.check_live()?;
            self.write_now(offset, bytes)
        });
        match &done {
            Ok(()) => self.count(offset, bytes.len() as u64),
            Err(refusal) => {
                self.flush_write_record();
                self.record_write(bytes.len() as u64, Err(refusal));
            }
        }
        done
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Result<(), ExportRefusal> {
        if !self.write {
            // In a read-only export, nothing can be opened for writing.
            return Err(if self.inner.originals.is_none() { ExportRefusal::ReadOnly } else { ExportRefusal::Invalid });
        }
        self.inner.admit_write(self.inode)?;
        let length = bytes.len() as u64;
        let size = attributes_of(&self.fd)?.size;
        let start = if self.append { size } else { offset };
        if start < size {
            admit_inside_log(self.masked, &PathHandle::of(self.fd.try_clone()?)?)?;
        }
        self.inner.usage.write(length, start.checked_add(length).ok_or(ExportRefusal::Invalid)?, size)?;
        let Some(seen) = &self.seen else { return Err(ExportRefusal::Invalid) };
        self.notice_host(seen)?;
        let mut seen = held(seen);
        // It may have been checked since and be about to be trusted.
        self.inner.admit_write(self.inode)?;
        let written = self.write_all(offset, bytes);
        let now = attributes_of(&self.fd)?;
        *seen = (now.size, now.modified);
        written
    }

    /// Reserves space, as `fallocate` does.
    pub fn allocate(&self, offset: u64, length: u64, size: SizeAfter) -> Result<(), ExportRefusal> {
        self.flush_write_record();
        let recorded = self.inner.usage.record(&[self.path.whole()]);
        let done = recorded.and_then(|()| self.inner.usage.operation()).and_then(|()| {
            let _under_way = self.inner.gate.read().unwrap_or_else(PoisonError::into_inner);
            self.inner.check_live()?;
            self.allocate_now(offset, length, size)
        });
        self.record_write(length, done.as_ref().map(|_| ()));
        done
    }

    fn allocate_now(&self, offset: u64, length: u64, size: SizeAfter) -> Result<(), ExportRefusal> {
        let Some(seen) = self.seen.as_ref().filter(|_| self.write) else {
            return Err(if self.inner.originals.is_none() { ExportRefusal::ReadOnly } else { ExportRefusal::Invalid });
        };
        self.notice_host(seen)?;
        let mut seen = held(seen);
        self.inner.admit_write(self.inode)?;
        let before = rustix::fs::fstat(&self.fd)?.st_blocks;
        let end = offset.checked_add(length).ok_or(ExportRefusal::Invalid)?;
        let size_before = match size {
            SizeAfter::Extended => attributes_of(&self.fd)?.size,
            SizeAfter::Unchanged => end,
        };
        self.inner.usage.write(length, end, size_before)?;
        let flags = match size {
            SizeAfter::Extended => FallocateFlags::empty(),
            SizeAfter::Unchanged => FallocateFlags::KEEP_SIZE,
        };
        let done = fallocate(&self.fd, flags, offset, length);
        // What it had before costs nothing.
        let more = rustix::fs::fstat(&self.fd)?.st_blocks.saturating_sub(before).max(0).cast_unsigned() * 512;
        self.inner.usage.release(length.saturating_sub(more));
        let now = attributes_of(&self.fd)?;
        *seen = (now.size, now.modified);
        Ok(done?)
    }

    /// Keeps what somebody on the host wrote to the file meanwhile, before it is overwritten.
    fn notice_host(&self, seen: &LastWrite) -> Result<(), ExportRefusal> {
        // Checked while no writer of the lease is active.
        let last = held(seen);
        let now = attributes_of(&self.fd)?;
        if *last == (now.size, now.modified) {
            return Ok(());
        }
        drop(last);
        // Such as a login, which puts a token into a file that the lease had open.
        admit_changed(self.masked, &PathHandle::of(self.fd.try_clone()?)?)?;
        let Some(keeper) = &self.inner.originals else { return Ok(()) };
        let mut keeper = held(keeper);
        let path = held(&self.inner.writing).get(&self.inode).map(|writing| writing.path.clone());
        let found = PathHandle::of(self.fd.try_clone()?)?;
        let seen = held(seen);
        path.map_or(Ok(()), |path| self.inner.keep_host_edit(&mut keeper, &path, &found, *seen))
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), ExportRefusal> {
        let length = bytes.len() as u64;
        let mut written = 0;
        while written < bytes.len() {
            match pwrite(&self.fd, &bytes[written..], offset + written as u64) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.inner.usage.release(length - written as u64);
                    return Err(errno.into());
                }
            }
        }
        Ok(())
    }

    pub fn attributes(&self) -> Result<FileAttributes, ExportRefusal> {
        self.inner.begin()?;
        Ok(attributes_of(&self.fd)?)
    }

    pub fn set_attributes(&self, change: &AttributeChange) -> Result<(), ExportRefusal> {
        self.flush_write_record();
        // Of the handle, whatever its path is now. Its original was kept when it was opened for writing.
        let now = PathHandle::of(self.fd.try_clone()?)?;
        self.inner.change(ExportOperation::SetAttributes, self.path.whole(), None, change.size, |keeper| {
            let path = held(&self.inner.writing).get(&now.attributes.inode).map(|writing| writing.path.clone());
            let place = path.map_or_else(|| Ok(self.path.clone()), |path| ExportPath::parse(&path))?;
            self.inner.alter(keeper, &place, &now, self.write.then_some(&self.fd), change)
        })
    }

    /// Flushes it to disk.
    pub fn sync(&self) -> Result<(), ExportRefusal> {
        self.inner.begin()?;
        rustix::fs::fsync(&self.fd)?;
        self.inner.check_live()
    }

    /// Whether a write goes on where the last one ended, and is recorded with it.
    fn continues(&self, offset: u64) -> bool {
        held(&self.written).as_ref().is_some_and(|run| self.append || run.end == offset)
    }

    fn count(&self, offset: u64, bytes: u64) {
        let mut written = held(&self.written);
        match &mut *written {
            Some(run) if self.append || run.end == offset => {
                run.bytes += bytes;
                run.end = offset + bytes;
            }
            run => {
                if let Some(before) = run.replace(UnreportedWrite { bytes, end: offset + bytes }) {
                    self.record_write(before.bytes, Ok(()));
                }
            }
        }
    }

    fn flush_write_record(&self) {
        if let Some(run) = held(&self.written).take() {
            self.record_write(run.bytes, Ok(()));
        }
    }

    fn record_write(&self, bytes: u64, outcome: Result<(), &ExportRefusal>) {
        let path = self.path.whole();
        self.inner.journal.record(&ExportAuditEntry {
            op: ExportOperation::Write,
            path,
            to: None,
            bytes: Some(bytes),
            outcome,
        });
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        self.flush_write_record();
        let inner = &self.inner;
        if !self.write {
            return;
        }
        let Some(keeper) = &inner.originals else { return };
        let mut keeper = held(keeper);
        // After the end of the lease, any difference was made by somebody else. The end has recorded the rest.
        if inner.check_live().is_err() {
            return;
        }
        if let Some(ticket) = self.ticket.take() {
            inner.abandon(ticket);
        }
        let mut writing = held(&inner.writing);
        let Some(open) = writing.get_mut(&self.inode) else { return };
        open.handles -= 1;
        if open.handles == 0 {
            let seen = *held(&open.seen);
            keeper.record_file_after(&inner.root, &open.path, self.inode, Some(seen));
            writing.remove(&self.inode);
        }
    }
}

impl fmt::Debug for ExportFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("write", &self.write).finish_non_exhaustive()
    }
}
