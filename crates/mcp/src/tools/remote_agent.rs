//! `remote_agent`: sends a task to an agent, keeps waiting for an earlier call, or answers its question.

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

pub(crate) const DESCRIPTION: &str = "Sends a task to another agent and waits for its answer. The agent sees only what \
    you write here, so include all goals, constraints and file names. Each call does one of three things. To start a \
    new task, provide agent_url and task. To keep waiting for a call with status `running` or `approval_required`, \
    provide only call_id. To answer a question of a call with status `input_required`, provide call_id, question_id \
    and answer.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteAgentArguments {
    /// New task: complete instructions. The agent doesn't see this conversation
    task: Option<String>,
    /// New task: the agent's name or URL, as returned by list_agents
    agent_url: Option<String>,
    /// New task, only if agent_url is the URL of a hub: the name or skill of the agent to use
    agent_type: Option<String>,
    /// New task: additional facts for the agent, as a JSON object
    context: Option<JsonObject>,
    /// Wait or answer: the call_id from an earlier result
    call_id: Option<String>,
    /// Answer: the question_id from the result that contains the question
    question_id: Option<String>,
    /// Answer: your answer to the question. If you don't know the answer, ask your user first
    answer: Option<String>,
}

/// Extra time for starting a call, so that its id is known when the wait times out.
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
    let start = CallStart { agent: ask.agent().map(str::to_owned), began: Instant::now() };
    let (say, said) = watch::channel(String::new());
    let answer_timeout = server.options().answer_timeout;
    let is_waiting = matches!(ask, RemoteAgentRequest::Wait(_));
    let request = async {
        let answer = server.agents().ask(server.caller(context), ask, answer_timeout, &say);
        timeout(answer_timeout + START_GRACE, answer).await.unwrap_or_else(|_| {
            let hint = if is_waiting {
                "Call again with the same call_id."
            } else {
                "It may have received the task anyway. If you send it again later, say that it may be a duplicate."
            };
            Err(ToolError::new("timed_out", "the agent did not answer in time", hint))
        })
    };
    let with_progress = server.progress_notifier(context).notify_while(request, said);
    let answered = tokio::select! {
        answered = with_progress => answered,
        // The client no longer waits for the result. The call continues.
        () = context.ct.cancelled() => Ok(AgentCall { call_id: None, state: AgentCallState::Running { last: None } }),
    };
    report(&start, answered)
}

/// The result for a request that could not be sent.
pub(crate) fn refused(trouble: &ToolError) -> CallToolResult {
    report(&CallStart { agent: None, began: Instant::now() }, Err(trouble.clone()))
}

// === impl RemoteAgentRequest ===

impl RemoteAgentRequest {
    /// The agent that the caller named, if any.
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
                    ToolError::invalid("a new task needs agent_url", "Call list_agents to see the available agents.")
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
                "question_id is in the result that contains the question. To wait, provide only call_id.",
            )),
            (Some(_), Some(_), _, _) => Err(ToolError::invalid(
                "task starts a new call, and call_id continues an earlier one: provide only one of them",
                "Provide only call_id to wait, or call_id, question_id and answer to answer a question.",
            )),
            (None | Some(_), None, _, _) => Err(ToolError::invalid(
                "neither task nor call_id was provided",
                "Provide agent_url and task to start a call, or call_id to continue one.",
            )),
        }
    }
}
