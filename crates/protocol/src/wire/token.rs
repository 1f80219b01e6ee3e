//! Short-lived tokens, and the keys with which anybody can verify them and the cards of agents.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Timestamp, wire::key::KeyScope};

/// `POST /api/v1/tokens`: a JWT that is worth what the caller's key is worth, or less.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// At most 3600; 900 unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// At most the key's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<KeyScope>>,
    /// For whom it is meant (`aud`); the hub's own URL unless told. Only a token for the hub itself is accepted here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// The one answer that shows the token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IssuedToken {
    pub token: String,
    /// Always `Bearer`.
    pub token_type: String,
    pub expires_at: Timestamp,
}

/// `/.well-known/jwks.json` (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeySet {
    pub keys: Vec<PublicKey>,
}

/// An Ed25519 key (RFC 8037), which signs tokens, or a P-256 key, which signs cards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublicKey {
    pub kty: String,
    pub crv: String,
    pub alg: String,
    #[serde(rename = "use")]
    pub usage: String,
    pub kid: String,
    /// The public key, in base64url without padding; of P-256 its first coordinate.
    pub x: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
}
