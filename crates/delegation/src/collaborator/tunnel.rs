//! Connects to a host that can't be reached directly, through the tunnel that START names.

use std::{fmt, io, sync::Arc, time::Duration};

use attache_client::{
    egress::{EgressGuard, EgressPolicy, EgressRule},
    tunnel::{TunnelDialOptions, open_remote},
};
use attache_os::own_address;
use attache_protocol::{KeyPin, wire::awcp::TunnelAccess};
use attache_workspace::mount::{ByteStream, TunnelDial};

use super::direct_dial::is_on_this_machine;

/// Opens connections through a tunnel.
pub trait TunnelDialer: Send + Sync + fmt::Debug {
    fn dial(&self, tunnel: &TunnelAccess) -> TunnelDial;
}

/// Dials tunnels of hubs. A private address is allowed only for the agent's own hub and where the owner permits it.
#[derive(Debug, Clone)]
pub struct HubTunnelDialer {
    reach: TunnelDialOptions,
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

// === impl HubTunnelDialer ===

impl HubTunnelDialer {
    /// Allows the hub at `api_base` and the hosts that the owner names.
    pub fn of(api_base: &str, also: &[String], pin: Option<KeyPin>) -> Self {
        let own = reqwest::Url::parse(api_base).ok().and_then(|url| url.host_str().map(str::to_owned));
        // A hub on this machine that listens on every address calls itself by the one that others reach.
        let outward = if is_on_this_machine(api_base) { own_address::outward() } else { None };
        let outward = outward.map(|address| address.to_string());
        // Invalid rules were rejected when the policy was read.
        let allow = own.iter().chain(&outward).chain(also).filter_map(|rule| rule.parse::<EgressRule>().ok()).collect();
        let guard = EgressGuard::new(EgressPolicy { allow });
        Self { reach: TunnelDialOptions { guard, pin, trusted_certificate: None, connect: CONNECT_TIMEOUT } }
    }
}

impl TunnelDialer for HubTunnelDialer {
    fn dial(&self, tunnel: &TunnelAccess) -> TunnelDial {
        let (reach, tunnel) = (self.reach.clone(), tunnel.clone());
        Arc::new(move || {
            let (reach, tunnel) = (reach.clone(), tunnel.clone());
            Box::pin(async move {
                let opened = open_remote(&tunnel.url, &tunnel.token, &reach).await.map_err(io::Error::other)?;
                Ok(Box::new(opened) as Box<dyn ByteStream>)
            })
        })
    }
}
