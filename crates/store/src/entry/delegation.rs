//! What the log says of delegations.

use attache_protocol::{DelegationId, EventKind, Json, rules::delegation::Status};
use serde::Serialize;

use super::Entry;

#[derive(Serialize)]
struct Changed {
    delegation_id: DelegationId,
    status: Status,
}

#[derive(Serialize)]
struct Delegation {
    delegation_id: DelegationId,
}

pub(crate) fn changed(delegation: DelegationId, status: Status) -> Entry {
    (EventKind::DelegationChanged, Json::of(&Changed { delegation_id: delegation, status }))
}

pub(crate) fn cancel_requested(delegation: DelegationId) -> Entry {
    (EventKind::DelegationCancelRequested, Json::of(&Delegation { delegation_id: delegation }))
}
