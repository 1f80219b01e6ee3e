//! Reports how a run ended: first to the ledger, then to the hub, and again later if the hub is away.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_client::Backoff;
use attache_protocol::{Code, Json, RunId, wire::run::ProgressRequest};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::{
    RuntimeNotice,
    device::DeviceRuntime,
    ledger::{ExecutionOutcome, LedgerEntry, LedgerStep},
    progress::PendingProgress,
};

/// Outcomes that the hub has not received yet: those of runs that ended while it was away, plus what an earlier process
/// left in the ledger.
#[derive(Debug, Default)]
pub(crate) struct ReportQueue {
    waiting: Mutex<VecDeque<OutcomeReport>>,
    more: Notify,
}

#[derive(Debug, Clone)]
pub(crate) struct OutcomeReport {
    pub(crate) run: RunId,
    pub(crate) epoch: i64,
    pub(crate) outcome: ExecutionOutcome,
    /// Progress to send before the outcome.
    pub(crate) pending_progress: Option<PendingProgress>,
}

#[derive(Debug)]
enum ReportDisposition {
    Told,
    /// The claim is gone or the run has ended: the outcome will never be needed.
    Never(String),
    Later(String),
    /// The hub doesn't accept this outcome. Report this one instead.
    Instead(ExecutionOutcome),
}

const RETRY_INTERVAL: Duration = Duration::from_millis(500);
const ACCOUNT_TRIES: u32 = 5;
/// The limits of a failure that is shortened because the hub didn't accept it.
const MAX_CODE: usize = 64;
const MAX_MESSAGE: usize = 2000;

/// A refusal that no retry changes.
pub(crate) fn is_final(error: &attache_client::Error) -> bool {
    matches!(error.code(), Some(Code::StaleEpoch | Code::RunEnded | Code::NotRunning | Code::NotFound))
}

/// Records the outcome, reports it to the hub, and keeps it for later if the hub is away.
pub(crate) async fn finish(device: &DeviceRuntime, report: OutcomeReport) {
    let OutcomeReport { run, epoch, outcome, .. } = &report;
    device.claims.ended(*run, *epoch);
    device.note(LedgerEntry::outcome(device.env.now(), *run, *epoch, outcome)).await;
    let error = match outcome {
        ExecutionOutcome::Completed { .. } => None,
        ExecutionOutcome::Failed { output, .. } => output.text_member("error"),
    };
    device.link.notify(&RuntimeNotice::Ended { run: *run, status: outcome.status(), error });
    if let Err((report, _)) = send_report(device, report).await {
        tokio::time::sleep(RETRY_INTERVAL).await;
        if let Err((report, reason)) = send_report(device, report).await {
            device.link.notify(&RuntimeNotice::ReportKept { run: report.run, reason });
            device.reports.enqueue(report);
        }
    }
}

/// Reports the total usage of a run that ended elsewhere. The hub refuses the report but still counts the total.
pub(crate) async fn account(device: &DeviceRuntime, run: RunId, epoch: i64, usage: Json) {
    let total = ProgressRequest { epoch: Some(epoch), usage: Some(usage), ..ProgressRequest::default() };
    let mut backoff = Backoff::new(RETRY_INTERVAL, Duration::from_secs(5));
    while backoff.tries() < ACCOUNT_TRIES && !device.link.is_denied() {
        match device.hub().progress(run, &total).await {
            Ok(_) => return,
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(&device.env)).await,
            Err(error) if is_final(&error) => return,
            Err(error) => return tracing::warn!(run.id = %run, %error, "failed to report the usage of the run"),
        }
    }
    tracing::warn!(run.id = %run, "the hub is away; the final usage of the run is not counted");
}

/// Reports the waiting outcomes until asked to stop, and then once more.
pub(crate) async fn repeat(device: &DeviceRuntime, quit: CancellationToken) {
    let mut backoff = Backoff::new(RETRY_INTERVAL, Duration::from_secs(10));
    while !quit.is_cancelled() {
        tokio::select! {
            () = device.reports.more.notified() => {}
            () = quit.cancelled() => break,
        }
        while device.reports.send_all(device).await > 0 && !quit.is_cancelled() && !device.link.is_denied() {
            // No pause while the hub accepts reports.
            if device.reports.is_moving() {
                backoff.reset();
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next(&device.env)) => {}
                () = quit.cancelled() => {}
            }
        }
        backoff.reset();
    }
    if !device.link.is_denied() {
        device.reports.send_all(device).await;
    }
}

