//! Recovery after a restart: outcomes to report, runs that the adapter still executes, claims to hand back.

use std::time::Duration;

use attache_client::Backoff;
use attache_protocol::{
    Code, Json, RunId,
    rules::run::RunStatus,
    wire::{
        adapter::{AdapterHealth, RunTask},
        awcp::TASK_TYPE,
        run::{Run, RunQuery},
    },
};

use crate::{
    RuntimeNotice,
    claim_watch::ClaimSource,
    delegation_run,
    device::DeviceRuntime,
    dispatch::{self, DispatchMode, RunDispatch},
    ledger::{ExecutionOutcome, LedgerEntry, LedgerHistory, LedgerStep, OpenClaim},
    report::OutcomeReport,
};

const MAX_HEALTH_ATTEMPTS: u32 = 5;
/// More reports than one process ever makes for one claim, so that the next process numbers its reports above them.
const REPORT_NUMBER_STEP: i64 = 1 << 32;

/// Queues the outcomes that the hub has not received, and finds the runs that the adapter still executes.
pub(crate) async fn recover_claims(device: &DeviceRuntime, history: &LedgerHistory) -> Vec<RunDispatch> {
    let mut unfinished = Vec::new();
    for open in history.open() {
        match open {
            OpenClaim::Unreported { run, epoch, outcome } => {
                device.claims.ended(run, epoch);
                device.reports.enqueue(OutcomeReport { run, epoch, outcome, pending_progress: None });
            }
            OpenClaim::Unfinished(line) => unfinished.push(line),
            // `hand_back` releases it if the hub still assigns it to this device.
            OpenClaim::Unstarted(_) => {}
        }
    }
    if unfinished.is_empty() {
        return Vec::new();
    }
    let adapter = executing(device).await;
    let mut jobs = Vec::new();
    for line in unfinished {
        let (Some(run), Some(epoch)) = (line.task_run_id, line.epoch) else { continue };
        let Some(task) = task(device, run, &line) else { continue };
        if task.task_type == TASK_TYPE {
            // Its folder was unmounted when the earlier process ended, so whatever the agent still does has no effect.
            dispatch::cancel(device, run).await;
            let delegation = line.delegation_id.as_deref().unwrap_or_default();
            store_outcome(device, run, epoch, delegation_run::outcome_after_restart(delegation)).await;
            continue;
        }
        let mode = if adapter.as_ref().is_some_and(|health| health.executes(run)) {
            device.link.notify(&RuntimeNotice::Rejoined { run });
            DispatchMode::Join
        } else if let Some(reply) = dispatch::remembered(device, run).await {
            DispatchMode::Replay(reply)
        } else {
            let reason = "the runtime restarted and the adapter no longer knows the task";
            device.note(device.run_entry(LedgerStep::TaskStopped, run, epoch).because(reason)).await;
            device.link.notify(&RuntimeNotice::TaskStopped { run, reason: reason.to_owned() });
            continue;
        };
        device.claims.take(run, epoch);
        device.note(device.run_entry(LedgerStep::TaskRejoined, run, epoch)).await;
        let reports = REPORT_NUMBER_STEP * i64::try_from(history.rejoins(run, epoch) + 1).unwrap_or(1);
        // The caller matters only for new runs.
        let caller = String::new();
        jobs.push(RunDispatch { task, caller, epoch, mode, source: ClaimSource::Unknown, reports });
    }
    jobs
}

/// What the adapter executes. An adapter that doesn't answer may just be starting, together with this runtime.
async fn executing(device: &DeviceRuntime) -> Option<AdapterHealth> {
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(1));
    loop {
        match device.adapter.health().await {
            Ok(health) => return Some(health),
            Err(_) if backoff.tries() < MAX_HEALTH_ATTEMPTS => tokio::time::sleep(backoff.next(&device.env)).await,
            Err(_) => return None,
        }
    }
}

