//! Explains why an address can't be bound, and which program uses it.

use std::{fs, io, net::SocketAddr, time::Duration};

use attache_client::{Error, HubClient, HubClientOptions, HubCredential};
use attache_protocol::Code;

use crate::ui::failure::CommandFailure;

/// The failure for an address that can't be bound, with a hint. `option` is the option that set the address.
pub(crate) async fn explain(option: &str, address: SocketAddr, error: &io::Error) -> CommandFailure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {}
        io::ErrorKind::PermissionDenied => {
            return CommandFailure::failed(format!("no permission to listen on {address}"))
                .hint(format!("Ports below 1024 require root. Use a higher port, such as {option} 127.0.0.1:7800."));
        }
        io::ErrorKind::AddrNotAvailable => {
            return CommandFailure::usage(format!("{address} isn't an address of this machine"))
                .hint(format!("Use {option} 127.0.0.1:7800."));
        }
        _ => return CommandFailure::failed(format!("can't listen on {address}: {error}")),
    }
    let owner = owner(address.port()).map(|owner| format!(" ({owner})")).unwrap_or_default();
    let other = format!("or use a free port: {option} {}", SocketAddr::new(address.ip(), 0));
    if let Some(scheme) = hub_at(address).await {
        return CommandFailure::failed(format!("an Attaché hub is already running at {scheme}://{address}{owner}"))
            .hint(format!("Use it (`attache agents`), stop it, {other}"));
    }
    CommandFailure::failed(format!("another program{owner} is already listening on {address}"))
        .hint(format!("Stop it, {other}"))
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

/// The program that listens on a port, if this user can see it.
fn owner(port: u16) -> Option<String> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let inodes = text.lines().filter_map(|line| listening_inode(line, port));
        sockets.extend(inodes.map(|inode| format!("socket:[{inode}]")));
    }
    for process in fs::read_dir("/proc").ok()?.flatten() {
        // `/proc` also contains entries such as `self` that aren't processes.
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        let has_it = files
            .flatten()
            .filter_map(|file| fs::read_link(file.path()).ok())
            .any(|target| target.to_str().is_some_and(|target| sockets.iter().any(|socket| socket == target)));
        if has_it {
            let name = fs::read_to_string(process.path().join("comm")).ok()?;
            return Some(format!("{}, process {id}", name.trim()));
        }
    }
    None
}

/// The inode in a line of `/proc/net/tcp`, if its socket listens on the port.
fn listening_inode(line: &str, port: u16) -> Option<&str> {
    const LISTEN: &str = "0A";
    let mut fields = line.split_whitespace();
    let (_, local) = fields.nth(1)?.rsplit_once(':')?;
    let state = fields.nth(1)?;
    (state == LISTEN && u16::from_str_radix(local, 16) == Ok(port)).then(|| fields.nth(5)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_program_that_uses_the_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let owner = owner(address.port()).unwrap();
        assert!(owner.ends_with(&format!("process {}", std::process::id())), "{owner}");
        let failure = explain("--http", address, &io::ErrorKind::AddrInUse.into()).await;
        assert!(failure.message.starts_with("another program ("), "{failure}");
        assert!(failure.hint.ends_with("--http 127.0.0.1:0"), "{failure}");
    }
}
