//! The limits on how often somebody may try: without a credential, with a wrong one, by password, and, if told, at all.

use std::net::IpAddr;

use attache_protocol::{AgentId, KeyId, UserId};
use attache_store::record::RuntimeKind;

use crate::{
    Options, Principal, Result, Who,
    identity::limiter::{Left, Limiter, Network},
};

#[derive(Debug)]
pub(crate) struct Attempts {
    /// Wrong passwords.
    pub(crate) by_address: Limiter<Network>,
    /// Of one name from one network: nobody locks a person out from elsewhere.
    pub(crate) by_name: Limiter<NamedAttempt>,
    /// Wrong credentials of any kind.
    failed: Limiter<Network>,
    /// Requests that carry no credential.
    anonymous: Limiter<Network>,
    /// Requests with a good one; no limit unless the hub was told one.
    principals: Option<Limiter<Subject>>,
}

/// A name and the network that it was tried from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct NamedAttempt(String, Network);

/// Whose requests are counted together: making one more key gives nobody more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Subject {
    User(UserId),
    Key(KeyId),
    Agent(AgentId),
}

// === impl Attempts ===

impl Attempts {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            by_address: Limiter::new("sign-in", options.sign_in_failures_per_minute),
            by_name: Limiter::new("sign-in", options.sign_in_failures_per_minute),
            failed: Limiter::new("failed", options.failures_per_minute),
            anonymous: Limiter::new("anonymous", options.anonymous_per_minute),
            principals: options.requests_per_minute.map(|limit| Limiter::new("principal", limit)),
        }
    }

    /// A request that carries no credential at all.
    pub(crate) fn anonymous(&self, from: IpAddr) -> Result<()> {
        self.anonymous.take(from).map(drop)
    }

    /// A credential was wrong. Right ones are never refused for it: whoever shares the address is not to blame.
    pub(crate) fn failed(&self, from: IpAddr) -> Result<()> {
        self.failed.take(from).map(drop)
    }

    /// A request of somebody who is known. What a paired device says of its work is not counted.
    pub(crate) fn admit(&self, by: &Principal) -> Result<Option<Left>> {
        let Some(limiter) = &self.principals else { return Ok(None) };
        let subject = match by.who {
            Who::Runtime { kind: RuntimeKind::Device | RuntimeKind::Hub, .. } | Who::Anonymous { .. } => {
                return Ok(None);
            }
            Who::Runtime { agent, kind: RuntimeKind::AgentKey, .. }
            | Who::Outside { agent, .. }
            | Who::Run { agent, .. } => Subject::Agent(agent),
            Who::Key { key, .. } => by.user.map_or(Subject::Key(key), Subject::User),
        };
        limiter.take(subject).map(Some)
    }
}

// === impl NamedAttempt ===

impl From<(&str, IpAddr)> for NamedAttempt {
    fn from((name, from): (&str, IpAddr)) -> Self {
        Self(name.to_owned(), from.into())
    }
}
