//! Locks a folder while changes are reverted, accepted or applied, so that it is neither exported nor reverted by anyone else.

use std::path::PathBuf;

use attache_protocol::{Code, DelegationId, rules::staging::FolderUse};
use tokio_util::sync::CancellationToken;

use super::{DelegatorRefusal, DelegatorService, FolderClaim, LiveDelegation};

/// Locks the folder of an ended delegation until dropped.
#[derive(Debug)]
pub(in crate::delegator) struct DelegationFolderLock {
    service: DelegatorService,
    delegation: DelegationId,
}

impl DelegatorService {
    /// Refused while the folder is used in a way that excludes this one. Later leases on it wait until the lock is dropped.
    pub(in crate::delegator) fn hold(
        &self,
        delegation: DelegationId,
        folder_use: FolderUse,
    ) -> Result<DelegationFolderLock, DelegatorRefusal> {
        let mut entries = self.entries();
        let shown =
            entries.get(&delegation).ok_or_else(|| DelegatorRefusal::not_found(delegation))?.shown.borrow().clone();
        let folder = PathBuf::from(shown.workspace_dir);
        let holds = |claim: &FolderClaim| claim.folder_use.excludes(folder_use) && claim.overlaps(&folder);
        let mut live = entries.values().filter(|entry| {
            let live = entry.live.as_ref();
            // The delegation itself must have ended, even if it is only queued.
            live.is_some_and(|it| it.claim.delegation == delegation || (it.go.is_none() && holds(&it.claim)))
        });
        if let Some(holder) = live.next() {
            let holder = holder.shown.borrow();
            let id = holder.delegation_id;
            return Err(if holder.status.has_ended() {
                let hint = "Try again when that is done.";
                DelegatorRefusal::new(
                    Code::StillLent,
                    format!("the changes of {id} in this folder are being reverted, accepted or applied"),
                    hint,
                )
            } else {
                let message = format!("the folder is delegated: {id} has not ended");
                DelegatorRefusal::new(Code::StillLent, message, Code::StillLent.hint())
            });
        }
        drop(live);
        let claim = FolderClaim { delegation, peer: shown.peer_url, folder, folder_use };
        if let Some(entry) = entries.get_mut(&delegation) {
            entry.live = Some(LiveDelegation { cancel: CancellationToken::new(), claim, go: None });
        }
        Ok(DelegationFolderLock { service: self.clone(), delegation })
    }
}

// === impl DelegationFolderLock ===

impl Drop for DelegationFolderLock {
    fn drop(&mut self) {
        self.service.release(self.delegation);
    }
}
