//! Health, login links and other facts about the hub itself.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{KeyPin, Timestamp, UserId, wire::key::Role};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HubHealth {
    /// `ok`, or `degraded` while storage has a problem.
    pub status: String,
    pub version: String,
    /// What an acknowledged write survives: `power_loss` or `nothing` (the in-memory store).
    pub durability: String,
    /// The storage engine, for display.
    pub store: String,
    /// Whether it can be written to. `null` only from hubs that don't report it.
    #[serde(default)]
    pub storage: Option<Storage>,
}

/// Whether the hub can store data now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Storage {
    Ok,
    /// Little space is left, so uploads are refused. Everything else works.
    DiskLow,
    DiskFull,
    ReadOnly,
    /// The disk reports errors, or part of the database is damaged.
    Failed,
    /// It does not respond in time.
    Slow,
    /// The database server can't be reached.
    Unreachable,
    /// Another hub has taken over the database.
    ServedElsewhere,
}

// === impl Storage ===

impl Storage {
    /// Why nothing can be stored, as part of a sentence. `None` if it can.
    pub const fn problem(self) -> Option<&'static str> {
        match self {
            Self::Ok | Self::DiskLow => None,
            Self::DiskFull => Some("its disk is full"),
            Self::ReadOnly => Some("its file system is read-only"),
            Self::Failed => Some("its disk reports errors"),
            Self::Slow => Some("its disk does not answer in time"),
            Self::Unreachable => Some("its database server can't be reached"),
            Self::ServedElsewhere => Some("another hub serves its database"),
        }
    }
}

/// `POST /api/v1/login-links`: a one-time link that signs one browser in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    pub url: String,
    pub expires_at: Timestamp,
    /// The user it signs in. Null for no user.
    pub user_id: Option<UserId>,
    pub user_name: Option<String>,
    pub role: Role,
}

/// What a server writes to `--ready-file` once it listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyFile {
    pub url: String,
    /// Only for a hub with a self-signed certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<KeyPin>,
}
