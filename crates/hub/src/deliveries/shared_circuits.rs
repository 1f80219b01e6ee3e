//! Circuits of several nodes: every failure in a row of a target is a row, a success removes them, and one node probes.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::{NodeId, Timestamp};
use attache_store::record::{
    delivery::DeliveryRecord,
    shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};

use super::circuit_breaker::CircuitBreakers;
use crate::Handle;

/// Who probes a paused target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeOwner {
    /// It isn't paused, or no other node serves it.
    None,
    Ours(NodeId),
    AtAnotherNode,
}

/// For how long a failure is remembered, unless targets are paused for longer.
const MIN_RETENTION: Duration = Duration::from_secs(60 * 60);

/// Looks up what all nodes know of failing targets.
pub(super) async fn learn(hub: &Handle, circuits: &Mutex<CircuitBreakers>) {
    if hub.node().is_none() {
        return;
    }
    match hub.store().shared_values(SharedValueKind::CircuitBreaker, hub.now()).await {
        Ok(failures) => {
            let failures = failures.into_iter().map(|failure| {
                let at = failed_at(&failure).unwrap_or_default();
                (failure.holder, at)
            });
            circuits.lock().unwrap_or_else(PoisonError::into_inner).learn(failures);
        }
        Err(error) => tracing::debug!(%error, "can't read the circuits of webhook targets"),
    }
}

fn failed_at(failure: &SharedValue) -> Option<Timestamp> {
    Some(Timestamp::from_millis(i64::from_be_bytes(failure.value.as_slice().try_into().ok()?)))
}

pub(super) async fn failed(hub: &Handle, delivery: &DeliveryRecord, target: &str, at: Timestamp) {
    let policy = hub.options().outbox.circuit_policy;
    let failure = SharedValue {
        kind: SharedValueKind::CircuitBreaker,
        name: format!("{target} {} {}", delivery.id, delivery.attempts + 1),
        tenant: hub.tenant(),
        holder: target.to_owned(),
        value: at.millis().to_be_bytes().to_vec(),
        expires_at: at.plus(MIN_RETENTION.max(2 * policy.pause)),
    };
    // More of them wouldn't change anything.
    let limit = SharedValueLimit::PerHolder(usize::try_from(policy.failures).unwrap_or(usize::MAX));
    if let Err(error) = hub.store().keep_value(failure, limit, hub.now()).await {
        tracing::debug!(target, %error, "can't record that a webhook's target failed");
    }
}

pub(super) async fn succeeded(hub: &Handle, target: &str) {
    if let Err(error) = hub.store().drop_values(SharedValueKind::CircuitBreaker, hub.tenant(), target).await {
        tracing::debug!(target, %error, "can't record that a webhook's target works again");
    }
}

/// The probe is leased, so that a node that dies meanwhile doesn't block the others. Another node may have probed the target since
/// this one decided to, so it looks again once it has the lease.
pub(super) async fn begin_probe(hub: &Handle, circuits: &Mutex<CircuitBreakers>, target: &str) -> ProbeOwner {
    let Some(node) = hub.node() else { return ProbeOwner::None };
    match hub.store().lease(node, &lease(target)).await {
        Ok(true) => {}
        Ok(false) | Err(_) => return ProbeOwner::AtAnotherNode,
    }
    learn(hub, circuits).await;
    if circuits.lock().unwrap_or_else(PoisonError::into_inner).is_paused(target, hub.now()) {
        end_probe(hub, target, ProbeOwner::Ours(node)).await;
        return ProbeOwner::AtAnotherNode;
    }
    ProbeOwner::Ours(node)
}

pub(super) async fn end_probe(hub: &Handle, target: &str, probe: ProbeOwner) {
    if let ProbeOwner::Ours(node) = probe
        && let Err(error) = hub.store().release_lease(node, &lease(target)).await
    {
        tracing::warn!(target, %error, "the probe of a webhook's target stays leased until this node ends");
    }
}

fn lease(target: &str) -> String {
    format!("probe/{target}")
}
