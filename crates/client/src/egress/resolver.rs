//! Resolves names to addresses, through the system or a script in tests, and checks them before anything connects.

use std::{fmt, io, net::IpAddr, net::SocketAddr, pin::Pin, sync::Arc, time::Duration};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{EgressFailure, EgressPolicy, EgressRefusal};

/// Finds the addresses of a name.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    fn resolve(&self, name: &str) -> ResolverLookup;
}

pub type ResolverLookup = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// The system's resolver.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

/// Resolves names for the HTTP client, which gets only the checked addresses.
pub(super) struct GuardedResolver {
    pub(super) policy: Arc<EgressPolicy>,
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) patience: Duration,
    /// The refusal for an address without a rule. `None` if public addresses need no rule.
    pub(super) unruled: Option<EgressRefusal>,
}

/// Using more addresses of a name has no benefit.
const MAX_ADDRESSES: usize = 16;

pub(super) async fn look_up(
    resolver: &dyn Resolver,
    name: &str,
    patience: Duration,
) -> Result<Vec<IpAddr>, EgressFailure> {
    let unresolved = |reason: String| EgressFailure::Unresolved { host: name.to_owned(), reason };
    let mut addresses = tokio::time::timeout(patience, resolver.resolve(name))
        .await
        .map_err(|_| unresolved("no name server answered in time".to_owned()))?
        .map_err(|error| unresolved(error.to_string()))?;
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() {
        return Err(unresolved("no address was found".to_owned()));
    }
    Ok(addresses)
}

// === impl SystemResolver ===

impl Resolver for SystemResolver {
    fn resolve(&self, name: &str) -> ResolverLookup {
        let name = name.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((name, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

// === impl GuardedResolver ===

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, resolver) = (self.policy.clone(), self.resolver.clone());
        let (patience, unruled) = (self.patience, self.unruled.clone());
        Box::pin(async move {
            let found = look_up(&*resolver, name.as_str(), patience).await?;
            let chosen = policy.select(name.as_str(), found, unruled).map_err(EgressFailure::Refused)?;
            let addresses: Addrs = Box::new(chosen.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}
