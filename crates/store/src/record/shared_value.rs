//! Values that the nodes of a hub share.

use attache_protocol::{TenantId, Timestamp, text_enum};

text_enum! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    plain pub enum SharedValueKind {
        /// Whom a login link signs in.
        LoginLink = "login_link",
        /// Which page asked for a passkey to sign in with. Nobody is known yet.
        SignInChallenge = "sign_in_challenge",
        /// What a signed-in person confirms with a passkey, or adds.
        PasskeyChallenge = "passkey_challenge",
        /// The secrets of a delegation's START, sealed by the hub.
        StartSecrets = "start_secrets",
        /// What a device reported last, sealed by the hub.
        DeviceReport = "device_report",
        /// How often calls to a webhook's target have failed in a row.
        CircuitBreaker = "circuit_breaker",
        /// One of the hub's own keys, sealed with the cluster's.
        HubKey = "hub_key",
        /// At which node a tunnel is open.
        Tunnel = "tunnel",
        /// The channel with the tools that a caller registered over HTTP.
        RegisteredTools = "registered_tools",
        /// The content of an artifact that is about to be placed, and has no row yet.
        ArtifactUpload = "artifact_upload",
        /// The contents that are about to be removed because no artifact refers to them.
        ArtifactRemoval = "artifact_removal",
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedValue {
    pub kind: SharedValueKind,
    /// Unique among the values of its kind.
    pub name: String,
    pub tenant: TenantId,
    /// Whose value it is.
    pub holder: String,
    pub value: Vec<u8>,
    pub expires_at: Timestamp,
}

/// How much room there is for values of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedValueLimit {
    None,
    /// The holder may have this many. The oldest ones give way.
    PerHolder(usize),
    /// All values of the kind together. Without room, the new one isn't kept. A holder's oldest ones give way, as above.
    Total {
        per_holder: usize,
        values: usize,
        bytes: usize,
    },
}
