//! Health, login links and other facts about the hub itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Pin, Timestamp};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    pub status: String,
    pub version: String,
    /// What an acknowledged write survives: `power_loss` or `nothing` (the in-memory model).
    pub durability: String,
    /// The engine that keeps it, for people.
    pub store: String,
}

/// `POST /api/v1/login-links`: a link that signs one browser in, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    pub url: String,
    pub expires_at: Timestamp,
}

/// What a server writes to `--ready-file` once it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    pub url: String,
    /// Of a hub that made its own certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Pin>,
}
