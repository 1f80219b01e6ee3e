//! `/mcp` of the hub: its agents as the tools `remote_agent` and `list_agents`, with the rights of whoever calls.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use attache_hub::{
    Handle, Principal,
    control::{CallHeaders, PageRequest},
    stream::Shown,
    surface::caller,
};
use attache_mcp::{Agent, Agents, Ask, Call, Caller, Options, Service, State, Trouble};
use attache_protocol::{
    Code,
    rules::run::Waiting,
    wire::{
        ask::InputRequest,
        call::{CallId, CallRequest, CallResult, CallStatus},
    },
};
use axum::{
    Router,
    extract::{Request, State as Shared},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

/// The agents of one hub.
struct HubAgents(Handle);

/// More than a model can choose from.
const MOST_LISTED: usize = 200;
/// How often a call is looked at for a question.
const LOOK: Duration = Duration::from_secs(2);

/// The surface: it wants one of the hub's keys, and does what that key may.
pub(crate) fn router(hub: Handle, stop: CancellationToken) -> Router {
    let options = Options { env: hub.env().clone(), ..Options::default() };
    let service = Service { agents: Arc::new(HubAgents(hub.clone())), delegations: None, options };
    attache_mcp::http::router(service, stop).layer(middleware::from_fn_with_state(hub, authenticate))
}

async fn authenticate(Shared(hub): Shared<Handle>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match caller(&parts, &hub).await {
        Ok(Some(principal)) => {
            parts.extensions.insert(principal);
            next.run(Request::from_parts(parts, body)).await
        }
        Ok(None) => attache_hub::Error::unauthenticated("The request carries no credential.").into_response(),
        Err(error) => error.into_response(),
    }
}

// === impl HubAgents ===

#[async_trait]
impl Agents for HubAgents {
    async fn list(&self, by: Caller<'_>) -> Result<Vec<Agent>, Trouble> {
        let by = principal(by)?;
        let origin = self.0.origin();
        let mut agents = Vec::new();
        let mut page = PageRequest { limit: Some(200), cursor: None };
        loop {
            let list = self.0.accounts(by, page).await.map_err(trouble)?;
            let present = list.agent_accounts.iter().filter(|account| account.archived_at.is_none());
            agents.extend(present.map(|account| Agent::of(account, &origin)));
            match list.next_cursor {
                Some(cursor) if agents.len() < MOST_LISTED => {
                    page = PageRequest { limit: Some(200), cursor: Some(cursor) };
                }
                _ => return Ok(agents),
            }
        }
    }

    async fn ask(
        &self,
        by: Caller<'_>,
        ask: Ask,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<Call, Trouble> {
        let by = principal(by)?;
        let deadline = Instant::now() + wait;
        let call = match &ask.call_id {
            Some(text) => {
                let call: CallId = text.trim().parse().map_err(|_| {
                    let hint = "Give the call_id of an earlier answer.";
                    Trouble::invalid(format!("`{text}` is not the id of a call"), hint)
                })?;
                if self.asks(by, call).await? {
                    let answer = InputRequest { text: Some(ask.task.clone()), ..InputRequest::default() };
                    self.0.give_input(by, call.run(), answer).await.map_err(trouble)?;
                }
                call
            }
            None => {
                let agent_type = self.agent(&ask)?;
                let request =
                    CallRequest { task: ask.task, agent_type, context: ask.context, ..CallRequest::default() };
                self.0.call(by, request, CallHeaders::default()).await.map_err(trouble)?
            }
        };
        let state = self.follow(by, call, deadline, said).await?;
        Ok(Call { call_id: Some(call.to_string()), state })
    }
}

impl HubAgents {
    /// Whom a URL of this hub means, or a bare name.
    fn agent(&self, ask: &Ask) -> Result<Option<String>, Trouble> {
        let url = ask.agent_url.trim();
        if !url.contains("://") {
            return Ok(Some(url.to_owned()));
        }
        let origin = self.0.origin();
        match attache_mcp::agent_at(&origin, url) {
            Some(agent) => Ok(agent.or_else(|| ask.agent_type.clone())),
            None => Err(Trouble::new(
                Code::NotFound.as_str(),
                format!("{url} is not an agent of this hub"),
                "list_agents shows its agents. A person brings in an agent elsewhere with `attache agents add NAME --peer URL`.",
            )),
        }
    }

    async fn asks(&self, by: &Principal, call: CallId) -> Result<bool, Trouble> {
        let run = self.0.run(by, call.run()).await.map_err(trouble)?;
        Ok(run.waiting == Some(Waiting::Input))
    }

    async fn follow(
        &self,
        by: &Principal,
        call: CallId,
        deadline: Instant,
        said: &watch::Sender<String>,
    ) -> Result<State, Trouble> {
        let mut frames = self.0.watch_call(by, call, Shown::Everything, None).await.map_err(trouble)?;
        loop {
            let look = deadline.min(Instant::now() + LOOK);
            match timeout_at(look, frames.next()).await {
                Ok(Some(frame)) if matches!(frame.kind, "progress" | "message") => {
                    let words = frame.data.text_member("goal").or_else(|| frame.data.text_member("text"));
                    if let Some(words) = words.filter(|words| !words.trim().is_empty()) {
                        let _ = said.send(words);
                    }
                }
                Ok(_) => {
                    let result = self.0.call_result(by, call).await.map_err(trouble)?;
                    return Ok(state(result));
                }
                Err(_) if Instant::now() >= deadline => return Ok(State::Running),
                Err(_) => {
                    if self.asks(by, call).await? {
                        let question = said.borrow().clone();
                        let question = if question.is_empty() { "(it does not say what)".to_owned() } else { question };
                        return Ok(State::InputRequired { question });
                    }
                }
            }
        }
    }
}

fn state(result: CallResult) -> State {
    let text = |json: &attache_protocol::Json| json.parse().unwrap_or_else(|_| json.get().to_owned());
    match (result.status, &result.result) {
        (CallStatus::Completed, Some(answer)) => State::Completed {
            summary: text(&answer.summary),
            duration: Some(Duration::from_millis(result.stats.duration_ms)),
        },
        (CallStatus::Failed | CallStatus::Cancelled, _) => {
            let message = result.error.as_ref().map_or_else(|| "the call failed".to_owned(), text);
            let code = result.code.unwrap_or_else(|| "task_failed".to_owned());
            State::Failed(Trouble::new(code, message, "Change the task, or ask another agent."))
        }
        (CallStatus::Started | CallStatus::Running | CallStatus::Completed, _) => State::Running,
    }
}

/// Put there when the request came in.
fn principal(by: Caller<'_>) -> Result<&Principal, Trouble> {
    by.get().ok_or_else(|| {
        Trouble::new(Code::Unauthenticated.as_str(), "nobody knows who asks", "Send `Authorization: Bearer ak_…`.")
    })
}

fn trouble(error: attache_hub::Error) -> Trouble {
    let hint = error.hint.as_deref().unwrap_or_else(|| error.code.hint()).to_owned();
    Trouble::new(error.code.as_str(), error.message, hint)
}
