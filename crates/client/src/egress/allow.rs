//! The owner's allow rules: a network, an address, a host, or all hosts below a name.

use std::{fmt, net::IpAddr, str::FromStr};

use super::location::{is_name, looks_numeric};

/// One rule of `--egress-allow`. It lifts the guard's refusal of private addresses, plain http and unusual ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressRule {
    /// `10.0.0.0/8`, or one address.
    Network(IpNetwork),
    /// `hooks.corp.example`, wherever it resolves to.
    Host(String),
    /// `*.corp.example`: every name below it, wherever it resolves to.
    Below(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpNetwork {
    address: IpAddr,
    prefix: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` isn't a valid rule: {why}. Use a network (10.0.0.0/8), an address, a host, or *.example.org.")]
pub struct InvalidEgressRule {
    pub rule: String,
    pub why: String,
}

// === impl EgressRule ===

impl EgressRule {
    /// Whether the rule covers this host by name.
    pub fn names(&self, name: &str) -> bool {
        match self {
            Self::Network(_) => false,
            Self::Host(host) => host == name,
            Self::Below(parent) => name.strip_suffix(&**parent).is_some_and(|rest| rest.ends_with('.')),
        }
    }
}

impl FromStr for EgressRule {
    type Err = InvalidEgressRule;

    fn from_str(text: &str) -> Result<Self, InvalidEgressRule> {
        let rule = text.trim();
        let invalid = |why: &str| InvalidEgressRule { rule: rule.to_owned(), why: why.to_owned() };
        let (address, prefix) = rule.split_once('/').map_or((rule, None), |(address, prefix)| (address, Some(prefix)));
        let bare = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(address);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let widest = if address.is_ipv4() { 32 } else { 128 };
            let prefix = match prefix {
                None => widest,
                Some(digits) => digits
                    .parse()
                    .ok()
                    .filter(|prefix| *prefix <= widest && digits.bytes().all(|byte| byte.is_ascii_digit()))
                    .ok_or_else(|| invalid(&format!("the prefix length must be a number up to {widest}")))?,
            };
            let network = IpNetwork { address, prefix };
            let base = network.base();
            if base != network {
                return Err(invalid(&format!("the network with that prefix length is {base}")));
            }
            return Ok(Self::Network(network));
        }
        if prefix.is_some() {
            return Err(invalid("there is no address before the slash"));
        }
        let (is_below, name) = rule.strip_prefix("*.").map_or((false, rule), |name| (true, name));
        let name = name.to_ascii_lowercase();
        if looks_numeric(&name) {
            return Err(invalid("an address is four decimal numbers or an IPv6 address"));
        }
        if !is_name(&name) {
            return Err(invalid("it isn't a host name; leave out port, path and scheme"));
        }
        Ok(if is_below { Self::Below(name) } else { Self::Host(name) })
    }
}

impl fmt::Display for EgressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(name) => f.write_str(name),
            Self::Below(name) => write!(f, "*.{name}"),
        }
    }
}

// === impl IpNetwork ===

impl IpNetwork {
    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4() && Self { address, ..self }.base().address == self.address
    }

    pub const fn is_one_address(self) -> bool {
        self.prefix == if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The same network with the bits beyond its prefix cleared.
    fn base(self) -> Self {
        let prefix = u32::from(self.prefix);
        let address = match self.address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Self { address, ..self }
    }
}

impl FromStr for IpNetwork {
    type Err = InvalidEgressRule;

    fn from_str(text: &str) -> Result<Self, InvalidEgressRule> {
        match text.parse()? {
            EgressRule::Network(network) => Ok(network),
            EgressRule::Host(_) | EgressRule::Below(_) => Err(InvalidEgressRule {
                rule: text.to_owned(),
                why: "it is a name, but an address is needed".to_owned(),
            }),
        }
    }
}

impl fmt::Display for IpNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one_address() { self.address.fmt(f) } else { write!(f, "{}/{}", self.address, self.prefix) }
    }
}
