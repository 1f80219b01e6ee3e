//! The secrets that sign deliveries: one per caller, derived from the hub's own key.

use attache_protocol::{Actor, Secret, TenantId, UserId, secret::Kind};
use attache_store::record::{RunRecord, delivery::DeliveryRecord};

use crate::{Principal, identity::RoleColumn};

/// Whose secret it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecretSubject(String);

/// Derives secrets, so that none is stored.
#[derive(Debug)]
pub(crate) struct WebhookSigners(Secret<[u8; 32]>);

// === impl WebhookSigners ===

impl WebhookSigners {
    pub(crate) const fn new(key: Secret<[u8; 32]>) -> Self {
        Self(key)
    }

    pub(crate) fn secret(&self, tenant: TenantId, subject: &SecretSubject) -> Secret<String> {
        Kind::Webhook.derive(&self.0, &format!("{tenant} {}", subject.0))
    }
}

// === impl SecretSubject ===

impl SecretSubject {
    /// The caller's own.
    pub(crate) fn of(by: &Principal) -> Self {
        match by.column() {
            // An agent must not learn the secret of its owner, who has other webhooks too.
            RoleColumn::AgentKey | RoleColumn::Runtime | RoleColumn::Run | RoleColumn::Anonymous => {
                Self::actor(&by.actor())
            }
            RoleColumn::Role(_) => Self::actor(&by.user.map_or_else(|| by.actor(), Actor::User)),
        }
    }

    /// For the caller who created the run. The same as [`Self::of`] for that caller.
    pub(super) fn of_run(run: &RunRecord) -> Self {
        match (&run.caller, run.user) {
            (Actor::Agent(_), _) | (_, None) => Self::actor(&run.caller),
            (_, Some(user)) => Self::actor(&Actor::User(user)),
        }
    }

    /// For the agent's owner. An agent without an owner uses the tenant's.
    pub(crate) fn of_agent(owner: Option<UserId>) -> Self {
        owner.map_or_else(|| Self("tenant".to_owned()), |owner| Self::actor(&Actor::User(owner)))
    }

    /// A permission request goes to the run's own callback or, if that doesn't subscribe to it, to the agent's webhook.
    pub(super) fn of_delivery(delivery: &DeliveryRecord, run: &RunRecord, owner: Option<UserId>) -> Self {
        if delivery.is_callback_of(run) { Self::of_run(run) } else { Self::of_agent(owner) }
    }

    fn actor(actor: &Actor) -> Self {
        Self(actor.to_string())
    }
}
