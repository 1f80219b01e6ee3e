//! `delegate_output`: the status of a delegation, and its result once it has ended.

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

pub(crate) const DESCRIPTION: &str = "Returns the status of a delegation and, once it has ended, its result: the \
    remote agent's summary, the changed files, and links to the diff and the log. With block set to true, it waits for \
    the end for up to timeout seconds. If the delegation is still active after that, call delegate_output again to \
    keep waiting.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DelegateOutputArguments {
    /// The delegation_id returned by delegate
    delegation_id: String,
    /// Wait until the delegation has ended. Default: false
    block: Option<bool>,
    /// Maximum time to wait, in seconds. Capped below the client's own timeout
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
    let answer_timeout = server.options().answer_timeout;
    let deadline =
        Instant::now() + arguments.timeout.map_or(answer_timeout, |Seconds(timeout)| timeout.min(answer_timeout));
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
            format!("`{text}` is not a delegation id"),
            "Use the delegation_id returned by delegate. It starts with dlg_.",
        )
    })
}
