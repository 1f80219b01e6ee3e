//! `list_agents`: whom to ask.

use rmcp::{
    RoleServer,
    model::{CallToolResult, ContentBlock},
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Agent, Server, Trouble};

pub(crate) const DESCRIPTION: &str = "The agents that you can ask with remote_agent, or lend a folder to with delegate: \
    their URLs, what they are good at, and whether they are online.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Output {
    agents: Vec<Agent>,
    /// What to do next.
    next: String,
}

pub(crate) async fn run(server: &Server, context: &RequestContext<RoleServer>) -> CallToolResult {
    let agents = match server.agents().list(server.caller(context)).await {
        Ok(agents) => agents,
        Err(trouble) => return failed(&trouble),
    };
    let next = if agents.is_empty() {
        "There is nobody to ask. A person makes an agent with `attache agents add NAME`, or gives you the URL of one."
    } else {
        "Ask one: remote_agent with its agent_url and a task. An agent that is offline answers when it is back."
    };
    let mut lines: Vec<_> = agents.iter().map(line).collect();
    lines.push(next.to_owned());
    let mut result = CallToolResult::success(vec![ContentBlock::text(lines.join("\n"))]);
    result.structured_content = Some(serde_json::json!(Output { agents, next: next.to_owned() }));
    result
}

fn line(agent: &Agent) -> String {
    let about = agent.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
    let skills =
        if agent.skills.is_empty() { String::new() } else { format!(" (skills: {})", agent.skills.join(", ")) };
    format!("- {} [{}] {}{about}{skills}", agent.name, agent.status, agent.agent_url)
}

pub(crate) fn failed(trouble: &Trouble) -> CallToolResult {
    let Trouble { code, message, hint } = trouble;
    let mut result = CallToolResult::error(vec![ContentBlock::text(trouble.to_string())]);
    result.structured_content =
        Some(serde_json::json!({ "agents": [], "next": hint, "error": { "code": code, "message": message } }));
    result
}
