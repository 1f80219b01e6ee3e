//! Short-lived tokens, and the keys that verify them and agent cards.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Timestamp, wire::key::KeyScope};

/// `POST /api/v1/tokens`: creates a JWT with the rights of the caller's key, or fewer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// At most 3600. Default: 900.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// A subset of the key's own scopes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<KeyScope>>,
    /// The audience (`aud`). Default: the hub's own URL. The hub accepts only tokens for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
}

/// The only response that contains the token.
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
    /// The public key in base64url without padding. For P-256, its first coordinate.
    pub x: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<String>,
}
