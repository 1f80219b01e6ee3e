//! Runs that work in a git worktree of their own: who may have one, and which agents can.

use attache_protocol::{
    Code,
    wire::{awcp, run::CreateRunRequest, runtime::WORKTREES},
};
use attache_store::record::AccountRecord;

use super::agent_endpoint::declared;
use crate::{Error, Handle, Principal, Result};

impl Handle {
    /// A worktree leaves a branch in the owner's repository and files on their disk until somebody removes them.
    pub(super) async fn check_worktree(
        &self,
        by: &Principal,
        target: &AccountRecord,
        request: &CreateRunRequest,
    ) -> Result<()> {
        if request.task_type.as_deref() == Some(awcp::TASK_TYPE) {
            return Err(Error::invalid("worktree", "can't be used with delegations, which have their own folder"));
        }
        if !self.may_change(by, target).await {
            let message = format!("Only people who may change the agent `{}` can give a run a worktree.", target.name);
            return Err(Error::new(Code::Forbidden, message).hint("Leave out `worktree`, or ask the agent's owner."));
        }
        if !target.runtime.clone().map(declared).unwrap_or_default().iter().any(|uri| uri == WORKTREES) {
            let message = format!("The agent `{}` can't give a run a worktree.", target.name);
            return Err(Error::new(Code::InvalidRequest, message).hint(
                "Its working folder must be in a git repository, on a device with a current runtime and adapter.",
            ));
        }
        Ok(())
    }
}
