//! Summarises a ledger: which claims were never started, never finished or never reported.

use std::collections::BTreeMap;

use attache_protocol::RunId;

use super::{
    ExecutionOutcome, LedgerEntry, LedgerStep,
    entry::{self},
};

/// Everything in a ledger, by claim.
#[derive(Debug, Default)]
pub struct LedgerHistory {
    claims: BTreeMap<(RunId, i64), ClaimHistory>,
    intact: bool,
}

#[derive(Debug, Default)]
struct ClaimHistory {
    pulled: Option<LedgerEntry>,
    started: Option<LedgerEntry>,
    rejoined: Vec<LedgerEntry>,
    outcome: Option<LedgerEntry>,
    settled: bool,
}

/// A claim that this device has not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenClaim {
    /// Pulled, but never handed to the adapter.
    Unstarted(LedgerEntry),
    /// Handed to the adapter, with an unknown outcome. The entry is that of the pull.
    Unfinished(LedgerEntry),
    /// Ended on this device, but the hub may not know that.
    Unreported { run: RunId, epoch: i64, outcome: ExecutionOutcome },
}

// === impl LedgerHistory ===

impl LedgerHistory {
    pub(super) fn read(text: &[u8]) -> Self {
        let mut history = Self { intact: entry::is_intact(text), ..Self::default() };
        for line in entry::parse(text) {
            let (Some(run), Some(epoch)) = (line.task_run_id, line.epoch) else { continue };
            let claim = history.claims.entry((run, epoch)).or_default();
            match line.event {
                LedgerStep::TaskPulled => claim.pulled = Some(line),
                LedgerStep::TaskStarted => claim.started = Some(line),
                LedgerStep::TaskRejoined => claim.rejoined.push(line),
                LedgerStep::TaskCompleted | LedgerStep::TaskFailed => claim.outcome = Some(line),
                LedgerStep::TaskReported
                | LedgerStep::TaskReportRefused
                | LedgerStep::TaskStopped
                | LedgerStep::TaskReleased => {
                    claim.settled = true;
                }
                LedgerStep::RuntimeStarted | LedgerStep::RuntimeStopped => {}
            }
        }
        history
    }

    /// Whether this device may have handed the claim to its adapter. A ledger with missing lines can't rule that out.
    pub fn may_have_started(&self, run: RunId, epoch: i64) -> bool {
        match self.claims.get(&(run, epoch)) {
            Some(claim) if claim.started.is_some() => true,
            Some(_) | None => !self.intact,
        }
    }

    /// Whether the ledger seems complete: the file exists and every line is readable.
    pub const fn is_intact(&self) -> bool {
        self.intact
    }

    /// How many earlier processes followed the claim again after a restart.
    pub fn rejoins(&self, run: RunId, epoch: i64) -> usize {
        self.claims.get(&(run, epoch)).map_or(0, |claim| claim.rejoined.len())
    }

    /// The unsettled claims, in order.
    pub fn open(&self) -> Vec<OpenClaim> {
        self.claims.iter().filter_map(|((run, epoch), claim)| claim.open(*run, *epoch)).collect()
    }

    /// The lines of all unsettled claims.
    pub(super) fn unsettled_lines(&self) -> String {
        let unsettled = self.claims.values().filter(|claim| !claim.settled);
        unsettled.flat_map(ClaimHistory::lines).map(LedgerEntry::text).collect()
    }
}

// === impl ClaimHistory ===

impl ClaimHistory {
    fn open(&self, run: RunId, epoch: i64) -> Option<OpenClaim> {
        if self.settled {
            return None;
        }
        if let Some(line) = &self.outcome {
            let (output, usage, inputs_taken) = (line.output.clone()?, line.usage.clone(), line.inputs_taken.clone());
            let outcome = match line.event {
                LedgerStep::TaskCompleted => ExecutionOutcome::Completed { output, usage, inputs_taken },
                _ => ExecutionOutcome::Failed { output, usage, inputs_taken },
            };
            return Some(OpenClaim::Unreported { run, epoch, outcome });
        }
        match (&self.pulled, &self.started) {
            (pulled, Some(started)) => Some(OpenClaim::Unfinished(pulled.clone().unwrap_or_else(|| started.clone()))),
            (Some(pulled), None) => Some(OpenClaim::Unstarted(pulled.clone())),
            (None, None) => None,
        }
    }

    fn lines(&self) -> impl Iterator<Item = &LedgerEntry> {
        let begun = [&self.pulled, &self.started].into_iter().flatten();
        begun.chain(&self.rejoined).chain(&self.outcome)
    }
}