/// Stores the outcome of a run that the adapter finished while nothing listened.
async fn store_outcome(device: &DeviceRuntime, run: RunId, epoch: i64, outcome: ExecutionOutcome) {
    device.claims.ended(run, epoch);
    device.note(LedgerEntry::outcome(device.env.now(), run, epoch, &outcome)).await;
    device.link.notify(&RuntimeNotice::Ended { run, status: outcome.status(), error: None });
    device.reports.enqueue(OutcomeReport { run, epoch, outcome, pending_progress: None });
}

/// Enough of the task to join it. The ledger doesn't contain the input, but the adapter already has it.
fn task(device: &DeviceRuntime, run: RunId, line: &LedgerEntry) -> Option<RunTask> {
    Some(RunTask {
        task_run_id: run,
        conversation_id: line.conversation_id?,
        workspace_id: line.workspace_id?,
        task_type: line.task_type.clone()?,
        input: Json::empty_object(),
        instructions: None,
        context_fragments: None,
        allowed_tools: None,
        workspace_root: None,
        budget: None,
        cwd: device.cwd.as_ref().map(|cwd| cwd.display().to_string()),
        sandbox: None,
        default_sandbox: None,
        permission_mode: None,
        worktrees: None,
        for_owner: false,
        host_session: None,
        parent_task_run_id: None,
        mcp: None,
        deadline: line.deadline,
        files: Vec::new(),
    })
}

/// Hands back every claim that this device certainly never started, because the answer was lost or the device stopped
/// in between. Waits while the hub is away: a claim that is neither named nor handed back is a lost run.
pub(crate) async fn hand_back(device: &DeviceRuntime, history: &LedgerHistory) {
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(15));
    loop {
        match hand_back_once(device, history).await {
            Ok(()) => return,
            Err(error) if error.is_passing() => {
                device.link.failed(&error);
                tokio::time::sleep(backoff.next(&device.env)).await;
            }
            // The heartbeat finds out whether the token is still valid.
            Err(error) => return tracing::debug!(%error, "failed to list the claims of this device"),
        }
    }
}

async fn hand_back_once(device: &DeviceRuntime, history: &LedgerHistory) -> Result<(), attache_client::Error> {
    let runs = claimed(device).await?;
    device.link.hub_answered();
    if !runs.is_empty() && !history.is_intact() {
        tracing::warn!("the ledger is missing or damaged; the claims of this device count as lost");
        device.link.notify(&RuntimeNotice::LedgerDamaged);
    }
    for Run { task_run_id: run, epoch, .. } in runs {
        if history.may_have_started(run, epoch) {
            device.claims.abandon(run, epoch);
        } else if device.claims.hand_back(run, epoch) {
            match try_release(device, run, epoch).await {
                Err(error) if error.is_passing() => return Err(error),
                // The hub knows better than the ledger: progress was reported.
                Err(error) if error.code() == Some(Code::AlreadyBegun) => device.claims.abandon(run, epoch),
                released => warn(run, released),
            }
        }
    }
    Ok(())
}

async fn claimed(device: &DeviceRuntime) -> Result<Vec<Run>, attache_client::Error> {
    let filter = RunQuery {
        status: Some(RunStatus::Running),
        agent_id: Some(device.profile.agent_id.to_string()),
        limit: Some(200),
        ..RunQuery::default()
    };
    let mut runs = device.hub().runs(&filter).await?.task_runs;
    runs.retain(|run| run.runtime_id == Some(device.profile.runtime_id));
    Ok(runs)
}

/// Hands one claim back, if possible.
pub(crate) async fn release(device: &DeviceRuntime, run: RunId, epoch: i64) {
    warn(run, try_release(device, run, epoch).await);
}

async fn try_release(device: &DeviceRuntime, run: RunId, epoch: i64) -> Result<(), attache_client::Error> {
    let released = device.transport.release(run, epoch).await;
    if released.is_ok() {
        device.note(device.run_entry(LedgerStep::TaskReleased, run, epoch)).await;
        device.link.notify(&RuntimeNotice::Released { run });
    }
    device.claims.give_up(run, epoch);
    released
}

fn warn(run: RunId, released: Result<(), attache_client::Error>) {
    if let Err(error) = released {
        tracing::warn!(run.id = %run, %error, "failed to hand back a claim; its lease will expire");
    }
}
