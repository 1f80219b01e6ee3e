//! Explains why an address can't be bound, and which program uses it.

use std::{io, net::SocketAddr, time::Duration};

use attache_client::{Error, HubClient, HubClientOptions, HubCredential};
use attache_os::machine;
use attache_protocol::Code;

use crate::{text::setup, ui::failure::CommandFailure};

/// The failure for an address that can't be bound, with a hint. `option` is the option that set the address.
pub(crate) async fn explain(option: &str, address: SocketAddr, error: &io::Error) -> CommandFailure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {}
        io::ErrorKind::PermissionDenied => {
            return CommandFailure::failed(setup::no_permission(address)).hint(setup::low_port(option));
        }
        io::ErrorKind::AddrNotAvailable => {
            return CommandFailure::usage(setup::not_own_address(address)).hint(setup::own_address(option));
        }
        _ => return CommandFailure::failed(setup::cant_listen(address, error)),
    }
    let owner = machine::listener(address.port()).map(|owner| format!(" ({owner})")).unwrap_or_default();
    let free = SocketAddr::new(address.ip(), 0);
    if let Some(scheme) = hub_at(address).await {
        return CommandFailure::failed(setup::hub_running(format_args!("{scheme}://{address}"), owner))
            .hint(setup::hub_running_do(option, free));
    }
    CommandFailure::failed(setup::port_taken(owner, address)).hint(setup::port_taken_do(option, free))
}

/// The URL scheme of the hub at an address, if it is a hub.
async fn hub_at(address: SocketAddr) -> Option<&'static str> {
    let hub = HubClient::new(HubClientOptions::new(format!("http://{address}"), HubCredential::None)).ok()?;
    match tokio::time::timeout(Duration::from_secs(4), hub.health()).await.ok()? {
        Ok(_) => Some("http"),
        // Only a hub explains why it rejects plain HTTP.
        Err(Error::Refused(refusal)) if refusal.code == Code::InvalidRequest => Some("https"),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[cfg_attr(attache_portable, ignore = "only Linux tells which program listens on a port")]
    async fn the_program_that_uses_the_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let failure = explain("--http", address, &io::ErrorKind::AddrInUse.into()).await;
        assert!(failure.message.starts_with("another program ("), "{failure}");
        assert!(failure.message.contains(&format!("process {})", std::process::id())), "{failure}");
        assert!(failure.hint.ends_with("--http 127.0.0.1:0"), "{failure}");
    }
}
