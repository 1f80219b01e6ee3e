//! Rate limits: requests without a credential, wrong credentials, wrong passwords, new short-lived credentials and, if
//! configured, all requests.

use std::net::IpAddr;

use attache_protocol::{AgentId, KeyId, UserId};
use attache_store::record::RuntimeKind;

use crate::{
    Options, Principal, PrincipalKind, Result,
    connection_slot::ConnectionId,
    identity::limiter::{ClientNetwork, RateLimitStatus, RateLimiter},
    nodes::NodeCount,
};

/// So many times as many requests on the way in as others without a credential may come from one network.
const ENTRANCES_PER_NETWORK: u32 = 10;

#[derive(Debug)]
pub(crate) struct RequestLimits {
    /// Wrong passwords.
    pub(crate) by_address: RateLimiter<ClientNetwork>,
    /// Per name and network, so that no one can lock a person out from elsewhere.
    pub(crate) by_name: RateLimiter<LoginAttemptKey>,
    /// Wrong credentials of any kind.
    failed: RateLimiter<ClientNetwork>,
    /// Requests that carry no credential.
    anonymous: RateLimiter<ClientNetwork>,
    /// Those of them that sign in, pair, or only ask for the hub's health.
    entering: RateLimiter<ConnectionId>,
    /// The same of everybody in a network.
    entering_from: RateLimiter<ClientNetwork>,
    /// Tokens, login links, sessions and changes of one's own account: everyone may write these rows of the log.
    credentials: RateLimiter<RateSubject>,
    /// Authenticated requests. Unlimited unless configured.
    principals: Option<RateLimiter<RateSubject>>,
}

/// A name and the network the attempt came from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LoginAttemptKey(String, ClientNetwork);

/// Whose requests are counted together. More keys don't raise the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RateSubject {
    User(UserId),
    Key(KeyId),
    Agent(AgentId),
}

// === impl RequestLimits ===

impl RequestLimits {
    pub(crate) fn new(options: &Options, nodes: &NodeCount) -> Self {
        Self {
            by_address: RateLimiter::new("sign-in", options.sign_in_failures_per_minute).shared_by(nodes),
            by_name: RateLimiter::new("sign-in", options.sign_in_failures_per_minute).shared_by(nodes),
            failed: RateLimiter::new("failed", options.failures_per_minute).shared_by(nodes),
            anonymous: RateLimiter::new("anonymous", options.anonymous_per_minute).shared_by(nodes),
            // A connection is at one node.
            entering: RateLimiter::new("anonymous", options.anonymous_per_minute),
            entering_from: RateLimiter::new(
                "anonymous",
                options.anonymous_per_minute.saturating_mul(ENTRANCES_PER_NETWORK),
            )
            .shared_by(nodes),
            credentials: RateLimiter::new("credentials", options.credentials_per_minute).shared_by(nodes),
            principals: options.requests_per_minute.map(|limit| RateLimiter::new("principal", limit).shared_by(nodes)),
        }
    }

    /// A request without any credential.
    pub(crate) fn anonymous(&self, from: IpAddr) -> Result<()> {
        self.anonymous.take(from).map(drop)
    }

    /// A request on the way in. Per connection, because others may share the address; but not without end, because each
    /// connection begins anew.
    pub(crate) fn entering(&self, on: ConnectionId, from: ClientNetwork) -> Result<()> {
        self.entering_from.take(from)?;
        self.entering.take(on).map(drop)
    }

    /// A wrong credential. Valid ones are never rejected for it, because others may share the address.
    pub(crate) fn failed(&self, from: IpAddr) -> Result<()> {
        self.failed.take(from).map(drop)
    }

    /// An authenticated request. A paired device's reports about its work are not counted.
    pub(crate) fn admit(&self, by: &Principal) -> Result<Option<RateLimitStatus>> {
        let (Some(limiter), Some(subject)) = (&self.principals, RateSubject::of(by)) else { return Ok(None) };
        limiter.take(subject).map(Some)
    }

    /// A person makes a credential that needs no rights, or changes their own account.
    pub(crate) fn credential(&self, by: &Principal) -> Result<()> {
        RateSubject::of(by).map_or(Ok(()), |subject| self.credentials.take(subject).map(drop))
    }

    /// A person, known by other means than a credential, signs in.
    pub(crate) fn session(&self, user: UserId) -> Result<()> {
        self.credentials.take(RateSubject::User(user)).map(drop)
    }
}

// === impl RateSubject ===

impl RateSubject {
    fn of(by: &Principal) -> Option<Self> {
        Some(match by.who {
            PrincipalKind::Runtime { kind: RuntimeKind::Device | RuntimeKind::Hub, .. }
            | PrincipalKind::Anonymous { .. } => return None,
            PrincipalKind::Runtime { agent, kind: RuntimeKind::AgentKey, .. }
            | PrincipalKind::Outside { agent, .. }
            | PrincipalKind::Run { agent, .. } => Self::Agent(agent),
            PrincipalKind::Key { key, .. } => by.user.map_or(Self::Key(key), Self::User),
        })
    }
}

// === impl LoginAttemptKey ===

impl From<(&str, IpAddr)> for LoginAttemptKey {
    fn from((name, from): (&str, IpAddr)) -> Self {
        Self(name.to_owned(), from.into())
    }
}
