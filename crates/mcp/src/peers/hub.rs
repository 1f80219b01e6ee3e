//! Calls to the agents of a hub over its call API.

use std::time::Duration;

use attache_client::{CallError, CallStream, CallUpdate, Client, HubClient, PageQuery, all_pages};
use attache_protocol::{
    rules::run::{RunStatus, WaitReason},
    wire::{call::CallId, input_request::GiveInputRequest, run::Run},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{
    AgentCall, AgentCallAnswer, AgentCallState, AgentQuestion, AgentTask, AnswerContent, CallerKind, FullOutput,
    ListedAgent, PendingApproval, RemoteAgentRequest, ToolError,
};

/// A longer list is of no use to a model.
const MAX_LISTED: usize = 200;
/// How often a silent call is checked for an open question.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait for a person to decide before the result reports the pending approval.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn list(hub: &HubClient) -> Result<Vec<ListedAgent>, ToolError> {
    let (mut agents, origin) = (Vec::new(), hub.address().origin());
    let mut accounts = all_pages(usize::MAX, |cursor| async move {
        let list = hub.accounts(&PageQuery { limit: Some(100), cursor }).await?;
        Ok::<_, ToolError>((list.agent_accounts, list.next_cursor))
    });
    while agents.len() < MAX_LISTED
        && let Some(account) = accounts.next().await?
    {
        agents.extend(account.archived_at.is_none().then(|| ListedAgent::of(&account, &origin)));
    }
    Ok(agents)
}

pub(super) async fn ask(
    client: &Client,
    agent_type: Option<String>,
    ask: RemoteAgentRequest,
    wait: Duration,
    said: &watch::Sender<String>,
) -> Result<AgentCall, ToolError> {
    let deadline = Instant::now() + wait;
    let call_id = match ask {
        RemoteAgentRequest::Wait(call) => id(&call.call_id)?,
        RemoteAgentRequest::Answer(AgentCallAnswer { call, question_id, answer }) => {
            let call = id(&call.call_id)?;
            send_answer(client, call, &question_id, answer).await?;
            call
        }
        RemoteAgentRequest::Task(AgentTask { task, context, .. }) => {
            let mut call = client.call(&task);
            if let Some(agent_type) = agent_type {
                call = call.agent_type(agent_type);
            }
            if let Some(context) = &context {
                call = call.context(context);
            }
            call.start().await?.call_id
        }
    };
    let state = follow(client, call_id, deadline, said).await?;
    Ok(AgentCall { call_id: Some(call_id.to_string()), state })
}

pub(super) async fn cancel(client: &Client, call: &str) -> Result<AgentCall, ToolError> {
    let call = id(call)?;
    let run = match client.hub().cancel_run(call.run(), Some("cancelled with remote_cancel")).await {
        Ok(run) => run,
        // The run ended before the cancellation arrived.
        Err(error) if error.code() == Some(attache_protocol::Code::RunEnded) => client.hub().run(call.run()).await?,
        Err(error) => return Err(error.into()),
    };
    let state = match run.status {
        RunStatus::Cancelled => AgentCallState::Cancelled,
        _ => follow(client, call, Instant::now() + POLL_INTERVAL, &watch::channel(String::new()).0).await?,
    };
    Ok(AgentCall { call_id: Some(call.to_string()), state })
}

fn id(text: &str) -> Result<CallId, ToolError> {
    text.trim().parse().map_err(|_| {
        ToolError::invalid(format!("`{text}` is not a call id"), "Use the call_id from an earlier remote_agent result.")
    })
}

async fn send_answer(client: &Client, call: CallId, question: &str, answer: AnswerContent) -> Result<(), ToolError> {
    let question = question.trim().parse().map_err(|_| {
        ToolError::invalid(format!("`{question}` is not a question id"), "Use the question_id from the result.")
    })?;
    let (parts, input_request_id) = (Some(answer.into_parts()), Some(question));
    let input = GiveInputRequest { parts, input_request_id, ..GiveInputRequest::default() };
    client.hub().give_input(call.run(), &input).await?;
    Ok(())
}

async fn follow(
    client: &Client,
    call: CallId,
    deadline: Instant,
    said: &watch::Sender<String>,
) -> Result<AgentCallState, ToolError> {
    let (mut updates, origin) = (client.watch(call), client.hub().address().origin());
    let mut noticed = None;
    loop {
        let look = deadline.min(Instant::now() + POLL_INTERVAL);
        match timeout_at(look, next(&mut updates, said, &origin)).await {
            Ok(state) => return state,
            Err(_) => {
                let run = client.hub().run(call.run()).await?;
                match waiting(&run) {
                    Some(AgentCallState::ApprovalRequired(approval)) => {
                        let since = *noticed.get_or_insert_with(Instant::now);
                        let is_over = Instant::now() >= deadline.min(since + APPROVAL_TIMEOUT);
                        let _ = said.send(format!("waiting for a person to approve {}", approval.what));
                        if is_over {
                            return Ok(AgentCallState::ApprovalRequired(approval));
                        }
                    }
                    Some(state) => return Ok(state),
                    None => noticed = None,
                }
                if Instant::now() >= deadline {
                    return Ok(running(said));
                }
            }
        }
    }
}

/// The state of a call that waits for input or approval.
fn waiting(run: &Run) -> Option<AgentCallState> {
    let waits_for = run.waits_for.as_ref();
    match run.waiting? {
        WaitReason::Input => Some(AgentCallState::InputRequired(AgentQuestion {
            id: waits_for.map(|asked| asked.id.clone()).unwrap_or_default(),
            text: waits_for.map_or_else(|| "(no question text)".to_owned(), |asked| asked.what.clone()),
            questionnaire: waits_for.and_then(|asked| asked.questionnaire.clone()),
            caller: CallerKind::User,
        })),
        WaitReason::Approval => Some(AgentCallState::ApprovalRequired(PendingApproval {
            id: waits_for.map(|asked| asked.id.clone()),
            what: waits_for.map_or_else(|| "a step (no details available)".to_owned(), |asked| asked.what.clone()),
            caller: CallerKind::User,
        })),
    }
}

fn running(said: &watch::Sender<String>) -> AgentCallState {
    AgentCallState::Running { last: Some(said.borrow().clone()).filter(|last| !last.is_empty()) }
}

/// Reads updates until the call ends. Cancel-safe.
async fn next(
    updates: &mut CallStream,
    said: &watch::Sender<String>,
    origin: &str,
) -> Result<AgentCallState, ToolError> {
    while let Some(update) = updates.next().await {
        match update {
            Ok(CallUpdate::Progress { goal, .. }) => {
                if let Some(goal) = goal {
                    let _ = said.send(goal);
                }
            }
            Ok(CallUpdate::Message { text, .. }) => {
                if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
                    let _ = said.send(text);
                }
            }
            Ok(CallUpdate::Completed(reply)) => {
                let full_output = reply.full_output.map(|location| FullOutput::of(location, origin));
                let duration = Some(reply.usage.duration);
                return Ok(AgentCallState::Completed { summary: reply.summary, duration, full_output });
            }
            Err(CallError::Failed(failed)) if failed.code == "cancelled" => return Ok(AgentCallState::Cancelled),
            Err(CallError::Failed(failed)) => {
                let hint = "Change the task, or use another agent from list_agents.";
                return Ok(AgentCallState::Failed(ToolError::new(failed.code, failed.message, hint)));
            }
            Err(CallError::Hub(error)) => return Err(error.into()),
        }
    }
    Ok(running(said))
}
