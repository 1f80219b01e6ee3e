//! Following the run that executes: when the hub cancels it or gives it to another claim, the work here stops.

use std::{sync::Arc, time::Duration};

use attache_client::{Backoff, Hub, channel::State};
use attache_protocol::{AskId, EventKind, Json, RunId, env::Env, rules::run::Status, wire::event::Event};
use serde::Deserialize;

use crate::{inbox::Inbox, progress::Claimant};

/// The member of `task.claimed` that tells whose claim it is.
#[derive(Deserialize)]
struct Claimed {
    epoch: i64,
}

/// By which way a claim came, and so by which way its end and its input come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// Frames tell of everything, however often the line breaks in between.
    Channel,
    Pull,
    /// Of an earlier process: what it has told the adapter is not known either.
    Unknown,
}

/// The hub's word for input that answers no question.
#[derive(Deserialize)]
struct Received {
    input_request_id: Option<AskId>,
    parts: Json,
}

/// How long the channel of a run may be broken before its stream is followed instead.
const PATIENCE: Duration = Duration::from_secs(2);

/// Listens until there is a reason to stop.
pub(crate) async fn watch(claimant: Claimant, source: Source, inbox: Arc<Inbox>) {
    let doubts = async {
        loop {
            inbox.doubted(claimant.run).await;
            if let Some(reason) = lost(&claimant.ways.hub, claimant.run, claimant.epoch, &claimant.env).await {
                return claimant.stop.set(reason);
            }
        }
    };
    tokio::join!(doubts, listen(&claimant, source, &inbox));
}

/// Why the claim is not ours any more; none when it is. Waits for the hub as long as it is away.
pub(crate) async fn lost(hub: &Hub, run: RunId, epoch: i64, env: &Env) -> Option<&'static str> {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        match hub.run(run).await {
            Ok(run) => {
                return match run.status {
                    Status::Running if run.epoch == epoch => None,
                    Status::Running => Some("another claim owns the run"),
                    Status::Pending => Some("the hub took the run back"),
                    Status::Cancelled => Some("the run was cancelled"),
                    Status::Completed | Status::Failed => Some("the run has ended at the hub"),
                };
            }
            Err(error) if error.is_passing() => tokio::time::sleep(backoff.next(env)).await,
            Err(_) => return Some("the hub does not know the run any more"),
        }
    }
}

async fn listen(claimant: &Claimant, source: Source, inbox: &Inbox) {
    let Some(channel) = claimant.ways.channel.clone().filter(|_| source == Source::Channel) else {
        return follow(claimant, source, inbox).await;
    };
    let mut state = channel.watch();
    loop {
        let is_broken = |state: &State| !matches!(state, State::Connected(_));
        if state.wait_for(is_broken).await.is_err() {
            return;
        }
        tokio::select! {
            () = channel.connected() => continue,
            () = tokio::time::sleep(PATIENCE) => {}
        }
        tokio::select! {
            () = channel.connected() => {}
            () = follow(claimant, source, inbox) => return,
        }
    }
}

/// Reads the run's own stream until there is a reason to stop.
async fn follow(claimant: &Claimant, source: Source, inbox: &Inbox) {
    let Claimant { ways, run, epoch, stop, link, .. } = claimant;
    let (run, epoch) = (*run, *epoch);
    let mut events = ways.hub.follow(run, 0).patience(Duration::MAX);
    let mut ours = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if let Some(reason) = reason(&event, epoch, &mut ours) {
                    return stop.set(reason);
                }
                let is_input = ours && source == Source::Pull && event.kind == EventKind::TaskInputReceived;
                if is_input && let Ok(Received { input_request_id: None, parts }) = event.data.parse() {
                    inbox.give_input(run, parts);
                }
            }
            Err(error) if error.is_denied() => return link.failed(&error),
            // The heartbeat still tells of a cancelled run, only later.
            Err(error) => return tracing::warn!(run.id = %run, %error, "the run's events cannot be followed"),
        }
    }
}

fn reason(event: &Event, epoch: i64, ours: &mut bool) -> Option<&'static str> {
    match event.event_kind() {
        Some(EventKind::TaskCancelled) => Some("the run was cancelled"),
        Some(EventKind::TaskCompleted | EventKind::TaskFailed) => Some("the run has ended at the hub"),
        // Whatever came before our own claim was about others.
        Some(EventKind::TaskRequeued) if *ours => Some("the hub took the run back"),
        Some(EventKind::TaskClaimed) => {
            let claimed = event.data.parse::<Claimed>().map_or(epoch, |claimed| claimed.epoch);
            *ours = claimed == epoch;
            (claimed > epoch).then_some("another claim owns the run")
        }
        Some(EventKind::SnapshotRepaired) => {
            *ours = true;
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
    fn only_what_follows_our_claim_is_about_us() {
        let event = |kind: &str, data: &str| Event {
            seq: 1,
            kind: kind.to_owned(),
            at: Timestamp::default(),
            data: Json::from_text(data).unwrap(),
        };
        let mut ours = false;
        for (kind, data, expected) in [
            ("task.created", "{}", None),
            ("task.claimed", r#"{"epoch":1}"#, None),
            ("task.requeued", "{}", None),
            ("task.claimed", r#"{"epoch":2}"#, None),
            ("task.chunk", "{}", None),
            ("task.requeued", "{}", Some("the hub took the run back")),
            ("task.claimed", r#"{"epoch":3}"#, Some("another claim owns the run")),
            ("task.cancelled", "{}", Some("the run was cancelled")),
            ("task.failed", "{}", Some("the run has ended at the hub")),
        ] {
            assert_eq!(reason(&event(kind, data), 2, &mut ours), expected, "{kind} {data}");
        }
    }
}
