//! The authenticated caller: the tenant and identity behind a credential.

use attache_protocol::{
    Actor, AgentId, Code, KeyId, RunId, RuntimeId, TenantId, Timestamp, UserId,
    rules::run::WorkerRef,
    secret::SecretHash,
    wire::key::{KeyScope, Role},
};

use attache_store::record::{RuntimeKind, user::UserRecord};

use crate::{
    Error, Result,
    identity::{CredentialForm, PersonalCredential},
};

/// An authenticated caller. Can only be created by checking a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub who: PrincipalKind,
    /// The person they act for: a key's user, an agent's owner. `None` if there is no such person.
    pub user: Option<UserId>,
    /// The current role of an agent's owner, which limits the agent. `None` for people and for agents without an owner.
    pub(crate) owner_role: Option<Role>,
    /// The current role of the person they act for, of which the credential may have less. `None` for agents and devices,
    /// and for keys without a person.
    pub(crate) user_role: Option<Role>,
    /// `None`: everything the role allows.
    pub scopes: Option<Vec<KeyScope>>,
    /// When the credential expires. Nothing created with it lasts longer.
    pub(crate) ends_at: Option<Timestamp>,
    /// Someone else created this credential for its user, so that person may hold a copy. It never reaches private
    /// agents.
    pub(crate) is_issued: bool,
    /// Used to look up the credential again while a stream is open.
    pub(crate) proof: PresentedCredential,
}

/// The credential a caller presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PresentedCredential {
    /// A key, a runtime's token or a session.
    Secret(SecretHash),
    /// The key or session that created what is being redeemed now.
    Maker(KeyId),
    /// A token of this key. Its rights are limited by both the token and the key's current rights.
    Token { key: KeyId, role: Role, scopes: Option<Vec<KeyScope>>, expires_at: Timestamp },
    /// A token issued to a run with its claim.
    Run { tenant: TenantId, run: RunId, epoch: i64, expires_at: Timestamp },
    /// The hub itself works for an agent, as this runtime.
    Here { tenant: TenantId, runtime: RuntimeId },
    /// No credential: the agent's owner allows anonymous callers.
    Nothing { tenant: TenantId, agent: AgentId },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalKind {
    /// A person, by API key or console session.
    Key { key: KeyId, role: Role },
    /// Works for one agent: a paired device, or the agent itself with its registration key.
    Runtime { runtime: RuntimeId, agent: AgentId, kind: RuntimeKind },
    /// An outside agent that calls others with its registration key. It works elsewhere.
    Outside { key: KeyId, agent: AgentId },
    /// The agent while it works on this run, with the token from its claim. Limited to that run's rights.
    Run { run: RunId, agent: AgentId },
    /// A caller without a credential, at an agent that allows them. All of them count as one caller.
    Anonymous { agent: AgentId },
}

// === impl Principal ===

impl Principal {
    /// The actor, as shown in the log.
    pub const fn actor(&self) -> Actor {
        match self.who {
            PrincipalKind::Key { key, .. } => Actor::Key(key),
            PrincipalKind::Runtime { runtime, kind: RuntimeKind::Device | RuntimeKind::Hub, .. } => {
                Actor::Runtime(runtime)
            }
            // What an agent created stays its own when it registers again with another key.
            PrincipalKind::Runtime { agent, kind: RuntimeKind::AgentKey, .. }
            | PrincipalKind::Outside { agent, .. } => Actor::Agent(agent),
            PrincipalKind::Run { run, .. } => Actor::Run(run),
            PrincipalKind::Anonymous { .. } => Actor::Anonymous,
        }
    }

    /// The owner of what is opened or published with this credential: all keys of a person count as that person, an
    /// agent as itself.
    pub(crate) fn holder(&self) -> Actor {
        match self.user.filter(|_| self.role().is_some()) {
            Some(user) => Actor::User(user),
            None => self.actor(),
        }
    }

    /// The user, unless someone else issued their credential.
    pub(crate) fn own_user(&self) -> Option<UserId> {
        self.user.filter(|_| !self.is_issued)
    }

    /// Whether a person acts with a key or session of their own that can do everything they may.
    pub(crate) fn is_in_person(&self) -> bool {
        let form = match self.proof {
            PresentedCredential::Secret(_) => CredentialForm::Own,
            PresentedCredential::Maker(_)
            | PresentedCredential::Token { .. }
            | PresentedCredential::Run { .. }
            | PresentedCredential::Here { .. }
            | PresentedCredential::Nothing { .. } => CredentialForm::Derived,
        };
        self.personal().is_some_and(|credential| credential.is_in_person(form))
    }

    /// Whether this is that person, in person.
    pub(crate) fn is_in_person_as(&self, person: UserId) -> bool {
        self.is_in_person() && self.user == Some(person)
    }

    /// Whether their credential can do everything that its person may, however it was shown.
    pub(crate) fn has_all_rights(&self) -> bool {
        self.personal().is_some_and(PersonalCredential::is_whole)
    }

    /// Whether an owner's credential can do everything that the owner may. What has no owner belongs to those of the hub.
    pub(crate) fn has_rights_of(&self, owner: Option<UserId>) -> bool {
        match owner {
            Some(owner) => self.user == Some(owner) && self.has_all_rights(),
            None => self.role() == Some(Role::Owner) && self.scopes.is_none(),
        }
    }

