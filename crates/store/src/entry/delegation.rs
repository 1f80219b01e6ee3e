//! Log rows of delegations.

use attache_protocol::{DelegationId, EventKind, Json, rules::delegation::DelegationStatus};
use serde::Serialize;

use super::LogEntry;

#[derive(Serialize)]
struct DelegationChangedData {
    delegation_id: DelegationId,
    status: DelegationStatus,
}

#[derive(Serialize)]
struct DelegationCancelData {
    delegation_id: DelegationId,
}

pub(crate) fn changed(delegation: DelegationId, status: DelegationStatus) -> LogEntry {
    (EventKind::DelegationChanged, Json::of(&DelegationChangedData { delegation_id: delegation, status }))
}

pub(crate) fn cancel_requested(delegation: DelegationId) -> LogEntry {
    (EventKind::DelegationCancelRequested, Json::of(&DelegationCancelData { delegation_id: delegation }))
}
