//! Who asks: the tenant and the identity behind a credential.

use attache_protocol::{AgentId, KeyId, RuntimeId, TenantId, rules::run::Worker, secret::SecretHash, wire::key::Role};

use crate::{Error, Result};

/// An authenticated caller. It can only be made by checking a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    pub tenant: TenantId,
    pub who: Who,
    /// By which the credential is looked up again while a stream is open.
    pub(crate) secret: SecretHash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// A person, by API key or console session.
    Key { key: KeyId, role: Role },
    /// A device that works for one agent.
    Runtime { runtime: RuntimeId, agent: AgentId },
}

// === impl Principal ===

impl Principal {
    /// As the log shows it.
    pub fn actor(&self) -> String {
        match self.who {
            Who::Key { key, .. } => format!("key:{key}"),
            Who::Runtime { runtime, .. } => format!("runtime:{runtime}"),
        }
    }

    /// The role of a person; a device has none.
    pub const fn role(&self) -> Option<Role> {
        match self.who {
            Who::Key { role, .. } => Some(role),
            Who::Runtime { .. } => None,
        }
    }

    /// The device and its agent; an error for people.
    pub(crate) fn device(&self) -> Result<(RuntimeId, AgentId)> {
        match self.who {
            Who::Runtime { runtime, agent } => Ok((runtime, agent)),
            Who::Key { .. } => Err(Error::forbidden("Only a paired runtime may do this.")
                .hint("Send the runtime's token as `X-Runtime-Token: rt_…`.")),
        }
    }

    pub(crate) fn worker(&self, epoch: Option<i64>) -> Result<Worker> {
        let (runtime, _) = self.device()?;
        Ok(Worker { runtime, epoch })
    }
}
