//! `remote_cancel`: stops what an agent elsewhere does for an earlier call.

use rmcp::{RoleServer, model::CallToolResult, service::RequestContext};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::call::{CallStart, report};
use crate::{AgentCallRef, McpToolServer, ToolError};

pub(crate) const DESCRIPTION: &str = "Stops the work of an earlier remote_agent call, with everything that was passed on from \
    it. What was done until then stays done. A call that is over stays as it is.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteCancelArguments {
    /// The call to stop, as remote_agent named it
    call_id: String,
    /// The agent's URL, only where the result of remote_agent asks for it
    agent_url: Option<String>,
}

pub(crate) async fn run(
    server: &McpToolServer,
    arguments: RemoteCancelArguments,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let RemoteCancelArguments { call_id, agent_url } = arguments;
    let asked = CallStart { agent: agent_url.clone(), began: Instant::now() };
    if call_id.trim().is_empty() {
        let trouble = ToolError::invalid("call_id is empty", "Give the call_id of an earlier remote_agent result.");
        return report(&asked, Err(trouble));
    }
    let cancelled = server.agents().cancel(server.caller(context), AgentCallRef { call_id, agent_url }).await;
    report(&asked, cancelled)
}
