//! Watches the claim of an executing run: when the hub cancels the run or another claim holds it, the work here stops.

use std::{sync::Arc, time::Duration};

use attache_client::{Backoff, HubClient, channel::ChannelState};
use attache_protocol::{
    EventKind, InputId, Json, RunId, WorkerRequestId, env::Env, rules::run::RunStatus, wire::event::Event,
};
use serde::Deserialize;

use crate::{
    inbox::{CallerInput, ChannelInbox},
    progress::ClaimContext,
};

/// The member of `task.claimed` that identifies the claim.
#[derive(Deserialize)]
struct ClaimedEventData {
    epoch: i64,
}

/// How a claim arrived, which determines how its end and its input arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimSource {
    /// Frames report everything, even across reconnections.
    Channel,
    Pull,
    /// From an earlier process. What that process sent to the adapter is unknown too.
    Unknown,
}

/// The event for unsolicited input.
#[derive(Deserialize)]
struct InputReceivedEventData {
    input_id: Option<InputId>,
    input_request_id: Option<WorkerRequestId>,
    parts: Json,
}

/// How long the channel of a run can be down before its event stream is followed instead.
const CHANNEL_RECONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Watches until there is a reason to stop.
pub(crate) async fn watch(claimant: ClaimContext, source: ClaimSource, inbox: Arc<ChannelInbox>) {
    let doubts = async {
        loop {
            inbox.claim_questioned(claimant.run).await;
            if let Some(reason) = lost(&claimant.transport.hub, claimant.run, claimant.epoch, &claimant.env).await {
                return claimant.stop.set(reason);
            }
        }
    };
    tokio::join!(doubts, listen(&claimant, source, &inbox));
}

/// Why this device no longer holds the claim. `None` if it does. Waits while the hub is away.
pub(crate) async fn lost(hub: &HubClient, run: RunId, epoch: i64, env: &Env) -> Option<&'static str> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match hub.run(run).await {
            Ok(run) => {
                return match run.status {
                    RunStatus::Running if run.epoch == epoch => None,
                    RunStatus::Running => Some("another claim holds the run"),
                    RunStatus::Pending => Some("the hub took the run back"),
                    RunStatus::Cancelled => Some("the run was cancelled"),
                    RunStatus::Completed | RunStatus::Failed => Some("the run has ended at the hub"),
                };
            }
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(env)).await,
            Err(_) => return Some("the hub no longer knows the run"),
        }
    }
}

async fn listen(claimant: &ClaimContext, source: ClaimSource, inbox: &ChannelInbox) {
    let Some(channel) = claimant.transport.channel.clone().filter(|_| source == ClaimSource::Channel) else {
        return follow(claimant, source, inbox).await;
    };
    let mut state = channel.watch();
    loop {
        let is_broken = |state: &ChannelState| !matches!(state, ChannelState::Connected(_));
        if state.wait_for(is_broken).await.is_err() {
            return;
        }
        tokio::select! {
            () = channel.connected() => continue,
            () = tokio::time::sleep(CHANNEL_RECONNECT_TIMEOUT) => {}
        }
        tokio::select! {
            () = channel.connected() => {}
            () = follow(claimant, source, inbox) => return,
        }
    }
}

/// Reads the run's event stream until there is a reason to stop.
async fn follow(claimant: &ClaimContext, source: ClaimSource, inbox: &ChannelInbox) {
    let ClaimContext { transport: ways, run, epoch, stop, link, .. } = claimant;
    let (run, epoch) = (*run, *epoch);
    let mut events = ways.hub.follow(run, 0).timeout(Duration::MAX);
    let mut is_ours = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if let Some(reason) = reason(&event, epoch, &mut is_ours) {
                    return stop.set(reason);
                }
                let is_input = is_ours && source == ClaimSource::Pull && event.kind == EventKind::TaskInputReceived;
                if is_input
                    && let Ok(InputReceivedEventData { input_id, input_request_id: None, parts }) = event.data.parse()
                {
                    inbox.give_input(run, CallerInput { id: input_id, parts });
                }
            }
            Err(error) if error.is_denied() => return link.failed(&error),
            // The heartbeat still reports a cancelled run, only later.
            Err(error) => return tracing::warn!(run.id = %run, %error, "failed to follow the run's events"),
        }
    }
}

fn reason(event: &Event, epoch: i64, is_ours: &mut bool) -> Option<&'static str> {
    match event.event_kind() {
        Some(EventKind::TaskCancelled) => Some("the run was cancelled"),
        Some(EventKind::TaskCompleted | EventKind::TaskFailed) => Some("the run has ended at the hub"),
        // Events before our own claim are about earlier claims.
        Some(EventKind::TaskRequeued | EventKind::TaskDeferred) if *is_ours => Some("the hub took the run back"),
        Some(EventKind::TaskClaimed) => {
            let claimed = event.data.parse::<ClaimedEventData>().map_or(epoch, |claimed| claimed.epoch);
            *is_ours = claimed == epoch;
            (claimed > epoch).then_some("another claim holds the run")
        }
        Some(EventKind::SnapshotRepaired) => {
            *is_ours = true;
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::Timestamp;

    use super::*;

    #[test]
    fn only_events_after_our_claim_count() {
        let event = |kind: &str, data: &str| Event {
            seq: 1,
            kind: kind.to_owned(),
            at: Timestamp::default(),
            data: Json::from_text(data).unwrap(),
        };
        let mut is_ours = false;
        for (kind, data, expected) in [
            ("task.created", "{}", None),
            ("task.claimed", r#"{"epoch":1}"#, None),
            ("task.requeued", "{}", None),
            ("task.claimed", r#"{"epoch":2}"#, None),
            ("task.chunk", "{}", None),
            ("task.requeued", "{}", Some("the hub took the run back")),
            ("task.claimed", r#"{"epoch":3}"#, Some("another claim holds the run")),
            ("task.cancelled", "{}", Some("the run was cancelled")),
            ("task.failed", "{}", Some("the run has ended at the hub")),
        ] {
            assert_eq!(reason(&event(kind, data), 2, &mut is_ours), expected, "{kind} {data}");
        }
    }
}
