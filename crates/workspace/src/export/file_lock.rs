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
    /// Everything that it has, as the kernel keeps it.
    held: LockedRanges,
}

/// Disjoint and in order. Neighbours of one kind are joined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct LockedRanges(Vec<(LockRange, LockKind)>);

/// The end of every file.
const END: u64 = i64::MAX.cast_unsigned();

/// Per program and file. Each range takes memory of the kernel, which no quota counts; a database needs fewer than ten.
const MAX_RANGES: usize = 256;
/// What is used up when there are as many.
pub(crate) const LOCKED_RANGES: &str = "locked ranges per file";

impl ExportFile {
    /// To lock parts of the file. A reader can't keep others from writing.
    pub(crate) fn locks(&self) -> Result<FileLocks, ExportRefusal> {
        self.inner().begin()?;
        if self.inner().originals.is_none() {
            return Err(ExportRefusal::ReadOnly);
        }
        let found = PathHandle::of(self.descriptor().try_clone()?)?;
        // An exclusive lock needs a handle for writing, which is used for nothing else.
        let fd = found.reopen(OFlags::RDWR).or_else(|_| found.reopen(OFlags::RDONLY))?;
        Ok(FileLocks { inner: Arc::clone(self.inner()), fd, whole: None, held: LockedRanges::default() })
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

    fn set_range(&mut self, range: LockRange, kind: Option<LockKind>) -> Result<(), ExportRefusal> {
        let wanted = range.describe(kind)?;
        let held = self.held.with(range, kind);
        if held.0.len() > MAX_RANGES {
            return Err(ExportRefusal::Quota(LOCKED_RANGES));
        }
        fcntl(&self.fd, FcntlArg::F_OFD_SETLK(&wanted)).map_err(refused)?;
        self.held = held;
        Ok(())
    }
}

// === impl LockedRanges ===

impl LockedRanges {
    /// After a part was locked or unlocked.
    fn with(&self, part: LockRange, kind: Option<LockKind>) -> Self {
        let mut ranges = Vec::with_capacity(self.0.len() + 2);
        for &(held, of) in &self.0 {
            if held.start < part.start {
                ranges.push((LockRange { start: held.start, end: held.end.min(part.start - 1) }, of));
            }
            if held.end > part.end {
                ranges.push((LockRange { start: held.start.max(part.end + 1), end: held.end }, of));
            }
        }
        ranges.extend(kind.map(|kind| (LockRange { start: part.start, end: part.end.min(END) }, kind)));
        ranges.sort_by_key(|(range, _)| range.start);
        ranges.dedup_by(|(next, of), (last, kind)| {
            let is_joined = last.end + 1 == next.start && of == kind;
            if is_joined {
                last.end = next.end;
            }
            is_joined
        });
        Self(ranges)
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: u64 = 24;

    fn kinds() -> impl Strategy<Value = Option<LockKind>> {
        prop_oneof![Just(None), Just(Some(LockKind::Shared)), Just(Some(LockKind::Exclusive))]
    }

    proptest! {
        #[test]
        fn ranges_are_what_is_locked_byte_by_byte(steps in prop::collection::vec((0..BYTES, 0..BYTES, kinds()), 0..40)) {
            let mut bytes = [None; BYTES as usize];
            let mut ranges = LockedRanges::default();
            for (one, other, kind) in steps {
                let part = LockRange { start: one.min(other), end: one.max(other) };
                bytes[part.start as usize..=part.end as usize].fill(kind);
                ranges = ranges.with(part, kind);
                let mut expected: Vec<(LockRange, LockKind)> = Vec::new();
                for (at, kind) in (0..).zip(&bytes) {
                    let Some(kind) = *kind else { continue };
                    match expected.last_mut() {
                        Some((last, of)) if last.end + 1 == at && *of == kind => last.end = at,
                        _ => expected.push((LockRange { start: at, end: at }, kind)),
                    }
                }
                prop_assert_eq!(&ranges.0, &expected);
            }
            prop_assert_eq!(ranges.with(LockRange { start: 0, end: u64::MAX }, None), LockedRanges::default());
        }
    }
}
