//! The state of work on a device: six states that must not all look like a failure.

use crate::text_enum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::rules::run::{RunStatus, WaitReason};

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
    pub enum Recovery {
        /// The device is executing it.
        RemoteRunning = "remote_running",
        /// The device is connected and holds it, but has been silent for a while.
        RemoteIdle = "remote_idle",
        /// It waits for input or an approval.
        RemoteWaiting = "remote_waiting",
        /// It has ended on the device, but the hub has not accepted the outcome yet.
        DoneUnreconciled = "done_unreconciled",
        /// The device is connected but no longer knows it.
        RemoteMissing = "remote_missing",
        /// The device is not connected.
        Unreachable = "unreachable",
    }
}

/// What the device last reported about a run it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastRunReport {
    /// It listed the run, or reported on it.
    Holds,
    /// Its outcome is in the device's ledger.
    Ended,
    /// It listed what it executes without this run, although it had time to include it.
    DoesNotKnow,
    /// It has not reported since the hub started.
    Nothing,
}

/// All inputs of the decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryFacts {
    pub status: RunStatus,
    pub waiting: Option<WaitReason>,
    pub connected: bool,
    pub word: LastRunReport,
    /// Whether the run's stream had recent events.
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
    fn the_six_states_are_distinguished() {
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
    fn a_run_without_a_device_has_no_recovery_state() {
        for status in [RunStatus::Pending, RunStatus::Completed, RunStatus::Failed, RunStatus::Cancelled] {
            assert_eq!(recovery(RecoveryFacts { status, ..FACTS }), None);
        }
    }
}
