//! Closed-loop callers: each keeps one complete run in progress until the time is up.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::BenchResult;

pub(super) const INPUT_BYTES: usize = 512;
pub(super) const OUTPUT_BYTES: usize = 512;
/// Callers share this many agent queues.
pub(super) const QUEUES: usize = 16;

/// One caller. `cycle` is one complete run: create, claim, complete.
pub(super) trait LoadCaller: Send + 'static {
    fn cycle(&mut self) -> impl Future<Output = BenchResult<()>> + Send;
}

/// What all callers achieved together.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadMeasurement {
    pub(super) runs_per_second: f64,
    pub(super) p50: Duration,
    pub(super) p99: Duration,
}

pub(super) async fn drive<C: LoadCaller>(callers: Vec<C>, time: Duration) -> BenchResult<LoadMeasurement> {
    let start = Instant::now();
    let tasks: Vec<_> = callers
        .into_iter()
        .map(|mut caller| {
            tokio::spawn(async move {
                let mut took = Vec::new();
                while start.elapsed() < time {
                    let from = Instant::now();
                    caller.cycle().await?;
                    took.push(from.elapsed());
                }
                BenchResult::Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    let seconds = start.elapsed().as_secs_f64();
    took.sort_unstable();
    #[allow(clippy::cast_precision_loss, reason = "a count of runs is far below 2^52")]
    let runs_per_second = took.len() as f64 / seconds;
    Ok(LoadMeasurement { runs_per_second, p50: quantile(&took, 50), p99: quantile(&took, 99) })
}

pub(super) fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}
