//! Health, login links and other facts about the hub itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{KeyPin, Timestamp, UserId, wire::key::Role};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HubHealth {
    /// `ok`, or `degraded` while nothing can be stored.
    pub status: String,
    pub version: String,
    /// What an acknowledged write survives: `power_loss` or `nothing` (the in-memory model).
    pub durability: String,
    /// The engine that keeps it, for people.
    pub store: String,
    /// Whether it can be written. `null` only from hubs that do not say.
    #[serde(default)]
    pub storage: Option<Storage>,
}

/// Whether the hub can store anything now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    Ok,
    DiskFull,
    ReadOnly,
    /// The disk reports errors, or a part of the database is damaged.
    Failed,
    /// It does not answer in time.
    Slow,
}

// === impl Storage ===

impl Storage {
    /// What is wrong, as a part of a sentence; none when nothing is.
    pub const fn problem(self) -> Option<&'static str> {
        match self {
            Self::Ok => None,
            Self::DiskFull => Some("its disk is full"),
            Self::ReadOnly => Some("its file system is read-only"),
            Self::Failed => Some("its disk reports errors"),
            Self::Slow => Some("its disk does not answer in time"),
        }
    }
}

/// `POST /api/v1/login-links`: a link that signs one browser in, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    pub url: String,
    pub expires_at: Timestamp,
    /// Whom it signs in; null for nobody in particular.
    pub user_id: Option<UserId>,
    pub user_name: Option<String>,
    pub role: Role,
}

/// What a server writes to `--ready-file` once it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyFile {
    pub url: String,
    /// Of a hub that made its own certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<KeyPin>,
}
