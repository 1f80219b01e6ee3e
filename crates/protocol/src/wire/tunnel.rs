//! Tunnels: bytes between two machines that can both reach a hub, and not each other. The hub relays and cannot read them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DelegationId, Timestamp, TunnelId};

/// `PUT /api/v1/tunnels/{id}`. The host chooses the id and the token, so that it can open the same tunnel again after the hub
/// has started anew; the hub learns only the token's hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenTunnelRequest {
    /// The caller's own delegation that it carries, which the hub knows and which has not ended. The tunnel ends with it.
    pub delegation_id: DelegationId,
    /// SHA-256 of the token that the remote end shows, in hexadecimal.
    pub token_sha256: String,
    pub expires_at: Timestamp,
    /// Both directions together; the hub's own limit when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tunnel {
    pub tunnel_id: TunnelId,
    pub delegation_id: DelegationId,
    /// Where both ends open their WebSockets: the remote with `Authorization: Bearer <token>`, the host with its own key and
    /// `?end=host`, one socket ahead for every connection to come.
    pub url: String,
    pub expires_at: Timestamp,
    pub max_bytes: u64,
    pub relayed_bytes: u64,
    pub open_connections: u32,
}
