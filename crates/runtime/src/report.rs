//! Telling the hub how a run ended: ledger first, then the hub, once more if need be, and later when it is back.

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
    Notice,
    device::Device,
    ledger::{Line, Outcome, Step},
    progress::Untold,
};

/// Outcomes that the hub could not be told yet. There are as many as runs ended while it was away: at most one, plus
/// what an earlier process left in the ledger.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: Mutex<VecDeque<Report>>,
    more: Notify,
}

#[derive(Debug, Clone)]
pub(crate) struct Report {
    pub(crate) run: RunId,
    pub(crate) epoch: i64,
    pub(crate) outcome: Outcome,
    /// Progress that comes before the outcome.
    pub(crate) untold: Option<Untold>,
}

#[derive(Debug)]
enum Verdict {
    Told,
    /// The claim is gone or the run has ended: nobody will ever want this outcome.
    Never(String),
    Later(String),
    /// The hub does not take this outcome, but it takes the news of that.
    Instead(Outcome),
}

const RETRY: Duration = Duration::from_millis(500);
const ACCOUNT_TRIES: u32 = 5;
/// What is left of a failure that the hub does not take as it is.
const LONGEST_CODE: usize = 64;
const LONGEST_MESSAGE: usize = 2000;

/// A refusal that no repetition changes.
pub(crate) fn is_final(error: &attache_client::Error) -> bool {
    matches!(error.code(), Some(Code::StaleEpoch | Code::RunEnded | Code::NotRunning | Code::NotFound))
}

/// Writes the outcome down, tells the hub, and keeps it for later if the hub cannot be told.
pub(crate) async fn finish(device: &Device, report: Report) {
    let Report { run, epoch, outcome, .. } = &report;
    device.claims.ended(*run, *epoch);
    device.note(Line::outcome(device.env.now(), *run, *epoch, outcome)).await;
    let error = match outcome {
        Outcome::Completed { .. } => None,
        Outcome::Failed { output, .. } => output.text_member("error"),
    };
    device.link.notify(&Notice::Ended { run: *run, status: outcome.status(), error });
    if let Err((report, _)) = tell(device, report).await {
        tokio::time::sleep(RETRY).await;
        if let Err((report, reason)) = tell(device, report).await {
            device.link.notify(&Notice::ReportKept { run: report.run, reason });
            device.reports.keep(report);
        }
    }
}

/// Tells what a run used in all that somebody else ended. The hub says that it is over, and counts the total all the same.
pub(crate) async fn account(device: &Device, run: RunId, epoch: i64, usage: Json) {
    let total = ProgressRequest { epoch: Some(epoch), usage: Some(usage), ..ProgressRequest::default() };
    let mut backoff = Backoff::new(RETRY, Duration::from_secs(5));
    while backoff.tries() < ACCOUNT_TRIES && !device.link.is_denied() {
        match device.hub().progress(run, &total).await {
            Ok(_) => return,
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(&device.env)).await,
            Err(error) if is_final(&error) => return,
            Err(error) => return tracing::warn!(run.id = %run, %error, "what the run used is not counted"),
        }
    }
    tracing::warn!(run.id = %run, "the hub is away; the last of what the run used is not counted");
}

/// Tells the waiting outcomes until asked to quit, and once more then.
pub(crate) async fn repeat(device: &Device, quit: CancellationToken) {
    let mut backoff = Backoff::new(RETRY, Duration::from_secs(10));
    while !quit.is_cancelled() {
        tokio::select! {
            () = device.reports.more.notified() => {}
            () = quit.cancelled() => break,
        }
        while device.reports.tell_all(device).await > 0 && !quit.is_cancelled() && !device.link.is_denied() {
            // A hub that hears is not kept waiting.
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
        device.reports.tell_all(device).await;
    }
}

/// One try. An outcome that must be told later comes back with the reason.
async fn tell(device: &Device, report: Report) -> Result<(), (Report, String)> {
    let Report { run, epoch, .. } = report;
    if let Some(untold) = &report.untold
        && !untold.tell_rest().await
    {
        return Err((report, "the hub has not heard everything that comes before it".to_owned()));
    }
    match verdict(device, &report).await {
        Verdict::Told => {
            device.note(device.run_line(Step::TaskReported, run, epoch)).await;
            device.claims.give_up(run, epoch);
            device.link.notify(&Notice::Reported { run });
            Ok(())
        }
        Verdict::Never(reason) => {
            device.note(device.run_line(Step::TaskReportRefused, run, epoch).because(&reason)).await;
            device.claims.give_up(run, epoch);
            device.link.notify(&Notice::ReportRefused { run, reason });
            Ok(())
        }
        Verdict::Later(reason) => Err((report, reason)),
        Verdict::Instead(outcome) => {
            device.note(Line::outcome(device.env.now(), run, epoch, &outcome)).await;
            Box::pin(tell(device, Report { run, epoch, outcome, untold: None })).await
        }
    }
}

async fn verdict(device: &Device, report: &Report) -> Verdict {
    let Report { run, epoch, outcome, .. } = report;
    let Err(error) = device.ways.finish(*run, *epoch, outcome).await else {
        device.link.heard();
        return Verdict::Told;
    };
    if is_final(&error) {
        return Verdict::Never(error.to_string());
    }
    match (&error, outcome) {
        (attache_client::Error::Refused(refusal), Outcome::Completed { usage, .. })
            if matches!(refusal.status, 400 | 409 | 413 | 415 | 422) =>
        {
            let message = format!("The hub did not accept the result: {error}");
            Verdict::Instead(Outcome::failed("adapter_invalid_reply", &message, usage.as_ref()))
        }
        (attache_client::Error::Refused(refusal), Outcome::Failed { output, usage })
            if matches!(refusal.status, 400 | 409 | 413 | 415 | 422) =>
        {
            match shortened(output, usage.as_ref()) {
                Some(shorter) => Verdict::Instead(shorter),
                None => Verdict::Never(error.to_string()),
            }
        }
        _ => {
            device.link.failed(&error);
            Verdict::Later(error.to_string())
        }
    }
}

/// The failure in so few words that the hub takes it; none when it was as short before. A run whose end the hub never
/// hears would be done again.
fn shortened(output: &Json, usage: Option<&Json>) -> Option<Outcome> {
    let cut = |member, longest| {
        let mut text = output.text_member(member)?;
        if text.len() > longest {
            text.truncate(text.floor_char_boundary(longest));
            text.push('…');
        }
        Some(text)
    };
    let code = cut("code", LONGEST_CODE).unwrap_or_else(|| "task_failed".to_owned());
    let message = cut("error", LONGEST_MESSAGE).unwrap_or_else(|| "The task failed.".to_owned());
    let shorter = Outcome::failed(&code, &message, usage);
    matches!(&shorter, Outcome::Failed { output: left, .. } if left.get().len() < output.get().len()).then_some(shorter)
}

// === impl Reports ===

impl Reports {
    pub(crate) fn keep(&self, report: Report) {
        self.waiting().push_back(report);
        self.more.notify_one();
    }

    /// One round; answers how many are still waiting.
    async fn tell_all(&self, device: &Device) -> usize {
        let round: Vec<Report> = self.waiting().drain(..).collect();
        for report in round {
            if device.link.is_denied() {
                self.waiting().push_back(report);
            } else if let Err((report, _)) = tell(device, report).await {
                self.waiting().push_back(report);
            }
        }
        self.waiting().len()
    }

    fn is_moving(&self) -> bool {
        self.waiting().iter().filter_map(|report| report.untold.as_ref()).any(Untold::is_moving)
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Report>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
