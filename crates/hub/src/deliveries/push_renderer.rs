//! Rendering of push notifications. Webhooks are rendered in this crate, A2A push notifications by the A2A crate.

use attache_protocol::{DeliveryId, RunId, TenantId, wire::run::Run};
use attache_store::record::{OutlineScope, RunOutline, delivery::DeliveryRecord};
use axum::http::HeaderMap;
use futures_util::future::BoxFuture;

use crate::{Handle, Result, control::PushSubscription, error::about};

/// The requests to send: each body separately, in order, with the same headers. Delivered once all of them are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushNotification {
    pub headers: HeaderMap,
    pub bodies: Vec<Vec<u8>>,
}

/// Renders A2A push notifications. The same update must give the same bodies, because it may be sent more than once.
pub trait PushRenderer: Send + Sync {
    fn write<'a>(&'a self, update: &'a PushUpdate<'a>) -> BoxFuture<'a, Result<PushNotification>>;
}

/// A change of a run to notify a subscriber about.
#[derive(Debug)]
pub struct PushUpdate<'a> {
    hub: &'a Handle,
    tenant: TenantId,
    pub delivery: DeliveryId,
    pub run: RunId,
    /// The event in the run's stream.
    pub seq: i64,
    pub push: PushSubscription,
}

/// The notification for an A2A subscriber, if its config still exists.
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
        Some(renderer) => renderer.write(&update).await,
        None => Err(crate::Error::internal(&"no push renderer is set")),
    }
}

// === impl PushUpdate ===

impl PushUpdate<'_> {
    pub fn hub(&self) -> &Handle {
        self.hub
    }

    /// The run's current state, which may be later than the update.
    pub async fn run(&self) -> Result<Run> {
        let record = self.hub.store().run(self.tenant, self.run).await.map_err(about("run"))?;
        self.hub.show_run(record).await
    }

    /// The events that show the run's state at the update.
    pub async fn outline(&self) -> Result<RunOutline> {
        self.hub.outline(self.tenant, self.run, self.seq, OutlineScope::Everything).await
    }
}
