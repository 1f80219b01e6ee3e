//! `delegate_output`: how a delegation stands, or its result when it is over.

use std::{sync::Arc, time::Duration};

use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{Seconds, delegate};
use crate::{
    DelegationBackend, McpToolServer, ToolError,
    delegation_result::{self, DelegationToolOutput},
};

pub(crate) const DESCRIPTION: &str = "How a delegation stands, and its result when it is over: the remote agent's summary, \
    what changed in the folder, and links to the diff and the log. With block true it waits for the end, at most for \
    timeout seconds, and answers status `running` when that was not enough: call it again then.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateOutputArguments {
    /// As delegate answered it
    delegation_id: String,
    /// Wait until it is over; false unless given
    block: Option<bool>,
    /// How long to wait at most, in seconds; never longer than the client would wait for this tool
    timeout: Option<Seconds>,
}

pub(crate) async fn run(
    server: &McpToolServer,
    delegations: &Arc<dyn DelegationBackend>,
    arguments: DelegateOutputArguments,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let session = server.session_id(context);
    let id = match id(&arguments.delegation_id) {
        Ok(id) => id,
        Err(trouble) => return delegation_result::refused(&trouble, &session, None),
    };
    let patience = server.options().answer_timeout;
    let deadline = Instant::now() + arguments.timeout.map_or(patience, |Seconds(timeout)| timeout.min(patience));
    let mut known = match delegations.get(id, None, Duration::ZERO).await {
        Ok(known) => known,
        Err(trouble) => return delegation_result::refused(&trouble, &session, Some(id)),
    };
    if arguments.block.unwrap_or(false) {
        known = delegate::wait(server, delegations, known, deadline, context).await;
    }
    DelegationToolOutput::of(&known, &session).into_result(Some(&known))
}

pub(super) fn id(text: &str) -> Result<attache_protocol::DelegationId, ToolError> {
    text.trim().parse().map_err(|_| {
        ToolError::invalid(
            format!("`{text}` is not the id of a delegation"),
            "Give the delegation_id that delegate answered; it begins with dlg_.",
        )
    })
}
