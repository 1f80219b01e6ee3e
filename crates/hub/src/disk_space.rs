//! The space left on the hub's disk. Part of it is kept for the store, so that people can still sign in, revoke, delete and
//! finish work when the rest has been filled.

mod reserved_store;

use std::path::{Path, PathBuf};

use attache_protocol::{Code, wire::system::Storage};

use crate::{Error, Handle, Options, Result};

pub(crate) use reserved_store::ReservedStore;

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
    /// A run, a message, an agent, a key: whatever a caller adds. Leaves a quarter of the reserve. The store asks for it itself.
    Record,
}

/// How much of the disk is kept free.
#[derive(Debug, Clone)]
pub(crate) struct DiskReserve {
    data: PathBuf,
    bytes: Option<u64>,
}

// === impl DiskUse ===

impl DiskUse {
    /// Refuses this use of the disk while too little is free.
    pub(crate) fn check(self, options: &Options) -> Result<()> {
        match DiskReserve::new(options).shortage(self) {
            Some(free) => Err(disk_low(free, self)),
            None => Ok(()),
        }
    }
}

// === impl DiskReserve ===

impl DiskReserve {
    pub(crate) fn new(options: &Options) -> Self {
        Self { data: options.data.clone(), bytes: options.disk_reserve }
    }

    /// How many bytes are free, if that is less than this use leaves. A disk that doesn't say how much that is has no
    /// reserve.
    fn shortage(&self, wanted: DiskUse) -> Option<u64> {
        let (free, total) = space(&self.data)?;
        let reserve = self.bytes.unwrap_or_else(|| reserve_of(total));
        let kept = match wanted {
            DiskUse::Upload => reserve,
            DiskUse::Record => reserve / 4,
        };
        (free < kept).then_some(free)
    }
}

fn space(at: &Path) -> Option<(u64, u64)> {
    let disk = rustix::fs::statvfs(at).ok()?;
    Some((disk.f_bavail.saturating_mul(disk.f_frsize), disk.f_blocks.saturating_mul(disk.f_frsize)))
}

fn reserve_of(total: u64) -> u64 {
    (total / 50).clamp(MIN_RESERVE, MAX_RESERVE).min(total / 4)
}

/// With this many bytes free.
pub(crate) fn disk_low(free: u64, wanted: DiskUse) -> Error {
    let what = match wanted {
        DiskUse::Upload => "no uploads",
        DiskUse::Record => "nothing new",
    };
    let message = format!("The hub's disk is almost full ({} MiB left), so it accepts {what}.", free >> 20);
    Error::new(Code::DiskLow, message)
}

impl Handle {
    /// Refuses large content before smaller content, which the store refuses itself. A store that can't write at all says so.
    pub(crate) fn check_space(&self, bytes: usize) -> Result<()> {
        if bytes <= MAX_RECORD || self.store().fault().is_some() {
            return Ok(());
        }
        DiskUse::Upload.check(self.options())
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
