//! Notifies a remote that the delegation has ended: in the background, with retries.

use std::time::Duration;

use attache_protocol::{DelegationId, wire::awcp::AwcpErrorCode};
use tokio::task::JoinHandle;

use super::{conversation::LeaseConversation, service::DelegatorService};

/// How long to keep trying.
const NOTIFY_TIMEOUT: Duration = Duration::from_secs(120);

/// The service owns the task. Callers can also wait for it.
pub(super) fn notify_end(
    service: &DelegatorService,
    id: DelegationId,
    mut conversation: LeaseConversation,
    code: AwcpErrorCode,
    reason: String,
) -> JoinHandle<()> {
    let (env, pace) = (service.env().clone(), service.0.options.pace);
    service.0.tasks.spawn(async move {
        let notify = async {
            let mut backoff = attache_client::Backoff::new(pace.retry.0, pace.retry.1);
            while let Err(error) = conversation.notify_end(code, &reason).await {
                tracing::debug!(delegation.id = %id, %error, "failed to notify the remote that the delegation ended");
                tokio::time::sleep(backoff.next(&env)).await;
            }
        };
        if tokio::time::timeout(NOTIFY_TIMEOUT, notify).await.is_err() {
            tracing::warn!(delegation.id = %id, "the remote was not notified that the delegation ended");
        }
    })
}
