//! `delegate`: lets a remote agent work in a local folder.

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

pub(crate) const DESCRIPTION: &str = "Delegates a local folder to a remote agent, which works in it with its own tools \
    as if the folder were on its own disk. Use it when the task needs files on this machine; use remote_agent when it \
    doesn't. Access is revoked when the work is done, when the lease expires, or when you cancel. Waits for the \
    result. If the work takes longer than the client's timeout, the result has a delegation_id and a status such as \
    `running`, and the work continues: call delegate_output to get the result. Set background to true to return \
    immediately and work on something else.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateArguments {
    /// A short title for the task, 3 to 5 words
    description: String,
    /// The complete task. The agent sees nothing else, so state what it MUST DO, what it MUST NOT do and the EXPECTED
    /// OUTPUT. Write paths relative to the folder.
    prompt: String,
    /// The URL of the remote A2A agent, as returned by list_agents
    peer_url: String,
    /// The absolute path of the folder to delegate. The agent can access only files inside it
    workspace_dir: String,
    /// Return immediately with the delegation_id instead of waiting for the result. Default: false
    background: Option<bool>,
    /// Maximum duration of the lease, in seconds. Default: set by the user's policy
    ttl_seconds: Option<Seconds>,
    /// ro: the agent can only read files. rw: it can also change, add and delete them
    access_mode: Option<AccessModeArgument>,
    /// The agent works in a copy, and its changes wait until the user applies them. Use it when several agents work in one
    /// folder at the same time, or when the user wants to see changes before they are made. Default: false
    staged: Option<bool>,
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
    // Runs to completion even if the client stops waiting, so that no delegation is created without being tracked.
    let maker = delegations.clone();
    let made = server.session().finish(async move { maker.delegate(request).await }).await;
    let made = match made {
        Some(Ok(made)) => made,
        Some(Err(trouble)) => return delegation_result::refused(&trouble, &session, None),
        None => {
            let trouble = ToolError::new("failed", "the delegation was interrupted", "Check `attache delegations`.");
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

/// Waits until the delegation ends, the deadline passes or the client disconnects. Returns its last known state.
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
                    tracing::debug!(%trouble, "the daemon doesn't answer");
                    tokio::time::sleep(left.min(std::time::Duration::from_millis(500))).await;
                }
            }
        }
    };
    let with_progress = server.progress_notifier(context).notify_while(timeout_at(deadline, ended), said);
    tokio::select! {
        _ = with_progress => {}
        // The client no longer waits for the result. The delegation continues.
        () = context.ct.cancelled() => {}
    }
    known
}

fn progress_text(delegation: &Delegation) -> String {
    match (&delegation.progress, &delegation.waits_for) {
        (Some(progress), _) => progress.clone(),
        (None, Some(reason)) => format!("waiting for {reason}"),
        (None, None) => format!("{}: {}", delegation.status, delegation.description),
    }
}

// === impl DelegateArguments ===

impl DelegateArguments {
    fn into_request(self, session: &str) -> Result<DelegateRequest, ToolError> {
        let given = [("description", &self.description), ("prompt", &self.prompt), ("peer_url", &self.peer_url)];
        for (name, text) in given.into_iter().chain([("workspace_dir", &self.workspace_dir)]) {
            if text.trim().is_empty() {
                return Err(ToolError::invalid(format!("{name} is empty"), "Provide a value and call delegate again."));
            }
        }
        // The base of a relative path is unknown: the client's working directory may differ from ours.
        if !Path::new(&self.workspace_dir).is_absolute() {
            return Err(ToolError::invalid(
                format!("workspace_dir `{}` is not an absolute path", self.workspace_dir),
                "Provide the full path of the folder, starting with `/`.",
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
            transport: None,
            key_file: None,
            awcp_compat: false,
            staged: self.staged.unwrap_or(false),
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
