//! The limits of a lease: bytes written, files created, file size, operations per second.

use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::{path::show, refusal::ExportRefusal};

/// The limits of one lease. `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseQuota {
    /// Total bytes written, whether they still exist or not.
    pub bytes: Option<u64>,
    /// Total files, folders and links created, and as many previously free names, which moves also use.
    pub files: Option<u64>,
    pub file_bytes: Option<u64>,
    /// Copies of originals. A change whose original would not fit is refused.
    pub kept_bytes: Option<u64>,
    pub operations_per_second: Option<u32>,
}

/// How much the folder of originals can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OriginalsLimit {
    pub(super) bytes: Option<u64>,
    /// Paths at which nothing existed.
    pub(super) free_names: Option<u64>,
}

/// What a lease has used so far.
#[derive(Debug)]
pub(super) struct LeaseUsage {
    quota: LeaseQuota,
    bytes: AtomicU64,
    files: AtomicU64,
    /// The length of what was recorded about changes.
    recorded: AtomicU64,
    pace: Mutex<OperationBucket>,
    ended: Condvar,
}

/// A token bucket that holds one second's worth. It can go into debt, which is the queue.
#[derive(Debug)]
struct OperationBucket {
    tokens: f64,
    at: Instant,
    ended: bool,
}

/// A call that would wait longer is refused: a caller that doesn't wait for answers gets none.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// How much is recorded about the changes of a lease, and what a record takes besides its paths.
const MAX_RECORDED: u64 = 1 << 30;
const RECORD_LENGTH: u64 = 256;
pub(super) const FILES: &str = "files made or moved";

// === impl LeaseQuota ===

impl LeaseQuota {
    pub const UNLIMITED: Self =
        Self { bytes: None, files: None, file_bytes: None, kept_bytes: None, operations_per_second: None };
}

impl Default for LeaseQuota {
    /// Generous for a project, small for a disk.
    fn default() -> Self {
        const GIB: u64 = 1 << 30;
        Self {
            bytes: Some(32 * GIB),
            files: Some(1_000_000),
            file_bytes: Some(16 * GIB),
            kept_bytes: Some(32 * GIB),
            operations_per_second: None,
        }
    }
}

// === impl OriginalsLimit ===

impl OriginalsLimit {
    pub(super) const NONE: Self = Self { bytes: None, free_names: None };
}

// === impl LeaseUsage ===

impl LeaseUsage {
    pub(super) fn new(quota: LeaseQuota) -> Self {
        let tokens = f64::from(quota.operations_per_second.unwrap_or(0));
        Self {
            quota,
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            recorded: AtomicU64::new(0),
            pace: Mutex::new(OperationBucket { tokens, at: Instant::now(), ended: false }),
            ended: Condvar::new(),
        }
    }

