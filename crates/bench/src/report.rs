//! The report of `bench runs`: the levels side by side.

use std::time::Duration;

use attache_protocol::Json;
use serde::Serialize;

use super::{FiguresFormat, load::LoadMeasurement};

#[derive(Debug)]
pub(super) struct RunsReport {
    callers: usize,
    seconds: u64,
    probes: Vec<f64>,
    bare: Vec<LoadMeasurement>,
    store: Vec<LoadMeasurement>,
    http: Vec<LoadMeasurement>,
}

/// The report as JSON.
#[derive(Serialize)]
struct RunsFigures {
    callers: usize,
    seconds: u64,
    fsyncs_per_second: f64,
    bare: RunsLevel,
    store: RunsLevel,
    http: RunsLevel,
}

#[derive(Serialize)]
struct RunsLevel {
    runs_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    of_bare: f64,
}

// === impl RunsReport ===

impl RunsReport {
    pub(super) fn new(callers: usize, seconds: u64) -> Self {
        Self { callers, seconds, probes: vec![], bare: vec![], store: vec![], http: vec![] }
    }

    pub(super) fn probe(&mut self, fsyncs: f64) {
        self.probes.push(fsyncs);
    }

    pub(super) fn bare(&mut self, measured: LoadMeasurement) {
        self.bare.push(measured);
    }

    pub(super) fn store(&mut self, measured: LoadMeasurement) {
        self.store.push(measured);
    }

    pub(super) fn http(&mut self, measured: LoadMeasurement) {
        self.http.push(measured);
    }

    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    pub(super) fn print(&self, shape: FiguresFormat) {
        if shape == FiguresFormat::Json {
            let figures = RunsFigures {
                callers: self.callers,
                seconds: self.seconds,
                fsyncs_per_second: median(self.probes.iter().copied()),
                bare: self.level(&self.bare),
                store: self.level(&self.store),
                http: self.level(&self.http),
            };
            println!("{}", Json::of(&figures).get());
            return;
        }
        println!("{} callers, {} rounds of {} s per level, medians", self.callers, self.bare.len(), self.seconds);
        println!(
            "fsync probe: {:.0} per second (best round {:.0})",
            median(self.probes.iter().copied()),
            best(&self.probes)
        );
        println!("{:<22} {:>12} {:>10} {:>10} {:>9}", "", "runs/s", "p50 ms", "p99 ms", "of bare");
        for (name, rows) in [("bare SQLite loop", &self.bare), ("our store", &self.store), ("our HTTP API", &self.http)]
        {
            let RunsLevel { runs_per_second, p50_ms, p99_ms, of_bare } = self.level(rows);
            println!("{name:<22} {runs_per_second:>12.0} {p50_ms:>10.1} {p99_ms:>10.1} {of_bare:>9.2}");
        }
    }

    fn level(&self, rows: &[LoadMeasurement]) -> RunsLevel {
        RunsLevel {
            runs_per_second: median(rows.iter().map(|row| row.runs_per_second)),
            p50_ms: median(rows.iter().map(|row| millis(row.p50))),
            p99_ms: median(rows.iter().map(|row| millis(row.p99))),
            of_bare: self.ratio(rows),
        }
    }

    /// The median of the per-round ratios: load from other processes affects both sides of a round.
    fn ratio(&self, rows: &[LoadMeasurement]) -> f64 {
        median(self.bare.iter().zip(rows).map(|(bare, row)| row.runs_per_second / bare.runs_per_second))
    }
}

pub(super) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn best(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
