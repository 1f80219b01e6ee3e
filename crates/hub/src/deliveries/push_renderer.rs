//! Letters: what is posted. Webhooks are written here; A2A push notifications by whoever knows A2A.

use attache_protocol::{DeliveryId, RunId, TenantId, wire::run::Run};
use attache_store::record::{OutlineScope, RunOutline, delivery::DeliveryRecord};
use axum::http::HeaderMap;
use futures_util::future::BoxFuture;

use crate::{Handle, Result, control::PushSubscription, error::about};

/// What is posted: every body by itself, in this order and with the same headers. It arrived when all of them did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushNotification {
    pub headers: HeaderMap,
    pub bodies: Vec<Vec<u8>>,
}

/// Writes A2A push notifications. The same update must give the same bodies: it may be sent more than once.
pub trait PushRenderer: Send + Sync {
    fn write<'a>(&'a self, update: &'a PushUpdate<'a>) -> BoxFuture<'a, Result<PushNotification>>;
}

/// A change of a run that a subscriber is told of.
#[derive(Debug)]
pub struct PushUpdate<'a> {
    hub: &'a Handle,
    tenant: TenantId,
    pub delivery: DeliveryId,
    pub run: RunId,
    /// The event of the run's stream that it tells of.
    pub seq: i64,
    pub push: PushSubscription,
}

/// The letter to a subscriber of A2A, if its config is still there.
pub(super) async fn update(
    hub: &Handle,
    delivery: &DeliveryRecord,
    config: &str,
    seq: i64,
) -> Result<PushNotification> {
    let found = hub.store().push_config(delivery.tenant, delivery.run, config).await;
    let push = hub.opened_push(delivery.run, found.map_err(about("push notification config"))?)?;
    let update = PushUpdate { hub, tenant: delivery.tenant, delivery: delivery.id, run: delivery.run, seq, push };
    match hub.push_renderer() {
        Some(letters) => letters.write(&update).await,
        None => Err(crate::Error::internal(&"nobody writes push notifications")),
    }
}

// === impl PushUpdate ===

impl PushUpdate<'_> {
    pub fn hub(&self) -> &Handle {
        self.hub
    }

    /// The run as it is now, which may be later than the update.
    pub async fn run(&self) -> Result<Run> {
        let record = self.hub.store().run(self.tenant, self.run).await.map_err(about("run"))?;
        self.hub.show_run(record).await
    }

    /// What shows how the run was at the update.
    pub async fn outline(&self) -> Result<RunOutline> {
        self.hub.outline(self.tenant, self.run, self.seq, OutlineScope::Everything).await
    }
}