    /// Counts one operation, and waits if there are too many.
    pub(super) fn operation(&self) -> Result<(), ExportRefusal> {
        let Some(rate) = self.quota.operations_per_second else { return Ok(()) };
        let rate = f64::from(rate.max(1));
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        pace.tokens = (now.duration_since(pace.at).as_secs_f64().mul_add(rate, pace.tokens)).min(rate);
        pace.at = now;
        let wait = Duration::from_secs_f64(((1.0 - pace.tokens) / rate).max(0.0));
        if wait > MAX_WAIT {
            return Err(ExportRefusal::Quota("operations per second"));
        }
        pace.tokens -= 1.0;
        if !wait.is_zero() && !pace.ended {
            // The end of the lease wakes the waiters, which then notice it.
            let (_pace, _) =
                self.ended.wait_timeout_while(pace, wait, |pace| !pace.ended).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.ended.notify_all();
    }

    pub(super) fn file(&self) -> Result<(), ExportRefusal> {
        take(&self.files, 1, self.quota.files, FILES)
    }

    /// Counts the record of a change: its paths as they are shown, in the audit and in the index of originals. A change that
    /// costs the remote nothing, such as another mode, could be repeated until the disk is full.
    pub(super) fn record(&self, paths: &[&[u8]]) -> Result<(), ExportRefusal> {
        let length: usize = paths.iter().map(|path| show(path).len()).sum();
        take(&self.recorded, RECORD_LENGTH + 2 * length as u64, Some(MAX_RECORDED), "records of changes")
    }

    pub(super) fn release_file(&self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// Bytes that are written up to `end`, into a file of this size. A hole before them counts as well: copying, hashing and
    /// showing it costs as much as any content.
    pub(super) fn write(&self, bytes: u64, end: u64, size: u64) -> Result<(), ExportRefusal> {
        self.check_size(end)?;
        let hole = end.saturating_sub(bytes).saturating_sub(size);
        take(&self.bytes, bytes.saturating_add(hole), self.quota.bytes, "bytes written")
    }

    /// A file that gets another size.
    pub(super) fn resize(&self, before: u64, after: u64) -> Result<(), ExportRefusal> {
        self.check_size(after)?;
        take(&self.bytes, after.saturating_sub(before), self.quota.bytes, "bytes written")
    }

    pub(super) fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn check_size(&self, size: u64) -> Result<(), ExportRefusal> {
        if self.quota.file_bytes.is_some_and(|limit| size > limit) {
            return Err(ExportRefusal::Quota("size of one file"));
        }
        Ok(())
    }

    pub(super) const fn originals_limit(&self) -> OriginalsLimit {
        OriginalsLimit { bytes: self.quota.kept_bytes, free_names: self.quota.files }
    }
}

fn take(used: &AtomicU64, more: u64, limit: Option<u64>, what: &'static str) -> Result<(), ExportRefusal> {
    let before = used.fetch_add(more, Ordering::Relaxed);
    if limit.is_some_and(|limit| before.saturating_add(more) > limit) {
        used.fetch_sub(more, Ordering::Relaxed);
        return Err(ExportRefusal::Quota(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_usage_is_not_counted() {
        let usage = LeaseUsage::new(LeaseQuota {
            bytes: Some(10),
            files: Some(1),
            file_bytes: Some(100),
            ..LeaseQuota::UNLIMITED
        });
        usage.write(4, 4, 0).unwrap();
        usage.resize(4, 6).unwrap();
        usage.write(1, 8, 6).unwrap();
        usage.resize(8, 2).unwrap();
        assert!(matches!(usage.write(3, 11, 8), Err(ExportRefusal::Quota("bytes written"))));
        usage.resize(8, 11).unwrap_err();
        usage.write(2, 10, 8).unwrap();
        assert!(matches!(usage.write(0, 101, 101), Err(ExportRefusal::Quota("size of one file"))));
        usage.file().unwrap();
        assert!(matches!(usage.file(), Err(ExportRefusal::Quota(FILES))));
        usage.release_file();
        usage.file().unwrap();
    }

    #[test]
    fn too_many_operations_wait_and_then_are_refused() {
        let usage = LeaseUsage::new(LeaseQuota { operations_per_second: Some(20), ..LeaseQuota::UNLIMITED });
        let begin = Instant::now();
        for _ in 0..24 {
            usage.operation().unwrap();
        }
        assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());
        // A burst of calls: one second's worth is served, plus what is refilled meanwhile. The rest is refused.
        let begin = Instant::now();
        let refused = std::thread::scope(|scope| {
            let crowd: Vec<_> = (0..60).map(|_| scope.spawn(|| usage.operation().is_err())).collect();
            crowd.into_iter().filter(|_| true).map(|one| u32::from(one.join().unwrap())).sum::<u32>()
        });
        let (served, most) = (60 - refused, 21.0 + 20.0 * begin.elapsed().as_secs_f64());
        assert!(served >= 19 && f64::from(served) <= most, "{served}");
    }
}
