//! API keys of people and programs, browser sessions, and related events that only the log keeps.

use attache_protocol::{
    AgentId, DelegationId, KeyId, PasskeyId, Timestamp, TunnelId, UserId,
    secret::SecretHash,
    wire::key::{KeyScope, Role},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    Api,
    /// A browser's session.
    Session,
}

/// How a session was opened. It ends with its opener or its passkey.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOpening {
    /// The key or session that created the login link. `None` for a login by password or passkey.
    pub opener: Option<KeyId>,
    /// The passkey that its user signed in with.
    pub passkey: Option<PasskeyId>,
    /// The address of the browser.
    pub address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    pub id: KeyId,
    /// `Some` for a session.
    pub opening: Option<SessionOpening>,
    /// The credential of someone else that created this API key for its user. The key ends with it. `None` for keys that
    /// people create for themselves.
    pub issuer: Option<KeyId>,
    /// The outside agent that the key is for. Its user is the agent's owner.
    pub agent: Option<AgentId>,
    pub name: String,
    pub role: Role,
    pub user: Option<UserId>,
    /// `None` means everything the role allows.
    pub scopes: Option<Vec<KeyScope>>,
    pub secret: SecretHash,
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    pub id: KeyId,
    /// `Some` for a session.
    pub opening: Option<SessionOpening>,
    pub issuer: Option<KeyId>,
    pub agent: Option<AgentId>,
    pub name: String,
    pub role: Role,
    pub user: Option<UserId>,
    pub scopes: Option<Vec<KeyScope>>,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub revoked_at: Option<Timestamp>,
}

/// An event that changes nothing in the store, except for its log row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditEvent {
    /// A login link was created: for whom, with which role, and until when.
    LoginLinkCreated {
        user: Option<UserId>,
        role: Role,
        expires_at: Timestamp,
    },
    /// A token was issued for a key.
    TokenCreated {
        key: KeyId,
        /// The `jti` of the token.
        id: String,
        audience: Option<String>,
        role: Role,
        scopes: Option<Vec<KeyScope>>,
        expires_at: Timestamp,
    },
    TunnelOpened {
        tunnel: TunnelId,
        delegation: DelegationId,
        expires_at: Timestamp,
        max_bytes: u64,
    },
    /// How many bytes were relayed.
    TunnelClosed {
        tunnel: TunnelId,
        delegation: DelegationId,
        bytes: u64,
    },
}

// === impl NewKey ===

impl NewKey {
    pub const fn kind(&self) -> KeyKind {
        KeyKind::of(self.opening.as_ref())
    }

    /// The credential it ends with.
    pub fn opener(&self) -> Option<KeyId> {
        opener(self.opening.as_ref(), self.issuer)
    }
}

// === impl KeyRecord ===

impl KeyRecord {
    /// The passkey that opened this session.
    pub fn passkey(&self) -> Option<PasskeyId> {
        self.opening.as_ref().and_then(|opening| opening.passkey)
    }

    pub const fn kind(&self) -> KeyKind {
        KeyKind::of(self.opening.as_ref())
    }

    /// Neither revoked nor expired. Whether its user was removed is checked elsewhere.
    pub fn is_valid(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > at)
    }

    /// The credential it ends with: the one that opened this session, or the issuer of this key.
    pub fn opener(&self) -> Option<KeyId> {
        opener(self.opening.as_ref(), self.issuer)
    }
}

fn opener(opening: Option<&SessionOpening>, issuer: Option<KeyId>) -> Option<KeyId> {
    opening.map_or(issuer, |opening| opening.opener)
}

// === impl KeyKind ===

impl KeyKind {
    const fn of(opening: Option<&SessionOpening>) -> Self {
        match opening {
            None => Self::Api,
            Some(_) => Self::Session,
        }
    }
}
