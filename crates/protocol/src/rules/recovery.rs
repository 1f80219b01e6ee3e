//! What is known of work on a device: six states that must not all look like a failure.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::rules::run::{RunStatus, WaitReason};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// The device executes it.
    RemoteRunning,
    /// The device is connected and holds it, but has said nothing for a while.
    RemoteIdle,
    /// It waits for input or for an approval.
    RemoteWaiting,
    /// It has ended on the device, and the hub has not accepted the outcome yet.
    DoneUnreconciled,
    /// The device is connected and does not know it any more.
    RemoteMissing,
    /// The device is not connected.
    Unreachable,
}

/// What the device said last of a run that it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastRunReport {
    /// It named the run, or reported on it.
    Holds,
    /// Its outcome is in the device's ledger.
    Ended,
    /// It named what it executes, and this run was not among it although it had time to be.
    DoesNotKnow,
    /// It has not been asked since the hub started.
    Nothing,
}

/// Everything the answer depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryFacts {
    pub status: RunStatus,
    pub waiting: Option<WaitReason>,
    pub connected: bool,
    pub word: LastRunReport,
    /// Whether the run's stream moved lately.
    pub moved_lately: bool,
}

/// `None` for a run that no device holds.
pub const fn recovery(facts: RecoveryFacts) -> Option<Recovery> {
    if !matches!(facts.status, RunStatus::Running) {
        return None;
    }
    Some(match facts {
        RecoveryFacts { connected: false, .. } => Recovery::Unreachable,
        RecoveryFacts { word: LastRunReport::Ended, .. } => Recovery::DoneUnreconciled,
        RecoveryFacts { word: LastRunReport::DoesNotKnow, .. } => Recovery::RemoteMissing,
        RecoveryFacts { waiting: Some(_), .. } => Recovery::RemoteWaiting,
        RecoveryFacts { moved_lately: true, .. } => Recovery::RemoteRunning,
        RecoveryFacts { .. } => Recovery::RemoteIdle,
    })
}

// === impl Recovery ===

impl Recovery {
    pub const ALL: [Self; 6] = [
        Self::RemoteRunning,
        Self::RemoteIdle,
        Self::RemoteWaiting,
        Self::DoneUnreconciled,
        Self::RemoteMissing,
        Self::Unreachable,
    ];

    pub fn from_text(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RemoteRunning => "remote_running",
            Self::RemoteIdle => "remote_idle",
            Self::RemoteWaiting => "remote_waiting",
            Self::DoneUnreconciled => "done_unreconciled",
            Self::RemoteMissing => "remote_missing",
            Self::Unreachable => "unreachable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: RecoveryFacts = RecoveryFacts {
        status: RunStatus::Running,
        waiting: None,
        connected: true,
        word: LastRunReport::Holds,
        moved_lately: true,
    };

    #[test]
    fn the_six_states_are_told_apart() {
        let waiting = Some(WaitReason::Input);
        assert_eq!(recovery(FACTS), Some(Recovery::RemoteRunning));
        assert_eq!(recovery(RecoveryFacts { moved_lately: false, ..FACTS }), Some(Recovery::RemoteIdle));
        assert_eq!(recovery(RecoveryFacts { waiting, moved_lately: false, ..FACTS }), Some(Recovery::RemoteWaiting));
        assert_eq!(recovery(RecoveryFacts { word: LastRunReport::Ended, ..FACTS }), Some(Recovery::DoneUnreconciled));
        assert_eq!(
            recovery(RecoveryFacts { word: LastRunReport::DoesNotKnow, ..FACTS }),
            Some(Recovery::RemoteMissing)
        );
        assert_eq!(
            recovery(RecoveryFacts { connected: false, word: LastRunReport::Ended, ..FACTS }),
            Some(Recovery::Unreachable)
        );
    }

    #[test]
    fn what_no_device_holds_has_none() {
        for status in [RunStatus::Pending, RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled] {
            assert_eq!(recovery(RecoveryFacts { status, ..FACTS }), None);
        }
    }
}
