//! `list_agents`: the agents that the caller can use.

use rmcp::{
    RoleServer,
    model::{CallToolResult, ContentBlock},
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ToolSet;
use crate::{ListedAgent, McpToolServer, ToolError};

/// Mentions folders only where `delegate` is offered.
pub(crate) const fn description(offer: ToolSet) -> &'static str {
    match offer {
        ToolSet::Agents => {
            "Lists the agents that you can use with remote_agent: their URLs, descriptions and skills, whether each is \
             online, and whether it asks a person for approval before risky steps."
        }
        ToolSet::Folders => {
            "Lists the agents that you can use with remote_agent or delegate: their URLs, descriptions and skills, \
             whether each is online, whether it accepts delegated folders, and whether it asks a person for approval \
             before risky steps."
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
        "No agents are available. Tell your user: they can create one with `attache agents add NAME`, or give you an \
         agent's URL."
    } else {
        "Next: call remote_agent with an agent_url and a task. An agent that is offline starts the task when it \
         reconnects."
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
        agent.takes_folders.map(|takes| format!("accepts folders: {}", yes(takes))),
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
