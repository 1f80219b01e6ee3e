//! Chooses which of a card's interfaces to use, and its version and binding.

use attache_a2a_wire::{AgentCard, AgentInterface};

use super::{Error, Result};
use crate::egress;

/// An interface of a remote agent that we support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerInterface {
    pub url: String,
    pub version: PeerVersion,
    pub binding: PeerBinding,
    /// Sent with every request.
    pub tenant: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerVersion {
    V10,
    V03,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerBinding {
    JsonRpc,
    HttpJson,
    Grpc,
}

// === impl PeerInterface ===

impl PeerInterface {
    /// The best interface of a card: newer versions first, then JSON-RPC, HTTP+JSON, gRPC.
    pub fn choose(card: &AgentCard) -> Result<Self> {
        let mut best: Option<(usize, Self)> = None;
        for offered in &card.supported_interfaces {
            let Some((rank, version, binding)) = rank(offered) else { continue };
            if best.as_ref().is_none_or(|(least, _)| rank < *least) {
                let tenant = offered.tenant.clone().filter(|tenant| !tenant.is_empty());
                best = Some((rank, Self { url: offered.url.clone(), version, binding, tenant }));
            }
        }
        let name = |offered: &AgentInterface| format!("{} {}", offered.protocol_binding, offered.protocol_version);
        best.map(|(_, interface)| interface).ok_or_else(|| {
            let offered: Vec<_> = card.supported_interfaces.iter().map(name).collect();
            let offered = if offered.is_empty() { "no interface".to_owned() } else { offered.join(", ") };
            Error::NoInterface { offered }
        })
    }
}

impl PeerInterface {
    /// The origin that receives the key, if it differs from the origin of the card at `card_url`.
    pub fn elsewhere(&self, card_url: &str) -> Option<String> {
        Some(egress::origin(&self.url)).filter(|origin| *origin != egress::origin(card_url))
    }
}

fn rank(offered: &AgentInterface) -> Option<(usize, PeerVersion, PeerBinding)> {
    let version = PeerVersion::read(&offered.protocol_version)?;
    match (version, offered.protocol_binding.as_str()) {
        (PeerVersion::V10, "JSONRPC") => Some((0, version, PeerBinding::JsonRpc)),
        (PeerVersion::V10, "HTTP+JSON") => Some((1, version, PeerBinding::HttpJson)),
        (PeerVersion::V10, "GRPC") => Some((2, version, PeerBinding::Grpc)),
        (PeerVersion::V03, "JSONRPC") => Some((3, version, PeerBinding::JsonRpc)),
        (PeerVersion::V03, "HTTP+JSON") => Some((4, version, PeerBinding::HttpJson)),
        (PeerVersion::V03, "GRPC") => Some((5, version, PeerBinding::Grpc)),
        _ => None,
    }
}

// === impl PeerVersion ===

impl PeerVersion {
    /// Only major and minor count. Later 1.x versions understand 1.0, and 0.2 is a subset of 0.3.
    fn read(text: &str) -> Option<Self> {
        let mut numbers = text.trim().trim_start_matches('v').split('.');
        match (numbers.next()?, numbers.next()) {
            ("1", _) => Some(Self::V10),
            ("0", Some("2" | "3")) => Some(Self::V03),
            _ => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V10 => "1.0",
            Self::V03 => "0.3",
        }
    }
}

// === impl PeerBinding ===

impl PeerBinding {
    /// As written in cards.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSONRPC",
            Self::HttpJson => "HTTP+JSON",
            Self::Grpc => "GRPC",
        }
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Json;

    use super::*;

    fn chosen(interfaces: &[(&str, &str, &str)]) -> Result<(String, PeerVersion, PeerBinding)> {
        let interfaces: Vec<_> = interfaces
            .iter()
            .map(|(url, binding, version)| {
                format!(r#"{{"url":"{url}","protocolBinding":"{binding}","protocolVersion":"{version}"}}"#)
            })
            .collect();
        let text = format!(r#"{{"name":"x","supportedInterfaces":[{}]}}"#, interfaces.join(","));
        let card = Json::from_text(text).unwrap().parse().unwrap();
        PeerInterface::choose(&card).map(|interface| (interface.url, interface.version, interface.binding))
    }

    #[test]
    fn the_newest_version_and_the_simplest_binding_are_chosen() {
        let all = [
            ("g", "GRPC", "1.0"),
            ("o", "JSONRPC", "0.3"),
            ("h", "HTTP+JSON", "1.0"),
            ("j", "JSONRPC", "1.0"),
            ("k", "JSONRPC", "1.0"),
        ];
        let is = |url: &str, version, binding| Ok((url.to_owned(), version, binding));
        assert_eq!(chosen(&all), is("j", PeerVersion::V10, PeerBinding::JsonRpc));
        assert_eq!(chosen(&all[..3]), is("h", PeerVersion::V10, PeerBinding::HttpJson));
        assert_eq!(chosen(&all[..2]), is("g", PeerVersion::V10, PeerBinding::Grpc));
        let old = [("g", "GRPC", "0.3.0"), ("r", "HTTP+JSON", "0.3.0"), ("o", "JSONRPC", "0.3")];
        assert_eq!(chosen(&old), is("o", PeerVersion::V03, PeerBinding::JsonRpc));
        assert_eq!(chosen(&old[..2]), is("r", PeerVersion::V03, PeerBinding::HttpJson));
        assert_eq!(chosen(&old[..1]), is("g", PeerVersion::V03, PeerBinding::Grpc));
        assert_eq!(chosen(&[("x", "JSONRPC", "1.1.0")]), is("x", PeerVersion::V10, PeerBinding::JsonRpc));
        let refused = [("g", "GRPC", "2.0"), ("r", "SOAP", "1.0"), ("j", "JSONRPC", "2.0")];
        let offered = "GRPC 2.0, SOAP 1.0, JSONRPC 2.0".to_owned();
        assert_eq!(chosen(&refused), Err(Error::NoInterface { offered }));
        assert_eq!(chosen(&[]), Err(Error::NoInterface { offered: "no interface".to_owned() }));
    }
}
