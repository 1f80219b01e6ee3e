//! Locks on files of the host for programs at the remote. They belong to an open file of their own and not to this
//! process, so the remote's programs keep each other out, and those of the host.

use std::{fmt, os::fd::OwnedFd, sync::Arc};

use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use super::{ExportFile, ExportRefusal, ExportShared, root::PathHandle};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    Shared,
    Exclusive,
}

/// Bytes of a file, the last one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LockRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What one program has locked of one file. Dropping it unlocks all of it.
pub(crate) struct FileLocks {
    inner: Arc<ExportShared>,
    fd: OwnedFd,
    /// What it has of the whole file.
    whole: Option<LockKind>,
}

/// The end of every file.
const END: u64 = i64::MAX.cast_unsigned();

impl ExportFile {
    /// To lock parts of the file. Whoever can only read keeps nobody from writing.
    pub(crate) fn locks(&self) -> Result<FileLocks, ExportRefusal> {
        self.inner().begin()?;
        if self.inner().originals.is_none() {
            return Err(ExportRefusal::ReadOnly);
        }
        let found = PathHandle::of(self.descriptor().try_clone()?)?;
        // An exclusive lock needs a handle for writing, which is used for nothing else.
        let fd = found.reopen(OFlags::RDWR).or_else(|_| found.reopen(OFlags::RDONLY))?;
        Ok(FileLocks { inner: Arc::clone(self.inner()), fd, whole: None })
    }
}

// === impl LockRange ===

impl LockRange {
    pub(crate) const WHOLE: Self = Self { start: 0, end: END };

    pub(crate) const fn is_whole(self) -> bool {
        self.start == Self::WHOLE.start && self.end >= Self::WHOLE.end
    }

    /// As the kernel wants it. A length of zero reaches to the end, wherever that is.
    fn describe(self, kind: Option<LockKind>) -> Result<libc::flock, ExportRefusal> {
        let signed = |value: u64| i64::try_from(value).map_err(|_| ExportRefusal::Invalid);
        let length = match self.end {
            END.. => 0,
            end => end.checked_sub(self.start).ok_or(ExportRefusal::Invalid)? + 1,
        };
        let kind = match kind {
            None => libc::F_UNLCK,
            Some(LockKind::Shared) => libc::F_RDLCK,
            Some(LockKind::Exclusive) => libc::F_WRLCK,
        };
        Ok(libc::flock {
            l_type: i16::try_from(kind).map_err(|_| ExportRefusal::Invalid)?,
            l_whence: i16::try_from(libc::SEEK_SET).map_err(|_| ExportRefusal::Invalid)?,
            l_start: signed(self.start)?,
            l_len: signed(length)?,
            l_pid: 0,
        })
    }
}

// === impl FileLocks ===

impl FileLocks {
    /// Locks or unlocks a part, or is refused because somebody else has it. The whole file is also locked for programs
    /// that use `flock`.
    pub(crate) fn set(&mut self, range: LockRange, kind: Option<LockKind>) -> Result<(), ExportRefusal> {
        self.inner.begin()?;
        self.set_range(range, kind)?;
        if !range.is_whole() {
            return Ok(());
        }
        let done = flock(&self.fd, operation(kind));
        if let Err(errno) = done {
            let _ = self.set_range(range, self.whole);
            let _ = flock(&self.fd, operation(self.whole));
            return Err(if errno == Errno::WOULDBLOCK { ExportRefusal::Locked } else { errno.into() });
        }
        self.whole = kind;
        Ok(())
    }

    /// A lock of somebody else that is in the way.
    pub(crate) fn conflict(
        &self,
        range: LockRange,
        kind: LockKind,
    ) -> Result<Option<(LockRange, LockKind)>, ExportRefusal> {
        self.inner.begin()?;
        let mut found = range.describe(Some(kind))?;
        fcntl(&self.fd, FcntlArg::F_OFD_GETLK(&mut found)).map_err(refused)?;
        let kind = match i32::from(found.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => LockKind::Shared,
            _ => LockKind::Exclusive,
        };
        let start = found.l_start.cast_unsigned();
        let end = if found.l_len == 0 { END } else { start + found.l_len.cast_unsigned() - 1 };
        Ok(Some((LockRange { start, end }, kind)))
    }

    fn set_range(&self, range: LockRange, kind: Option<LockKind>) -> Result<(), ExportRefusal> {
        fcntl(&self.fd, FcntlArg::F_OFD_SETLK(&range.describe(kind)?)).map(drop).map_err(refused)
    }
}

const fn operation(kind: Option<LockKind>) -> FlockOperation {
    match kind {
        None => FlockOperation::Unlock,
        Some(LockKind::Shared) => FlockOperation::NonBlockingLockShared,
        Some(LockKind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
    }
}

fn refused(errno: nix::errno::Errno) -> ExportRefusal {
    match errno {
        nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES => ExportRefusal::Locked,
        nix::errno::Errno::EBADF => ExportRefusal::Denied("it can't be written, so nobody has to be kept out"),
        other => Errno::from_raw_os_error(other as i32).into(),
    }
}

impl fmt::Debug for FileLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileLocks").field("whole", &self.whole).finish_non_exhaustive()
    }
}
