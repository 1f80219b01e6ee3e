//! Explains why a run is still queued, so that it doesn't look like it hangs.

use std::time::Duration;

use attache_client::{HubClient, PageQuery, RunFilter};
use attache_protocol::{
    RunId, Timestamp,
    env::Env,
    rules::run::RunStatus,
    wire::{
        account::{Account, PeerInfo, Presence},
        run::{Run, WaitReason},
    },
};

use super::output::{TerminalOutput, TextStyle, clean, time};

/// Why the run is queued, what it waits for, and what a person can do.
struct QueueReason {
    why: String,
    when: &'static str,
    what: String,
}

/// A free device claims a run within this time.
const CLAIM_WAIT: Duration = Duration::from_millis(700);
/// Maximum number of the agent's runs to inspect.
const MAX_LOOK: u32 = 200;

/// Prints why a new run isn't claimed, if known.
pub(crate) async fn explain_new(output: &TerminalOutput, env: &Env, hub: &HubClient, run: RunId) {
    let Ok(found) = hub.run(run).await else { return };
    if found.status != RunStatus::Pending {
        return;
    }
    // A busy agent may still accept another run.
    if !working(hub, &found).await.is_empty() {
        tokio::time::sleep(CLAIM_WAIT).await;
    }
    if let Ok(found) = hub.run(run).await {
        explain(output, env, hub, &found).await;
    }
}

/// Prints why the run isn't claimed, if known.
pub(crate) async fn explain(output: &TerminalOutput, env: &Env, hub: &HubClient, run: &Run) {
    if run.status != RunStatus::Pending {
        return;
    }
    if let Some(until) = run.deferred_until {
        return output.say_styled(TextStyle::Busy, limit_reason(run, until, env.now()));
    }
    let Ok(account) = hub.account(&run.agent_id.to_string()).await else { return };
    let reason = match &account.peer {
        Some(peer) => peer_reason(&account, peer),
        None => device_reason(&account, env.now()),
    };
    let reason = match reason {
        Some(reason) => Some(reason),
        None => busy(hub, &account, run).await,
    };
    let Some(QueueReason { why, when, what }) = reason else { return };
    let until = run.expires_at.map(|at| format!(" (expires {})", time::relative(at, env.now())));
    let message = format!("{why}. The run is queued and starts when {when}{}. {what}.", until.unwrap_or_default());
    output.say_styled(TextStyle::Busy, message);
}

/// Why a run waits for a usage limit.
fn limit_reason(run: &Run, until: Timestamp, now: Timestamp) -> String {
    let (agent, when, id) = (clean::line(&run.agent_name), time::relative(until, now), run.task_run_id);
    format!(
        "{agent} has reached a usage limit of its model account. The run goes on by itself {when}. To stop waiting: attache \
         runs cancel {id}."
    )
}

/// The agent's running runs that the caller can see.
async fn working(hub: &HubClient, run: &Run) -> Vec<Run> {
    of_agent(hub, run, RunStatus::Running).await
}

async fn of_agent(hub: &HubClient, run: &Run, status: RunStatus) -> Vec<Run> {
    let page = PageQuery { limit: Some(MAX_LOOK), cursor: None };
    let agent = Some(run.agent_id.to_string());
    let listed = hub.runs(&RunFilter { status: Some(status), agent, page, ..RunFilter::default() }).await;
    let listed = listed.map(|list| list.task_runs).unwrap_or_default();
    // It may have been claimed just now.
    listed.into_iter().filter(|other| other.task_run_id != run.task_run_id).collect()
}

