//! Notifies people once when every delegation of a session has ended: by webhook and on the desktop, where configured.

use std::{path::PathBuf, process::Stdio, time::Duration};

use attache_protocol::{
    Json, Timestamp,
    rules::delegation::DelegationStatus,
    wire::delegation::{Delegation, DelegationSession},
};
use serde::Serialize;

use super::{peer::guard_for, service::DelegatorService};

/// The body of the webhook.
#[derive(Serialize)]
struct AllDoneNotice<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    session_id: &'a str,
    delegations: Vec<AllDoneDelegation<'a>>,
}

#[derive(Serialize)]
struct AllDoneDelegation<'a> {
    delegation_id: String,
    status: DelegationStatus,
    description: &'a str,
    peer_url: &'a str,
}

const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_WEBHOOK_ATTEMPTS: u32 = 3;

/// Sends the notifications in the background.
pub(super) fn all_done(service: &DelegatorService, session: DelegationSession) {
    let ended: Vec<Delegation> = session.ended.iter().filter_map(|id| service.get(*id).ok()).collect();
    let options = &service.0.options;
    tracing::info!(
        session.id = session.session_id,
        delegations = ended.len(),
        "all delegations of the session have ended"
    );
    if let Some(program) = options.desktop.clone() {
        let text = summary(&ended);
        service.0.tasks.spawn(show(program, "Delegations have ended", text));
    }
    if let Some(url) = options.policy.webhook() {
        let body = body(&session.session_id, &ended);
        service.0.tasks.spawn(post(url, body));
    }
}

/// Tells the owner, on the desktop, that changes are removed unless they are applied.
pub(super) fn copy_expires(service: &DelegatorService, delegation: &Delegation, until: Timestamp) {
    if let Some(program) = service.0.options.desktop.clone() {
        let text = format!("{}: its unapplied changes will be removed after {until}", delegation.description);
        service.0.tasks.spawn(show(program, "A copy will be removed", text));
    }
}

fn body(session_id: &str, ended: &[Delegation]) -> String {
    let ended = ended.iter().map(|delegation| AllDoneDelegation {
        delegation_id: delegation.delegation_id.to_string(),
        status: delegation.status,
        description: &delegation.description,
        peer_url: &delegation.peer_url,
    });
    let notice = AllDoneNotice { kind: "delegations.all_done", session_id, delegations: ended.collect() };
    Json::of(&notice).get().to_owned()
}

fn summary(ended: &[Delegation]) -> String {
    match ended {
        [one] => format!("{}: {}", one.description, one.status),
        all => {
            let completed = all.iter().filter(|delegation| delegation.status == DelegationStatus::Completed).count();
            format!("{} delegations have ended, {completed} of them completed", all.len())
        }
    }
}

/// The person who wrote the policy chose the URL, so a private host is allowed.
async fn post(url: String, body: String) {
    let guard = guard_for(&url);
    let target = match guard.check(&url) {
        Ok(target) => target,
        Err(error) => {
            tracing::warn!(%error, "the webhook in policy.toml can't be called");
            return;
        }
    };
    for number in 1..=MAX_WEBHOOK_ATTEMPTS {
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert(reqwest::header::CONTENT_TYPE, reqwest::header::HeaderValue::from_static("application/json"));
        match guard.post(&target, headers, body.clone().into()).await {
            Ok(reply) if reply.is_success() => return,
            Ok(reply) => tracing::warn!(status = reply.status, number, "the webhook answered with an error"),
            Err(error) => tracing::warn!(%error, number, "failed to call the webhook"),
        }
        tokio::time::sleep(Duration::from_secs(u64::from(number))).await;
    }
}

/// The text is a separate argument, never part of a command line.
async fn show(program: PathBuf, title: &'static str, text: String) {
    let mut command = tokio::process::Command::new(program);
    command.args(["--app-name=attache", "--", title]).arg(text);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let shown = async { command.status().await };
    if let Err(error) =
        tokio::time::timeout(WEBHOOK_TIMEOUT, shown).await.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
    {
        tracing::debug!(%error, "failed to show a desktop notification");
    }
}
