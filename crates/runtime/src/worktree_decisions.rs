//! Carries out what the agent's owner decides at the hub about the worktrees of runs, as `attache worktrees` does it here.
//!
//! The hub only says that there is something to do: over the channel, or in its answer to a heartbeat. What it is, is asked for
//! each time, so nothing has to be remembered. A decision that was carried out before its report arrived, because the device
//! stopped, is repeated: applying again changes nothing, and the rest says that there is nothing left to do.

use std::{path::PathBuf, time::Duration};

use attache_protocol::Timestamp;
use attache_protocol::wire::worktree::{
    PendingWorktreeDecision, SettleWorktreeRequest, WorktreeAction, WorktreeOutcome, WorktreeResult,
};
use attache_workspace::report::git::worktree::{Error, RunWorktree, WorktreeFolder};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::device::DeviceRuntime;

/// How many file names are reported.
const MAX_FILES: usize = 1000;
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
const MAX_REPORTS: usize = 5;

/// Says that decisions may wait at the hub.
#[derive(Debug, Default)]
pub(crate) struct WorktreeNotice(Notify);

// === impl WorktreeNotice ===

impl WorktreeNotice {
    pub(crate) fn give(&self) {
        self.0.notify_one();
    }
}

/// Carries decisions out, one after the other, until asked to stop. One that has begun is finished.
pub(crate) async fn carry_out(device: &DeviceRuntime, quit: CancellationToken) {
    loop {
        tokio::select! {
            () = device.worktree_notice.0.notified() => {}
            () = quit.cancelled() => return,
        }
        let pending = match device.hub().pending_worktree_decisions().await {
            Ok(pending) => pending.worktree_decisions,
            // The next heartbeat says so again.
            Err(error) => {
                tracing::debug!(%error, "failed to ask for decisions about worktrees");
                continue;
            }
        };
        for decision in pending {
            let (run, number, action) = (decision.task_run_id, decision.number, decision.action);
            let (folder, now) = (device.worktrees.clone(), device.env.now());
            let outcome = match tokio::task::spawn_blocking(move || decide(folder, &decision, now)).await {
                Ok(outcome) => outcome,
                Err(error) => {
                    tracing::error!(run.id = %run, %error, "a decision about a worktree could not be carried out");
                    WorktreeOutcome::of(WorktreeResult::Failed)
                }
            };
            tracing::info!(run.id = %run, action = action.as_str(), result = outcome.result.as_str(), "decision about a worktree");
            report(device, run, SettleWorktreeRequest { number, outcome }, &quit).await;
        }
    }
}

/// If the hub can't be reached, its next answer to a heartbeat leads here again.
async fn report(
    device: &DeviceRuntime,
    run: attache_protocol::RunId,
    request: SettleWorktreeRequest,
    quit: &CancellationToken,
) {
    for _ in 0..MAX_REPORTS {
        match device.hub().settle_worktree(run, &request).await {
            Ok(()) => return,
            Err(error) if error.is_passing() => {
                tracing::debug!(run.id = %run, %error, "failed to report what became of a worktree; trying again");
            }
            Err(error) => {
                tracing::warn!(run.id = %run, %error, "the hub refuses the report on a worktree");
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(RETRY_INTERVAL) => {}
            () = quit.cancelled() => return,
        }
    }
}

fn decide(folder: PathBuf, decision: &PendingWorktreeDecision, now: Timestamp) -> WorktreeOutcome {
    let run = decision.task_run_id;
    let worktree = match WorktreeFolder::at(folder).open(run) {
        Ok(worktree) => worktree,
        Err(error) => return refused(&error),
    };
    let known = WorktreeOutcome {
        branch: Some(worktree.branch()),
        folder: Some(worktree.record().source.display().to_string()),
        ..WorktreeOutcome::of(WorktreeResult::Done)
    };
    match carry(&worktree, decision, now) {
        Ok(done) => WorktreeOutcome { commit: done.commit, files: done.files, message: done.message, ..known },
        Err(error) => {
            let WorktreeOutcome { result, files, message, .. } = refused(&error);
            WorktreeOutcome { result, files, message, ..known }
        }
    }
}

fn carry(worktree: &RunWorktree, decision: &PendingWorktreeDecision, now: Timestamp) -> Result<WorktreeOutcome, Error> {
    let done = WorktreeOutcome::of(WorktreeResult::Done);
    Ok(match decision.action {
        WorktreeAction::Commit => {
            let default = format!("Changes of {}", decision.task_run_id);
            let message = decision.message.as_deref().unwrap_or(&default);
            WorktreeOutcome { commit: Some(worktree.commit(message, now)?), ..done }
        }
        WorktreeAction::Apply => {
            let mut files = worktree.apply(now)?.files;
            files.truncate(MAX_FILES);
            WorktreeOutcome { files, ..done }
        }
        WorktreeAction::Discard => {
            let has_repository = worktree.discard()?;
            let moved = "its repository is no longer there, so the branch may still be in it";
            WorktreeOutcome { message: (!has_repository).then(|| moved.to_owned()), ..done }
        }
    })
}

fn refused(error: &Error) -> WorktreeOutcome {
    let result = match error {
        Error::Unchanged => WorktreeResult::Unchanged,
        Error::Conflicts(_) => WorktreeResult::Conflict,
        Error::Working(_) | Error::Busy(_) => WorktreeResult::Busy,
        Error::Absent(_) => WorktreeResult::Absent,
        _ => WorktreeResult::Failed,
    };
    let files = match error {
        Error::Conflicts(files) => files.iter().take(MAX_FILES).cloned().collect(),
        _ => Vec::new(),
    };
    WorktreeOutcome { files, message: Some(error.to_string()), ..WorktreeOutcome::of(result) }
}
