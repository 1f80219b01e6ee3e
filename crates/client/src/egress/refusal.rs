//! Why a URL is not called, and what went wrong when it was; told so that a person knows what to do next.

use super::{AddressRange, location::MAX_URL};

/// The guard says no. Changing the URL, or the owner's rules, helps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressRefusal {
    #[error("the URL has more than {MAX_URL} characters. Use a shorter one.")]
    TooLong,
    #[error(
        "the URL is not written plainly: {0}. Write it like https://hooks.example.org/path, names beyond ASCII as xn--…."
    )]
    Malformed(&'static str),
    #[error("the URL does not begin with https:// or http://. Nothing else is called.")]
    Scheme,
    #[error("the URL has a user name or password in it. Put the secret into the query, or verify the signature.")]
    Credentials,
    #[error("the URL has a fragment (#…), which is never sent. Remove it.")]
    Fragment,
    #[error(
        "the URL has an address that is not written plainly. Write four decimal numbers, or an IPv6 address in brackets."
    )]
    OddAddress,
    #[error("port {port} is not called. Use 443, 80 or a port above 1023, or ask the owner to allow the host.")]
    Port { port: u16 },
    #[error(
        "{origin} would be called without encryption. Use https, or ask the owner to allow the host (--egress-allow)."
    )]
    PlainHttp { origin: String },
    #[error("`{host}` is a name of a local network. Ask the owner to allow it (--egress-allow {host}).")]
    LocalName { host: String },
    /// Which address it was is not told: whoever asks may be after just that.
    #[error("`{host}` leads to {range}. Use a public address, or ask the owner to allow this one (--egress-allow).")]
    Address { host: String, range: AddressRange },
}

/// A call that did not get its answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressFailure {
    #[error(transparent)]
    Refused(#[from] EgressRefusal),
    #[error("`{host}` has no address: {reason}. Check the name.")]
    Unresolved { host: String, reason: String },
    #[error("{origin} cannot be reached: {reason}. Check that it is running and can be called from the hub.")]
    Unreachable { origin: String, reason: String },
    /// The request may have arrived.
    #[error("{origin} broke the connection off: {reason}. Check its log.")]
    Broken { origin: String, reason: String },
    #[error("{origin} did not answer in time. Let it answer first and work afterwards.")]
    TimedOut { origin: String },
    /// The status arrived; the rest was too much.
    #[error("{origin} answered {status} with more than {limit} bytes. Let it answer with less.")]
    TooLarge { origin: String, status: u16, limit: usize },
    #[error("cannot set up TLS: {reason}. Install the package ca-certificates.")]
    NoTls { reason: String },
}

// === impl EgressRefusal ===

impl EgressRefusal {
    /// Nothing that anybody could allow: the text is no URL that can be called at all.
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

    /// The request has certainly not arrived.
    pub const fn is_undelivered(&self) -> bool {
        match self {
            Self::Refused(_) | Self::Unresolved { .. } | Self::Unreachable { .. } | Self::NoTls { .. } => true,
            Self::Broken { .. } | Self::TimedOut { .. } | Self::TooLarge { .. } => false,
        }
    }
}
