//! Publishes a delegation to the hub, without paths or credentials, and cancels it when a person at the hub asks for
//! that. An unreachable hub delays nothing.

use std::{path::Path, time::Duration};

use attache_client::{Backoff, HubClient};
use attache_protocol::{
    DelegationId,
    wire::delegation::{DelegateRequest, Delegation, DelegationOutcome, DelegationProjection},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{DelegatorRefusal, keyring::DelegationKeys, service::DelegatorService};

/// Runs until the delegation ends. Only publishing the end can take longer.
pub(super) struct DelegationPublisher {
    service: DelegatorService,
    showing: AbortOnDropHandle<()>,
    listening: AbortOnDropHandle<()>,
}

/// Progress comes in many small steps, faster than people read.
const COALESCE_INTERVAL: Duration = Duration::from_secs(1);
const LISTEN_TIMEOUT: Duration = Duration::from_secs(25);
/// How long to wait for the final state to be published.
const FINAL_PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long to keep trying an unreachable hub in the background. After that, the next daemon tries.
const HUB_AWAY_TIMEOUT: Duration = Duration::from_secs(120);
const RETRY_INTERVALS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How many ends that an earlier daemon couldn't publish are published at startup, newest first.
const MAX_UNPUBLISHED: usize = 100;

/// `None` without a hub, or without a key for it.
pub(super) fn start(
    service: &DelegatorService,
    id: DelegationId,
    keys: &DelegationKeys,
    cancel: CancellationToken,
) -> Option<DelegationPublisher> {
    let hub = HubClient::new(keys.hub.clone()?).ok()?;
    let shown = service.subscribe(id)?;
    let tasks = &service.0.tasks;
    let showing = tasks.spawn(show(service.clone(), hub.clone(), id, shown, cancel.clone()));
    let listening = tasks.spawn(listen(service.clone(), hub, id, cancel));
    let (showing, listening) = (AbortOnDropHandle::new(showing), AbortOnDropHandle::new(listening));
    Some(DelegationPublisher { service: service.clone(), showing, listening })
}

/// Publishes the ends of delegations that earlier daemons couldn't publish.
pub(super) async fn catch_up(service: &DelegatorService, unpublished: &[DelegationId]) {
    for id in unpublished.iter().rev().take(MAX_UNPUBLISHED) {
        let (Ok(shown), Some(request)) = (service.get(*id), service.0.records.request(*id)) else { continue };
        // Uses the keys that the policy names now.
        let request = DelegateRequest { workspace_dir: shown.workspace_dir, ..request };
        let Ok(admitted) = service.0.options.policy.admit(&request) else { continue };
        if let Ok(keys) = service.credentials(&admitted).await {
            publish_final(service, *id, &keys);
        }
    }
}

/// Publishes the end of a delegation that an earlier daemon had published.
pub(super) fn publish_final(service: &DelegatorService, id: DelegationId, keys: &DelegationKeys) {
    let hub = keys.hub.clone().and_then(|options| HubClient::new(options).ok());
    if let (Some(hub), Some(shown)) = (hub, service.subscribe(id)) {
        persist(service, show(service.clone(), hub, id, shown, CancellationToken::new()));
    }
}

/// Keeps trying in the background for a while, without delaying the daemon's shutdown: the next daemon publishes the
/// rest.
fn persist(service: &DelegatorService, showing: impl Future<Output = ()> + Send + 'static) {
    let stop = service.0.stop.clone();
    service.0.tasks.spawn(async move {
        tokio::select! {
            _ = tokio::time::timeout(HUB_AWAY_TIMEOUT, showing) => {}
            () = stop.cancelled() => {}
        }
    });
}

async fn show(
    service: DelegatorService,
    hub: HubClient,
    id: DelegationId,
    mut shown: watch::Receiver<Delegation>,
    cancel: CancellationToken,
) {
    let mut backoff = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
    service.0.records.mark_unpublished(id);
    loop {
        let now = shown.borrow_and_update().clone();
        let has_ended = now.status.has_ended();
        match hub.publish_delegation(id, &projection(&now, &service.0.options.device_name)).await {
            Ok(published) => {
                backoff.reset();
                if published.cancel_requested {
                    cancel.cancel();
                }
                if has_ended {
                    return service.0.records.mark_published(id);
                }
                // The end is published immediately, not coalesced.
                let _ = tokio::time::timeout(COALESCE_INTERVAL, shown.wait_for(|next| next.status.has_ended())).await;
                if shown.wait_for(|next| next.revision > now.revision).await.is_err() {
                    return;
                }
            }
            Err(error) if !error.is_passing() => {
                tracing::debug!(delegation.id = %id, %error, "the hub doesn't accept delegations");
                return service.0.records.mark_published(id);
            }
            Err(_) => tokio::time::sleep(backoff.next(service.env())).await,
        }
    }
}

/// Waits for a person at the hub to cancel the delegation.
async fn listen(service: DelegatorService, hub: HubClient, id: DelegationId, cancel: CancellationToken) {
    let mut backoff = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
    loop {
        match hub.delegation_cancellation(id, LISTEN_TIMEOUT).await {
            Ok(cancellation) if cancellation.cancel_requested => {
                service.note(id, "cancel_requested", Some("a person at the hub"));
                cancel.cancel();
                return;
            }
            Ok(_) => backoff.reset(),
            // Not published yet, or the hub is away.
            Err(_) => tokio::time::sleep(backoff.next(service.env())).await,
        }
    }
}

/// The projection of a live delegation.
pub(super) fn shown(service: &DelegatorService, id: DelegationId) -> Result<DelegationProjection, DelegatorRefusal> {
    Ok(projection(&service.get(id)?, &service.0.options.device_name))
}

/// What others can see: the name of the folder, but not the path above it.
fn projection(delegation: &Delegation, device_name: &str) -> DelegationProjection {
    let path = Path::new(&delegation.workspace_dir);
    let folder = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
    let hide = |text: &String| match delegation.workspace_dir.as_str() {
        "/" | "" => text.clone(),
        path => text.replace(path, &folder),
    };
    let result = delegation.result.as_ref().map(|result| {
        let mut result: DelegationOutcome = result.clone();
        if let Some(failure) = &mut result.error {
            failure.message = hide(&failure.message);
            failure.hint = hide(&failure.hint);
        }
        result.final_summary = result.final_summary.as_ref().map(hide);
        result.notes = result.notes.as_ref().map(hide);
        result
    });
    DelegationProjection {
        status: delegation.status,
        description: hide(&delegation.description),
        peer_url: delegation.peer_url.clone(),
        device_name: device_name.to_owned(),
        access_mode: delegation.access_mode,
        created_at: delegation.created_at,
        expires_at: delegation.expires_at,
        ended_at: delegation.ended_at,
        waits_for: delegation.waits_for.as_ref().map(hide),
        progress: delegation.progress.as_ref().map(hide),
        result,
        changes: delegation.changes.clone(),
        folder,
    }
}

// === impl DelegationPublisher ===

impl DelegationPublisher {
    /// Publishes the end of the delegation.
    pub(super) async fn finish(self) {
        let Self { service, mut showing, listening } = self;
        drop(listening);
        if tokio::time::timeout(FINAL_PUBLISH_TIMEOUT, &mut showing).await.is_err() {
            persist(&service, async move { _ = showing.await });
        }
    }
}
