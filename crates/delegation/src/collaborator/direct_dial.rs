//! Which addresses START can make this machine connect to directly. Other machines of the network are what delegations are
//! for, so private addresses are among them; this machine itself, its link and its cloud's metadata are not.

use std::net::IpAddr;

use attache_client::egress::{AddressRange, EgressRule};
use attache_os::own_address;

/// Checks the host of an endpoint, and resolves it once.
#[derive(Debug, Clone)]
pub struct DirectDialGuard {
    allow: Vec<EgressRule>,
    /// The agent's own hub is on this machine, so its delegators are here too.
    is_local: bool,
}

// === impl DirectDialGuard ===

impl DirectDialGuard {
    /// For the hub at `api_base`, and with the hosts that the owner names.
    pub fn of(api_base: &str, also: &[String]) -> Self {
        // Invalid rules were rejected when the policy was read.
        Self {
            allow: also.iter().filter_map(|rule| rule.parse().ok()).collect(),
            is_local: is_on_this_machine(api_base),
        }
    }

    /// The address to connect to. `None` if the name isn't known, or leads to none that is allowed: whoever asked learns
    /// nothing about this machine's network.
    pub(super) async fn resolve(&self, host: &str) -> Option<IpAddr> {
        let is_named = self.allow.iter().any(|rule| rule.names(&host.to_ascii_lowercase()));
        let found = match address(host) {
            Some(address) => vec![address],
            None => tokio::net::lookup_host((host, 0)).await.ok()?.map(|found| found.ip()).collect(),
        };
        found.into_iter().map(|address| address.to_canonical()).find(|address| is_named || self.allows(*address))
    }

    fn allows(&self, address: IpAddr) -> bool {
        let is_listed =
            || self.allow.iter().any(|rule| matches!(rule, EgressRule::Network(network) if network.contains(address)));
        // The services of this machine listen on its other addresses, too.
        if own_address::is_own(address) && !address.is_loopback() {
            return self.is_local || is_listed();
        }
        match AddressRange::of(address) {
            None
            | Some(
                AddressRange::Private | AddressRange::Shared | AddressRange::Documentation | AddressRange::Reserved,
            ) => true,
            Some(AddressRange::Loopback) if self.is_local => true,
            Some(
                AddressRange::Loopback
                | AddressRange::LinkLocal
                | AddressRange::Metadata
                | AddressRange::Unspecified
                | AddressRange::Multicast
                | AddressRange::Disguised,
            ) => is_listed(),
        }
    }
}

/// Whether this is how a hub on this machine is reached.
pub(super) fn is_on_this_machine(api_base: &str) -> bool {
    let url = reqwest::Url::parse(api_base).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or_default();
    host == "localhost" || address(host).is_some_and(|address| address.is_loopback())
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_matches(['[', ']']).parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn this_machine_its_link_and_its_metadata_are_not_dialled() {
        let far = DirectDialGuard::of("https://hub.example.org", &["169.254.7.0/24".to_owned()]);
        let refused = [
            "127.0.0.1",
            "127.8.9.1",
            "::1",
            "[::1]",
            "::ffff:127.0.0.1",
            "0.0.0.0",
            "::",
            "localhost",
            "169.254.169.254",
            "169.254.1.1",
            "fe80::1",
            "fd00:ec2::254",
            "100.100.100.200",
            "224.0.0.1",
            "2002:7f00:1::",
            "64:ff9b::7f00:1",
        ];
        for host in refused {
            assert_eq!(far.resolve(host).await, None, "{host}");
        }
        for host in ["10.0.0.7", "192.168.1.5", "100.64.0.1", "93.184.216.34", "fd12::7", "2606:4700::1", "169.254.7.9"]
        {
            assert_eq!(far.resolve(host).await, host.parse().ok(), "{host}");
        }
        // With a hub of this machine, the delegator is here too. That opens nothing else.
        for base in ["http://127.0.0.1:7800", "http://localhost:7800", "http://[::1]:7800"] {
            let local = DirectDialGuard::of(base, &[]);
            assert_eq!(local.resolve("127.0.0.1").await, "127.0.0.1".parse().ok(), "{base}");
            assert_eq!(local.resolve("169.254.169.254").await, None, "{base}");
        }
        let named = DirectDialGuard::of("https://hub.example.org", &["localhost".to_owned()]);
        assert!(named.resolve("localhost").await.is_some());
    }

    #[tokio::test]
    async fn this_machine_is_not_dialled_by_its_other_addresses() {
        let Some(own) = own_address::outward() else {
            println!("skipped: this machine has no network");
            return;
        };
        let host = own.to_string();
        for base in ["https://hub.example.org", &format!("http://{host}:7800")] {
            assert_eq!(DirectDialGuard::of(base, &[]).resolve(&host).await, None, "{base}");
        }
        let mapped = format!("::ffff:{host}");
        assert_eq!(DirectDialGuard::of("https://hub.example.org", &[]).resolve(&mapped).await, None);
        let listed = DirectDialGuard::of("https://hub.example.org", &[format!("{host}/32")]);
        assert_eq!(listed.resolve(&host).await, Some(own));
        assert_eq!(DirectDialGuard::of("http://localhost:7800", &[]).resolve(&host).await, Some(own));
    }
}
