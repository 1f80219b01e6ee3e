//! Deliveries to webhooks.

use attache_protocol::{
    DeliveryId, PermissionId, RunId, TenantId, Timestamp,
    wire::delivery::{DeliveryKind, DeliveryState},
};

/// Who is told when a run has ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Callback {
    pub url: String,
    /// Whether it is also told when the run waits for a person's permission. The hub looks at it when one is asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approvals: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    pub id: DeliveryId,
    pub tenant: TenantId,
    pub kind: DeliveryKind,
    pub run: RunId,
    pub permission: Option<PermissionId>,
    pub url: String,
    pub state: DeliveryState,
    /// How many were made.
    pub attempts: i64,
    /// When it is tried next; `None` unless it is pending.
    pub next_at: Option<Timestamp>,
    pub last: Option<Attempt>,
    pub created_at: Timestamp,
    pub delivered_at: Option<Timestamp>,
}

/// One try, as it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    pub at: Timestamp,
    /// What the other end answered, if it did.
    pub status: Option<u16>,
    /// Why it did not arrive; `None`: it did.
    pub error: Option<String>,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// The other end acknowledged it.
    Delivered,
    RetryAt(Timestamp),
    GiveUp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    pub state: Option<DeliveryState>,
    pub run: Option<RunId>,
}
