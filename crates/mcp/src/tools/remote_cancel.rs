//! `remote_cancel`: cancels an earlier `remote_agent` call.

use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::call::{CallStart, report};
use crate::{AgentCallRef, McpToolServer, ToolError};

pub(crate) const DESCRIPTION: &str = "Cancels an earlier remote_agent call and all calls that its agent made for it. \
    Work that is already done is not undone. A call that has already ended is not affected.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteCancelArguments {
    /// The call_id from a remote_agent result
    call_id: String,
    /// The agent's URL. Needed only if an error asks for it
    agent_url: Option<String>,
}

pub(crate) async fn run(
    server: &McpToolServer,
    arguments: RemoteCancelArguments,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let RemoteCancelArguments { call_id, agent_url } = arguments;
    let start = CallStart { agent: agent_url.clone(), began: Instant::now(), form: None };
    if call_id.trim().is_empty() {
        let trouble = ToolError::invalid("call_id is empty", "Use the call_id from an earlier remote_agent result.");
        return report(&start, Err(trouble));
    }
    let cancelled = server.agents().cancel(server.caller(context), AgentCallRef { call_id, agent_url }).await;
    report(&start, cancelled)
}
