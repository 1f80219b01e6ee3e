//! Holds a folder while something is put back in it: it is lent to nobody meanwhile, and nobody else puts something back.

use std::path::PathBuf;

use attache_protocol::{Code, DelegationId, wire::awcp::AccessMode};
use tokio_util::sync::CancellationToken;

use super::{Claim, Delegator, Live, Refused};

/// The folder of a delegation that has ended, until it is dropped.
#[derive(Debug)]
pub(in crate::delegator) struct Hold {
    desk: Delegator,
    delegation: DelegationId,
}

impl Delegator {
    /// Refused while somebody else has the folder; who wants it for a lease waits until this is over.
    pub(in crate::delegator) fn hold(&self, delegation: DelegationId) -> Result<Hold, Refused> {
        let mut entries = self.entries();
        let shown = entries.get(&delegation).ok_or_else(|| Refused::not_found(delegation))?.shown.borrow().clone();
        let folder = PathBuf::from(shown.workspace_dir);
        let holds = |claim: &Claim| claim.folder.starts_with(&folder) || folder.starts_with(&claim.folder);
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
                Refused::new(Code::StillLent, format!("what {id} changed in the folder is being put back"), hint)
            } else {
                let message = format!("the folder is lent: {id} has not ended");
                Refused::new(Code::StillLent, message, Code::StillLent.hint())
            });
        }
        drop(live);
        let claim = Claim { delegation, peer: shown.peer_url, folder, access_mode: AccessMode::Rw };
        if let Some(entry) = entries.get_mut(&delegation) {
            entry.live = Some(Live { cancel: CancellationToken::new(), claim, go: None });
        }
        Ok(Hold { desk: self.clone(), delegation })
    }
}

// === impl Hold ===

impl Drop for Hold {
    fn drop(&mut self) {
        self.desk.release(self.delegation);
    }
}
