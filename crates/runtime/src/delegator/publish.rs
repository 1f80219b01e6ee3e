//! Shows a delegation to the people at the hub, without paths and credentials, and ends it when they want that. A hub that
//! cannot be reached holds up nothing.

use std::{path::Path, time::Duration};

use attache_client::{Backoff, Error, Hub};
use attache_protocol::{
    DelegationId,
    wire::delegation::{Delegation, Outcome, Projection},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{desk::Delegator, keyring::Keyring};

/// Ends with the delegation, at the latest.
pub(super) struct Publishing {
    showing: AbortOnDropHandle<()>,
    _listening: AbortOnDropHandle<()>,
}

/// Progress comes in many small steps; people read slower.
const COALESCE: Duration = Duration::from_secs(1);
const LISTEN: Duration = Duration::from_secs(25);
/// How long the end waits for the last word to arrive.
const LAST: Duration = Duration::from_secs(3);
/// How long a hub that is away is waited for after a crash.
const PERSISTENCE: Duration = Duration::from_secs(120);
const RETRY: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

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
    Some(Publishing { showing: AbortOnDropHandle::new(showing), _listening: AbortOnDropHandle::new(listening) })
}

/// Shows how one ended that a daemon before this one had published.
pub(super) fn last_word(desk: &Delegator, id: DelegationId, keys: &Keyring) {
    let hub = keys.hub.clone().and_then(|options| Hub::new(options).ok());
    if let (Some(hub), Some(shown)) = (hub, desk.subscribe(id)) {
        let showing = show(desk.clone(), hub, id, shown, CancellationToken::new());
        desk.0.tasks.spawn(tokio::time::timeout(PERSISTENCE, showing));
    }
}

async fn show(
    desk: Delegator,
    hub: Hub,
    id: DelegationId,
    mut shown: watch::Receiver<Delegation>,
    cancel: CancellationToken,
) {
    let mut backoff = Backoff::new(RETRY.0, RETRY.1);
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
                    return;
                }
                // Its end is no step that could wait.
                let _ = tokio::time::timeout(COALESCE, shown.wait_for(|next| next.status.has_ended())).await;
                if shown.wait_for(|next| next.revision > now.revision).await.is_err() {
                    return;
                }
            }
            Err(error) if !keeps_trying(&error) => {
                tracing::debug!(delegation.id = %id, %error, "the hub shows no delegations");
                return;
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

fn keeps_trying(error: &Error) -> bool {
    error.is_passing()
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
        let _ = tokio::time::timeout(LAST, self.showing).await;
    }
}