/// The reason if the agent is online but busy.
async fn busy(hub: &HubClient, account: &Account, run: &Run) -> Option<QueueReason> {
    let working = working(hub, run).await;
    let first = working.last()?;
    let other = first.task_run_id;
    let more = match working.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let order = |run: &Run| (std::cmp::Reverse(run.priority), run.created_at, run.task_run_id);
    let pending = of_agent(hub, run, RunStatus::Pending).await;
    let place = match pending.iter().filter(|other| order(other) < order(run)).count() {
        0 => "is next in the queue".to_owned(),
        1 => "is behind 1 other run".to_owned(),
        count => format!("is behind {count} other runs"),
    };
    let name = clean::line(&account.name);
    let (waits, what) = match first.waiting {
        None => ("", format!("See attache runs show {other}")),
        Some(WaitReason::Approval) => {
            (", which waits for an approval", "Decide: attache approvals, or cancel that run".to_owned())
        }
        Some(WaitReason::Input) => (
            ", which waits for an answer",
            format!("Answer it: attache runs answer {other} \"…\", or cancel it: attache runs cancel {other}"),
        ),
    };
    let why = format!("{name} is busy with {other}{more}{waits}; this run {place}");
    Some(QueueReason { why, when: "the agent is free", what })
}

fn device_reason(account: &Account, now: Timestamp) -> Option<QueueReason> {
    if account.status == Presence::Online {
        return None;
    }
    let name = clean::line(&account.name).into_owned();
    let (why, what) = match &account.runtime {
        Some(runtime) => {
            let device = clean::line(runtime.device_name.as_deref().unwrap_or("its device")).into_owned();
            let seen = time::relative_or(runtime.last_heartbeat_at, now, "never seen");
            (format!("{name} is offline ({device}: {seen})"), "On the device, run `attache runtime start`".to_owned())
        }
        None => (format!("no device is paired with {name}"), format!("Pair one: attache agents code {name}")),
    };
    Some(QueueReason { why, when: "the agent is online", what })
}

/// The reason for an outside agent, which has no device.
fn peer_reason(account: &Account, peer: &PeerInfo) -> Option<QueueReason> {
    let name = clean::line(&account.name).into_owned();
    if peer.offered_pin.is_some() {
        let why = format!("the agent card of {name} changed and isn't trusted yet");
        let what = format!("Review it (attache agents show {name}), then trust it: attache agents trust {name}");
        return Some(QueueReason { why, when: "the card is trusted", what });
    }
    let problem = peer.problem.as_deref()?;
    let problem = clean::line(problem.trim_end_matches('.')).into_owned();
    let why = format!("{name} is unavailable: {problem}");
    Some(QueueReason { why, when: "that is resolved", what: format!("See attache agents show {name}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason_text(peer: &str) -> Option<String> {
        let peer = format!(
            r#"{{"agent_id":"agt_0193f6a1b2c37d4e8f90a1b2c3d4e5f6","name":"travel","description":null,"instructions":null,
            "skills":[],"a2a":null,"approvals":null,"owner_id":null,"status":"offline","created_at":"2026-11-15T12:00:00.000Z","archived_at":null,"runtime":null,
            "peer":{{"url":"https://p","has_key":false,"card_pin":"sha256:1","pinned_at":null,{peer}}}}}"#
        );
        let account: Account = serde_json::from_str(&peer).expect("this is an account");
        let reason = peer_reason(&account, account.peer.as_ref().expect("it has one"))?;
        Some(format!("{} | {} | {}", reason.why, reason.when, reason.what))
    }

    #[test]
    fn an_outside_agent_gets_its_own_reasons() {
        assert_eq!(reason_text(r#""offered_pin":null,"problem":null"#), None);
        assert_eq!(
            reason_text(r#""offered_pin":"sha256:2","problem":"changed""#).as_deref(),
            Some(
                "the agent card of travel changed and isn't trusted yet | the card is trusted | \
                 Review it (attache agents show travel), then trust it: attache agents trust travel"
            )
        );
        assert_eq!(
            reason_text(r#""offered_pin":null,"problem":"It is away.""#).as_deref(),
            Some("travel is unavailable: It is away | that is resolved | See attache agents show travel")
        );
    }
}
