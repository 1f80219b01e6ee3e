//! The one way out to a URL that somebody else chose: a callback, a push target, an agent card, a peer.
//!
//! Whoever may name a URL must not thereby reach what only this machine reaches. So the text is read strictly, names are
//! resolved once and by the same code that connects, every address is judged, redirects are not followed, no proxy is
//! asked, and size and time are bounded. What the owner allowed ([`Policy`]) is reached although it is private.
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
mod refused;
mod resolver;
mod send;

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use attache_protocol::Pin;

pub use address::Range;
pub use allow::{Allow, InvalidRule, Network};
pub use location::{Checked, Host, masked, origin};
pub use refused::{Failure, Refused};
pub use resolver::{Lookup, Resolver, System};
pub use send::{Framed, Opened, Reply, Request};

/// Judges URLs and calls them. Clones share connections.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    policy: Arc<Policy>,
    limits: Limits,
    resolver: Arc<dyn Resolver>,
    /// The only key that whoever answers over TLS may have.
    pin: Option<Pin>,
    clients: send::Clients,
}

/// What the owner allows beyond the public internet by https.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    pub allow: Vec<Allow>,
}

/// Bounds on one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
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
enum Grade {
    Public,
    /// A rule of the owner covers it.
    Allowed,
}

// === impl Guard ===

impl Guard {
    pub fn new(policy: Policy) -> Self {
        Self::with(policy, Limits::default(), Arc::new(System))
    }

    pub fn with(policy: Policy, limits: Limits, resolver: Arc<dyn Resolver>) -> Self {
        let clients = send::Clients::default();
        Self(Arc::new(Inner { policy: Arc::new(policy), limits, resolver, pin: None, clients }))
    }

    /// A guard of the same policy with other bounds.
    #[must_use]
    pub fn within(&self, limits: Limits) -> Self {
        self.renewed(limits, self.0.pin)
    }

    /// A guard of the same policy for one place that made its own certificate: over TLS nobody without this key is spoken to.
    #[must_use]
    pub fn pinned(&self, pin: Option<Pin>) -> Self {
        self.renewed(self.0.limits, pin)
    }

    fn renewed(&self, limits: Limits, pin: Option<Pin>) -> Self {
        let Inner { policy, resolver, .. } = &*self.0;
        let clients = send::Clients::default();
        Self(Arc::new(Inner { policy: policy.clone(), limits, resolver: resolver.clone(), pin, clients }))
    }

    pub fn policy(&self) -> &Policy {
        &self.0.policy
    }

    /// Judges the text of a URL, and everything that can be known without asking a name server.
    pub fn check(&self, url: &str) -> Result<Checked, Refused> {
        let checked = Checked::read(url)?;
        self.admit(&checked)?;
        Ok(checked)
    }

    /// The addresses that the URL leads to now, all of which may be called.
    pub async fn resolve(&self, checked: &Checked) -> Result<Vec<SocketAddr>, Failure> {
        self.admit(checked)?;
        let addresses = match checked.host() {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = resolver::look_up(&*self.0.resolver, name, self.0.limits.connect).await?;
                self.0.policy.select(name, found, checked.needs_rule())?
            }
        };
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, checked.port())).collect())
    }

    /// A guard may be asked about a URL that another one checked, under another policy: so this is asked every time.
    fn admit(&self, checked: &Checked) -> Result<(), Refused> {
        let policy = &self.0.policy;
        let grade = match checked.host() {
            Host::Address(address) => policy
                .grade(*address, Grade::Public)
                .map_err(|range| Refused::Address { host: address.to_string(), range })?,
            Host::Name(name) if policy.names(name) => Grade::Allowed,
            // Whether a network rule covers the name shows when it is resolved.
            Host::Name(_) if policy.has_networks() => return Ok(()),
            Host::Name(name) if location::is_local(name) => return Err(Refused::LocalName { host: name.clone() }),
            Host::Name(_) => Grade::Public,
        };
        match (grade, checked.needs_rule()) {
            (Grade::Public, Some(refused)) => Err(refused),
            (Grade::Public, None) | (Grade::Allowed, _) => Ok(()),
        }
    }
}

// === impl Policy ===

impl Policy {
    /// A rule names this host.
    fn names(&self, name: &str) -> bool {
        self.allow.iter().any(|rule| rule.names(name))
    }

    fn has_networks(&self) -> bool {
        self.allow.iter().any(|rule| matches!(rule, Allow::Network(_)))
    }

    /// `by_name` is what the host's name alone is worth.
    fn grade(&self, address: IpAddr, by_name: Grade) -> Result<Grade, Range> {
        let mut networks = self.allow.iter().filter_map(|rule| match rule {
            Allow::Network(network) if network.contains(address) => Some(network),
            Allow::Network(_) | Allow::Host(_) | Allow::Below(_) => None,
        });
        let by_network = |covered: bool| if covered { Grade::Allowed } else { by_name };
        match Range::of(address) {
            None => Ok(by_network(networks.next().is_some())),
            Some(range) if range.is_never_called() => Err(range),
            // Whoever opens a network or trusts a name does not mean the machine's own credentials.
            Some(Range::Metadata) if networks.any(|network| network.is_one_address()) => Ok(Grade::Allowed),
            Some(Range::Metadata) => Err(Range::Metadata),
            Some(range) => match by_network(networks.next().is_some()) {
                Grade::Allowed => Ok(Grade::Allowed),
                Grade::Public => Err(range),
            },
        }
    }

    /// Picks those of a name's addresses that may be called. `unruled` is the refusal of an address without a rule.
    ///
    /// A name that leads to the public and to a private place at once is refused as a whole: it is how guards are
    /// tricked. A name of which some addresses are allowed is called at these.
    fn select(&self, name: &str, found: Vec<IpAddr>, unruled: Option<Refused>) -> Result<Vec<IpAddr>, Refused> {
        let by_name = if self.names(name) { Grade::Allowed } else { Grade::Public };
        let (mut chosen, mut refused, mut some_allowed) = (Vec::new(), None, false);
        for address in found {
            match (self.grade(address, by_name), &unruled) {
                (Ok(Grade::Allowed), _) => {
                    some_allowed = true;
                    chosen.push(address);
                }
                (Ok(Grade::Public), None) => chosen.push(address),
                (Ok(Grade::Public), Some(unruled)) => refused = refused.or_else(|| Some(unruled.clone())),
                (Err(range), _) => {
                    refused = refused.or_else(|| Some(Refused::Address { host: name.to_owned(), range }));
                }
            }
        }
        match refused {
            Some(refused) if !some_allowed => Err(refused),
            Some(_) | None => Ok(chosen),
        }
    }
}

// === impl Limits ===

impl Default for Limits {
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
