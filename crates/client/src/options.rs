//! Options of a client.

use std::time::Duration;

use attache_protocol::{KeyPin, Secret, env::Env};

#[derive(Debug, Clone)]
pub struct HubClientOptions {
    /// The hub's origin, or the origin with `/api/v1`.
    pub address: String,
    pub credential: HubCredential,
    pub timeouts: Timeouts,
    /// A certificate (PEM) to trust in addition to the machine's own, for a hub with a self-signed certificate.
    pub trusted_certificate: Option<Vec<u8>>,
    /// The only key accepted from the hub. With a pin, certificate authorities and names don't matter.
    pub pin: Option<KeyPin>,
    pub env: Env,
}

#[derive(Debug, Clone)]
pub enum HubCredential {
    /// A person's or program's API key: `Authorization: Bearer ak_…`.
    Key(Secret<String>),
    /// A paired device's token: `X-Runtime-Token: rt_…`.
    RuntimeToken(Secret<String>),
    /// For public endpoints: health, and redeeming a pairing code.
    None,
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub connect: Duration,
    /// From sending a request to the end of the response. Long waits and transfers get extra time.
    pub request: Duration,
    /// How long a stream may be silent before it counts as dead. Hubs send comments far more often.
    pub idle: Duration,
}

// === impl HubClientOptions ===

impl HubClientOptions {
    pub fn new(address: impl Into<String>, credential: HubCredential) -> Self {
        Self {
            address: address.into(),
            credential,
            timeouts: Timeouts::default(),
            trusted_certificate: None,
            pin: None,
            env: Env::system(),
        }
    }
}

// === impl Timeouts ===

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), request: Duration::from_secs(30), idle: Duration::from_secs(60) }
    }
}
