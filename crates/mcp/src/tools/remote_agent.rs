//! `remote_agent`: gives an agent elsewhere a task and waits for its answer.

use std::time::Duration;

use attache_protocol::Json;
use rmcp::{
    RoleServer,
    model::{CallToolResult, ContentBlock, JsonObject},
    service::RequestContext,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::{sync::watch, time::timeout};

use crate::{Ask, Call, Server, State, Trouble};

pub(crate) const DESCRIPTION: &str = "Gives a remote agent a task and waits for its answer; the agent sees nothing but what \
    you write here. If that takes longer than the client would wait, the answer has status `running` and a call_id: call \
    the tool again with the same agent_url and that call_id to go on waiting, or to answer the agent's question when the \
    status is `input_required`. To have work done in a local folder, use delegate instead where there is one.";

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// What to do, for somebody who knows nothing else
    task: String,
    /// The agent's URL or name; list_agents shows some
    agent_url: String,
    /// Which of the agents at a hub's URL: a name, or a skill that one of them has
    agent_type: Option<String>,
    /// What the agent should know besides, as an object
    context: Option<JsonObject>,
    /// Goes on with an earlier call that was `running` or `input_required`: task is the answer to its question, if it has one
    call_id: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Output {
    title: String,
    /// The agent's answer, or what to do next.
    output: String,
    /// Worth remembering after the answer itself is forgotten.
    long_term_memory: String,
    metadata: Metadata,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Metadata {
    /// completed, running, input_required, failed, or refused.
    status: String,
    agent_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<String>,
}

/// Getting an agent to work may itself take a moment, after which the call's name is known.
const GRACE: Duration = Duration::from_secs(5);
const TITLE: usize = 50;

pub(crate) async fn run(server: &Server, arguments: Arguments, context: &RequestContext<RoleServer>) -> CallToolResult {
    let Arguments { task, agent_url, agent_type, context: knowledge, call_id } = arguments;
    for (name, text) in [("task", &task), ("agent_url", &agent_url)] {
        if text.trim().is_empty() {
            let trouble = Trouble::invalid(format!("{name} is empty"), "Say what it is and call remote_agent again.");
            return told(&task, &agent_url, Err(trouble));
        }
    }
    let ask = Ask {
        task: task.clone(),
        agent_url: agent_url.clone(),
        agent_type,
        context: knowledge.map(|knowledge| Json::of(&knowledge)),
        call_id,
    };
    let (say, said) = watch::channel(String::new());
    let patience = server.options().patience;
    let asked = async {
        let answer = server.agents().ask(server.caller(context), ask, patience, &say);
        timeout(patience + GRACE, answer).await.unwrap_or_else(|_| {
            let hint = "It may have the task all the same. Ask again later, and say that it may be a repetition.";
            Err(Trouble::new("timed_out", "the agent did not say in time that it took the task", hint))
        })
    };
    let attended = server.beat(context).attend(asked, said);
    let answered = tokio::select! {
        answered = attended => answered,
        // Nobody reads the answer; the call goes on.
        () = context.ct.cancelled() => Ok(Call { call_id: None, state: State::Running }),
    };
    told(&task, &agent_url, answered)
}

/// A call that could not even be tried.
pub(crate) fn refused(trouble: &Trouble) -> CallToolResult {
    result(refusal("", "", trouble, "refused", None))
}

fn told(task: &str, agent_url: &str, answered: Result<Call, Trouble>) -> CallToolResult {
    let short: String = task.chars().take(TITLE).collect();
    let (call_id, state) = match answered {
        Ok(Call { call_id, state }) => (call_id, state),
        Err(trouble) => return result(refusal(&short, agent_url, &trouble, "refused", None)),
    };
    let name = call_id.clone().unwrap_or_default();
    let (status, title, output, memory) = match state {
        State::Completed { summary, duration } => {
            let took = duration.map(|time| format!(" in {} ms", time.as_millis())).unwrap_or_default();
            let memory = format!("The agent at {agent_url} completed the task{took}: {short}");
            ("completed", format!("Remote agent done: {short}"), summary, memory)
        }
        State::Running => {
            let output = format!(
                "The agent is still at work; it goes on by itself. Next: call remote_agent again with the same agent_url \
                 and call_id \"{name}\" to wait for its answer."
            );
            let memory = format!("The agent at {agent_url} works on call {name}: {short}");
            ("running", format!("Remote agent at work: {short}"), output, memory)
        }
        State::InputRequired { question } => {
            let output = format!(
                "The agent asks: {question}\n\nNext: call remote_agent again with the same agent_url, call_id \"{name}\" and \
                 the answer as task."
            );
            let memory = format!("The agent at {agent_url} waits for an answer in call {name}: {short}");
            ("input_required", format!("Remote agent asks: {short}"), output, memory)
        }
        State::Failed(trouble) => return result(refusal(&short, agent_url, &trouble, "failed", call_id)),
    };
    let metadata = Metadata { status: status.to_owned(), agent_url: agent_url.to_owned(), call_id, code: None };
    result(Output { title, output, long_term_memory: memory, metadata })
}

fn refusal(short: &str, agent_url: &str, trouble: &Trouble, status: &str, call_id: Option<String>) -> Output {
    Output {
        title: if short.is_empty() { "Nobody was asked".to_owned() } else { format!("Remote agent failed: {short}") },
        output: trouble.to_string(),
        long_term_memory: if agent_url.is_empty() {
            format!("remote_agent was called wrongly: {}", trouble.message)
        } else {
            format!("The agent at {agent_url} did not do it ({}): {short}", trouble.code)
        },
        metadata: Metadata {
            status: status.to_owned(),
            agent_url: agent_url.to_owned(),
            call_id,
            code: Some(trouble.code.clone()),
        },
    }
}

fn result(output: Output) -> CallToolResult {
    let Metadata { status, agent_url, call_id, .. } = &output.metadata;
    let call = call_id.as_ref().map(|id| format!(", call {id}")).unwrap_or_default();
    let by = if agent_url.is_empty() { String::new() } else { format!(" by {agent_url}") };
    let text = format!("{}\n\n({status}{by}{call})", output.output.trim_end());
    let content = vec![ContentBlock::text(text)];
    let failed = matches!(status.as_str(), "failed" | "refused");
    let mut result = if failed { CallToolResult::error(content) } else { CallToolResult::success(content) };
    result.structured_content = Some(serde_json::json!(output));
    result
}
