//! Why a URL isn't called, and why a call failed, with the next step for a person.

use super::{AddressRange, location::MAX_URL};

/// Refused by the guard. Change the URL or the owner's rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressRefusal {
    #[error("the URL is longer than {MAX_URL} characters. Use a shorter one.")]
    TooLong,
    #[error("the URL is invalid: {0}. Use a form like https://hooks.example.org/path, with non-ASCII names as xn--….")]
    Malformed(&'static str),
    #[error("the URL doesn't start with https:// or http://. Other schemes aren't supported.")]
    Scheme,
    #[error("the URL contains a user name or password. Put the secret into the query, or verify the signature.")]
    Credentials,
    #[error("the URL has a fragment (#…), which is never sent. Remove it.")]
    Fragment,
    #[error("the URL has an unusual form of IP address. Use four decimal numbers, or an IPv6 address in brackets.")]
    OddAddress,
    #[error("port {port} isn't allowed. Use 443, 80 or a port above 1023, or ask the owner to allow the host.")]
    Port { port: u16 },
    #[error("{origin} isn't encrypted. Use https, or ask the owner to allow the host (--egress-allow).")]
    PlainHttp { origin: String },
    #[error("`{host}` is a local network name. Ask the owner to allow it (--egress-allow {host}).")]
    LocalName { host: String },
    /// The address isn't disclosed, because finding it out may be the goal.
    #[error("`{host}` points to {range}. Use a public address, or ask the owner to allow this one (--egress-allow).")]
    Address { host: String, range: AddressRange },
}

/// A call that got no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressFailure {
    #[error(transparent)]
    Refused(#[from] EgressRefusal),
    #[error("`{host}` has no address: {reason}. Check the name.")]
    Unresolved { host: String, reason: String },
    #[error("can't reach {origin}: {reason}. Check that it is running and reachable from the hub.")]
    Unreachable { origin: String, reason: String },
    /// The request may have arrived.
    #[error("{origin} dropped the connection: {reason}. Check its log.")]
    Broken { origin: String, reason: String },
    #[error("{origin} didn't respond in time. Have it respond first and do the work afterwards.")]
    TimedOut { origin: String },
    /// The status arrived, but the body was too large.
    #[error("{origin} returned {status} with more than {limit} bytes. Have it return less.")]
    TooLarge { origin: String, status: u16, limit: usize },
    #[error("can't set up TLS: {reason}. Install the package ca-certificates.")]
    NoTls { reason: String },
}

// === impl EgressRefusal ===

impl EgressRefusal {
    /// No rule can help: the text isn't a URL that can be called.
    pub const fn is_malformed(&self) -> bool {
        match self {
            Self::TooLong | Self::Malformed(_) | Self::Scheme | Self::Credentials | Self::Fragment => true,
            Self::OddAddress
            | Self::Port { .. }
            | Self::PlainHttp { .. }
            | Self::LocalName { .. }
            | Self::Address { .. } => false,
        }
    }
}

// === impl EgressFailure ===

impl EgressFailure {
    /// The same call may succeed a little later.
    pub const fn is_passing(&self) -> bool {
        match self {
            Self::Unresolved { .. } | Self::Unreachable { .. } | Self::Broken { .. } | Self::TimedOut { .. } => true,
            Self::Refused(_) | Self::TooLarge { .. } | Self::NoTls { .. } => false,
        }
    }

    /// The request certainly didn't arrive.
    pub const fn is_undelivered(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Unresolved { .. } | Self::Unreachable { .. } | Self::NoTls { .. } => true,
            Self::Broken { .. } | Self::TimedOut { .. } | Self::TooLarge { .. } => false,
        }
    }
}
