//! Agents of a hub, through its call API.

use std::time::Duration;

use attache_client::{CallError, CallStream, Client, Hub, Page, Update};
use attache_protocol::{
    rules::run::{Status, Waiting},
    wire::{ask::InputRequest, call::CallId, run::Run},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{Agent, Answer, Approval, Ask, Attendance, Call, FullOutput, State, Task, Trouble};

/// More than a model can choose from.
const MOST_LISTED: usize = 200;
/// How often a call that says nothing is looked at for a question.
const LOOK: Duration = Duration::from_secs(2);
/// How long a person who may just be looking is waited for before the model is told.
const APPROVAL_WAIT: Duration = Duration::from_secs(10);

pub(super) async fn list(hub: &Hub) -> Result<Vec<Agent>, Trouble> {
    let mut agents = Vec::new();
    let mut page = Page { limit: Some(100), cursor: None };
    loop {
        let list = hub.accounts(&page).await?;
        let present = list.agent_accounts.iter().filter(|account| account.archived_at.is_none());
        agents.extend(present.map(|account| Agent::of(account, &hub.address().origin())));
        page.cursor = list.next_cursor;
        if page.cursor.is_none() || agents.len() >= MOST_LISTED {
            return Ok(agents);
        }
    }
}

pub(super) async fn ask(
    client: &Client,
    agent_type: Option<String>,
    ask: Ask,
    wait: Duration,
    said: &watch::Sender<String>,
) -> Result<Call, Trouble> {
    let deadline = Instant::now() + wait;
    let call_id = match ask {
        Ask::Wait(call) => id(&call.call_id)?,
        Ask::Answer(Answer { call, question_id, answer }) => {
            let call = id(&call.call_id)?;
            give(client, call, &question_id, answer).await?;
            call
        }
        Ask::Task(Task { task, context, .. }) => {
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
    Ok(Call { call_id: Some(call_id.to_string()), state })
}

pub(super) async fn cancel(client: &Client, call: &str) -> Result<Call, Trouble> {
    let call = id(call)?;
    let run = match client.hub().cancel_run(call.run(), Some("cancelled with remote_cancel")).await {
        Ok(run) => run,
        // It was quicker.
        Err(error) if error.code() == Some(attache_protocol::Code::RunEnded) => client.hub().run(call.run()).await?,
        Err(error) => return Err(error.into()),
    };
    let state = match run.status {
        Status::Cancelled => State::Cancelled,
        _ => follow(client, call, Instant::now() + LOOK, &watch::channel(String::new()).0).await?,
    };
    Ok(Call { call_id: Some(call.to_string()), state })
}

fn id(text: &str) -> Result<CallId, Trouble> {
    text.trim().parse().map_err(|_| {
        Trouble::invalid(
            format!("`{text}` is not the id of a call"),
            "Give the call_id of an earlier remote_agent result.",
        )
    })
}

async fn give(client: &Client, call: CallId, question: &str, answer: String) -> Result<(), Trouble> {
    let question = question.trim().parse().map_err(|_| {
        Trouble::invalid(format!("`{question}` is not the id of a question"), "It is in the result that asked.")
    })?;
    let input = InputRequest { text: Some(answer), input_request_id: Some(question), ..InputRequest::default() };
    client.hub().give_input(call.run(), &input).await?;
    Ok(())
}

async fn follow(
    client: &Client,
    call: CallId,
    deadline: Instant,
    said: &watch::Sender<String>,
) -> Result<State, Trouble> {
    let (mut updates, origin) = (client.watch(call), client.hub().address().origin());
    let mut noticed = None;
    loop {
        let look = deadline.min(Instant::now() + LOOK);
        match timeout_at(look, next(&mut updates, said, &origin)).await {
            Ok(state) => return state,
            Err(_) => {
                let run = client.hub().run(call.run()).await?;
                match waiting(&run) {
                    Some(State::ApprovalRequired(approval)) => {
                        let since = *noticed.get_or_insert_with(Instant::now);
                        let is_over = Instant::now() >= deadline.min(since + APPROVAL_WAIT);
                        let _ = said.send(format!("waits for a person to approve {}", approval.what));
                        if is_over {
                            return Ok(State::ApprovalRequired(approval));
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

/// What the call waits for, if it does.
fn waiting(run: &Run) -> Option<State> {
    let waits_for = run.waits_for.as_ref();
    match run.waiting? {
        Waiting::Input => Some(State::InputRequired {
            question_id: waits_for.map(|asked| asked.id.clone()).unwrap_or_default(),
            question: waits_for.map_or_else(|| "(it does not say what)".to_owned(), |asked| asked.what.clone()),
        }),
        Waiting::Approval => Some(State::ApprovalRequired(Approval {
            id: waits_for.map(|asked| asked.id.clone()),
            what: waits_for.map_or_else(|| "a step of the agent".to_owned(), |asked| asked.what.clone()),
            caller: Attendance::User,
        })),
    }
}

fn running(said: &watch::Sender<String>) -> State {
    State::Running { last: Some(said.borrow().clone()).filter(|last| !last.is_empty()) }
}

/// Listens until the call is over. May be dropped and called again.
async fn next(updates: &mut CallStream, said: &watch::Sender<String>, origin: &str) -> Result<State, Trouble> {
    while let Some(update) = updates.next().await {
        match update {
            Ok(Update::Progress { goal, .. }) => {
                if let Some(goal) = goal {
                    let _ = said.send(goal);
                }
            }
            Ok(Update::Message { text, .. }) => {
                if let Some(text) = text.filter(|text| !text.trim().is_empty()) {
                    let _ = said.send(text);
                }
            }
            Ok(Update::Completed(reply)) => {
                let full_output = reply.full_output.map(|location| FullOutput::of(location, origin));
                let duration = Some(reply.usage.duration);
                return Ok(State::Completed { summary: reply.summary, duration, full_output });
            }
            Err(CallError::Failed(failed)) if failed.code == "cancelled" => return Ok(State::Cancelled),
            Err(CallError::Failed(failed)) => {
                let hint = "Change the task, or ask another agent; list_agents shows whom.";
                return Ok(State::Failed(Trouble::new(failed.code, failed.message, hint)));
            }
            Err(CallError::Hub(error)) => return Err(error.into()),
        }
    }
    Ok(running(said))
}
