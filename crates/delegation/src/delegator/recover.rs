//! Recovery after a crash of the daemon. Delegations that were live are already revoked, because their keys existed
//! only in memory. They are recorded as ended, and their remotes are notified.

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
    staging,
};
use crate::Error;

const DAEMON_LOST: &str = "the daemon on the delegating machine stopped while the delegation was in progress";

/// Loads all records, and ends every delegation that had not ended.
pub(super) async fn recover(service: &DelegatorService) -> Result<(), Error> {
    let mut lost = Vec::new();
    for delegation in service.0.records.load()? {
        if !delegation.status.has_ended() {
            lost.push(delegation.clone());
        }
        let is_staged = delegation.staged.is_some();
        service.remember(delegation.clone());
        if is_staged {
            let recovering = service.clone();
            let done = blocking(move || staging::recover(&recovering, &delegation)).await;
            if let Err(error) = done {
                tracing::warn!(error = error.message, "failed to recover a copy");
            }
        }
    }
    for session in lost.iter().filter_map(|delegation| delegation.session_id.as_deref().map(|id| (id, delegation))) {
        service.0.sessions.begin(session.0, session.1.delegation_id);
    }
    for delegation in lost {
        end(service, delegation).await;
    }
    Ok(())
}

async fn end(service: &DelegatorService, delegation: Delegation) {
    let id = delegation.delegation_id;
    let request = service.0.records.request(id);
    let admitted = request.as_ref().and_then(|request| admitted(service, request, &delegation));
    let keys = match &admitted {
        Some(admitted) => service.credentials(admitted).await.ok(),
        None => None,
    };
    if delegation.status != DelegationStatus::Created
        && let (Some(request), Some(admitted), Some(keys)) = (&request, &admitted, &keys)
    {
        let conversation = lease::resumed(service, id, request, admitted, keys, delegation.task_id.clone());
        drop(end_notice::notify_end(service, id, conversation, AwcpErrorCode::Cancelled, DAEMON_LOST.to_owned()));
    }
    let failure = DelegationFailure {
        code: AwcpErrorCode::Cancelled,
        message: DAEMON_LOST.to_owned(),
        hint:
            "Access to the folder is revoked. See the changes with `attache delegations diff ID`, then delegate again."
                .to_owned(),
    };
    unshare(service, id).await;
    let result = DelegationOutcome {
        final_summary: None,
        highlights: Vec::new(),
        notes: None,
        full_output: None,
        error: Some(failure),
    };
    report::end(service, id, DelegationStatus::Error, result, admitted.as_ref(), request.as_ref()).await;
    if let Some(keys) = keys {
        publish::publish_final(service, id, &keys);
    }
}

/// Until this runs, files that the remote moved are hard-linked to their originals. Every lease does this when it ends.
async fn unshare(service: &DelegatorService, id: DelegationId) {
    let before = service.before(id);
    let unshared = blocking(move || OriginalsFolder::in_folder(&before).finish().map_err(Error::io(before)));
    if let Err(error) | Ok(Err(error)) = unshared.await.map(|done| done.map_err(DelegatorRefusal::from)) {
        tracing::warn!(delegation.id = %id, error = error.message, "originals stay linked to files in the folder");
    }
}

/// Uses the current policy, which decides the key for the remote. A peer that is no longer listed isn't contacted.
pub(super) fn admitted(
    service: &DelegatorService,
    request: &DelegateRequest,
    delegation: &Delegation,
) -> Option<DelegationAdmission> {
    let current = DelegateRequest { workspace_dir: delegation.workspace_dir.clone(), ..request.clone() };
    service.0.options.policy.admit(&current).ok()
}