/// One attempt. An outcome that must be reported later is returned with the reason.
async fn send_report(device: &DeviceRuntime, report: OutcomeReport) -> Result<(), (OutcomeReport, String)> {
    let OutcomeReport { run, epoch, .. } = report;
    if let Some(untold) = &report.pending_progress
        && !untold.drain().await
    {
        return Err((report, "the hub has not received all progress yet".to_owned()));
    }
    match verdict(device, &report).await {
        ReportDisposition::Told => {
            device.note(device.run_entry(LedgerStep::TaskReported, run, epoch)).await;
            device.claims.give_up(run, epoch);
            device.link.notify(&RuntimeNotice::Reported { run });
            Ok(())
        }
        ReportDisposition::Never(reason) => {
            device.note(device.run_entry(LedgerStep::TaskReportRefused, run, epoch).because(&reason)).await;
            device.claims.give_up(run, epoch);
            device.link.notify(&RuntimeNotice::ReportRefused { run, reason });
            Ok(())
        }
        ReportDisposition::Later(reason) => Err((report, reason)),
        ReportDisposition::Instead(outcome) => {
            device.note(LedgerEntry::outcome(device.env.now(), run, epoch, &outcome)).await;
            Box::pin(send_report(device, OutcomeReport { run, epoch, outcome, pending_progress: None })).await
        }
    }
}

async fn verdict(device: &DeviceRuntime, report: &OutcomeReport) -> ReportDisposition {
    let OutcomeReport { run, epoch, outcome, .. } = report;
    let Err(error) = device.transport.finish(*run, *epoch, outcome).await else {
        device.link.hub_answered();
        return ReportDisposition::Told;
    };
    if is_final(&error) {
        return ReportDisposition::Never(error.to_string());
    }
    match (&error, outcome) {
        (attache_client::Error::Refused(refusal), ExecutionOutcome::Completed { usage, .. })
            if matches!(refusal.status, 400 | 409 | 413 | 415 | 422) =>
        {
            let message = format!("The hub did not accept the result: {error}");
            let failed = ExecutionOutcome::failed("adapter_invalid_reply", &message, usage.as_ref());
            ReportDisposition::Instead(failed.taking(outcome.inputs_taken().map(<[_]>::to_vec)))
        }
        (attache_client::Error::Refused(refusal), ExecutionOutcome::Failed { output, usage, .. })
            if matches!(refusal.status, 400 | 409 | 413 | 415 | 422) =>
        {
            match shortened(output, usage.as_ref()) {
                Some(shorter) => ReportDisposition::Instead(shorter.taking(outcome.inputs_taken().map(<[_]>::to_vec))),
                None => ReportDisposition::Never(error.to_string()),
            }
        }
        _ => {
            device.link.failed(&error);
            ReportDisposition::Later(error.to_string())
        }
    }
}

/// The failure, short enough for the hub. `None` if it was already as short. A run whose end the hub never receives
/// would be executed again.
fn shortened(output: &Json, usage: Option<&Json>) -> Option<ExecutionOutcome> {
    let cut = |member, longest| {
        let mut text = output.text_member(member)?;
        if text.len() > longest {
            text.truncate(text.floor_char_boundary(longest));
            text.push('…');
        }
        Some(text)
    };
    let code = cut("code", MAX_CODE).unwrap_or_else(|| "task_failed".to_owned());
    let message = cut("error", MAX_MESSAGE).unwrap_or_else(|| "The task failed.".to_owned());
    let shorter = ExecutionOutcome::failed(&code, &message, usage);
    matches!(&shorter, ExecutionOutcome::Failed { output: left, .. } if left.get().len() < output.get().len())
        .then_some(shorter)
}

// === impl ReportQueue ===

impl ReportQueue {
    pub(crate) fn enqueue(&self, report: OutcomeReport) {
        self.waiting().push_back(report);
        self.more.notify_one();
    }

    /// One round. Returns how many are still waiting.
    async fn send_all(&self, device: &DeviceRuntime) -> usize {
        let round: Vec<OutcomeReport> = self.waiting().drain(..).collect();
        for report in round {
            if device.link.is_denied() {
                self.waiting().push_back(report);
            } else if let Err((report, _)) = send_report(device, report).await {
                self.waiting().push_back(report);
            }
        }
        self.waiting().len()
    }

    fn is_moving(&self) -> bool {
        self.waiting().iter().filter_map(|report| report.pending_progress.as_ref()).any(PendingProgress::is_moving)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<OutcomeReport>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
