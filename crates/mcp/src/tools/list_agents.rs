//! `list_agents`: whom to ask.

use rmcp::{
    RoleServer,
    model::{CallToolResult, ContentBlock},
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolSet;
use crate::{ListedAgent, McpToolServer, ToolError};

/// Where no folder can be lent, nothing is said of it.
pub(crate) const fn description(offer: ToolSet) -> &'static str {
    match offer {
        ToolSet::Agents => {
            "The agents that you can give a task with remote_agent: what each is and good at, whether it is online, and \
             whether it asks a person before risky steps."
        }
        ToolSet::Folders => {
            "The agents that you can give a task with remote_agent, or a local folder to work in with delegate: what each \
             is and good at, whether it is online, whether it takes folders, and whether it asks a person before risky steps."
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAgentsArguments {}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ListAgentsOutput {
    agents: Vec<ListedAgent>,
    /// What to do next.
    next: String,
}

pub(crate) async fn run(server: &McpToolServer, context: &RequestContext<RoleServer>) -> CallToolResult {
    let agents = match server.agents().list(server.caller(context)).await {
        Ok(agents) => agents,
        Err(trouble) => return failed(&trouble),
    };
    let next = if agents.is_empty() {
        "There is nobody to ask. Tell your user: `attache agents add NAME` makes an agent, or they give you the URL of one."
    } else {
        "Next: remote_agent with an agent_url and a task. An agent that is offline begins when it is back."
    };
    let mut lines: Vec<_> = agents.iter().map(line).collect();
    lines.push(next.to_owned());
    let mut result = CallToolResult::success(vec![ContentBlock::text(lines.join("\n"))]);
    result.structured_content = Some(serde_json::json!(ListAgentsOutput { agents, next: next.to_owned() }));
    result
}

fn line(agent: &ListedAgent) -> String {
    let about = agent.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
    let skills =
        if agent.skills.is_empty() { String::new() } else { format!(" (skills: {})", agent.skills.join(", ")) };
    let yes = |is: bool| if is { "yes" } else { "no" };
    let facts = [
        agent.host.clone(),
        agent.takes_folders.map(|takes| format!("takes folders: {}", yes(takes))),
        agent.asks_before_risky_steps.map(|asks| format!("asks before risky steps: {}", yes(asks))),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    let facts = if facts.is_empty() { String::new() } else { format!(" [{}]", facts.join("; ")) };
    format!("- {} ({}) {}{about}{skills}{facts}", agent.name, agent.status, agent.agent_url)
}

pub(crate) fn failed(trouble: &ToolError) -> CallToolResult {
    let ToolError { code, message, hint } = trouble;
    let mut result = CallToolResult::error(vec![ContentBlock::text(trouble.to_string())]);
    result.structured_content =
        Some(serde_json::json!({ "agents": [], "next": hint, "error": { "code": code, "message": message } }));
    result
}
