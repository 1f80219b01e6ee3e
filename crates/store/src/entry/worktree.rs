//! Log rows of decisions about worktrees.

use attache_protocol::{
    EventKind, Json, RunId,
    wire::worktree::{WorktreeAction, WorktreeResult},
};
use serde::Serialize;

use super::LogEntry;

#[derive(Serialize)]
struct WorktreeDecidedData {
    task_run_id: RunId,
    action: WorktreeAction,
}

#[derive(Serialize)]
struct WorktreeSettledData {
    task_run_id: RunId,
    action: WorktreeAction,
    result: WorktreeResult,
}

pub(crate) fn decided(run: RunId, action: WorktreeAction) -> LogEntry {
    (EventKind::WorktreeDecided, Json::of(&WorktreeDecidedData { task_run_id: run, action }))
}

pub(crate) fn settled(run: RunId, action: WorktreeAction, result: WorktreeResult) -> LogEntry {
    (EventKind::WorktreeSettled, Json::of(&WorktreeSettledData { task_run_id: run, action, result }))
}
