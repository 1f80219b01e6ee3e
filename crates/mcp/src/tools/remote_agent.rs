//! `remote_agent`: gives an agent elsewhere a task and waits for its answer, goes on waiting, or answers its question.

use std::time::Duration;

use attache_protocol::Json;
use rmcp::{
    RoleServer,
    model::{CallToolResult, JsonObject},
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::call::{CallStart, report};
use crate::{
    AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentTask, McpToolServer, RemoteAgentRequest, ToolError,
};

pub(crate) const DESCRIPTION: &str = "Gives another agent a task and waits for its answer. The agent sees only what you write \
    here: name files, goals and limits in full. One call does one of three things. New task: agent_url and task. Go on \
    waiting for a call that was `running` or `approval_required`: call_id alone. Answer the question of a call that was \
    `input_required`: call_id, question_id and answer.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteAgentArguments {
    /// New task: what to do, for somebody who knows nothing of this conversation
    task: Option<String>,
    /// New task: the agent's name or URL, as list_agents shows it
    agent_url: Option<String>,
    /// New task, at the URL of a hub: which of its agents, by name or skill
    agent_type: Option<String>,
    /// New task: facts the agent should know besides, as an object
    context: Option<JsonObject>,
    /// The earlier call to go on with, as an earlier result named it
    call_id: Option<String>,
    /// The question that answer is for, as the result that asked it named it
    question_id: Option<String>,
    /// Your answer to that question. Answer what you know; otherwise ask your user first
    answer: Option<String>,
}

/// Getting an agent to work may itself take a moment, after which the call's name is known.
const START_GRACE: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    server: &McpToolServer,
    arguments: RemoteAgentArguments,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let ask = match RemoteAgentRequest::try_from(arguments) {
        Ok(ask) => ask,
        Err(trouble) => return refused(&trouble),
    };
    let asked = CallStart { agent: ask.agent().map(str::to_owned), began: Instant::now() };
    let (say, said) = watch::channel(String::new());
    let patience = server.options().answer_timeout;
    let going_on = matches!(ask, RemoteAgentRequest::Wait(_));
    let asking = async {
        let answer = server.agents().ask(server.caller(context), ask, patience, &say);
        timeout(patience + START_GRACE, answer).await.unwrap_or_else(|_| {
            let hint = if going_on {
                "Call again with the same call_id."
            } else {
                "It may have the task all the same. Ask again later, and say that it may be a repetition."
            };
            Err(ToolError::new("timed_out", "the agent did not answer in time", hint))
        })
    };
    let attended = server.progress_notifier(context).notify_while(asking, said);
    let answered = tokio::select! {
        answered = attended => answered,
        // Nobody reads the answer; the call goes on.
        () = context.ct.cancelled() => Ok(AgentCall { call_id: None, state: AgentCallState::Running { last: None } }),
    };
    report(&asked, answered)
}

/// A call that could not even be tried.
pub(crate) fn refused(trouble: &ToolError) -> CallToolResult {
    report(&CallStart { agent: None, began: Instant::now() }, Err(trouble.clone()))
}

// === impl RemoteAgentRequest ===

impl RemoteAgentRequest {
    /// Whom it is for, where the caller says so.
    fn agent(&self) -> Option<&str> {
        match self {
            Self::Task(task) => Some(&task.agent_url),
            Self::Wait(call) | Self::Answer(AgentCallAnswer { call, .. }) => call.agent_url.as_deref(),
        }
    }
}

impl TryFrom<RemoteAgentArguments> for RemoteAgentRequest {
    type Error = ToolError;

    fn try_from(arguments: RemoteAgentArguments) -> Result<Self, ToolError> {
        let RemoteAgentArguments { task, agent_url, agent_type, context, call_id, question_id, answer } = arguments;
        let given = |text: Option<String>| text.filter(|text| !text.trim().is_empty());
        let (task, agent_url, call_id) = (given(task), given(agent_url), given(call_id));
        match (task, call_id, given(question_id), given(answer)) {
            (Some(task), None, None, None) => {
                let agent_url = agent_url.ok_or_else(|| {
                    ToolError::invalid("a new task needs agent_url", "list_agents shows whom you can ask.")
                })?;
                let context = context.map(|context| Json::of(&context));
                Ok(Self::Task(AgentTask { task, agent_url, agent_type, context }))
            }
            (None, Some(call_id), None, None) => Ok(Self::Wait(AgentCallRef { call_id, agent_url })),
            (None, Some(call_id), Some(question_id), Some(answer)) => {
                Ok(Self::Answer(AgentCallAnswer { call: AgentCallRef { call_id, agent_url }, question_id, answer }))
            }
            (None, Some(_), _, _) => Err(ToolError::invalid(
                "an answer needs call_id, question_id and answer together",
                "question_id is in the result that asked. To wait, give call_id alone.",
            )),
            (Some(_), Some(_), _, _) => Err(ToolError::invalid(
                "task begins a new call, and call_id goes on with an earlier one",
                "Give call_id alone to wait, or call_id, question_id and answer to answer.",
            )),
            (None | Some(_), None, _, _) => Err(ToolError::invalid(
                "there is neither a task nor a call to go on with",
                "Give agent_url and task, or call_id.",
            )),
        }
    }
}
