//! The egress guard, for URLs that someone else chose: a callback, a push target, an agent card, a remote agent.
//!
//! Naming a URL must not give anyone access to what only this machine can reach. So URLs are parsed strictly, names are
//! resolved once by the code that also connects, every address is checked, redirects aren't followed, no proxy is used,
//! and size and time are limited. Private targets that the owner allows ([`EgressPolicy`]) can be reached.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use attache_client::egress::{EgressGuard, EgressPolicy};
//!
//! let guard = EgressGuard::new(EgressPolicy { allow: vec!["10.20.0.0/16".parse()?, "hooks.corp.example".parse()?] });
//! let target = guard.check("https://hooks.example.org/done?run=1")?; // at registration: checks the text only
//! guard.resolve(&target).await?; // at registration: checks where it leads today
//! let reply = guard.post(&target, Default::default(), "{}".into()).await?; // checks again, every time
//! assert!(reply.is_success(), "redirects aren't followed");
//! # Ok(())
//! # }
//! ```

mod address;
mod allow;
mod location;
mod proxy;
mod refusal;
mod resolver;
mod send;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use attache_protocol::KeyPin;

pub use address::AddressRange;
pub use allow::{EgressRule, InvalidEgressRule, IpNetwork};
pub use location::{CheckedUrl, UrlHost, host, masked, origin};
pub use proxy::{AllowedHost, EgressProxy, TargetTraffic};
pub use refusal::{EgressFailure, EgressRefusal};
pub use resolver::{Resolver, ResolverLookup, SystemResolver};
pub use send::{EgressReply, EgressRequest, FramedReply, StreamedReply};

/// Checks URLs and calls them. Clones share connections.
#[derive(Debug, Clone)]
pub struct EgressGuard(Arc<EgressGuardShared>);

#[derive(Debug)]
struct EgressGuardShared {
    policy: Arc<EgressPolicy>,
    limits: EgressLimits,
    resolver: Arc<dyn Resolver>,
    /// The only key accepted over TLS.
    pin: Option<KeyPin>,
    clients: send::EgressClients,
}

/// What the owner allows beyond https to the public internet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    pub allow: Vec<EgressRule>,
}

/// Limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressLimits {
    /// Resolving the name, connecting, and the TLS handshake.
    pub connect: Duration,
    /// From the start to the last byte of the response.
    pub total: Duration,
    /// Maximum size of a response.
    pub reply: usize,
    /// How long a streamed response may be silent.
    pub silence: Duration,
    /// Maximum size of a streamed response.
    pub stream: u64,
}

/// How an address may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressGrade {
    Public,
    /// One of the owner's rules covers it.
    Allowed,
}

// === impl EgressGuard ===

impl EgressGuard {
    pub fn new(policy: EgressPolicy) -> Self {
        Self::with(policy, EgressLimits::default(), Arc::new(SystemResolver))
    }

    pub fn with(policy: EgressPolicy, limits: EgressLimits, resolver: Arc<dyn Resolver>) -> Self {
        let clients = send::EgressClients::default();
        Self(Arc::new(EgressGuardShared { policy: Arc::new(policy), limits, resolver, pin: None, clients }))
    }

    /// A guard with the same policy and other limits.
    #[must_use]
    pub fn within(&self, limits: EgressLimits) -> Self {
        self.renewed(limits, self.0.pin)
    }

    /// A guard with the same policy, for a server with a self-signed certificate: over TLS only this key is accepted.
    #[must_use]
    pub fn pinned(&self, pin: Option<KeyPin>) -> Self {
        self.renewed(self.0.limits, pin)
    }

    fn renewed(&self, limits: EgressLimits, pin: Option<KeyPin>) -> Self {
        let EgressGuardShared { policy, resolver, .. } = &*self.0;
        let clients = send::EgressClients::default();
        Self(Arc::new(EgressGuardShared { policy: policy.clone(), limits, resolver: resolver.clone(), pin, clients }))
    }

    pub fn policy(&self) -> &EgressPolicy {
        &self.0.policy
    }

    /// Checks the text of a URL, and everything else that can be known without DNS.
    pub fn check(&self, url: &str) -> Result<CheckedUrl, EgressRefusal> {
        let checked = CheckedUrl::read(url)?;
        self.admit(&checked)?;
        Ok(checked)
    }

