//! What a client needs to know before it can talk to a hub.

use std::time::Duration;

use attache_protocol::{KeyPin, Secret, env::Env};

#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The hub's origin, or the origin with `/api/v1`.
    pub address: String,
    pub credential: HubCredential,
    pub timeouts: Timeouts,
    /// A certificate (PEM) to trust besides the machine's own, for a hub that signs its own.
    pub trusted_certificate: Option<Vec<u8>>,
    /// The only key that the hub may have. With it, no certificate authority is asked and no name is compared.
    pub pin: Option<KeyPin>,
    pub env: Env,
}

#[derive(Debug, Clone)]
pub enum HubCredential {
    /// A person's or program's API key: `Authorization: Bearer ak_…`.
    Key(Secret<String>),
    /// A paired device's token: `X-Runtime-Token: rt_…`.
    RuntimeToken(Secret<String>),
    /// For what is open to all: health, and redeeming a pairing code.
    None,
}

#[derive(Debug, Clone, Copy)]
pub struct Timeouts {
    pub connect: Duration,
    /// From sending a request to the end of its answer; long waits and transfers come on top.
    pub request: Duration,
    /// How long a stream may be silent before it is taken for dead. Hubs send a comment far more often.
    pub idle: Duration,
}

// === impl HubOptions ===

impl HubOptions {
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
