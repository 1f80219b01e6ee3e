//! Permits: what the access table lets a caller do, and to whose things.

use attache_protocol::{Actor, AgentId, RuntimeId, UserId, error::Remedy, rules::run::WorkerRef, wire::key::KeyScope};
use attache_store::record::{RuntimeKind, task::RunOwner};

use crate::{
    Error, Result,
    identity::{AccessVerdict, Action, Principal, PrincipalKind, RoleColumn, verdict},
};

/// Proof that the access table allows an action. Only [`Principal::may`] creates one. Lookups and lists demand it and
/// apply it, so that "only what belongs to the caller" can't be forgotten.
#[derive(Debug, Clone, Copy)]
#[must_use = "it may cover only what belongs to the caller: pass it to the lookup"]
pub(crate) struct Permit<'a> {
    by: &'a Principal,
    action: Action,
    is_own_only: bool,
}

// === impl Permit ===

impl<'a> Permit<'a> {
    pub(crate) const fn by(&self) -> &'a Principal {
        self.by
    }

    pub(crate) const fn action(&self) -> Action {
        self.action
    }

    /// Whether it covers more than what belongs to the caller.
    pub(crate) const fn covers_others(&self) -> bool {
        !self.is_own_only
    }

    /// Whether it covers something that belongs to this user, or to no one.
    pub(crate) fn covers_user(&self, owner: Option<UserId>) -> bool {
        self.covers_others() || self.by.owns(owner)
    }

    /// Whether it covers something that this actor created.
    pub(crate) fn covers_creator(&self, creator: &Actor) -> bool {
        self.covers_others() || *creator == self.by.actor()
    }

    /// Whether it covers something that was opened or published by this holder ([`Principal::holder`]).
    pub(crate) fn covers_holder(&self, holder: &Actor) -> bool {
        self.covers_others() || *holder == self.by.holder()
    }

    /// As whom the caller opens and publishes things.
    pub(crate) fn holder(&self) -> Actor {
        self.by.holder()
    }

    /// For a thing that belongs to no one yet, such as a device that waits to be paired. Every permit covers it.
    pub(crate) const fn for_unowned(self) {}

    pub(crate) fn own_runs(&self) -> RunOwner {
        self.by.own_runs()
    }

    /// The runtime that works, and its agent. The store accepts work only on its own claims.
    pub(crate) fn device(&self) -> Result<(RuntimeId, AgentId)> {
        self.by.device()
    }

    /// The same as the worker of one claim.
    pub(crate) fn worker(&self, epoch: Option<i64>) -> Result<WorkerRef> {
        self.by.worker(epoch)
    }
}

// === impl Principal ===

impl Principal {
    pub const fn column(&self) -> RoleColumn {
        match self.who {
            PrincipalKind::Key { role, .. } => RoleColumn::Role(role),
            PrincipalKind::Runtime { kind: RuntimeKind::Device | RuntimeKind::Hub, .. } => RoleColumn::Runtime,
            PrincipalKind::Runtime { kind: RuntimeKind::AgentKey, .. } | PrincipalKind::Outside { .. } => {
                RoleColumn::AgentKey
            }
            PrincipalKind::Run { .. } => RoleColumn::Run,
            PrincipalKind::Anonymous { .. } => RoleColumn::Anonymous,
        }
    }

    /// A person's runs are those of the same user or, without a user, the same key. Other callers, and keys that someone
    /// else issued, own the runs they created themselves.
    pub(crate) fn own_runs(&self) -> RunOwner {
        match self.user.filter(|_| matches!(self.column(), RoleColumn::Role(_)) && !self.is_issued) {
            Some(user) => RunOwner::User(user),
            None => RunOwner::Caller(self.actor()),
        }
    }

    /// What this caller may do, so that pages don't offer what would be refused.
    pub fn verdict(&self, action: Action) -> AccessVerdict {
        if self.has_scope(action.scope()) { self.allowed(action) } else { AccessVerdict::No }
    }

    /// The cell of the table. For an agent with an owner, limited to what the owner may do, except for work it is
    /// assigned.
    fn allowed(&self, action: Action) -> AccessVerdict {
        let is_given = matches!(action, Action::Work | Action::UploadArtifact);
        match self.owner_role {
            Some(role) if !is_given && verdict(RoleColumn::Role(role), action) == AccessVerdict::No => {
                AccessVerdict::No
            }
            Some(_) | None => verdict(self.column(), action),
        }
    }

    pub(crate) fn has_scope(&self, scope: KeyScope) -> bool {
        self.scopes.as_ref().is_none_or(|scopes| scopes.contains(&scope))
    }

    /// Fails if the table denies the action, or the key's scopes don't include it.
    pub(crate) fn may(&self, action: Action) -> Result<Permit<'_>> {
        let permit = self.may_in_any_scope(action)?;
        if self.has_scope(action.scope()) {
            return Ok(permit);
        }
        let hint = format!("Use a key that has the scope `{}`.", action.scope().as_str());
        Err(Error::forbidden("This key's scopes don't allow this.").hint(hint))
    }

    /// The same for what has no owner: creating things, and settings of the whole hub. Fails for callers whom the table
    /// limits to what belongs to them.
    pub(crate) fn may_all(&self, action: Action) -> Result<()> {
        if self.may(action)?.covers_others() { Ok(()) } else { Err(self.denied(action)) }
    }

    /// The same whatever the key's scopes, for what gives no one more rights.
    pub(crate) fn may_in_any_scope(&self, action: Action) -> Result<Permit<'_>> {
        match self.allowed(action) {
            AccessVerdict::No => Err(self.denied(action)),
            AccessVerdict::Yes => Ok(Permit { by: self, action, is_own_only: false }),
            AccessVerdict::Own => Ok(Permit { by: self, action, is_own_only: true }),
        }
    }

    /// Why the table denies it.
    fn denied(&self, action: Action) -> Error {
        let column = self.column();
        match column {
            RoleColumn::AgentKey | RoleColumn::Run if verdict(column, action) != AccessVerdict::No => {
                Error::forbidden("The agent's owner is no longer allowed to do this, so the agent isn't either.")
            }
            RoleColumn::Runtime => Error::forbidden("A runtime's token can't do this.").remedy(Remedy::UsePersonKey),
            RoleColumn::AgentKey => Error::forbidden("An agent's key can't do this.").remedy(Remedy::UsePersonKey),
            RoleColumn::Run => Error::forbidden("A run's token can't do this.")
                .hint("It can only call agents and read the runs it created."),
            RoleColumn::Anonymous => Error::no_credential(),
            RoleColumn::Role(_) if matches!(action, Action::Work) => {
                Error::forbidden("Only a paired runtime can do this.").remedy(Remedy::UseDeviceToken)
            }
            RoleColumn::Role(_) => Error::forbidden("This key's role doesn't allow this."),
        }
    }
}
