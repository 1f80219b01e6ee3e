//! The space left on the hub's disk. Part of it is kept for the store, so that people can still sign in, revoke, delete and
//! finish work when uploads have filled the rest.

use attache_protocol::{Code, wire::system::Storage};

use crate::{Error, Handle, Options, Result};

/// Unless the options set the reserve: 2% of the disk within these bounds, and at most a quarter of it.
const MIN_RESERVE: u64 = 256 << 20;
const MAX_RESERVE: u64 = 1 << 30;
/// Larger records count as uploads.
const MAX_RECORD: usize = 64 << 10;

/// What is about to be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiskUse {
    /// Leaves the whole reserve.
    Upload,
    /// A run, a message or progress. Leaves a quarter of the reserve.
    Record,
}

// === impl DiskUse ===

impl DiskUse {
    pub(crate) const fn of_size(bytes: usize) -> Self {
        if bytes > MAX_RECORD { Self::Upload } else { Self::Record }
    }

    /// Refuses this use of the disk while too little is free. A disk that doesn't say how much that is has no reserve.
    pub(crate) fn check(self, options: &Options) -> Result<()> {
        let Ok(disk) = rustix::fs::statvfs(&options.data) else { return Ok(()) };
        let (free, total) = (disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize));
        let reserve = options.disk_reserve.unwrap_or_else(|| reserve_of(total));
        let (kept, what) = match self {
            Self::Upload => (reserve, "no uploads"),
            Self::Record => (reserve / 4, "no new work"),
        };
        if free >= kept {
            return Ok(());
        }
        let message = format!("The hub's disk is almost full ({} MiB left), so it accepts {what}.", free >> 20);
        Err(Error::new(Code::DiskLow, message))
    }
}

fn reserve_of(total: u64) -> u64 {
    (total / 50).clamp(MIN_RESERVE, MAX_RESERVE).min(total / 4)
}

impl Handle {
    /// A store that can't write at all says so itself.
    pub(crate) fn check_space(&self, wanted: DiskUse) -> Result<()> {
        if self.store().fault().is_some() { Ok(()) } else { wanted.check(self.options()) }
    }

    /// The state of a store that can write.
    pub(crate) fn writable_storage(&self) -> Storage {
        if DiskUse::Upload.check(self.options()).is_ok() { Storage::Ok } else { Storage::DiskLow }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_depends_on_the_size_of_the_disk() {
        let reserves = [200 << 20, 4 << 30, 20 << 30, 1 << 40].map(reserve_of);
        assert_eq!(reserves, [50 << 20, MIN_RESERVE, (20 << 30) / 50, MAX_RESERVE]);
    }
}
