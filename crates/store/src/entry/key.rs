//! Rows of keys and sessions, and of what only the log keeps.

use attache_protocol::{DelegationId, EventKind, Json, KeyId, Timestamp, TunnelId, UserId, wire::key::Role};
use serde::Serialize;

use super::Entry;
use crate::record::{AuditEvent, Key, KeyKind};

#[derive(Serialize)]
struct NamedKey<'a> {
    key_id: KeyId,
    name: &'a str,
    role: Role,
}

#[derive(Serialize)]
struct RevokedKey {
    key_id: KeyId,
}

#[derive(Serialize)]
struct OpenedSession<'a> {
    session_id: KeyId,
    user_id: Option<UserId>,
    role: Role,
    /// The key or session; null: by password.
    opener: Option<KeyId>,
    address: Option<&'a str>,
}

#[derive(Serialize)]
struct EndedSession {
    session_id: KeyId,
}

#[derive(Serialize)]
struct LoginLink {
    user_id: Option<UserId>,
    role: Role,
    expires_at: Timestamp,
}

#[derive(Serialize)]
struct OpenedTunnel {
    tunnel_id: TunnelId,
    delegation_id: DelegationId,
    expires_at: Timestamp,
    max_bytes: u64,
}

#[derive(Serialize)]
struct ClosedTunnel {
    tunnel_id: TunnelId,
    delegation_id: DelegationId,
    bytes: u64,
}

pub(crate) fn created(key: &Key) -> Entry {
    match &key.opening {
        None => (EventKind::KeyCreated, Json::of(&NamedKey { key_id: key.id, name: &key.name, role: key.role })),
        Some(opening) => {
            let row = OpenedSession {
                session_id: key.id,
                user_id: key.user,
                role: key.role,
                opener: opening.opener,
                address: opening.address.as_deref(),
            };
            (EventKind::SessionOpened, Json::of(&row))
        }
    }
}

pub(crate) fn revoked(key: &Key) -> Entry {
    match key.kind() {
        KeyKind::Api => (EventKind::KeyRevoked, Json::of(&RevokedKey { key_id: key.id })),
        KeyKind::Session => (EventKind::SessionEnded, Json::of(&EndedSession { session_id: key.id })),
    }
}

pub(crate) fn event(event: &AuditEvent) -> Entry {
    match *event {
        AuditEvent::LoginLinkCreated { user, role, expires_at } => {
            (EventKind::LoginLinkCreated, Json::of(&LoginLink { user_id: user, role, expires_at }))
        }
        AuditEvent::TunnelOpened { tunnel, delegation, expires_at, max_bytes } => {
            let row = OpenedTunnel { tunnel_id: tunnel, delegation_id: delegation, expires_at, max_bytes };
            (EventKind::TunnelOpened, Json::of(&row))
        }
        AuditEvent::TunnelClosed { tunnel, delegation, bytes } => {
            (EventKind::TunnelClosed, Json::of(&ClosedTunnel { tunnel_id: tunnel, delegation_id: delegation, bytes }))
        }
    }
}