    /// The addresses the URL leads to now, all of which may be called.
    pub async fn resolve(&self, checked: &CheckedUrl) -> Result<Vec<SocketAddr>, EgressFailure> {
        self.admit(checked)?;
        let addresses = match checked.host() {
            UrlHost::Address(address) => vec![*address],
            UrlHost::Name(name) => {
                let found = resolver::look_up(&*self.0.resolver, name, self.0.limits.connect).await?;
                self.0.policy.select(name, found, checked.needs_rule())?
            }
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, checked.port())).collect())
    }

    /// Checked on every call, because another guard with another policy may have checked the URL.
    fn admit(&self, checked: &CheckedUrl) -> Result<(), EgressRefusal> {
        let policy = &self.0.policy;
        let grade = match checked.host() {
            UrlHost::Address(address) => policy
                .grade(*address, AddressGrade::Public)
                .map_err(|range| EgressRefusal::Address { host: address.to_string(), range })?,
            UrlHost::Name(name) if policy.names(name) => AddressGrade::Allowed,
            // Whether a network rule covers the name is known once it is resolved.
            UrlHost::Name(_) if policy.has_networks() => return Ok(()),
            UrlHost::Name(name) if location::is_local(name) => {
                return Err(EgressRefusal::LocalName { host: name.clone() });
            }
            UrlHost::Name(_) => AddressGrade::Public,
        };
        match (grade, checked.needs_rule()) {
            (AddressGrade::Public, Some(refused)) => Err(refused),
            (AddressGrade::Public, None) | (AddressGrade::Allowed, _) => Ok(()),
        }
    }
}

// === impl EgressPolicy ===

impl EgressPolicy {
    /// Whether a rule names this host.
    fn names(&self, name: &str) -> bool {
        self.allow.iter().any(|rule| rule.names(name))
    }

    fn has_networks(&self) -> bool {
        self.allow.iter().any(|rule| matches!(rule, EgressRule::Network(_)))
    }

    /// `by_name` is the grade of the host's name alone.
    fn grade(&self, address: IpAddr, by_name: AddressGrade) -> Result<AddressGrade, AddressRange> {
        let mut networks = self.allow.iter().filter_map(|rule| match rule {
            EgressRule::Network(network) if network.contains(address) => Some(network),
            EgressRule::Network(_) | EgressRule::Host(_) | EgressRule::Below(_) => None,
        });
        let by_network = |covered: bool| if covered { AddressGrade::Allowed } else { by_name };
        match AddressRange::of(address) {
            None => Ok(by_network(networks.next().is_some())),
            Some(range) if range.is_never_called() => Err(range),
            // Allowing a network or a name doesn't include the machine's own credentials.
            Some(AddressRange::Metadata) if networks.any(|network| network.is_one_address()) => {
                Ok(AddressGrade::Allowed)
            }
            Some(AddressRange::Metadata) => Err(AddressRange::Metadata),
            Some(range) => match by_network(networks.next().is_some()) {
                AddressGrade::Allowed => Ok(AddressGrade::Allowed),
                AddressGrade::Public => Err(range),
            },
        }
    }

    /// Selects the addresses of a name that may be called. `unruled` is the refusal for an address without a rule.
    ///
    /// A name with both public and private addresses is refused entirely, because that is how guards are tricked. If
    /// some of a name's addresses are allowed by rules, those are called.
    fn select(
        &self,
        name: &str,
        found: Vec<IpAddr>,
        unruled: Option<EgressRefusal>,
    ) -> Result<Vec<IpAddr>, EgressRefusal> {
        let by_name = if self.names(name) { AddressGrade::Allowed } else { AddressGrade::Public };
        let (mut chosen, mut refused, mut some_allowed) = (Vec::new(), None, false);
        for address in found {
            match (self.grade(address, by_name), &unruled) {
                (Ok(AddressGrade::Allowed), _) => {
                    some_allowed = true;
                    chosen.push(address);
                }
                (Ok(AddressGrade::Public), None) => chosen.push(address),
                (Ok(AddressGrade::Public), Some(unruled)) => refused = refused.or_else(|| Some(unruled.clone())),
                (Err(range), _) => {
                    refused = refused.or_else(|| Some(EgressRefusal::Address { host: name.to_owned(), range }));
                }
            }
        }
        match refused {
            Some(refused) if !some_allowed => Err(refused),
            Some(_) | None => Ok(chosen),
        }
    }
}

// === impl EgressLimits ===

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(10),
            reply: 1 << 20,
            silence: Duration::from_secs(120),
            stream: 1 << 28,
        }
    }
}

#[cfg(test)]
mod tests;
