//! `delegate`: lends a folder to a remote agent and has it work there.

use std::{path::Path, sync::Arc};

use attache_protocol::wire::{
    awcp::AccessMode,
    delegation::{DelegateRequest, Delegation},
};
use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use super::Seconds;
use crate::{
    DelegationBackend, McpToolServer, ToolError,
    delegation_result::{self, DelegationToolOutput},
};

pub(crate) const DESCRIPTION: &str = "Lends a local folder to a remote agent, which then works in it with its own tools as \
    if it were its own disk. The folder is taken back when the work is done, when the lease runs out, or when you cancel. \
    Waits for the result; if that takes longer than the client would wait, the answer is status `running` with a \
    delegation_id for delegate_output, and the work goes on. Use background true to go on with something else meanwhile.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateArguments {
    /// What it is about, in 3 to 5 words
    description: String,
    /// The whole task, for somebody who knows nothing else: MUST DO, MUST NOT, EXPECTED OUTPUT. Paths are relative to the
    /// folder.
    prompt: String,
    /// The URL of the remote A2A agent; list_agents shows some
    peer_url: String,
    /// The folder to lend, as an absolute path; only what is in it can be seen
    workspace_dir: String,
    /// Answer at once with the delegation_id; false unless given
    background: Option<bool>,
    /// How long the folder is lent at most, in seconds; the person's policy has a default
    ttl_seconds: Option<Seconds>,
    /// ro: the remote can only read; rw: it can change, add and delete files
    access_mode: Option<AccessModeArgument>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AccessModeArgument {
    Ro,
    Rw,
}

pub(crate) async fn run(
    server: &McpToolServer,
    delegations: &Arc<dyn DelegationBackend>,
    arguments: DelegateArguments,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let session = server.session_id(context);
    let background = arguments.background.unwrap_or(false);
    let request = match arguments.into_request(&session) {
        Ok(request) => request,
        Err(trouble) => return delegation_result::refused(&trouble, &session, None),
    };
    let began = Instant::now();
    // Whoever stops waiting at the wrong moment would leave a delegation that nobody knows of.
    let maker = delegations.clone();
    let made = server.session().finish(async move { maker.delegate(request).await }).await;
    let made = match made {
        Some(Ok(made)) => made,
        Some(Err(trouble)) => return delegation_result::refused(&trouble, &session, None),
        None => {
            let trouble =
                ToolError::new("failed", "the delegation broke off", "`attache delegations` shows what there is.");
            return delegation_result::refused(&trouble, &session, None);
        }
    };
    let now = if background || made.status.has_ended() {
        made
    } else {
        wait(server, delegations, made, began + server.options().answer_timeout, context).await
    };
    if !now.status.has_ended() && server.may_notify(context) {
        server.session().watch(delegations.clone(), &now, context.peer.clone());
    }
    DelegationToolOutput::of(&now, &session).into_result(Some(&now))
}

/// The delegation when it is over, or as it is last known at the deadline, when the client is gone, or when the daemon is.
pub(crate) async fn wait(
    server: &McpToolServer,
    delegations: &Arc<dyn DelegationBackend>,
    delegation: Delegation,
    deadline: Instant,
    context: &RequestContext<RoleServer>,
) -> Delegation {
    let (say, said) = watch::channel(String::new());
    let mut known = delegation;
    let ended = async {
        loop {
            let _ = say.send(progress_text(&known));
            let left = deadline.saturating_duration_since(Instant::now());
            if known.status.has_ended() || left.is_zero() {
                return;
            }
            match delegations.get(known.delegation_id, Some(known.revision), left).await {
                Ok(newer) => known = newer,
                Err(trouble) => {
                    tracing::debug!(%trouble, "the daemon does not answer");
                    tokio::time::sleep(left.min(std::time::Duration::from_millis(500))).await;
                }
            }
        }
    };
    let attended = server.progress_notifier(context).notify_while(timeout_at(deadline, ended), said);
    tokio::select! {
        _ = attended => {}
        // Nobody reads the answer; the delegation goes on.
        () = context.ct.cancelled() => {}
    }
    known
}

fn progress_text(delegation: &Delegation) -> String {
    match (&delegation.progress, &delegation.waits_for) {
        (Some(progress), _) => progress.clone(),
        (None, Some(reason)) => format!("waits for {reason}"),
        (None, None) => format!("{}: {}", delegation.status, delegation.description),
    }
}

// === impl DelegateArguments ===

impl DelegateArguments {
    fn into_request(self, session: &str) -> Result<DelegateRequest, ToolError> {
        let given = [("description", &self.description), ("prompt", &self.prompt), ("peer_url", &self.peer_url)];
        for (name, text) in given.into_iter().chain([("workspace_dir", &self.workspace_dir)]) {
            if text.trim().is_empty() {
                return Err(ToolError::invalid(format!("{name} is empty"), "Say what it is and call delegate again."));
            }
        }
        // Nobody knows for sure which folder a client means by a relative one.
        if !Path::new(&self.workspace_dir).is_absolute() {
            return Err(ToolError::invalid(
                format!("workspace_dir `{}` is not an absolute path", self.workspace_dir),
                "Give the whole path of the folder, beginning with `/`.",
            ));
        }
        Ok(DelegateRequest {
            description: self.description,
            prompt: self.prompt,
            peer_url: self.peer_url,
            workspace_dir: self.workspace_dir,
            ttl_seconds: self.ttl_seconds.map(|Seconds(ttl)| ttl.as_secs_f64().ceil() as u64),
            access_mode: self.access_mode.map(AccessModeArgument::into),
            session_id: Some(session.to_owned()),
            include: Vec::new(),
            exclude: Vec::new(),
            key_file: None,
        })
    }
}

// === impl AccessModeArgument ===

impl From<AccessModeArgument> for AccessMode {
    fn from(mode: AccessModeArgument) -> Self {
        match mode {
            AccessModeArgument::Ro => Self::Ro,
            AccessModeArgument::Rw => Self::Rw,
        }
    }
}
