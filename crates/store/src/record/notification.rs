//! Targets of notifications.

use attache_protocol::{
    KeyId, NotificationTargetId, TenantId, Timestamp, UserId,
    wire::notification::{NotificationChoices, NotificationService},
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNotificationTarget {
    pub id: NotificationTargetId,
    pub service: NotificationService,
    pub name: String,
    pub user: Option<UserId>,
    /// The key or session that it ends with.
    pub key: KeyId,
    /// Scheme, host and port.
    pub origin: String,
    /// A digest of the complete address. A tenant has one target per address.
    pub address: [u8; 32],
    /// The complete address and its secrets, sealed by the hub.
    pub sealed: Vec<u8>,
    pub choices: NotificationChoices,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotificationTargetRecord {
    pub id: NotificationTargetId,
    pub tenant: TenantId,
    pub service: NotificationService,
    pub name: String,
    pub user: Option<UserId>,
    pub key: KeyId,
    pub origin: String,
    pub address: [u8; 32],
    pub sealed: Vec<u8>,
    pub choices: NotificationChoices,
    pub created_at: Timestamp,
}

// === impl NewNotificationTarget ===

impl NewNotificationTarget {
    pub(crate) fn into_record(self, tenant: TenantId, created_at: Timestamp) -> NotificationTargetRecord {
        let Self { id, service, name, user, key, origin, address, sealed, choices } = self;
        NotificationTargetRecord { id, tenant, service, name, user, key, origin, address, sealed, choices, created_at }
    }
}
