//! What the lines of a ledger add up to: which claims were never started, never finished or never reported.

use std::collections::BTreeMap;

use attache_protocol::RunId;

use super::{
    Line, Outcome, Step,
    line::{self},
};

/// Everything that a ledger remembers, by claim.
#[derive(Debug, Default)]
pub struct History {
    claims: BTreeMap<(RunId, i64), Claim>,
    intact: bool,
}

#[derive(Debug, Default)]
struct Claim {
    pulled: Option<Line>,
    started: Option<Line>,
    rejoined: Vec<Line>,
    outcome: Option<Line>,
    settled: bool,
}

/// A claim that this device has not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    /// Pulled and never handed to the adapter.
    Unstarted(Line),
    /// Handed to the adapter; how it ended is unknown. The line is the one of the pull.
    Unfinished(Line),
    /// Ended on this device, and the hub may not know it.
    Unreported { run: RunId, epoch: i64, outcome: Outcome },
}

// === impl History ===

impl History {
    pub(super) fn read(text: &[u8]) -> Self {
        let mut history = Self { intact: line::is_intact(text), ..Self::default() };
        for line in line::parse(text) {
            let (Some(run), Some(epoch)) = (line.task_run_id, line.epoch) else { continue };
            let claim = history.claims.entry((run, epoch)).or_default();
            match line.event {
                Step::TaskPulled => claim.pulled = Some(line),
                Step::TaskStarted => claim.started = Some(line),
                Step::TaskRejoined => claim.rejoined.push(line),
                Step::TaskCompleted | Step::TaskFailed => claim.outcome = Some(line),
                Step::TaskReported | Step::TaskReportRefused | Step::TaskStopped | Step::TaskReleased => {
                    claim.settled = true;
                }
                Step::RuntimeStarted | Step::RuntimeStopped => {}
            }
        }
        history
    }

    /// Whether this device may have handed the claim to its adapter: a ledger that lost lines cannot say that it did not.
    pub fn may_have_started(&self, run: RunId, epoch: i64) -> bool {
        match self.claims.get(&(run, epoch)) {
            Some(claim) if claim.started.is_some() => true,
            Some(_) | None => !self.intact,
        }
    }

    /// Whether no line is missing as far as one can see: the file is there, and every line of it can be read.
    pub const fn is_intact(&self) -> bool {
        self.intact
    }

    /// How many processes before this one have followed the claim again after a restart.
    pub fn rejoins(&self, run: RunId, epoch: i64) -> usize {
        self.claims.get(&(run, epoch)).map_or(0, |claim| claim.rejoined.len())
    }

    /// What is left to do, in the order of the claims.
    pub fn open(&self) -> Vec<Open> {
        self.claims.iter().filter_map(|((run, epoch), claim)| claim.open(*run, *epoch)).collect()
    }

    /// The lines of all claims that are not settled.
    pub(super) fn unsettled_lines(&self) -> String {
        let unsettled = self.claims.values().filter(|claim| !claim.settled);
        unsettled.flat_map(Claim::lines).map(Line::text).collect()
    }
}

// === impl Claim ===

impl Claim {
    fn open(&self, run: RunId, epoch: i64) -> Option<Open> {
        if self.settled {
            return None;
        }
        if let Some(line) = &self.outcome {
            let (output, usage) = (line.output.clone()?, line.usage.clone());
            let outcome = match line.event {
                Step::TaskCompleted => Outcome::Completed { output, usage },
                _ => Outcome::Failed { output, usage },
            };
            return Some(Open::Unreported { run, epoch, outcome });
        }
        match (&self.pulled, &self.started) {
            (pulled, Some(started)) => Some(Open::Unfinished(pulled.clone().unwrap_or_else(|| started.clone()))),
            (Some(pulled), None) => Some(Open::Unstarted(pulled.clone())),
            (None, None) => None,
        }
    }

    fn lines(&self) -> impl Iterator<Item = &Line> {
        let begun = [&self.pulled, &self.started].into_iter().flatten();
        begun.chain(&self.rejoined).chain(&self.outcome)
    }
}
