//! Whether the caller of a queued run may still call its agent when a worker claims it: until then, the agent can become
//! private, and the caller can be removed or lose their role. What can't be determined is not allowed.

use attache_protocol::{Actor, Code, KeyId, RunId, TenantId, UserId, wire::account::Callers};
use attache_store::{
    Error as StoreError, Result as StoreResult,
    record::{
        AccountRecord, AgentRef, RunRecord, StoredCredential,
        user::{UserRecord, UserRef},
    },
};

use crate::{
    Error, Handle, Principal,
    identity::{AccessVerdict, Action, CredentialLookup, PersonalCredential, RoleColumn, verdict},
};

const REMOVED: &str = "the person who started it was removed";
const NOT_ALLOWED: &str = "the person who started it may no longer start runs";
const KEY_ENDED: &str = "the key that started it belongs to no person and has ended";
const PRIVATE: &str = "the agent has become private";
const CREDENTIAL_NEEDED: &str = "the agent no longer serves callers without a credential";

const NOT_READ: &str = "the person who started it may no longer see runs";

// === impl Handle ===

impl Handle {
    /// Why nobody is told any more about this run at an address that its caller gave. `None` if they may still see it. A
    /// credential that has ended takes nothing back from its person.
    pub(crate) async fn lost_sight(&self, run: &RunRecord) -> StoreResult<Option<&'static str>> {
        match (run.user, &run.caller) {
            (Some(user), _) => self.lost_sight_of(run.tenant, user).await,
            (None, Actor::Key(_)) => Ok(known(self.creator_of(run).await)?.is_none().then_some(KEY_ENDED)),
            // An agent without an owner, or what it passed on.
            (None, _) => Ok(None),
        }
    }

    /// The same for an address that belongs to a person's agent.
    pub(crate) async fn lost_sight_of(&self, tenant: TenantId, user: UserId) -> StoreResult<Option<&'static str>> {
        match self.store().user(tenant, UserRef::Id(user)).await {
            Ok(UserRecord { removed_at: None, role, .. }) => {
                let is_shown = verdict(RoleColumn::Role(role), Action::SeeRuns) != AccessVerdict::No;
                Ok((!is_shown).then_some(NOT_READ))
            }
            Ok(_) | Err(StoreError::NotFound) => Ok(Some(REMOVED)),
            Err(error) => Err(error),
        }
    }

    /// Why the run's caller may no longer put its agent to work. `None` if they may. A credential that has merely ended
    /// takes nothing back from its person.
    pub(super) async fn lost_right(&self, run: &RunRecord) -> StoreResult<Option<&'static str>> {
        let account = self.store().account(run.tenant, AgentRef::Id(run.agent)).await?;
        // What an agent passes on is created in the name of that agent's owner, whoever it works for.
        let mut is_owners = passed_on_by(run).is_some() || run.user == account.owner;
        let mut above = None;
        while let Some(parent) = passed_on_by(above.as_ref().unwrap_or(run)) {
            match self.store().run(run.tenant, parent).await {
                Ok(parent) => {
                    is_owners &= parent.user == account.owner;
                    above = Some(parent);
                }
                Err(StoreError::NotFound) => break,
                Err(error) => return Err(error),
            }
        }
        let first = above.as_ref().unwrap_or(run);
        if first.caller == Actor::Anonymous && known(self.anonymous(first.agent).await)?.is_none() {
            return Ok(Some(CREDENTIAL_NEEDED));
        }
        let by = match first.caller {
            Actor::Key(_) => known(self.creator_of(first).await)?,
            _ => None,
        };
        let person = match first.user {
            Some(user) => match self.store().user(run.tenant, UserRef::Id(user)).await {
                Ok(person) if person.removed_at.is_none() => Some(person),
                Ok(_) | Err(StoreError::NotFound) => return Ok(Some(REMOVED)),
                Err(error) => return Err(error),
            },
            None => None,
        };
        let may_create = match (&by, &person) {
            (Some(by), _) => by.may_in_any_scope(Action::CreateRun).is_ok(),
            (None, Some(person)) => verdict(RoleColumn::Role(person.role), Action::CreateRun) != AccessVerdict::No,
            (None, None) if matches!(first.caller, Actor::Key(_)) => return Ok(Some(KEY_ENDED)),
            // An agent without an owner, or nobody.
            (None, None) => true,
        };
        if !may_create {
            return Ok(Some(NOT_ALLOWED));
        }
        if account.callers == Callers::Everyone {
            return Ok(None);
        }
        let is_allowed = is_owners
            && match (&run.caller, &first.caller) {
                (_, Actor::Key(key)) => self.has_owners_rights(first, (*key, by.as_ref()), &account, person).await?,
                // What a run passes on to a private agent of the same owner was approved. An agent's own key reaches none.
                (Actor::Run(_), Actor::Agent(_)) => true,
                _ => false,
            };
        Ok((!is_allowed).then_some(PRIVATE))
    }

    /// Whether the run was created with all rights of the agent's owner: neither others nor a credential that somebody else
    /// made or limited reaches a private agent. `person` is who created it.
    async fn has_owners_rights(
        &self,
        run: &RunRecord,
        (key, by): (KeyId, Option<&Principal>),
        account: &AccountRecord,
        person: Option<UserRecord>,
    ) -> StoreResult<bool> {
        if let Some(by) = by {
            return Ok(by.is_owner(account.owner) && by.has_rights_of(account.owner));
        }
        let owner = person.filter(|person| run.spec.in_person && account.owner == Some(person.id));
        let Some(owner) = owner else { return Ok(false) };
        Ok(match known(self.credential(CredentialLookup::Key(key)).await)? {
            Some(StoredCredential::Key { role, scopes, agent, .. }) => {
                let person = Some(owner.role);
                let left = PersonalCredential { role, scopes: scopes.as_deref(), is_issued: false, person };
                agent.is_none() && left.is_whole()
            }
            Some(StoredCredential::Runtime { .. }) => false,
            // Only what somebody does with a credential of their own that has no limits is done in person.
            None => true,
        })
    }
}

/// `None` if the credential is unknown or has ended. Any other failure decides nothing: it is tried again.
fn known<T>(checked: Result<T, Error>) -> StoreResult<Option<T>> {
    match checked {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.code == Code::Unauthenticated => Ok(None),
        Err(error) if error.code == Code::Overloaded => Err(StoreError::Overloaded),
        Err(error) => Err(StoreError::Internal(error.to_string())),
    }
}

/// The run whose agent passed this work on. What a person starts below another run is their own.
fn passed_on_by(run: &RunRecord) -> Option<RunId> {
    run.spec.parent.filter(|_| !matches!(run.caller, Actor::Key(_)))
}
