//! Log rows of keys and sessions, and of events that only the log keeps.

use attache_protocol::{
    DelegationId, EventKind, Json, KeyId, PasskeyId, Timestamp, TunnelId, UserId,
    wire::key::{KeyScope, Role},
};
use serde::Serialize;

use super::LogEntry;
use crate::record::{AuditEvent, KeyKind, KeyRecord};

#[derive(Serialize)]
struct KeyCreatedData<'a> {
    key_id: KeyId,
    name: &'a str,
    role: Role,
}

#[derive(Serialize)]
struct KeyRevokedData {
    key_id: KeyId,
}

#[derive(Serialize)]
struct SessionOpenedData<'a> {
    session_id: KeyId,
    user_id: Option<UserId>,
    role: Role,
    /// The key or session. `null` for a login by password or passkey.
    opener: Option<KeyId>,
    address: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    passkey_id: Option<PasskeyId>,
}

#[derive(Serialize)]
struct SessionEndedData {
    session_id: KeyId,
}

#[derive(Serialize)]
struct LoginLinkData {
    user_id: Option<UserId>,
    role: Role,
    expires_at: Timestamp,
}

#[derive(Serialize)]
struct TokenCreatedData<'a> {
    key_id: KeyId,
    jti: &'a str,
    audience: Option<&'a str>,
    role: Role,
    scopes: Option<&'a [KeyScope]>,
    expires_at: Timestamp,
}

#[derive(Serialize)]
struct TunnelOpenedData {
    tunnel_id: TunnelId,
    delegation_id: DelegationId,
    expires_at: Timestamp,
    max_bytes: u64,
}

#[derive(Serialize)]
struct TunnelClosedData {
    tunnel_id: TunnelId,
    delegation_id: DelegationId,
    bytes: u64,
}

pub(crate) fn created(key: &KeyRecord) -> LogEntry {
    match &key.opening {
        None => (EventKind::KeyCreated, Json::of(&KeyCreatedData { key_id: key.id, name: &key.name, role: key.role })),
        Some(opening) => {
            let row = SessionOpenedData {
                session_id: key.id,
                user_id: key.user,
                role: key.role,
                opener: opening.opener,
                address: opening.address.as_deref(),
                passkey_id: opening.passkey,
            };
            (EventKind::SessionOpened, Json::of(&row))
        }
    }
}

pub(crate) fn revoked(key: &KeyRecord) -> LogEntry {
    match key.kind() {
        KeyKind::Api => (EventKind::KeyRevoked, Json::of(&KeyRevokedData { key_id: key.id })),
        KeyKind::Session => (EventKind::SessionEnded, Json::of(&SessionEndedData { session_id: key.id })),
    }
}

pub(crate) fn event(event: &AuditEvent) -> LogEntry {
    match *event {
        AuditEvent::TokenCreated { key, ref id, ref audience, role, ref scopes, expires_at } => {
            let (audience, scopes) = (audience.as_deref(), scopes.as_deref());
            let row = TokenCreatedData { key_id: key, jti: id, audience, role, scopes, expires_at };
            (EventKind::TokenCreated, Json::of(&row))
        }
        AuditEvent::LoginLinkCreated { user, role, expires_at } => {
            (EventKind::LoginLinkCreated, Json::of(&LoginLinkData { user_id: user, role, expires_at }))
        }
        AuditEvent::TunnelOpened { tunnel, delegation, expires_at, max_bytes } => {
            let row = TunnelOpenedData { tunnel_id: tunnel, delegation_id: delegation, expires_at, max_bytes };
            (EventKind::TunnelOpened, Json::of(&row))
        }
        AuditEvent::TunnelClosed { tunnel, delegation, bytes } => (
            EventKind::TunnelClosed,
            Json::of(&TunnelClosedData { tunnel_id: tunnel, delegation_id: delegation, bytes }),
        ),
    }
}
