//! What an agent may keep when it becomes private: only what its owner added.

use attache_protocol::{
    Json, UserId,
    rules::permission_mode::PermissionMode,
    wire::{
        account::{ApprovalConfirmation, Callers},
        permission::ApprovalPolicy,
    },
};

use super::{AccountPatch, AccountRecord, RuntimeKind, RuntimeRecord};
use crate::{Error, Result};

// === impl AccountRecord ===

impl AccountRecord {
    /// The new owner, if the change makes the agent private or gives a private agent to someone else.
    #[allow(clippy::option_option, reason = "the outer one is the change, the inner one an agent without an owner")]
    pub(crate) fn made_private(&self, patch: &AccountPatch) -> Option<Option<UserId>> {
        let (owner, callers) = (patch.owner.unwrap_or(self.owner), patch.callers.unwrap_or(self.callers));
        (callers == Callers::Owner && (self.callers, self.owner) != (callers, owner)).then_some(owner)
    }

    /// The approval policy without its webhook and the steps that it trusts, if it has any and the change has no policy of
    /// its own.
    pub(crate) fn private_approvals(&self, patch: &AccountPatch) -> Option<Json> {
        let kept = self.approvals.as_ref().filter(|_| patch.approvals.is_none())?;
        let policy: ApprovalPolicy = kept.parse().ok()?;
        let (timeout_ms, on_timeout, mode) = (policy.timeout_ms, policy.on_timeout, untrusting(policy.mode));
        let private = ApprovalPolicy { timeout_ms, on_timeout, mode, ..ApprovalPolicy::default() };
        (private != policy).then(|| Json::of(&private))
    }

    /// The approval policy without the steps that it trusts, if it has any and the agent is given to someone else, who
    /// hasn't chosen them.
    pub(crate) fn given_approvals(&self, patch: &AccountPatch) -> Option<Json> {
        patch.owner.filter(|owner| *owner != self.owner)?;
        let policy: ApprovalPolicy = self.approvals.as_ref().filter(|_| patch.approvals.is_none())?.parse().ok()?;
        let given = ApprovalPolicy { mode: untrusting(policy.mode), trusted_commands: Vec::new(), ..policy.clone() };
        (given != policy).then(|| Json::of(&given))
    }

    /// Whether approvals need a passkey from this change on. Those that stand were given without one.
    pub(crate) fn demands_passkey(&self, patch: &AccountPatch) -> bool {
        let before = self.confirm_approvals;
        before != ApprovalConfirmation::Passkey && patch.confirm_approvals == Some(ApprovalConfirmation::Passkey)
    }

    /// Only the owner pairs a private agent.
    pub(crate) fn check_paired_by(&self, user: Option<UserId>) -> Result<()> {
        match self.owner.filter(|_| self.callers == Callers::Owner) {
            Some(owner) if user != Some(owner) => Err(Error::PairingInvalid { agent: Some(self.id) }),
            _ => Ok(()),
        }
    }
}

/// The mode, unless it trusts anything.
fn untrusting(mode: Option<PermissionMode>) -> Option<PermissionMode> {
    mode.filter(|mode| !mode.trusts())
}

// === impl RuntimeRecord ===

impl RuntimeRecord {
    /// Whether it has to be replaced when the agent becomes private to this owner. The hub's own worker does what the
    /// agent's peer says.
    pub(crate) fn is_of_others(&self, owner: Option<UserId>) -> bool {
        self.kind != RuntimeKind::Hub && (owner.is_none() || self.paired_by != owner)
    }
}
