//! Open files of a lease: reading, writing, and what happens when they are opened.

use std::{
    fmt,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::{
    fs::{Mode, OFlags, openat},
    io::{Errno, pread, pwrite},
};

use super::{
    Export, Inner, Refusal, Seen, Writing,
    attributes::{AttributeChange, Attributes, Kind},
    before::{Fate, Keeper},
    believed::{IN_PLACE, read_masked},
    change::SPECIAL,
    connection::Ticket,
    credentials::Masked,
    guard::believed,
    held,
    journal::{Line, Op},
    path::Place,
    record::Left,
    root::{Found, attributes_of},
};

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenHow {
    pub read: bool,
    pub write: bool,
    /// Every write goes to the end, whatever its offset.
    pub append: bool,
    pub truncate: bool,
    pub create: Create,
    /// Of a file that is made; the host's umask is taken off. 0o644 when `None`.
    pub mode: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Create {
    #[default]
    Never,
    IfMissing,
    /// Refused when it exists.
    New,
}

/// A file of the lease, usable from many threads at once. Dropping it closes it.
pub struct OpenFile {
    inner: Arc<Inner>,
    fd: OwnedFd,
    inode: u64,
    path: Place,
    read: bool,
    write: bool,
    append: bool,
    /// Whether it is shown without its credentials.
    masked: Option<Masked>,
    /// Of a file that is open for writing.
    seen: Option<Seen>,
    /// Consecutive writes that are not in the journal yet.
    written: Mutex<Option<Written>>,
    /// Where its connection is known.
    pub(super) ticket: Option<Ticket>,
}

#[derive(Debug, Clone, Copy)]
struct Written {
    bytes: u64,
    end: u64,
}

impl Export {
    pub fn open_file(&self, path: &[u8], how: &OpenHow) -> Result<OpenFile, Refusal> {
        if !how.writes() && how.create == Create::Never {
            self.0.begin()?;
            let place = Place::parse(path)?;
            let found = self.0.see(&place)?;
            let fd = open_existing(&found, how)?;
            return Ok(self.0.opened(fd, found.attributes.inode, place, how));
        }
        let mut is_there = None;
        let done = self.0.carry_out(|keeper| {
            let place = Place::parse(path)?;
            self.0.admit_file(&place)?;
            let found = self.0.see(&place);
            is_there = Some(found.is_ok());
            self.0.open_to_write(keeper, place, found, how)
        });
        // One that was refused before it was looked for is looked for now, for the name of the operation.
        let is_there = is_there.unwrap_or_else(|| Place::parse(path).is_ok_and(|place| self.0.see(&place).is_ok()));
        let op = if is_there { Op::Open } else { Op::Create };
        let bytes = (is_there && how.truncate).then_some(0);
        self.0.journal.record(&Line { op, path, to: None, bytes, outcome: done.as_ref().map(|_| ()) });
        done
    }
}

// === impl Inner ===

impl Inner {
    fn admit_file(&self, place: &Place) -> Result<(), Refusal> {
        if place.is_root() {
            return Err(Refusal::IsADirectory);
        }
        self.admit(place.whole(), false)
    }

    fn open_to_write(
        self: &Arc<Self>,
        keeper: &mut Keeper,
        place: Place,
        found: Result<Found, Refusal>,
        how: &OpenHow,
    ) -> Result<OpenFile, Refusal> {
        let (fd, now, folder) = match found {
            Ok(_) if how.create == Create::New => return Err(Refusal::Exists),
            Ok(found) => {
                let fd = open_existing(&found, how)?;
                if how.writes() {
                    self.admit_in_place(keeper, &place, &found)?;
                    self.keep_in_place(keeper, &place, &found)?;
                    let open = held(&self.writing).get(&found.attributes.inode).map(|open| Arc::clone(&open.seen));
                    if let Some(seen) = open {
                        let seen = held(&seen);
                        self.notice(keeper, place.whole(), &found, *seen)?;
                    }
                }
                if how.truncate {
                    rustix::fs::ftruncate(&fd, 0)?;
                }
                (fd, found.attributes, None)
            }
            Err(Refusal::NotFound) if how.create != Create::Never => {
                let (fd, folder) = self.create(keeper, &place, how)?;
                let now = attributes_of(&fd)?;
                (fd, now, Some((place.parent(), folder)))
            }
            Err(refusal) => return Err(refusal),
        };
        let inode = now.inode;
        let left = if how.writes() { Some(Left::Writing { inode }) } else { folder.map(|_| Left::of(Some(&now))) };
        let left = left.map(|left| (place.whole(), left));
        keeper.leave(&folder.into_iter().chain(left).collect::<Vec<_>>());
        let mut opened = self.opened(fd, inode, place, how);
        if how.writes() {
            let now = attributes_of(&opened.fd)?;
            let seen = Arc::new(Mutex::new((now.size, now.modified)));
            let fresh = Writing { path: opened.path.whole().to_vec(), handles: 0, seen };
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

    /// The new file, and how its folder is left.
    fn create(&self, keeper: &mut Keeper, place: &Place, how: &OpenHow) -> Result<(OwnedFd, Left), Refusal> {
        self.admit_new(place.whole())?;
        if believed(place.whole()).is_some() {
            return Err(IN_PLACE);
        }
        let parent = self.root.folder(place.parent())?;
        keeper.keep(&self.root, place.whole(), None, Fate::LosesName, &|| self.go_on())?;
        keeper.keep_folder(&self.root, place.parent())?;
        self.usage.file()?;
        let flags = how.flags() | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(how.mode.unwrap_or(0o644) & 0o777);
        let made = openat(&parent, place.name(), flags, mode).inspect_err(|_| self.usage.give_back_file())?;
        // It may have the number of a file that is gone.
        held(&self.sealed).remove(&attributes_of(&made)?.inode);
        Ok((made, Left::of(Some(&attributes_of(&parent)?))))
    }

    fn opened(self: &Arc<Self>, fd: OwnedFd, inode: u64, path: Place, how: &OpenHow) -> OpenFile {
        let (inner, written) = (Arc::clone(self), Mutex::new(None));
        let (read, write, append) = (how.reads(), how.writes(), how.append);
        let masked = self.masked(path.whole());
        OpenFile { inner, fd, inode, path, read, write, append, masked, seen: None, written, ticket: None }
    }
}

// === impl OpenHow ===

impl OpenHow {
    const fn writes(&self) -> bool {
        self.write || self.append || self.truncate
    }

    const fn reads(&self) -> bool {
        self.read || !self.writes()
    }

    fn flags(&self) -> OFlags {
        let mut flags = match (self.reads(), self.writes()) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        flags.set(OFlags::APPEND, self.append);
        flags
    }
}

/// As much as there is.
pub(super) fn fill(fd: &OwnedFd, offset: u64, buffer: &mut [u8]) -> Result<usize, Refusal> {
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

fn open_existing(found: &Found, how: &OpenHow) -> Result<OwnedFd, Refusal> {
    is_file(found)?;
    Ok(found.reopen(how.flags())?)
}

fn is_file(found: &Found) -> Result<(), Refusal> {
    match found.attributes.kind {
        Kind::File => Ok(()),
        Kind::Folder => Err(Refusal::IsADirectory),
        Kind::Link => Err(Errno::LOOP.into()),
        Kind::Special => Err(SPECIAL),
    }
}

// === impl OpenFile ===

impl OpenFile {
    pub(super) const fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(super) fn path(&self) -> &[u8] {
        self.path.whole()
    }

    pub(super) const fn is_for_writing(&self) -> bool {
        self.write
    }

    /// How many bytes were read; zero at the end of the file.
    pub fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Refusal> {
        self.inner.begin()?;
        if !self.read {
            return Err(Refusal::Invalid);
        }
        let filled = match self.masked {
            None => fill(&self.fd, offset, buffer)?,
            Some(masked) => read_masked(&self.fd, masked, offset, buffer)?,
        };
        // What was read while the lease ended is not handed out.
        self.inner.go_on()?;
        Ok(filled)
    }

    /// Writes all of it, or says why not.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let done = self.inner.usage.operation().and_then(|()| {
            let _under_way = self.inner.gate.read().unwrap_or_else(PoisonError::into_inner);
            self.inner.go_on()?;
            self.write_now(offset, bytes)
        });
        match &done {
            Ok(()) => self.count(offset, bytes.len() as u64),
            Err(refusal) => {
                self.tell_written();
                self.tell(bytes.len() as u64, Err(refusal));
            }
        }
        done
    }

    fn write_now(&self, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        if !self.write {
            // Where the folder is lent read-only nothing can be opened for writing.
            return Err(if self.inner.keeper.is_none() { Refusal::ReadOnly } else { Refusal::Invalid });
        }
        self.inner.admit_write(self.inode)?;
        let length = bytes.len() as u64;
        let start = if self.append { attributes_of(&self.fd)?.size } else { offset };
        self.inner.usage.write(length, start.checked_add(length).ok_or(Refusal::Invalid)?)?;
        let Some(seen) = &self.seen else { return Err(Refusal::Invalid) };
        self.notice_host(seen)?;
        let mut seen = held(seen);
        // It may be looked at since, and about to be believed.
        self.inner.admit_write(self.inode)?;
        let written = self.write_all(offset, bytes);
        let now = attributes_of(&self.fd)?;
        *seen = (now.size, now.modified);
        written
    }

    /// What somebody at the host wrote into it meanwhile is kept before it is overwritten.
    fn notice_host(&self, seen: &Seen) -> Result<(), Refusal> {
        // Looked at while nobody of ours writes.
        let last = held(seen);
        let now = attributes_of(&self.fd)?;
        if *last == (now.size, now.modified) {
            return Ok(());
        }
        drop(last);
        let Some(keeper) = &self.inner.keeper else { return Ok(()) };
        let mut keeper = held(keeper);
        let path = held(&self.inner.writing).get(&self.inode).map(|writing| writing.path.clone());
        let found = Found::of(self.fd.try_clone()?)?;
        let seen = held(seen);
        path.map_or(Ok(()), |path| self.inner.notice(&mut keeper, &path, &found, *seen))
    }

    fn write_all(&self, offset: u64, bytes: &[u8]) -> Result<(), Refusal> {
        let length = bytes.len() as u64;
        let mut written = 0;
        while written < bytes.len() {
            match pwrite(&self.fd, &bytes[written..], offset + written as u64) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(errno) => {
                    self.inner.usage.give_back(length - written as u64);
                    return Err(errno.into());
                }
            }
        }
        Ok(())
    }

    pub fn attributes(&self) -> Result<Attributes, Refusal> {
        self.inner.begin()?;
        Ok(attributes_of(&self.fd)?)
    }

    pub fn set_attributes(&self, change: &AttributeChange) -> Result<(), Refusal> {
        self.tell_written();
        // Of the handle, whatever has its path now; its original was kept when it was opened for writing.
        let now = Found::of(self.fd.try_clone()?)?;
        self.inner.change(Op::SetAttributes, self.path.whole(), None, change.size, |keeper| {
            let path = held(&self.inner.writing).get(&now.attributes.inode).map(|writing| writing.path.clone());
            let place = path.map_or_else(|| Ok(self.path.clone()), |path| Place::parse(&path))?;
            self.inner.alter(keeper, &place, &now, self.write.then_some(&self.fd), change)
        })
    }

    /// Brings it to the disk.
    pub fn sync(&self) -> Result<(), Refusal> {
        self.inner.begin()?;
        rustix::fs::fsync(&self.fd)?;
        self.inner.go_on()
    }

    fn count(&self, offset: u64, bytes: u64) {
        let mut written = held(&self.written);
        match &mut *written {
            Some(run) if self.append || run.end == offset => {
                run.bytes += bytes;
                run.end = offset + bytes;
            }
            run => {
                if let Some(before) = run.replace(Written { bytes, end: offset + bytes }) {
                    self.tell(before.bytes, Ok(()));
                }
            }
        }
    }

    fn tell_written(&self) {
        if let Some(run) = held(&self.written).take() {
            self.tell(run.bytes, Ok(()));
        }
    }

    fn tell(&self, bytes: u64, outcome: Result<(), &Refusal>) {
        let path = self.path.whole();
        self.inner.journal.record(&Line { op: Op::Write, path, to: None, bytes: Some(bytes), outcome });
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.tell_written();
        let inner = &self.inner;
        if !self.write {
            return;
        }
        let Some(keeper) = &inner.keeper else { return };
        let mut keeper = held(keeper);
        // After the end of the lease, whatever differs was done by somebody else; the end has noted the rest.
        if inner.go_on().is_err() {
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
            keeper.settle_file(&inner.root, &open.path, self.inode, Some(seen));
            writing.remove(&self.inode);
        }
    }
}

impl fmt::Debug for OpenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile").field("write", &self.write).finish_non_exhaustive()
    }
}
