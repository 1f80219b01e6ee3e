//! Holds a folder while something is put back in it: it is lent to nobody meanwhile, and nobody else puts something back.

use std::path::PathBuf;

use attache_protocol::{Code, DelegationId, wire::awcp::AccessMode};
use tokio_util::sync::CancellationToken;

use super::{DelegatorRefusal, DelegatorService, FolderClaim, LiveDelegation};

/// The folder of a delegation that has ended, until it is dropped.
#[derive(Debug)]
pub(in crate::delegator) struct FolderLock {
    service: DelegatorService,
    delegation: DelegationId,
}

impl DelegatorService {
    /// Refused while somebody else has the folder; who wants it for a lease waits until this is over.
    pub(in crate::delegator) fn hold(&self, delegation: DelegationId) -> Result<FolderLock, DelegatorRefusal> {
        let mut entries = self.entries();
        let shown =
            entries.get(&delegation).ok_or_else(|| DelegatorRefusal::not_found(delegation))?.shown.borrow().clone();
        let folder = PathBuf::from(shown.workspace_dir);
        let holds = |claim: &FolderClaim| claim.folder.starts_with(&folder) || folder.starts_with(&claim.folder);
        let mut live = entries.values().filter(|entry| {
            let live = entry.live.as_ref();
            // It must have ended itself, even if it only waits for its turn.
            live.is_some_and(|it| it.claim.delegation == delegation || (it.go.is_none() && holds(&it.claim)))
        });
        if let Some(holder) = live.next() {
            let holder = holder.shown.borrow();
            let id = holder.delegation_id;
            return Err(if holder.status.has_ended() {
                let hint = "Wait until that is done, then try again.";
                DelegatorRefusal::new(
                    Code::StillLent,
                    format!("what {id} changed in the folder is being put back"),
                    hint,
                )
            } else {
                let message = format!("the folder is lent: {id} has not ended");
                DelegatorRefusal::new(Code::StillLent, message, Code::StillLent.hint())
            });
        }
        drop(live);
        let claim = FolderClaim { delegation, peer: shown.peer_url, folder, access_mode: AccessMode::Rw };
        if let Some(entry) = entries.get_mut(&delegation) {
            entry.live = Some(LiveDelegation { cancel: CancellationToken::new(), claim, go: None });
        }
        Ok(FolderLock { service: self.clone(), delegation })
    }
}

// === impl FolderLock ===

impl Drop for FolderLock {
    fn drop(&mut self) {
        self.service.release(self.delegation);
    }
}
