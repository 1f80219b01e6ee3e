//! How much a lease may do: bytes written, files made, the size of one file, operations per second.

use std::{
    sync::{
        Condvar, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use super::refusal::Refusal;

/// The limits of one lease; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// Written in all, whether it is still there or not.
    pub bytes: Option<u64>,
    /// Files, folders and links made in all; and as many names that were free before, which moving gives away, too.
    pub files: Option<u64>,
    pub file_bytes: Option<u64>,
    /// Copies of originals; a change whose original would not fit is refused.
    pub kept_bytes: Option<u64>,
    pub operations_per_second: Option<u32>,
}

/// How much the folder of originals may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeptLimit {
    pub(super) bytes: Option<u64>,
    /// Paths at which nothing was.
    pub(super) free_names: Option<u64>,
}

/// What a lease has used up.
#[derive(Debug)]
pub(super) struct Usage {
    quota: Quota,
    bytes: AtomicU64,
    files: AtomicU64,
    pace: Mutex<Pace>,
    ended: Condvar,
}

/// A token bucket that holds one second's worth; it may go into debt, which is the queue.
#[derive(Debug)]
struct Pace {
    tokens: f64,
    at: Instant,
    ended: bool,
}

/// Whoever would wait longer than this is refused: a caller that does not wait for answers gets none.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
pub(super) const FILES: &str = "files made or moved";

// === impl Quota ===

impl Quota {
    pub const UNLIMITED: Self =
        Self { bytes: None, files: None, file_bytes: None, kept_bytes: None, operations_per_second: None };
}

impl Default for Quota {
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

// === impl KeptLimit ===

impl KeptLimit {
    pub(super) const NONE: Self = Self { bytes: None, free_names: None };
}

// === impl Usage ===

impl Usage {
    pub(super) fn new(quota: Quota) -> Self {
        let tokens = f64::from(quota.operations_per_second.unwrap_or(0));
        Self {
            quota,
            bytes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            pace: Mutex::new(Pace { tokens, at: Instant::now(), ended: false }),
            ended: Condvar::new(),
        }
    }

    /// Counts one operation, and waits for its turn when there are too many.
    pub(super) fn operation(&self) -> Result<(), Refusal> {
        let Some(rate) = self.quota.operations_per_second else { return Ok(()) };
        let rate = f64::from(rate.max(1));
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        pace.tokens = (now.duration_since(pace.at).as_secs_f64().mul_add(rate, pace.tokens)).min(rate);
        pace.at = now;
        let wait = Duration::from_secs_f64(((1.0 - pace.tokens) / rate).max(0.0));
        if wait > LONGEST_WAIT {
            return Err(Refusal::Quota("operations per second"));
        }
        pace.tokens -= 1.0;
        if !wait.is_zero() && !pace.ended {
            // The end of the lease wakes the waiters; the caller then finds that it has ended.
            let (_pace, _) =
                self.ended.wait_timeout_while(pace, wait, |pace| !pace.ended).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    pub(super) fn end(&self) {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner).ended = true;
        self.ended.notify_all();
    }

    pub(super) fn file(&self) -> Result<(), Refusal> {
        take(&self.files, 1, self.quota.files, FILES)
    }

    pub(super) fn give_back_file(&self) {
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn write(&self, bytes: u64, end: u64) -> Result<(), Refusal> {
        self.size(end)?;
        take(&self.bytes, bytes, self.quota.bytes, "bytes written")
    }

    pub(super) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn size(&self, size: u64) -> Result<(), Refusal> {
        if self.quota.file_bytes.is_some_and(|limit| size > limit) {
            return Err(Refusal::Quota("size of one file"));
        }
        Ok(())
    }

    pub(super) const fn kept_limit(&self) -> KeptLimit {
        KeptLimit { bytes: self.quota.kept_bytes, free_names: self.quota.files }
    }
}

fn take(used: &AtomicU64, more: u64, limit: Option<u64>, what: &'static str) -> Result<(), Refusal> {
    let before = used.fetch_add(more, Ordering::Relaxed);
    if limit.is_some_and(|limit| before.saturating_add(more) > limit) {
        used.fetch_sub(more, Ordering::Relaxed);
        return Err(Refusal::Quota(what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_not_counted() {
        let usage = Usage::new(Quota { bytes: Some(10), files: Some(1), file_bytes: Some(100), ..Quota::UNLIMITED });
        usage.write(8, 8).unwrap();
        assert!(matches!(usage.write(3, 11), Err(Refusal::Quota("bytes written"))));
        usage.write(2, 10).unwrap();
        assert!(matches!(usage.write(0, 101), Err(Refusal::Quota("size of one file"))));
        usage.file().unwrap();
        assert!(matches!(usage.file(), Err(Refusal::Quota(FILES))));
        usage.give_back_file();
        usage.file().unwrap();
    }

    #[test]
    fn too_many_operations_wait_and_then_are_refused() {
        let usage = Usage::new(Quota { operations_per_second: Some(20), ..Quota::UNLIMITED });
        let begin = Instant::now();
        for _ in 0..24 {
            usage.operation().unwrap();
        }
        assert!(begin.elapsed() >= Duration::from_millis(150), "{:?}", begin.elapsed());
        // A crowd that comes at once: one second's worth of it is served, and what comes in while it is, the rest is told so.
        let begin = Instant::now();
        let refused = std::thread::scope(|scope| {
            let crowd: Vec<_> = (0..60).map(|_| scope.spawn(|| usage.operation().is_err())).collect();
            crowd.into_iter().filter(|_| true).map(|one| u32::from(one.join().unwrap())).sum::<u32>()
        });
        let (served, most) = (60 - refused, 21.0 + 20.0 * begin.elapsed().as_secs_f64());
        assert!(served >= 19 && f64::from(served) <= most, "{served}");
    }
}
