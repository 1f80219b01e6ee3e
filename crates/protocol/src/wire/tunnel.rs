//! Tunnels: relay bytes between two machines that can both reach a hub but not each other. The hub can't read them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DelegationId, Timestamp, TunnelId};

/// `PUT /api/v1/tunnels/{id}`. The host chooses the id and the token, so that it can open the same tunnel again after a
/// hub restart. The hub learns only the token's hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OpenTunnelRequest {
    /// The caller's live, published delegation that uses the tunnel. The tunnel ends with it.
    pub delegation_id: DelegationId,
    /// SHA-256 of the remote's token, in hexadecimal.
    pub token_sha256: String,
    pub expires_at: Timestamp,
    /// Both directions together. Default: the hub's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tunnel {
    pub tunnel_id: TunnelId,
    pub delegation_id: DelegationId,
    /// Where both ends open their WebSockets: the remote with `Authorization: Bearer <token>`, the host with its own
    /// key and `?end=host`, keeping one socket waiting for the next connection.
    pub url: String,
    pub expires_at: Timestamp,
    pub max_bytes: u64,
    pub relayed_bytes: u64,
    pub open_connections: u32,
}
