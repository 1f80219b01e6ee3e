//! Following the run that executes: when the hub cancels it or gives it to another claim, the work here stops.

use std::time::Duration;

use attache_protocol::wire::event::{Event, SNAPSHOT_REPAIRED};
use serde::Deserialize;

use crate::progress::Claimant;

/// The member of `task.claimed` that tells whose claim it is.
#[derive(Deserialize)]
struct Claimed {
    epoch: i64,
}

/// Reads the run's own stream until there is a reason to stop.
pub(crate) async fn watch(claimant: Claimant) {
    let Claimant { hub, run, epoch, stop, link, .. } = claimant;
    let mut events = hub.follow(run, 0).patience(Duration::MAX);
    let mut ours = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                if let Some(reason) = reason(&event, epoch, &mut ours) {
                    return stop.set(reason);
                }
            }
            Err(error) if error.is_denied() => return link.failed(&error),
            // The heartbeat still tells of a cancelled run, only later.
            Err(error) => return tracing::warn!(run.id = %run, %error, "the run's events cannot be followed"),
        }
    }
}

fn reason(event: &Event, epoch: i64, ours: &mut bool) -> Option<&'static str> {
    match event.kind.as_str() {
        "task.cancelled" => Some("the run was cancelled"),
        "task.completed" | "task.failed" => Some("the run has ended at the hub"),
        // Whatever came before our own claim was about others.
        "task.requeued" if *ours => Some("the hub took the run back"),
        "task.claimed" => {
            let claimed = event.data.parse::<Claimed>().map_or(epoch, |claimed| claimed.epoch);
            *ours = claimed == epoch;
            (claimed > epoch).then_some("another claim owns the run")
        }
        SNAPSHOT_REPAIRED => {
            *ours = true;
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use attache_protocol::{Json, Timestamp};

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
