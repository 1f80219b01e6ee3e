//! What becomes of a run's worktree on the agent's device: the owner's decision, and what the device made of it.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{RunId, Timestamp, text_enum};

/// How long the device has to carry out a decision. A later one is not carried out.
pub const WORKTREE_DECISION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum WorktreeAction {
        /// Commit the changes to the worktree's branch, in the name of the device's user.
        Commit = "commit",
        /// Bring the changes into the folder that the worktree was made from, as uncommitted changes; all of them or none.
        Apply = "apply",
        /// Remove the worktree and its branch.
        Discard = "discard",
    }
}

text_enum! {
    /// What a decision came to.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum WorktreeResult {
        Done = "done",
        /// There is nothing to commit.
        Unchanged = "unchanged",
        /// `files` were also changed in the folder. Nothing was applied.
        Conflict = "conflict",
        /// Somebody else works there now: the run, or one inside walls in the same repository.
        Busy = "busy",
        /// The device has no worktree of the run.
        Absent = "absent",
        Failed = "failed",
    }
}

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    pub enum WorktreeDecisionState {
        /// The device hasn't answered yet.
        Pending = "pending",
        /// It has, with `outcome`.
        Settled = "settled",
        /// It didn't answer in time, and doesn't carry it out any more. It may have done so before.
        Unanswered = "unanswered",
    }
}

/// The owner decides about a worktree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideWorktreeRequest {
    pub action: WorktreeAction,
    /// The message of a commit. Default: the run's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the device did. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorktreeOutcome {
    pub result: WorktreeResult,
    /// The run's branch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The commit that was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The folder that the worktree was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The files that were applied, or that conflict.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// What went wrong, as the device says it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorktreeDecision {
    pub action: WorktreeAction,
    pub state: WorktreeDecisionState,
    /// The actor who decided, as in the audit log.
    pub decided_by: String,
    pub decided_at: Timestamp,
    /// When the device answered.
    pub settled_at: Option<Timestamp>,
    pub outcome: Option<WorktreeOutcome>,
}

/// A run's worktree, as far as the hub knows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DecidedWorktree {
    pub task_run_id: RunId,
    /// The newest one.
    pub decision: Option<WorktreeDecision>,
}

/// A decision that the device is to carry out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingWorktreeDecision {
    pub task_run_id: RunId,
    /// Counts the decisions about this worktree.
    pub number: i64,
    pub action: WorktreeAction,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingWorktreeDecisionList {
    pub worktree_decisions: Vec<PendingWorktreeDecision>,
}

/// The device reports what it made of a decision. Unknown members are ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettleWorktreeRequest {
    /// The decision's number.
    pub number: i64,
    pub outcome: WorktreeOutcome,
}

// === impl WorktreeOutcome ===

impl WorktreeOutcome {
    pub const fn of(result: WorktreeResult) -> Self {
        Self { result, branch: None, commit: None, folder: None, files: Vec::new(), message: None }
    }
}
