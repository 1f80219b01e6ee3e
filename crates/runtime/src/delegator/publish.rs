//! Shows a delegation to the people at the hub, without paths and credentials, and ends it when they want that. A hub that
//! cannot be reached holds up nothing.

use std::{path::Path, time::Duration};

use attache_client::{Backoff, HubClient};
use attache_protocol::{
    DelegationId,
    wire::delegation::{DelegateRequest, Delegation, DelegationOutcome, DelegationProjection},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{DelegatorRefusal, keyring::DelegationKeys, service::DelegatorService};

/// Ends with the delegation, at the latest; only its end may be told later.
pub(super) struct DelegationPublisher {
    service: DelegatorService,
    showing: AbortOnDropHandle<()>,
    listening: AbortOnDropHandle<()>,
}

/// Progress comes in many small steps; people read slower.
const COALESCE_INTERVAL: Duration = Duration::from_secs(1);
const LISTEN_TIMEOUT: Duration = Duration::from_secs(25);
/// How long the end waits for the last word to arrive.
const FINAL_PUBLISH_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a hub that is away is waited for in the background. After that the next daemon tries.
const HUB_AWAY_TIMEOUT: Duration = Duration::from_secs(120);
const RETRY_INTERVALS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How many ends that an earlier daemon could not show are shown at the start, the newest first.
const MAX_UNPUBLISHED: usize = 100;

/// `None` where there is no hub, or no key for it.
pub(super) fn start(
    desk: &DelegatorService,
    id: DelegationId,
    keys: &DelegationKeys,
    cancel: CancellationToken,
) -> Option<DelegationPublisher> {
    let hub = HubClient::new(keys.hub.clone()?).ok()?;
    let shown = desk.subscribe(id)?;
    let tasks = &desk.0.tasks;
    let showing = tasks.spawn(show(desk.clone(), hub.clone(), id, shown, cancel.clone()));
    let listening = tasks.spawn(listen(desk.clone(), hub, id, cancel));
    let (showing, listening) = (AbortOnDropHandle::new(showing), AbortOnDropHandle::new(listening));
    Some(DelegationPublisher { service: desk.clone(), showing, listening })
}

/// Shows how those ended of which no earlier daemon could.
pub(super) async fn catch_up(desk: &DelegatorService, unpublished: &[DelegationId]) {
    for id in unpublished.iter().rev().take(MAX_UNPUBLISHED) {
        let (Ok(shown), Some(request)) = (desk.get(*id), desk.0.records.request(*id)) else { continue };
        // With the keys that the policy names now.
        let request = DelegateRequest { workspace_dir: shown.workspace_dir, ..request };
        let Ok(admitted) = desk.0.options.policy.admit(&request) else { continue };
        if let Ok(keys) = desk.credentials(&admitted).await {
            publish_final(desk, *id, &keys);
        }
    }
}

/// Shows how one ended that a daemon before this one had published.
pub(super) fn publish_final(desk: &DelegatorService, id: DelegationId, keys: &DelegationKeys) {
    let hub = keys.hub.clone().and_then(|options| HubClient::new(options).ok());
    if let (Some(hub), Some(shown)) = (hub, desk.subscribe(id)) {
        persist(desk, show(desk.clone(), hub, id, shown, CancellationToken::new()));
    }
}

/// Goes on in the background for a while, but does not hold up the daemon's end: the next one shows it.
fn persist(desk: &DelegatorService, showing: impl Future<Output = ()> + Send + 'static) {
    let stop = desk.0.stop.clone();
    desk.0.tasks.spawn(async move {
        tokio::select! {
            _ = tokio::time::timeout(HUB_AWAY_TIMEOUT, showing) => {}
            () = stop.cancelled() => {}
        }
    });
}

async fn show(
    desk: DelegatorService,
    hub: HubClient,
    id: DelegationId,
    mut shown: watch::Receiver<Delegation>,
    cancel: CancellationToken,
) {
    let mut backoff = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
    desk.0.records.mark_unpublished(id);
    loop {
        let now = shown.borrow_and_update().clone();
        let has_ended = now.status.has_ended();
        match hub.publish_delegation(id, &projection(&now, &desk.0.options.device_name)).await {
            Ok(published) => {
                backoff.reset();
                if published.cancel_requested {
                    cancel.cancel();
                }
                if has_ended {
                    return desk.0.records.mark_published(id);
                }
                // Its end is no step that could wait.
                let _ = tokio::time::timeout(COALESCE_INTERVAL, shown.wait_for(|next| next.status.has_ended())).await;
                if shown.wait_for(|next| next.revision > now.revision).await.is_err() {
                    return;
                }
            }
            Err(error) if !error.is_passing() => {
                tracing::debug!(delegation.id = %id, %error, "the hub shows no delegations");
                return desk.0.records.mark_published(id);
            }
            Err(_) => tokio::time::sleep(backoff.next(desk.env())).await,
        }
    }
}

/// A person at the hub may want it to end.
async fn listen(desk: DelegatorService, hub: HubClient, id: DelegationId, cancel: CancellationToken) {
    let mut backoff = Backoff::new(RETRY_INTERVALS.0, RETRY_INTERVALS.1);
    loop {
        match hub.delegation_cancellation(id, LISTEN_TIMEOUT).await {
            Ok(wish) if wish.cancel_requested => {
                desk.note(id, "cancel_requested", Some("a person at the hub"));
                cancel.cancel();
                return;
            }
            Ok(_) => backoff.reset(),
            // Not published yet, or the hub is away.
            Err(_) => tokio::time::sleep(backoff.next(desk.env())).await,
        }
    }
}

/// What the hub shows of a delegation that goes on.
pub(super) fn shown(desk: &DelegatorService, id: DelegationId) -> Result<DelegationProjection, DelegatorRefusal> {
    Ok(projection(&desk.get(id)?, &desk.0.options.device_name))
}

/// What people elsewhere may see: the folder's own name, and nothing of what is above it.
fn projection(delegation: &Delegation, device_name: &str) -> DelegationProjection {
    let path = Path::new(&delegation.workspace_dir);
    let folder = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
    let hide = |text: &String| match delegation.workspace_dir.as_str() {
        "/" | "" => text.clone(),
        whole => text.replace(whole, &folder),
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
    /// The delegation has ended; this is its last word.
    pub(super) async fn finish(self) {
        let Self { service: desk, mut showing, listening } = self;
        drop(listening);
        if tokio::time::timeout(FINAL_PUBLISH_TIMEOUT, &mut showing).await.is_err() {
            persist(&desk, async move { _ = showing.await });
        }
    }
}
