//! The standard's security schemes, typed.

use std::collections::BTreeMap;

use attache_protocol::Json;
use serde::{Deserialize, Serialize};

use super::{SecurityScheme, or_default};

/// A scheme of a known kind. In JSON, the member's name is the kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum KnownScheme {
    #[serde(rename = "apiKeySecurityScheme", alias = "api_key_security_scheme")]
    ApiKey(ApiKeyScheme),
    #[serde(rename = "httpAuthSecurityScheme", alias = "http_auth_security_scheme")]
    HttpAuth(HttpAuthScheme),
    #[serde(rename = "oauth2SecurityScheme", alias = "oauth2_security_scheme")]
    OAuth2(Box<OAuth2Scheme>),
    #[serde(rename = "openIdConnectSecurityScheme", alias = "open_id_connect_security_scheme")]
    OpenIdConnect(OpenIdConnectScheme),
    #[serde(rename = "mtlsSecurityScheme", alias = "mtls_security_scheme")]
    MutualTls(MutualTlsScheme),
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKeyScheme {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// `header`, `query` or `cookie`.
    pub location: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthScheme {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub scheme: String,
    #[serde(default, alias = "bearer_format", skip_serializing_if = "Option::is_none")]
    pub bearer_format: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OAuth2Scheme {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub flows: OAuthFlows,
    #[serde(
        default,
        rename = "oauth2MetadataUrl",
        alias = "oauth2_metadata_url",
        skip_serializing_if = "Option::is_none"
    )]
    pub metadata_url: Option<String>,
}

/// Version 1.0 has one of them, 0.3 any number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlows {
    #[serde(default, alias = "authorization_code", skip_serializing_if = "Option::is_none")]
    pub authorization_code: Option<OAuthFlow>,
    #[serde(default, alias = "client_credentials", skip_serializing_if = "Option::is_none")]
    pub client_credentials: Option<OAuthFlow>,
    #[serde(default, alias = "device_code", skip_serializing_if = "Option::is_none")]
    pub device_code: Option<OAuthFlow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implicit: Option<OAuthFlow>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<OAuthFlow>,
}

/// The members of all flows. Each flow uses those it needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuthFlow {
    #[serde(default, alias = "authorization_url", skip_serializing_if = "Option::is_none")]
    pub authorization_url: Option<String>,
    #[serde(default, alias = "device_authorization_url", skip_serializing_if = "Option::is_none")]
    pub device_authorization_url: Option<String>,
    #[serde(default, alias = "token_url", skip_serializing_if = "Option::is_none")]
    pub token_url: Option<String>,
    #[serde(default, alias = "refresh_url", skip_serializing_if = "Option::is_none")]
    pub refresh_url: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    pub scopes: BTreeMap<String, String>,
    #[serde(default, alias = "pkce_required", skip_serializing_if = "Option::is_none")]
    pub pkce_required: Option<bool>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenIdConnectScheme {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(alias = "open_id_connect_url")]
    pub open_id_connect_url: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MutualTlsScheme {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

// === impl KnownScheme ===

impl KnownScheme {
    /// The scheme, if its kind is known and it has the required members. A card for several versions has members of the
    /// others too.
    pub fn of(scheme: &SecurityScheme) -> Option<Self> {
        scheme.0.iter().find_map(|(kind, value)| Json::of(&SecurityScheme::new(kind, value.clone())).parse().ok())
    }
}

impl From<KnownScheme> for SecurityScheme {
    fn from(scheme: KnownScheme) -> Self {
        Json::of(&scheme).parse().expect("a scheme is an object with one member")
    }
}
