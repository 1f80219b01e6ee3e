//! The key for a remote agent, and how its card wants it sent.

use attache_a2a_wire::{AgentCard, SecurityScheme};
use attache_protocol::Secret;
use base64ct::{Base64, Encoding as _};
use reqwest::{
    Url,
    header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue},
};
use serde::Deserialize;

use super::{Error, Result};

/// The credential for a remote agent. Never printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerCredentials(Option<Secret<String>>);

/// Where the key goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeyPlacement {
    Bearer,
    /// The key is `user:password`.
    Basic,
    Header(HeaderName),
    Query(String),
    Cookie(String),
}

#[derive(Deserialize)]
struct ApiKeyMember {
    location: String,
    name: String,
}

#[derive(Deserialize)]
struct HttpSchemeMember {
    scheme: String,
}

// === impl PeerCredentials ===

impl PeerCredentials {
    pub const fn none() -> Self {
        Self(None)
    }

    pub const fn key(key: Secret<String>) -> Self {
        Self(Some(key))
    }

    pub const fn is_none(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn apply(&self, place: &KeyPlacement, url: &mut Url, headers: &mut HeaderMap) -> Result<()> {
        let Some(key) = &self.0 else { return Ok(()) };
        let key = key.expose().trim();
        let (name, value) = match place {
            KeyPlacement::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
            KeyPlacement::Basic => (AUTHORIZATION, format!("Basic {}", Base64::encode_string(key.as_bytes()))),
            KeyPlacement::Header(name) => (name.clone(), key.to_owned()),
            KeyPlacement::Cookie(name) => (COOKIE, format!("{name}={key}")),
            KeyPlacement::Query(name) => {
                url.query_pairs_mut().append_pair(name, key);
                return Ok(());
            }
        };
        let mut value = HeaderValue::try_from(value).map_err(|_| Error::Credential)?;
        value.set_sensitive(true);
        headers.insert(name, value);
        Ok(())
    }
}

// === impl KeyPlacement ===

impl KeyPlacement {
    /// The first scheme the card accepts that a single key can satisfy.
    pub(super) fn of(card: &AgentCard) -> Self {
        let required = card.security_requirements.iter().filter_map(|requirement| {
            let mut names = requirement.schemes.keys();
            names.next().filter(|_| requirement.schemes.len() == 1)
        });
        let offered = required.chain(card.security_schemes.keys());
        offered.filter_map(|name| card.security_schemes.get(name)).find_map(Self::of_scheme).unwrap_or(Self::Bearer)
    }

    fn of_scheme(SecurityScheme(scheme): &SecurityScheme) -> Option<Self> {
        let (kind, scheme) = scheme.iter().next()?;
        match kind.as_str() {
            "apiKeySecurityScheme" => {
                let ApiKeyMember { location, name } = scheme.parse().ok()?;
                match location.as_str() {
                    "header" => name.parse().ok().map(Self::Header),
                    "query" => Some(Self::Query(name)),
                    "cookie" => Some(Self::Cookie(name)),
                    _ => None,
                }
            }
            "httpAuthSecurityScheme" => {
                match scheme.parse::<HttpSchemeMember>().ok()?.scheme.to_ascii_lowercase().as_str() {
                    "bearer" => Some(Self::Bearer),
                    "basic" => Some(Self::Basic),
                    _ => None,
                }
            }
            // OAuth and OpenID tokens are sent as bearer tokens.
            "oauth2SecurityScheme" | "openIdConnectSecurityScheme" => Some(Self::Bearer),
            _ => None,
        }
    }
}
