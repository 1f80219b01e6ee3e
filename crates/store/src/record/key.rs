//! API keys of people and programs, browser sessions, and related events that only the log keeps.

use attache_protocol::{
    AgentId, DelegationId, KeyId, Timestamp, TunnelId, UserId,
    secret::SecretHash,
    wire::key::{KeyScope, Role},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyKind {
    Api,
    /// A browser's session.
    Session,
}

/// How a session was opened. It ends with its opener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionOpening {
    /// The key or session that created the login link. `None` for a login by password.
    pub opener: Option<KeyId>,
    /// The address of the browser.
    pub address: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    pub id: KeyId,
    /// `Some` for a session.
    pub opening: Option<SessionOpening>,
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
}

// === impl KeyRecord ===

impl KeyRecord {
    pub const fn kind(&self) -> KeyKind {
        KeyKind::of(self.opening.as_ref())
    }

    /// Neither revoked nor expired. Whether its user was removed is checked elsewhere.
    pub fn is_valid(&self, at: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| end > at)
    }

    /// The key or session that opened this session.
    pub fn opener(&self) -> Option<KeyId> {
        self.opening.as_ref().and_then(|opening| opening.opener)
    }
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
