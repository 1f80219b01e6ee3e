//! Pairing a device with an agent, in both directions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{AgentId, Json, KeyPin, RuntimeId, Secret, Timestamp};

/// The only response that contains the pairing code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairingCodeResponse {
    pub pairing_code: String,
    pub expires_at: Timestamp,
    /// The hub's address for other machines. Null if only its own machine can reach it.
    #[serde(default)]
    pub api_base: Option<String>,
    /// The pin of a hub with a self-signed certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub pin: Option<KeyPin>,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct AttachRequest {
    #[schema(value_type = String)]
    pub pairing_token: Secret<String>,
    #[serde(default)]
    pub device_name: Option<String>,
    #[serde(default)]
    pub labels: Option<Json>,
}

/// The only response that contains the runtime token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AttachResponse {
    pub agent_id: AgentId,
    pub runtime_id: RuntimeId,
    pub runtime_token: String,
    pub heartbeat_timeout_ms: u64,
    /// The agent's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_name: Option<String>,
}

/// A device without a code requests one to show: `POST …/runtime/pairing-requests`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct PairingRequest {
    #[serde(default)]
    pub device_name: Option<String>,
    #[serde(default)]
    pub labels: Option<Json>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PairingRequestResponse {
    pub pairing_code: String,
    /// Where a signed-in person confirms the code.
    pub confirm_url: String,
    /// The token for polling `POST …/runtime/pairing-requests/poll` until a person has decided.
    pub poll_token: String,
    pub poll_interval_ms: u64,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, Deserialize, ToSchema)]
pub struct PairingPollRequest {
    #[schema(value_type = String)]
    pub poll_token: Secret<String>,
}

/// What a person sees before they confirm: `GET /api/v1/pairing-requests/{code}`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PairingRequestView {
    pub device_name: Option<String>,
    pub labels: Json,
    /// The address of the device.
    pub address: String,
    pub expires_at: Timestamp,
}

/// `POST /api/v1/pairing-requests/{code}/decision`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PairingDecision {
    /// The agent to pair the device with. Omit it to reject the device.
    pub agent_id: Option<String>,
}
