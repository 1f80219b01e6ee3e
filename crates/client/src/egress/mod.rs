//! The one way out to a URL that somebody else chose: a callback, a push target, an agent card, a peer.
//!
//! Whoever may name a URL must not thereby reach what only this machine reaches. So the text is read strictly, names are
//! resolved once and by the same code that connects, every address is judged, redirects are not followed, no proxy is
//! asked, and size and time are bounded. What the owner allowed ([`EgressPolicy`]) is reached although it is private.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use attache_client::egress::{Guard, Policy};
//!
//! let guard = Guard::new(Policy { allow: vec!["10.20.0.0/16".parse()?, "hooks.corp.example".parse()?] });
//! let target = guard.check("https://hooks.example.org/done?run=1")?; // when it is registered: the text alone
//! guard.resolve(&target).await?; // when it is registered: where it leads today
//! let reply = guard.post(&target, Default::default(), "{}".into()).await?; // judges again, every time
//! assert!(reply.is_success(), "a redirect is an answer like any other");
//! # Ok(())
//! # }
//! ```

mod address;
mod allow;
mod location;
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
pub use location::{CheckedUrl, UrlHost, masked, origin};
pub use refusal::{EgressFailure, EgressRefusal};
pub use resolver::{Resolver, ResolverLookup, SystemResolver};
pub use send::{EgressReply, EgressRequest, FramedReply, StreamedReply};

/// Judges URLs and calls them. Clones share connections.
#[derive(Debug, Clone)]
pub struct EgressGuard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    policy: Arc<EgressPolicy>,
    limits: EgressLimits,
    resolver: Arc<dyn Resolver>,
    /// The only key that whoever answers over TLS may have.
    pin: Option<KeyPin>,
    clients: send::EgressClients,
}

/// What the owner allows beyond the public internet by https.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    pub allow: Vec<EgressRule>,
}

/// Bounds on one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EgressLimits {
    /// To resolve the name, connect, and agree on TLS.
    pub connect: Duration,
    /// From the beginning to the last byte of the answer.
    pub total: Duration,
    /// The longest answer that is read.
    pub reply: usize,
    /// How long an answer that is taken piece by piece may be silent.
    pub silence: Duration,
    /// The longest answer that is taken piece by piece.
    pub stream: u64,
}

/// How an address may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddressGrade {
    Public,
    /// A rule of the owner covers it.
    Allowed,
}

// === impl EgressGuard ===

impl EgressGuard {
    pub fn new(policy: EgressPolicy) -> Self {
        Self::with(policy, EgressLimits::default(), Arc::new(SystemResolver))
    }

    pub fn with(policy: EgressPolicy, limits: EgressLimits, resolver: Arc<dyn Resolver>) -> Self {
        let clients = send::EgressClients::default();
        Self(Arc::new(Inner { policy: Arc::new(policy), limits, resolver, pin: None, clients }))
    }

    /// A guard of the same policy with other bounds.
    #[must_use]
    pub fn within(&self, limits: EgressLimits) -> Self {
        self.renewed(limits, self.0.pin)
    }

    /// A guard of the same policy for one place that made its own certificate: over TLS nobody without this key is spoken to.
    #[must_use]
    pub fn pinned(&self, pin: Option<KeyPin>) -> Self {
        self.renewed(self.0.limits, pin)
    }

    fn renewed(&self, limits: EgressLimits, pin: Option<KeyPin>) -> Self {
        let Inner { policy, resolver, .. } = &*self.0;
        let clients = send::EgressClients::default();
        Self(Arc::new(Inner { policy: policy.clone(), limits, resolver: resolver.clone(), pin, clients }))
    }

    pub fn policy(&self) -> &EgressPolicy {
        &self.0.policy
    }

    /// Judges the text of a URL, and everything that can be known without asking a name server.
    pub fn check(&self, url: &str) -> Result<CheckedUrl, EgressRefusal> {
        let checked = CheckedUrl::read(url)?;
        self.admit(&checked)?;
        Ok(checked)
    }

    /// The addresses that the URL leads to now, all of which may be called.
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

    /// A guard may be asked about a URL that another one checked, under another policy: so this is asked every time.
    fn admit(&self, checked: &CheckedUrl) -> Result<(), EgressRefusal> {
        let policy = &self.0.policy;
        let grade = match checked.host() {
            UrlHost::Address(address) => policy
                .grade(*address, AddressGrade::Public)
                .map_err(|range| EgressRefusal::Address { host: address.to_string(), range })?,
            UrlHost::Name(name) if policy.names(name) => AddressGrade::Allowed,
            // Whether a network rule covers the name shows when it is resolved.
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
    /// A rule names this host.
    fn names(&self, name: &str) -> bool {
        self.allow.iter().any(|rule| rule.names(name))
    }

    fn has_networks(&self) -> bool {
        self.allow.iter().any(|rule| matches!(rule, EgressRule::Network(_)))
    }

    /// `by_name` is what the host's name alone is worth.
    fn grade(&self, address: IpAddr, by_name: AddressGrade) -> Result<AddressGrade, AddressRange> {
        let mut networks = self.allow.iter().filter_map(|rule| match rule {
            EgressRule::Network(network) if network.contains(address) => Some(network),
            EgressRule::Network(_) | EgressRule::Host(_) | EgressRule::Below(_) => None,
        });
        let by_network = |covered: bool| if covered { AddressGrade::Allowed } else { by_name };
        match AddressRange::of(address) {
            None => Ok(by_network(networks.next().is_some())),
            Some(range) if range.is_never_called() => Err(range),
            // Whoever opens a network or trusts a name does not mean the machine's own credentials.
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

    /// Picks those of a name's addresses that may be called. `unruled` is the refusal of an address without a rule.
    ///
    /// A name that leads to the public and to a private place at once is refused as a whole: it is how guards are
    /// tricked. A name of which some addresses are allowed is called at these.
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
