//! Metrics of an engine, for its operators: commit durations, batch sizes, outcomes of runs.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use attache_protocol::rules::run::LifecycleEvent;

/// All counters since the start.
#[derive(Debug)]
pub struct StoreMetrics {
    /// Duration of a transaction, including its flush to disk, in microseconds.
    pub commit_micros: Histogram,
    /// Number of writes per transaction.
    pub batch: Histogram,
    /// Duration of a read, without queueing, in microseconds.
    pub read_micros: Histogram,
    /// How often the writer read everything that it remembers again, because others may have changed any of it.
    memory_reads: AtomicU64,
    ended: Mutex<Vec<(&'static str, u64)>>,
}

/// A histogram with fixed upper bounds.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    /// One more than there are bounds: the last one is for larger values.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

/// A histogram at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramSnapshot {
    /// Each upper bound, with how many values were at most that large.
    pub at_most: Vec<(u64, u64)>,
    pub count: u64,
    pub sum: u64,
}

const MICROS: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 5_000_000];
const SIZES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512];

// === impl StoreMetrics ===

impl Default for StoreMetrics {
    fn default() -> Self {
        Self {
            commit_micros: Histogram::new(MICROS),
            batch: Histogram::new(SIZES),
            read_micros: Histogram::new(MICROS),
            memory_reads: AtomicU64::new(0),
            ended: Mutex::default(),
        }
    }
}

impl StoreMetrics {
    /// A run has ended in this way.
    pub(crate) fn ended(&self, event: LifecycleEvent) {
        let how = match event {
            LifecycleEvent::Completed => "completed",
            LifecycleEvent::Cancelled => "cancelled",
            LifecycleEvent::Failed { code } => code.as_str(),
            LifecycleEvent::Claimed
            | LifecycleEvent::Requeued { .. }
            | LifecycleEvent::Deferred { .. }
            | LifecycleEvent::Waiting { .. } => return,
        };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.iter_mut().find(|(known, _)| *known == how) {
            Some((_, count)) => *count += 1,
            None => ended.push((how, 1)),
        }
    }

    pub(crate) fn memory_read(&self) {
        self.memory_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub fn memory_reads(&self) -> u64 {
        self.memory_reads.load(Ordering::Relaxed)
    }

    /// How many runs ended in which way: `completed`, `cancelled`, or the failure code.
    pub fn ends(&self) -> Vec<(&'static str, u64)> {
        let mut ends = self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ends.sort_unstable();
        ends
    }
}

// === impl Histogram ===

impl Histogram {
    fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum: AtomicU64::new(0) }
    }

    pub(crate) fn observe(&self, value: u64) {
        let place = self.bounds.partition_point(|bound| *bound < value);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(crate) fn observe_time(&self, time: Duration) {
        self.observe(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub fn buckets(&self) -> HistogramSnapshot {
        let mut count = 0;
        let mut at_most = Vec::with_capacity(self.bounds.len());
        for (bound, counted) in self.bounds.iter().zip(&self.counts) {
            count += counted.load(Ordering::Relaxed);
            at_most.push((*bound, count));
        }
        count += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        HistogramSnapshot { at_most, count, sum: self.sum.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_up_to_each_bound() {
        let histogram = Histogram::new(&[1, 10]);
        for value in [0, 1, 2, 10, 11] {
            histogram.observe(value);
        }
        assert_eq!(histogram.buckets(), HistogramSnapshot { at_most: vec![(1, 2), (10, 4)], count: 5, sum: 24 });
    }
}
