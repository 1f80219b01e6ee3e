//! Shows a delegation to the people at the hub, without paths and credentials, and ends it when they want that. A hub that
//! cannot be reached holds up nothing.

use std::{path::Path, time::Duration};

use attache_client::{Backoff, Hub};
use attache_protocol::{
    DelegationId,
    wire::delegation::{Delegate, Delegation, Outcome, Projection},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{Refused, desk::Delegator, keyring::Keyring};

/// Ends with the delegation, at the latest; only its end may be told later.
pub(super) struct Publishing {
    desk: Delegator,
    showing: AbortOnDropHandle<()>,
    listening: AbortOnDropHandle<()>,
}

/// Progress comes in many small steps; people read slower.
const COALESCE: Duration = Duration::from_secs(1);
const LISTEN: Duration = Duration::from_secs(25);
/// How long the end waits for the last word to arrive.
const LAST: Duration = Duration::from_secs(3);
/// How long a hub that is away is waited for in the background. After that the next daemon tries.
const PERSISTENCE: Duration = Duration::from_secs(120);
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// How many ends that an earlier daemon could not show are shown at the start, the newest first.
const MOST: usize = 100;

/// `None` where there is no hub, or no key for it.
pub(super) fn start(
    desk: &Delegator,
    id: DelegationId,
    keys: &Keyring,
    cancel: CancellationToken,
) -> Option<Publishing> {
    let hub = Hub::new(keys.hub.clone()?).ok()?;
    let shown = desk.subscribe(id)?;
    let tasks = &desk.0.tasks;
    let showing = tasks.spawn(show(desk.clone(), hub.clone(), id, shown, cancel.clone()));
    let listening = tasks.spawn(listen(desk.clone(), hub, id, cancel));
    let (showing, listening) = (AbortOnDropHandle::new(showing), AbortOnDropHandle::new(listening));
    Some(Publishing { desk: desk.clone(), showing, listening })
}

/// Shows how those ended of which no earlier daemon could.
pub(super) async fn catch_up(desk: &Delegator, unpublished: &[DelegationId]) {
    for id in unpublished.iter().rev().take(MOST) {
        let (Ok(shown), Some(request)) = (desk.get(*id), desk.0.records.request(*id)) else { continue };
        // With the keys that the policy names now.
        let request = Delegate { workspace_dir: shown.workspace_dir, ..request };
        let Ok(admitted) = desk.0.options.policy.admit(&request) else { continue };
        if let Ok(keys) = desk.credentials(&admitted).await {
            last_word(desk, *id, &keys);
        }
    }
}

/// Shows how one ended that a daemon before this one had published.
pub(super) fn last_word(desk: &Delegator, id: DelegationId, keys: &Keyring) {
    let hub = keys.hub.clone().and_then(|options| Hub::new(options).ok());
    if let (Some(hub), Some(shown)) = (hub, desk.subscribe(id)) {
        persist(desk, show(desk.clone(), hub, id, shown, CancellationToken::new()));
    }
}

/// Goes on in the background for a while, but does not hold up the daemon's end: the next one shows it.
fn persist(desk: &Delegator, showing: impl Future<Output = ()> + Send + 'static) {
    let stop = desk.0.stop.clone();
    desk.0.tasks.spawn(async move {
        tokio::select! {
            _ = tokio::time::timeout(PERSISTENCE, showing) => {}
            () = stop.cancelled() => {}
        }
    });
}

async fn show(
    desk: Delegator,
    hub: Hub,
    id: DelegationId,
    mut shown: watch::Receiver<Delegation>,
    cancel: CancellationToken,
) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
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
                let _ = tokio::time::timeout(COALESCE, shown.wait_for(|next| next.status.has_ended())).await;
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
async fn listen(desk: Delegator, hub: Hub, id: DelegationId, cancel: CancellationToken) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
    loop {
        match hub.delegation_cancellation(id, LISTEN).await {
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
pub(super) fn shown(desk: &Delegator, id: DelegationId) -> Result<Projection, Refused> {
    Ok(projection(&desk.get(id)?, &desk.0.options.device_name))
}

/// What people elsewhere may see: the folder's own name, and nothing of what is above it.
fn projection(delegation: &Delegation, device_name: &str) -> Projection {
    let path = Path::new(&delegation.workspace_dir);
    let folder = path.file_name().map_or_else(|| "/".to_owned(), |name| name.to_string_lossy().into_owned());
    let hide = |text: &String| match delegation.workspace_dir.as_str() {
        "/" | "" => text.clone(),
        whole => text.replace(whole, &folder),
    };
    let result = delegation.result.as_ref().map(|result| {
        let mut result: Outcome = result.clone();
        if let Some(failure) = &mut result.error {
            failure.message = hide(&failure.message);
            failure.hint = hide(&failure.hint);
        }
        result.final_summary = result.final_summary.as_ref().map(hide);
        result.notes = result.notes.as_ref().map(hide);
        result
    });
    Projection {
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

// === impl Publishing ===

impl Publishing {
    /// The delegation has ended; this is its last word.
    pub(super) async fn finish(self) {
        let Self { desk, mut showing, listening } = self;
        drop(listening);
        if tokio::time::timeout(LAST, &mut showing).await.is_err() {
            persist(&desk, async move { _ = showing.await });
        }
    }
}
