//! Tells a remote that it is over, in the background and more than once where the way to it is broken.

use std::time::Duration;

use attache_protocol::{DelegationId, wire::awcp::AwcpErrorCode};
use tokio::task::JoinHandle;

use super::{peer::RemoteConversation, service::DelegatorService};

/// How long it is tried.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(120);

/// The desk owns the task; whoever wants to can wait for it, too.
pub(super) fn notify_end(
    desk: &DelegatorService,
    id: DelegationId,
    mut line: RemoteConversation,
    code: AwcpErrorCode,
    why: String,
) -> JoinHandle<()> {
    let (env, pace) = (desk.env().clone(), desk.0.options.pace);
    desk.0.tasks.spawn(async move {
        let telling = async {
            let mut backoff = attache_client::Backoff::new(pace.retry.0, pace.retry.1);
            while let Err(error) = line.notify_end(code, &why).await {
                tracing::debug!(delegation.id = %id, %error, "the remote cannot be told that it is over");
                tokio::time::sleep(backoff.next(&env)).await;
            }
        };
        if tokio::time::timeout(NOTIFY_TIMEOUT, telling).await.is_err() {
            tracing::warn!(delegation.id = %id, "the remote was not told that it is over");
        }
    })
}