    /// `None` for agents, devices and callers without a credential.
    fn personal(&self) -> Option<PersonalCredential<'_>> {
        let (scopes, is_issued, person) = (self.scopes.as_deref(), self.is_issued, self.user_role);
        Some(PersonalCredential { role: self.role()?, scopes, is_issued, person })
    }

    /// When the credential expires. Nothing created with it lasts longer.
    pub const fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at
    }

    /// When the short-lived token that was presented expires, if it was one.
    pub(crate) const fn token_ends_at(&self) -> Option<Timestamp> {
        match self.proof {
            PresentedCredential::Token { expires_at, .. } => Some(expires_at),
            _ => None,
        }
    }

    /// The person's key or session.
    pub(crate) const fn key(&self) -> Option<KeyId> {
        match self.who {
            PrincipalKind::Key { key, .. } => Some(key),
            PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => None,
        }
    }

    /// The agent that calls, or for which a device or a run works.
    pub(crate) const fn agent(&self) -> Option<AgentId> {
        match self.who {
            PrincipalKind::Runtime { agent, .. }
            | PrincipalKind::Outside { agent, .. }
            | PrincipalKind::Run { agent, .. } => Some(agent),
            PrincipalKind::Key { .. } | PrincipalKind::Anonymous { .. } => None,
        }
    }

    /// A person's role. Devices and agents have none.
    pub const fn role(&self) -> Option<Role> {
        match self.who {
            PrincipalKind::Key { role, .. } => Some(role),
            PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => None,
        }
    }

    /// Fails for short-lived tokens, which can't create anything that outlives them: keys, passwords, tokens, login
    /// links. `tried` says what, as in "A token can't …".
    pub(crate) fn lasting(&self, tried: &str) -> Result<()> {
        match self.proof {
            PresentedCredential::Secret(_) | PresentedCredential::Maker(_) => Ok(()),
            PresentedCredential::Nothing { .. } | PresentedCredential::Here { .. } => Err(Error::no_credential()),
            PresentedCredential::Run { .. } => {
                let message = format!("A run's token can't {tried}, because that would outlive the run.");
                Err(Error::new(Code::Forbidden, message))
            }
            PresentedCredential::Token { .. } => {
                Err(Error::new(Code::Forbidden, format!("A short-lived token can't {tried}."))
                    .hint("Use the API key that created the token."))
            }
        }
    }

    /// Fails for keys with scopes, which can't create an unscoped credential: it would have more rights.
    pub(crate) fn unscoped(&self) -> Result<()> {
        match self.scopes {
            None => Ok(()),
            Some(_) => {
                Err(Error::forbidden("A key with scopes can't set a password, because a password has no scopes.")
                    .hint("Use a key without scopes, or sign in to the console."))
            }
        }
    }

    /// An agent's key can see and call what its person can, so the creator needs both scopes.
    pub(crate) fn may_see_and_call(&self) -> Result<()> {
        match self.has_scope(KeyScope::Read) && self.has_scope(KeyScope::Call) {
            true => Ok(()),
            false => Err(Error::forbidden("An agent's key can read and call, but this key's scopes don't allow both.")
                .hint("Use a key with the scopes `read`, `call` and `manage`, or one without scopes.")),
        }
    }

    /// Whether this is another person whose role is above the caller's, for whom the caller can't act.
    pub(crate) fn is_below(&self, user: &UserRecord) -> bool {
        self.user != Some(user.id) && self.role().is_none_or(|own| user.role > own)
    }

    /// Whether something that belongs to this user, or to no one, is the caller's own.
    pub(crate) fn owns(&self, owner: Option<UserId>) -> bool {
        self.user == owner
    }

    /// Whether an agent of this owner is the caller's own, and they created the credential themselves. Agents without an
    /// owner belong to the hub's owners.
    pub(crate) fn is_owner(&self, owner: Option<UserId>) -> bool {
        match owner {
            _ if self.is_issued => false,
            Some(owner) => self.user == Some(owner),
            None => self.role() == Some(Role::Owner),
        }
    }

    /// The runtime and its agent; an error for people.
    pub(crate) fn device(&self) -> Result<(RuntimeId, AgentId)> {
        match self.who {
            PrincipalKind::Runtime { runtime, agent, kind: _ } => Ok((runtime, agent)),
            PrincipalKind::Key { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => Err(Error::forbidden("Only a paired runtime can do this.")
                .remedy(attache_protocol::error::Remedy::UseDeviceToken)),
        }
    }

    /// A paired device pulls work and sends heartbeats over HTTP. An agent with its own key does both over its channel.
    pub(crate) fn over_http(&self) -> Result<()> {
        match self.who {
            PrincipalKind::Runtime { kind: RuntimeKind::AgentKey, .. } => {
                Err(Error::forbidden("An agent with its own key must use its channel for this.")
                    .hint("Open a WebSocket at /api/a2a/connect or /api/envelope/ws with the same key."))
            }
            PrincipalKind::Runtime { kind: RuntimeKind::Device | RuntimeKind::Hub, .. }
            | PrincipalKind::Key { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => Ok(()),
        }
    }

    pub(crate) fn worker(&self, epoch: Option<i64>) -> Result<WorkerRef> {
        let (runtime, _) = self.device()?;
        Ok(WorkerRef { runtime, epoch })
    }
}
