//! Deliveries to webhooks.

use attache_protocol::{
    DeliveryId, NotificationTargetId, PermissionId, RunId, TenantId, Timestamp,
    wire::delivery::{DeliveryKind, DeliveryState},
};

use super::{RunRecord, notification::NotificationTargetRecord, push::PushConfigRecord};

/// The webhook to notify when a run has ended.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RunCallback {
    pub url: String,
    /// Whether it is also notified when the run waits for a person's permission. The hub checks this when one is
    /// requested.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub approvals: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    pub id: DeliveryId,
    pub tenant: TenantId,
    pub kind: DeliveryKind,
    pub run: RunId,
    pub permission: Option<PermissionId>,
    /// The push config that requested it.
    pub config: Option<String>,
    /// The row that it reports: for a push, of the run's stream; for a notification, of the tenant's log.
    pub seq: Option<i64>,
    /// Where a notification goes. Its `url` is only the origin.
    pub target: Option<NotificationTargetId>,
    pub url: String,
    pub state: DeliveryState,
    /// The number of attempts so far.
    pub attempts: i64,
    /// When the next attempt is due. `None` unless it is pending.
    pub next_at: Option<Timestamp>,
    pub last: Option<DeliveryAttempt>,
    pub created_at: Timestamp,
    /// When it was last acknowledged, even if it was sent again since.
    pub delivered_at: Option<Timestamp>,
}

/// The result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    pub at: Timestamp,
    /// The response status, if there was a response.
    pub status: Option<u16>,
    /// Why it failed. `None` if it succeeded.
    pub error: Option<String>,
}

/// What follows an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptDecision {
    /// The receiver acknowledged it.
    Delivered,
    RetryAt(Timestamp),
    GiveUp,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryFilter {
    pub state: Option<DeliveryState>,
    pub run: Option<RunId>,
}

// === impl DeliveryRecord ===

impl DeliveryRecord {
    /// Whether it goes to the address that the run's caller gave, and not to the agent's webhook.
    pub fn is_callback_of(&self, run: &RunRecord) -> bool {
        let is_callback = run.spec.callback.as_ref().is_some_and(|callback| callback.url == self.url);
        self.permission.is_none() || is_callback
    }

    /// A new delivery, due at once, for a permission that waits for a person, or for the run's end.
    pub fn due(tenant: TenantId, run: RunId, permission: Option<PermissionId>, url: String, at: Timestamp) -> Self {
        let (id, kind) = match permission {
            Some(permission) => (DeliveryId::of_permission(permission), DeliveryKind::PermissionRequested),
            None => (DeliveryId::of_run(run), DeliveryKind::RunEnded),
        };
        Self {
            id,
            tenant,
            kind,
            run,
            permission,
            config: None,
            seq: None,
            target: None,
            url,
            state: DeliveryState::Pending,
            attempts: 0,
            next_at: Some(at),
            last: None,
            created_at: at,
            delivered_at: None,
        }
    }

    /// A new delivery, due at once, that notifies a subscriber of the row with this seq in the run's stream.
    pub fn push(tenant: TenantId, run: RunId, config: &PushConfigRecord, seq: i64, at: Timestamp) -> Self {
        Self {
            id: DeliveryId::of_push(run, &config.id, seq),
            kind: DeliveryKind::TaskUpdated,
            config: Some(config.id.clone()),
            seq: Some(seq),
            ..Self::due(tenant, run, None, config.url.clone(), at)
        }
    }

    /// A new delivery, due at once, that notifies a target of the row with this seq in the tenant's log.
    pub fn notification(run: RunId, target: &NotificationTargetRecord, seq: i64, at: Timestamp) -> Self {
        Self {
            id: DeliveryId::of_notification(target.id, seq),
            kind: DeliveryKind::Notification,
            seq: Some(seq),
            target: Some(target.id),
            ..Self::due(target.tenant, run, None, target.origin.clone(), at)
        }
    }

    /// The state after another attempt.
    #[must_use]
    pub fn tried(self, attempt: DeliveryAttempt, next: AttemptDecision) -> Self {
        let (state, next_at) = match next {
            AttemptDecision::Delivered => (DeliveryState::Delivered, None),
            AttemptDecision::RetryAt(at) => (DeliveryState::Pending, Some(at)),
            AttemptDecision::GiveUp => (DeliveryState::Failed, None),
        };
        let delivered_at = if next == AttemptDecision::Delivered { Some(attempt.at) } else { self.delivered_at };
        Self { state, attempts: self.attempts + 1, next_at, last: Some(attempt), delivered_at, ..self }
    }
}
