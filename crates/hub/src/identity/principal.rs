//! Who asks: the tenant and the identity behind a credential.

use attache_protocol::{
    AgentId, KeyId, RunId, RuntimeId, TenantId, Timestamp, UserId,
    rules::run::WorkerRef,
    secret::SecretHash,
    wire::key::{KeyScope, Role},
};

use attache_store::record::{RuntimeKind, user::UserRecord};

use crate::{Error, Result};

/// An authenticated caller. It can only be made by checking a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub who: PrincipalKind,
    /// The person for whom they act: a key's user, an agent's owner. `None`: nobody in particular.
    pub user: Option<UserId>,
    /// What an agent's owner may do now: the agent may do no more. `None` for people, and where nobody owns the agent.
    pub(crate) owner_role: Option<Role>,
    /// `None`: everything that the role may do.
    pub scopes: Option<Vec<KeyScope>>,
    /// When the credential ends; what is made with it ends no later.
    pub(crate) ends_at: Option<Timestamp>,
    /// By which the credential is looked up again while a stream is open.
    pub(crate) proof: PresentedCredential,
}

/// What a caller showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PresentedCredential {
    /// A key, a runtime's token or a session.
    Secret(SecretHash),
    /// A key or session that made what is redeemed now.
    Maker(KeyId),
    /// A token of this key, which is worth the less of what it says and of what the key is worth now.
    Token { key: KeyId, role: Role, scopes: Option<Vec<KeyScope>>, expires_at: Timestamp },
    /// A token that a run was given with its claim.
    Run { tenant: TenantId, run: RunId, epoch: i64, expires_at: Timestamp },
    /// The hub itself works for an agent, as this runtime.
    Here { tenant: TenantId, runtime: RuntimeId },
    /// Nothing: the agent's owner lets everybody ask it.
    Nothing { tenant: TenantId, agent: AgentId },
}

/// All callers without a credential, as the log shows them.
pub(crate) const ANONYMOUS: &str = "anonymous";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrincipalKind {
    /// A person, by API key or console session.
    Key { key: KeyId, role: Role },
    /// What works for one agent: a paired device, or the agent itself with the key that it was registered with.
    Runtime { runtime: RuntimeId, agent: AgentId, kind: RuntimeKind },
    /// An outside agent that asks others with the key that it was registered with. It works elsewhere.
    Outside { key: KeyId, agent: AgentId },
    /// The agent while it works on this run, with the token that came with the claim. It is worth that run's rights.
    Run { run: RunId, agent: AgentId },
    /// Somebody without a credential, who asks an agent that serves such callers. All of them are one caller.
    Anonymous { agent: AgentId },
}

// === impl Principal ===

impl Principal {
    /// As the log shows it.
    pub fn actor(&self) -> String {
        match self.who {
            PrincipalKind::Key { key, .. } => format!("key:{key}"),
            PrincipalKind::Runtime { runtime, kind: RuntimeKind::Device | RuntimeKind::Hub, .. } => {
                format!("runtime:{runtime}")
            }
            // What an agent asked for stays its own when it is registered again with another key.
            PrincipalKind::Runtime { agent, kind: RuntimeKind::AgentKey, .. }
            | PrincipalKind::Outside { agent, .. } => {
                format!("agent:{agent}")
            }
            PrincipalKind::Run { run, .. } => format!("run:{run}"),
            PrincipalKind::Anonymous { .. } => ANONYMOUS.to_owned(),
        }
    }

    /// Whom what is opened or published with this credential belongs to: all keys of a person are that person, an agent is
    /// itself.
    pub(crate) fn holder(&self) -> String {
        match self.user.filter(|_| self.role().is_some()) {
            Some(user) => format!("user:{user}"),
            None => self.actor(),
        }
    }

    /// When the credential ends; what is made with it ends no later.
    pub const fn ends_at(&self) -> Option<Timestamp> {
        self.ends_at
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

    /// The role of a person; devices and agents have none.
    pub const fn role(&self) -> Option<Role> {
        match self.who {
            PrincipalKind::Key { role, .. } => Some(role),
            PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => None,
        }
    }

    /// What outlives a token must not be made with one: keys, passwords, tokens, ways to sign in.
    pub(crate) fn lasting(&self) -> Result<()> {
        match self.proof {
            PresentedCredential::Secret(_) | PresentedCredential::Maker(_) => Ok(()),
            PresentedCredential::Nothing { .. } | PresentedCredential::Here { .. } => {
                Err(Error::unauthenticated("The request carries no credential."))
            }
            PresentedCredential::Run { .. } => {
                Err(Error::forbidden("A run's token may not make anything that outlives the run."))
            }
            PresentedCredential::Token { .. } => {
                Err(Error::forbidden("A short-lived token may not make keys, tokens or ways to sign in.")
                    .hint("Use the API key that the token was made with."))
            }
        }
    }

    /// What has no scopes must not be made with a key that has some: it could do more than the key.
    pub(crate) fn unscoped(&self) -> Result<()> {
        match self.scopes {
            None => Ok(()),
            Some(_) => Err(Error::forbidden("A key with scopes may not set a password, which has none.")
                .hint("Use a key without scopes, or sign in to the console.")),
        }
    }

    /// An agent's key sees and calls what its person may; whoever may do less makes none.
    pub(crate) fn may_see_and_call(&self) -> Result<()> {
        let has = |scope| self.scopes.as_ref().is_none_or(|scopes| scopes.contains(&scope));
        match has(KeyScope::Read) && has(KeyScope::Call) {
            true => Ok(()),
            false => {
                Err(Error::forbidden("An agent's own key sees and calls, and this key's scopes do not allow both.")
                    .hint("Use a key with the scopes `read`, `call` and `manage`, or one without scopes."))
            }
        }
    }

    /// Whether this is another person whose role is above the caller's: nobody acts for such a one.
    pub(crate) fn is_below(&self, user: &UserRecord) -> bool {
        self.user != Some(user.id) && self.role().is_none_or(|own| user.role > own)
    }

    /// Whether something that belongs to this user, or to nobody, is the caller's own.
    pub(crate) fn owns(&self, owner: Option<UserId>) -> bool {
        self.user == owner
    }

    /// The runtime and its agent; an error for people.
    pub(crate) fn device(&self) -> Result<(RuntimeId, AgentId)> {
        match self.who {
            PrincipalKind::Runtime { runtime, agent, kind: _ } => Ok((runtime, agent)),
            PrincipalKind::Key { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => Err(Error::forbidden("Only a paired runtime may do this.")
                .hint("Send the runtime's token as `X-Runtime-Token: rt_…`.")),
        }
    }

    /// A paired device asks for work and says that it is alive over HTTP; an agent with its own key does both over its
    /// channel.
    pub(crate) fn over_http(&self) -> Result<()> {
        match self.who {
            PrincipalKind::Runtime { kind: RuntimeKind::AgentKey, .. } => {
                Err(Error::forbidden("An agent with a key of its own works over its channel.")
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
