//! Explains why a run is still queued, so that it doesn't look like it hangs.

use std::time::Duration;

use attache_client::HubClient;
use attache_protocol::{
    RunId, Timestamp,
    env::Env,
    rules::run::RunStatus,
    wire::{
        account::{Account, PeerInfo, Presence},
        run::{Run, RunQuery, WaitReason},
    },
};

use super::output::{TerminalOutput, TextStyle, clean, time};
use crate::text::ask as text;

/// Why the run is queued, what it waits for, and what a person can do.
struct QueueReason {
    why: String,
    when: &'static str,
    what: String,
}

/// A free device claims a run within this time.
const CLAIM_WAIT: Duration = Duration::from_millis(700);
/// Maximum number of the agent's runs to inspect.
const MAX_LOOK: usize = 200;

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
    let message = match run.expires_at {
        Some(at) => text::queued_until(why, when, time::relative(at, env.now()), what),
        None => text::queued(why, when, what),
    };
    output.say_styled(TextStyle::Busy, message);
}

/// Why a run waits for a usage limit.
fn limit_reason(run: &Run, until: Timestamp, now: Timestamp) -> String {
    let (agent, when, id) = (clean::line(&run.agent_name), time::relative(until, now), run.task_run_id);
    text::limit_reached(agent, when, id)
}

/// The agent's running runs that the caller can see.
async fn working(hub: &HubClient, run: &Run) -> Vec<Run> {
    of_agent(hub, run, RunStatus::Running).await
}

async fn of_agent(hub: &HubClient, run: &Run, status: RunStatus) -> Vec<Run> {
    let agent_id = Some(run.agent_id.to_string());
    let query = RunQuery { status: Some(status), agent_id, limit: Some(MAX_LOOK), ..RunQuery::default() };
    let listed = hub.runs(&query).await;
    let listed = listed.map(|list| list.task_runs).unwrap_or_default();
    // It may have been claimed just now.
    listed.into_iter().filter(|other| other.task_run_id != run.task_run_id).collect()
}

/// The reason if the agent is online but busy.
async fn busy(hub: &HubClient, account: &Account, run: &Run) -> Option<QueueReason> {
    let working = working(hub, run).await;
    let first = working.last()?;
    let other = first.task_run_id;
    let order = |run: &Run| (std::cmp::Reverse(run.priority), run.created_at, run.task_run_id);
    let pending = of_agent(hub, run, RunStatus::Pending).await;
    let place = match pending.iter().filter(|other| order(other) < order(run)).count() {
        0 => text::next_in_queue().to_owned(),
        count => text::behind(count as u64),
    };
    let (name, more) = (clean::line(&account.name), working.len() - 1);
    let why = match (first.waiting, more) {
        (None, 0) => text::busy(name, other, place),
        (None, more) => text::busy_more(name, other, more, place),
        (Some(WaitReason::Approval), 0) => text::busy_approval(name, other, place),
        (Some(WaitReason::Approval), more) => text::busy_more_approval(name, other, more, place),
        (Some(WaitReason::Input), 0) => text::busy_input(name, other, place),
        (Some(WaitReason::Input), more) => text::busy_more_input(name, other, more, place),
    };
    let what = match first.waiting {
        None => text::see_run(other),
        Some(WaitReason::Approval) => text::decide_it().to_owned(),
        Some(WaitReason::Input) => text::answer_or_cancel(other),
    };
    Some(QueueReason { why, when: text::when_free(), what })
}

fn device_reason(account: &Account, now: Timestamp) -> Option<QueueReason> {
    if account.status == Presence::Online {
        return None;
    }
    let name = clean::line(&account.name).into_owned();
    let (why, what) = match &account.runtime {
        Some(runtime) if runtime.is_only_registered() => (text::only_registered(&name), text::connect_it().to_owned()),
        Some(runtime) => {
            let device = clean::line(runtime.device_name.as_deref().unwrap_or(text::its_device())).into_owned();
            let seen = time::relative_or(runtime.last_heartbeat_at, now, text::device_never_seen());
            (text::agent_offline(name, device, seen), text::start_runtime().to_owned())
        }
        None => (text::not_paired(&name), text::pair_one(name)),
    };
    Some(QueueReason { why, when: text::when_online(), what })
}

/// The reason for an outside agent, which has no device.
fn peer_reason(account: &Account, peer: &PeerInfo) -> Option<QueueReason> {
    let name = clean::line(&account.name).into_owned();
    if peer.offered_pin.is_some() {
        let why = text::card_changed(&name);
        let what = text::review_card(name);
        return Some(QueueReason { why, when: text::when_trusted(), what });
    }
    let problem = peer.problem.as_deref()?;
    let problem = clean::line(problem.trim_end_matches('.')).into_owned();
    let why = text::peer_unavailable(&name, problem);
    Some(QueueReason { why, when: text::when_resolved(), what: text::see_agent(name) })
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
