//! After a crash of the daemon: what was live is over, because its keys were in memory only. So it is revoked already; it is
//! written down, and the remote is told.

use attache_protocol::{
    DelegationId,
    rules::delegation::DelegationStatus,
    wire::{
        awcp::AwcpErrorCode,
        delegation::{DelegateRequest, Delegation, DelegationFailure, DelegationOutcome},
    },
};
use attache_workspace::export::OriginalsFolder;

use super::{
    DelegatorRefusal, end_notice, lease,
    policy::DelegationAdmission,
    publish, report,
    service::{DelegatorService, blocking},
};
use crate::Error;

const DAEMON_LOST: &str = "the daemon of the machine that lends the folder ended while this was under way";

/// Takes up what is written down; what had not ended, ends.
pub(super) async fn recover(desk: &DelegatorService) -> Result<(), Error> {
    let mut lost = Vec::new();
    for delegation in desk.0.records.load()? {
        if !delegation.status.has_ended() {
            lost.push(delegation.clone());
        }
        desk.remember(delegation);
    }
    for session in lost.iter().filter_map(|delegation| delegation.session_id.as_deref().map(|id| (id, delegation))) {
        desk.0.sessions.begin(session.0, session.1.delegation_id);
    }
    for delegation in lost {
        end(desk, delegation).await;
    }
    Ok(())
}

async fn end(desk: &DelegatorService, delegation: Delegation) {
    let id = delegation.delegation_id;
    let request = desk.0.records.request(id);
    let admitted = request.as_ref().and_then(|request| admitted(desk, request, &delegation));
    let keys = match &admitted {
        Some(admitted) => desk.credentials(admitted).await.ok(),
        None => None,
    };
    if delegation.status != DelegationStatus::Created
        && let (Some(request), Some(admitted), Some(keys)) = (&request, &admitted, &keys)
    {
        let line = lease::resumed(desk, id, request, admitted, keys, delegation.task_id.clone());
        drop(end_notice::notify_end(desk, id, line, AwcpErrorCode::Cancelled, DAEMON_LOST.to_owned()));
    }
    let failure = DelegationFailure {
        code: AwcpErrorCode::Cancelled,
        message: DAEMON_LOST.to_owned(),
        hint: "Nothing can be written to the folder any more. See what was: `attache delegations diff ID`; then delegate again.".to_owned(),
    };
    unshare(desk, id).await;
    let result = DelegationOutcome {
        final_summary: None,
        highlights: Vec::new(),
        notes: None,
        full_output: None,
        error: Some(failure),
    };
    report::end(desk, id, DelegationStatus::Error, result, admitted.as_ref(), request.as_ref()).await;
    if let Some(keys) = keys {
        publish::publish_final(desk, id, &keys);
    }
}

/// What the remote moved is one file with its original until this, as at the end of every lease.
async fn unshare(desk: &DelegatorService, id: DelegationId) {
    let before = desk.before(id);
    let unshared = blocking(move || OriginalsFolder::in_folder(&before).finish().map_err(Error::io(before)));
    if let Err(error) | Ok(Err(error)) = unshared.await.map(|done| done.map_err(DelegatorRefusal::from)) {
        tracing::warn!(delegation.id = %id, error = error.message, "originals stay linked to files of the folder");
    }
}

/// The policy as it is now says with which key the remote is spoken to; one that is listed no more is not spoken to.
fn admitted(
    desk: &DelegatorService,
    request: &DelegateRequest,
    delegation: &Delegation,
) -> Option<DelegationAdmission> {
    let again = DelegateRequest { workspace_dir: delegation.workspace_dir.clone(), ..request.clone() };
    desk.0.options.policy.admit(&again).ok()
}
