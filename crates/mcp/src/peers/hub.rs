//! Agents of a hub, through its call API.

use std::time::Duration;

use attache_client::{CallError, CallStream, Client, Hub, Page, Update};
use attache_protocol::{
    rules::run::Waiting,
    wire::{ask::InputRequest, call::CallId},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

use crate::{Agent, Ask, Call, State, Trouble};

/// More than a model can choose from.
const MOST_LISTED: usize = 200;
/// How often a call that says nothing is looked at for a question.
const LOOK: Duration = Duration::from_secs(2);

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
    ask: &Ask,
    wait: Duration,
    said: &watch::Sender<String>,
) -> Result<Call, Trouble> {
    let deadline = Instant::now() + wait;
    let call_id = match &ask.call_id {
        Some(text) => {
            let call: CallId = text.trim().parse().map_err(|_| {
                Trouble::invalid(format!("`{text}` is not the id of a call"), "Give the call_id of an earlier answer.")
            })?;
            let run = client.hub().run(call.run()).await?;
            if run.waiting == Some(Waiting::Input) {
                let answer = InputRequest { text: Some(ask.task.clone()), ..InputRequest::default() };
                client.hub().give_input(call.run(), &answer).await?;
            }
            call
        }
        None => {
            let mut call = client.call(&ask.task);
            if let Some(agent_type) = agent_type {
                call = call.agent_type(agent_type);
            }
            if let Some(context) = &ask.context {
                call = call.context(context);
            }
            call.start().await?.call_id
        }
    };
    let state = follow(client, call_id, deadline, said).await?;
    Ok(Call { call_id: Some(call_id.to_string()), state })
}

async fn follow(
    client: &Client,
    call: CallId,
    deadline: Instant,
    said: &watch::Sender<String>,
) -> Result<State, Trouble> {
    let mut updates = client.watch(call);
    loop {
        let look = deadline.min(Instant::now() + LOOK);
        match timeout_at(look, next(&mut updates, said)).await {
            Ok(state) => return state,
            Err(_) if Instant::now() >= deadline => return Ok(State::Running),
            Err(_) => {
                let run = client.hub().run(call.run()).await?;
                if run.waiting == Some(Waiting::Input) {
                    let question = said.borrow().clone();
                    let question = if question.is_empty() { "(it does not say what)".to_owned() } else { question };
                    return Ok(State::InputRequired { question });
                }
            }
        }
    }
}

/// Listens until the call is over. May be dropped and called again.
async fn next(updates: &mut CallStream, said: &watch::Sender<String>) -> Result<State, Trouble> {
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
                return Ok(State::Completed { summary: reply.summary, duration: Some(reply.usage.duration) });
            }
            Err(CallError::Failed(failed)) => {
                let hint = "Change the task, or ask another agent; list_agents shows whom.";
                return Ok(State::Failed(Trouble::new(failed.code, failed.message, hint)));
            }
            Err(CallError::Hub(error)) => return Err(error.into()),
        }
    }
    Ok(State::Running)
}
