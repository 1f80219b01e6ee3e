//! Who wrote what an agent is told with every task, and what is approved in advance. Both count in runs that its owner starts
//! in person, outside the walls of their device, and only the owner says anything there.

use attache_protocol::{UserId, rules::permission_mode::PermissionMode, wire::permission::ApprovalPolicy};

use super::{AccountPatch, AccountRecord, NewAccount};

/// The people who wrote an account's settings in person, with all of their rights. `None` if nobody did, or if that isn't
/// known because the account is from before this was recorded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AccountAuthors {
    pub instructions: Option<UserId>,
    pub approvals: Option<UserId>,
}

// === impl NewAccount ===

impl NewAccount {
    pub(crate) fn authors(&self) -> AccountAuthors {
        AccountAuthors { instructions: self.author, approvals: self.author }
    }
}

// === impl AccountRecord ===

impl AccountRecord {
    /// [`AccountRecord::authors`] after a change.
    pub(crate) fn authors_after(&self, patch: &AccountPatch) -> AccountAuthors {
        let AccountAuthors { instructions, approvals } = self.authors;
        AccountAuthors {
            instructions: self.author_after(
                self.instructions.as_ref(),
                patch.instructions.as_ref(),
                instructions,
                patch.author,
            ),
            approvals: self.author_after(self.approvals.as_ref(), patch.approvals.as_ref(), approvals, patch.author),
        }
    }

    /// Whoever saves the same again, as forms do, doesn't become its author. Only the owner makes it theirs.
    fn author_after<T: PartialEq>(
        &self,
        old: Option<&T>,
        new: Option<&T>,
        before: Option<UserId>,
        author: Option<UserId>,
    ) -> Option<UserId> {
        let is_written = new.is_some() && (new != old || (author.is_some() && author == self.owner));
        if is_written { author } else { before }
    }

    /// The owner, if everything that the agent is told with every task and everything that is approved in advance was
    /// written by them in person, whoever could write it when it was written.
    pub fn instructing_owner(&self) -> Option<UserId> {
        let is_told = self.instructions.as_deref().is_some_and(|text| !text.is_empty());
        let is_by = |author: Option<UserId>| author == self.owner;
        self.owner.filter(|_| {
            (!is_told || is_by(self.authors.instructions))
                && (!self.approves_in_advance() || is_by(self.authors.approvals))
        })
    }

    fn approves_in_advance(&self) -> bool {
        let policy = self.approvals.as_ref().and_then(|policy| policy.parse::<ApprovalPolicy>().ok());
        policy.is_some_and(|policy| {
            policy.mode.is_some_and(PermissionMode::trusts) || !policy.trusted_commands.is_empty()
        })
    }
}
