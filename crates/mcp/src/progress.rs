//! Progress notifications for a waiting client, at a bounded rate.

use std::{future::Future, time::Duration};

use rmcp::{
    RoleServer,
    model::{ProgressNotificationParam, ProgressToken},
    service::{Peer, RequestContext},
};
use tokio::{sync::watch, time::Instant};

/// Sends progress notifications if the client asked for them.
#[derive(Debug)]
pub(crate) struct ProgressNotifier {
    to: Option<(Peer<RoleServer>, ProgressToken)>,
    began: Instant,
    last: Option<Instant>,
    interval: Duration,
}

/// Messages within this interval are merged into one notification.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

// === impl ProgressNotifier ===

impl ProgressNotifier {
    pub(crate) fn of(context: &RequestContext<RoleServer>, at_least_every: Duration) -> Self {
        let to = context.meta.get_progress_token().map(|token| (context.peer.clone(), token));
        Self { to, began: Instant::now(), last: None, interval: at_least_every }
    }

    /// Waits for the work and forwards its messages.
    pub(crate) async fn notify_while<F: Future>(mut self, work: F, mut said: watch::Receiver<String>) -> F::Output {
        tokio::pin!(work);
        if self.to.is_none() {
            return work.await;
        }
        loop {
            let fresh = said.has_changed().unwrap_or(false);
            let pause = if fresh { MIN_INTERVAL.min(self.interval) } else { self.interval };
            let due = self.last.map_or(self.began, |last| last + pause);
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep_until(due) => self.notify(&mut said).await,
                Ok(()) = said.changed(), if !fresh => said.mark_changed(),
            }
        }
    }

    async fn notify(&mut self, said: &mut watch::Receiver<String>) {
        let Some((peer, token)) = &self.to else { return };
        let seconds = self.began.elapsed().as_secs_f64();
        let message = said.borrow_and_update().clone();
        let message = if message.is_empty() { format!("working for {seconds:.0} s") } else { message };
        // The protocol only requires that it increases. The total duration is unknown.
        let progress = ProgressNotificationParam::new(token.clone(), seconds.max(f64::MIN_POSITIVE));
        // If the client is gone, the work continues anyway.
        let _ = peer.notify_progress(progress.with_message(message)).await;
        self.last = Some(Instant::now());
    }
}
