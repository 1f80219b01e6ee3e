//! How the remote reaches the export: directly at an address of this machine, or through the tunnel of a hub that both
//! can reach.
//!
//! `auto` is direct if an address is configured (`advertise`), if the SSH server listens on the network, or if the peer
//! is on this machine. Otherwise it uses a hub: the one in the policy, or the one whose `/a2a/{agent}` the peer's URL
//! is.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};

use attache_protocol::wire::{awcp::AwcpErrorCode, delegation::DelegationFailure};
use reqwest::Url;

use crate::awcp_policy::{RouteMode, TrustedPeer, delegator::host_port};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExportRoute {
    Direct {
        host: String,
        port: u16,
    },
    /// Through the hub at this origin.
    Tunnel {
        hub: String,
    },
}

/// `listening` is the address of this machine's SSH server.
pub(super) fn choose(
    peer: &TrustedPeer,
    hub: Option<&str>,
    listening: SocketAddr,
) -> Result<ExportRoute, DelegationFailure> {
    let hub = hub.map(str::to_owned).or_else(|| hub_of(&peer.url));
    let tunnel = || {
        match &hub {
        Some(hub) => Ok(ExportRoute::Tunnel { hub: hub.clone() }),
        None => Err(DelegationFailure {
            code: AwcpErrorCode::MountFailed,
            message: format!("{} can't reach this machine directly, and no hub is configured for a tunnel", peer.url),
            hint: "Start the daemon with --ssh-listen on an address that the remote can reach, or set `hub` in [delegator] of policy.toml.".to_owned(),
        }),
    }
    };
    match peer.reach {
        RouteMode::Direct => Ok(direct(peer, listening)),
        RouteMode::Tunnel => tunnel(),
        RouteMode::Auto if peer.advertise.is_some() || !listening.ip().is_loopback() || is_this_machine(&peer.url) => {
            Ok(direct(peer, listening))
        }
        RouteMode::Auto => tunnel(),
    }
}

/// A client on this machine reaches it there.
pub(super) fn to_this_machine(listening: SocketAddr) -> ExportRoute {
    let host = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => "127.0.0.1".to_owned(),
        IpAddr::V6(ip) if ip.is_unspecified() => "::1".to_owned(),
        ip => ip.to_string(),
    };
    ExportRoute::Direct { host, port: listening.port() }
}

fn direct(peer: &TrustedPeer, listening: SocketAddr) -> ExportRoute {
    if let Some((host, port)) = peer.advertise.as_deref().and_then(host_port) {
        return ExportRoute::Direct { host, port };
    }
    let ip = if listening.ip().is_unspecified() {
        local_address_for(&peer.url).unwrap_or(listening.ip())
    } else {
        listening.ip()
    };
    ExportRoute::Direct { host: ip.to_string(), port: listening.port() }
}

/// The local address that this machine uses to reach the peer. Sends nothing.
fn local_address_for(url: &str) -> Option<IpAddr> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?.trim_matches(['[', ']']);
    let target = (host, url.port_or_known_default()?).to_socket_addrs().ok()?.next()?;
    let any: SocketAddr = if target.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The hub of this agent, judging by the form of the URL.
pub(super) fn hub_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let mut segments: Vec<&str> = url.path_segments()?.collect();
    segments.retain(|segment| !segment.is_empty());
    matches!(segments[..], ["a2a", _]).then(|| url.origin().ascii_serialization())
}

fn is_this_machine(url: &str) -> bool {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default();
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route_to(url: &str, reach: RouteMode, advertise: Option<&str>, listening: &str, hub: Option<&str>) -> String {
        let advertise = advertise.map(str::to_owned);
        let peer = TrustedPeer { url: url.to_owned(), key_file: None, pin: None, reach, advertise };
        match choose(&peer, hub, listening.parse().unwrap()) {
            Ok(ExportRoute::Direct { host, port }) => format!("{host} {port}"),
            Ok(ExportRoute::Tunnel { hub }) => hub,
            Err(failure) => failure.code.to_string(),
        }
    }

    #[test]
    fn auto_is_direct_where_possible() {
        let (far, here) = ("https://hub.example.org/a2a/b", "http://localhost:7800/a2a/b");
        let (auto, lo) = (RouteMode::Auto, "127.0.0.1:2222");
        assert_eq!(route_to(here, auto, None, lo, None), "127.0.0.1 2222");
        assert_eq!(route_to(far, auto, None, lo, None), "https://hub.example.org");
        assert_eq!(route_to(far, auto, None, lo, Some("https://other")), "https://other");
        assert_eq!(route_to(far, auto, Some("me.example.org:9"), lo, None), "me.example.org 9");
        assert_eq!(route_to(far, auto, None, "192.0.2.7:2222", None), "192.0.2.7 2222");
        assert_eq!(route_to(here, auto, None, "0.0.0.0:2222", None), "127.0.0.1 2222");
        assert_eq!(route_to("https://agent.example.org/rpc", auto, None, lo, None), "MOUNT_FAILED");
    }

    #[test]
    fn an_explicit_route_is_followed() {
        let here = "http://127.0.0.1:7800/a2a/b";
        assert_eq!(route_to(here, RouteMode::Tunnel, None, "0.0.0.0:1", None), "http://127.0.0.1:7800");
        assert_eq!(route_to("https://h/a2a/b", RouteMode::Direct, None, "127.0.0.1:5", None), "127.0.0.1 5");
        assert_eq!(route_to("https://h/x", RouteMode::Tunnel, None, "127.0.0.1:5", None), "MOUNT_FAILED");
    }
}
