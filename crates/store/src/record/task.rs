//! Runs as A2A lists them: by state, most recently changed first.

use std::{convert::Infallible, fmt, str::FromStr};

use attache_protocol::{
    Actor, AgentId, ConversationId, Json, Timestamp, UserId,
    rules::run::{FailureCode, RunPhase, RunStatus, WaitReason},
};
use serde::Deserialize;

use super::RunRecord;

/// Filter for listing tasks. Every given member must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFilter {
    pub agent: AgentId,
    /// The owner. `None` means all owners.
    pub of: Option<RunOwner>,
    pub conversation: Option<ConversationId>,
    pub state: Option<RunTaskState>,
    /// Only those whose state started at this time or later.
    pub after: Option<Timestamp>,
}

/// The owner of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOwner {
    User(UserId),
    /// The actor that requested it.
    Caller(Actor),
}

/// The state of a run in terms of A2A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunTaskState {
    Submitted,
    Working,
    InputRequired,
    /// It waits for a person's permission.
    AuthRequired,
    Completed,
    /// Failed with the code `rejected`.
    Rejected,
    /// Failed with any other code.
    Failed,
    Cancelled,
}

/// One page of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    pub items: Vec<TaskItem>,
    /// `None` on the last page.
    pub next: Option<String>,
    /// The number of matches on all pages.
    pub total: u64,
}

/// One task, and the cursor of a page that starts after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskItem {
    pub run: RunRecord,
    pub cursor: String,
}

/// The position of a task in the list: by the time of its state, then by order of creation. Its text form is a page's
/// cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskCursor {
    pub(crate) at: Timestamp,
    pub(crate) number: i64,
}

#[derive(Deserialize)]
struct FailureCodeOnly {
    code: FailureCode,
}

// === impl RunRecord ===

impl RunRecord {
    /// Since when it has been in its current state.
    pub fn status_at(&self) -> Timestamp {
        match &self.state.phase {
            // Also after a return to the queue, where its time starts over.
            RunPhase::Pending { expires_at } => expires_at.minus(self.state.limits.queue_ttl),
            RunPhase::Deferred { since, .. } => *since,
            RunPhase::Running(claim) => claim.waits.since.unwrap_or(claim.claimed_at),
            RunPhase::Ended { .. } => self.ended_at.unwrap_or(self.created_at),
        }
    }

    pub fn task_state(&self) -> RunTaskState {
        let waiting = self.state.claim().and_then(|claim| claim.waits.waiting());
        RunTaskState::of(self.state.status(), waiting, || self.result.as_ref())
    }
}

// === impl RunTaskState ===

impl RunTaskState {
    pub(crate) fn of<'a>(
        status: RunStatus,
        waiting: Option<WaitReason>,
        result: impl FnOnce() -> Option<&'a Json>,
    ) -> Self {
        match (status, waiting) {
            (RunStatus::Pending, _) => Self::Submitted,
            (RunStatus::Running, None) => Self::Working,
            (RunStatus::Running, Some(WaitReason::Input)) => Self::InputRequired,
            (RunStatus::Running, Some(WaitReason::Approval)) => Self::AuthRequired,
            (RunStatus::Completed, _) => Self::Completed,
            (RunStatus::Cancelled, _) => Self::Cancelled,
            (RunStatus::Failed, _) => {
                let result = result().filter(|result| result.is_object());
                let coded = result.and_then(|result| result.parse::<FailureCodeOnly>().ok());
                let rejected = coded.is_some_and(|coded| coded.code == FailureCode::Rejected);
                if rejected { Self::Rejected } else { Self::Failed }
            }
        }
    }

    /// The status of every run in this state.
    pub const fn status(self) -> RunStatus {
        match self {
            Self::Submitted => RunStatus::Pending,
            Self::Working | Self::InputRequired | Self::AuthRequired => RunStatus::Running,
            Self::Completed => RunStatus::Completed,
            Self::Rejected | Self::Failed => RunStatus::Failed,
            Self::Cancelled => RunStatus::Cancelled,
        }
    }
}

// === impl RunOwner ===

impl RunOwner {
    pub fn matches(&self, record: &RunRecord) -> bool {
        match self {
            Self::User(user) => record.user == Some(*user),
            Self::Caller(caller) => record.caller == *caller,
        }
    }
}

// === impl TaskCursor ===

impl fmt::Display for TaskCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.millis(), self.number)
    }
}

impl FromStr for TaskCursor {
    type Err = Option<Infallible>;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (at, number) = text.split_once('.').ok_or(None)?;
        let (Ok(at), Ok(number)) = (at.parse(), number.parse()) else { return Err(None) };
        Ok(Self { at: Timestamp::from_millis(at), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_a_rejection_only_by_its_code() {
        let state = |result: Option<&str>| {
            let result = result.map(|result| Json::from_text(result).unwrap());
            RunTaskState::of(RunStatus::Failed, None, || result.as_ref())
        };
        assert_eq!(state(Some(r#"{"error":"no","code":"rejected"}"#)), RunTaskState::Rejected);
        assert_eq!(state(Some(r#"{"error":"rejected","code":"task_failed"}"#)), RunTaskState::Failed);
        assert_eq!(state(Some(r#"["rejected"]"#)), RunTaskState::Failed);
        assert_eq!(state(None), RunTaskState::Failed);
    }

    #[test]
    fn a_cursor_round_trips_and_orders_by_time_first() {
        let place = |at, number| TaskCursor { at: Timestamp::from_millis(at), number };
        assert_eq!("-5.7".parse(), Ok(place(-5, 7)));
        assert_eq!(place(-5, 7).to_string(), "-5.7");
        assert!(place(1, 9) < place(2, 0) && place(2, 0) < place(2, 1));
        for bad in ["", "7", ".", "7.", ".7", "a.b"] {
            assert_eq!(bad.parse::<TaskCursor>(), Err(None), "{bad}");
        }
    }
}
