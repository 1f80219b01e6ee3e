//! Between the kernel's types and those of the host.

use std::time::SystemTime;

use fuser::{Errno, FileHandle, TimeOrNow};
use rustix::fs::OFlags;

use crate::{
    export::FileTime,
    fs_wire::{FsOpenFlags, NOW},
};

pub(super) fn open_flags(flags: i32) -> FsOpenFlags {
    let flags = OFlags::from_bits_retain(flags.cast_unsigned());
    let access = flags & OFlags::RWMODE;
    FsOpenFlags {
        read: access != OFlags::WRONLY,
        write: access != OFlags::RDONLY,
        append: flags.contains(OFlags::APPEND) && access != OFlags::RDONLY,
        truncate: flags.contains(OFlags::TRUNC),
        create: flags.contains(OFlags::CREATE),
        exclusive: flags.contains(OFlags::EXCL),
    }
}

pub(super) fn file_time(time: TimeOrNow) -> FileTime {
    let time = match time {
        TimeOrNow::Now => return NOW,
        TimeOrNow::SpecificTime(time) => time,
    };
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => FileTime { seconds: since.as_secs().cast_signed(), nanos: since.subsec_nanos() },
        Err(error) => {
            let before = error.duration();
            let (seconds, nanos) = (before.as_secs().cast_signed(), before.subsec_nanos());
            if nanos == 0 {
                FileTime { seconds: -seconds, nanos: 0 }
            } else {
                FileTime { seconds: -seconds - 1, nanos: 1_000_000_000 - nanos }
            }
        }
    }
}

/// A handle that the host doesn't know was lost with a connection.
pub(super) fn unknown_handle(errno: Errno) -> Errno {
    if errno.code() == Errno::EINVAL.code() { Errno::EIO } else { errno }
}

pub(super) fn part(data: &[u8], offset: u64, size: u32) -> &[u8] {
    let start = usize::try_from(offset).unwrap_or(usize::MAX).min(data.len());
    let end = start.saturating_add(size as usize).min(data.len());
    &data[start..end]
}

pub(super) fn unknown_handle_of(handle: Option<FileHandle>, errno: Errno) -> Errno {
    if handle.is_some() { unknown_handle(errno) } else { errno }
}
