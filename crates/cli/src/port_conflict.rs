//! Why a port cannot be listened on, and who has it.

use std::{fs, io, net::SocketAddr, time::Duration};

use attache_client::{Error, HubClient, HubCredential, HubOptions};
use attache_protocol::Code;

use crate::CommandFailure;

/// The failure for an address that cannot be bound, with what to do about it. `option` is the one that named it.
pub(crate) async fn explain(option: &str, address: SocketAddr, error: &io::Error) -> CommandFailure {
    match error.kind() {
        io::ErrorKind::AddrInUse => {}
        io::ErrorKind::PermissionDenied => {
            return CommandFailure::failed(format!("this user may not listen on {address}"))
                .hint(format!("Ports below 1024 belong to root; take a higher one, like {option} 127.0.0.1:7800."));
        }
        io::ErrorKind::AddrNotAvailable => {
            return CommandFailure::usage(format!("{address} is not an address of this machine"))
                .hint(format!("Use {option} 127.0.0.1:7800."));
        }
        _ => return CommandFailure::failed(format!("cannot listen on {address}: {error}")),
    }
    let owner = owner(address.port()).map(|owner| format!(" ({owner})")).unwrap_or_default();
    let other = format!("or take a free port: {option} {}", SocketAddr::new(address.ip(), 0));
    if let Some(scheme) = hub_at(address).await {
        return CommandFailure::failed(format!("an Attaché hub already runs at {scheme}://{address}{owner}"))
            .hint(format!("Use it (`attache agents`), stop it, {other}"));
    }
    CommandFailure::failed(format!("another program{owner} listens on {address}")).hint(format!("Stop it, {other}"))
}

/// What the hub at an address speaks, if it is one.
async fn hub_at(address: SocketAddr) -> Option<&'static str> {
    let hub = HubClient::new(HubOptions::new(format!("http://{address}"), HubCredential::None)).ok()?;
    match tokio::time::timeout(Duration::from_secs(4), hub.health()).await.ok()? {
        Ok(_) => Some("http"),
        // Only a hub says why it does not answer plain HTTP.
        Err(Error::Refused(refusal)) if refusal.code == Code::InvalidRequest => Some("https"),
        Err(_) => None,
    }
}

/// The program that listens on a port, as far as this user may know.
fn owner(port: u16) -> Option<String> {
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(table).unwrap_or_default();
        let inodes = text.lines().filter_map(|line| listening_inode(line, port));
        sockets.extend(inodes.map(|inode| format!("socket:[{inode}]")));
    }
    for process in fs::read_dir("/proc").ok()?.flatten() {
        // Besides processes, `/proc` holds names like `self`.
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

/// The inode of a line of `/proc/net/tcp` whose socket listens on the port.
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
    async fn the_program_that_has_a_port_is_named() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let owner = owner(address.port()).unwrap();
        assert!(owner.ends_with(&format!("process {}", std::process::id())), "{owner}");
        let failure = explain("--http", address, &io::ErrorKind::AddrInUse.into()).await;
        assert!(failure.message.starts_with("another program ("), "{failure}");
        assert!(failure.hint.ends_with("--http 127.0.0.1:0"), "{failure}");
    }
}
