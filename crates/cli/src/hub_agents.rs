//! `/mcp` of the hub: its agents as the tools `remote_agent`, `remote_cancel` and `list_agents`, with the rights of whoever
//! calls.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use attache_hub::{
    Handle, Principal,
    control::{CallHeaders, CreatedRun, PageRequest},
    identity::Who,
    stream::Shown,
    surface::caller,
};
use attache_mcp::{
    Agent, Agents, Answer, Approval, Ask, Attendance, Call, CallRef, Caller, FullOutput, Options, Service, State, Task,
    Trouble,
};
use attache_protocol::{
    Code, PermissionId,
    rules::run::Waiting,
    wire::{
        ask::InputRequest,
        call::{CallId, CallRequest, CallResult, CallStatus},
        run::{CancelRequest, Run},
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
/// How long a person who may just be looking is waited for before a model with a user is told.
const APPROVAL_WAIT: Duration = Duration::from_secs(10);

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
        let begun = match ask {
            Ask::Wait(call) => match call.call_id.trim().parse::<PermissionId>() {
                Ok(approval) => self.begin_approved(by, approval, deadline).await?,
                Err(_) => Ok(id(&call.call_id)?),
            },
            Ask::Answer(answer) => self.give(by, answer, deadline).await?,
            Ask::Task(task) => self.begin(by, task, deadline).await?,
        };
        match begun {
            Ok(call) => {
                let state = self.follow(by, call, deadline, said).await?;
                Ok(Call { call_id: Some(call.to_string()), state })
            }
            Err(waiting) => Ok(waiting),
        }
    }

    async fn cancel(&self, by: Caller<'_>, call: CallRef) -> Result<Call, Trouble> {
        let by = principal(by)?;
        if call.call_id.trim().parse::<PermissionId>().is_ok() {
            let hint = "Go on without it; the request for the approval ends with your run.";
            return Err(Trouble::invalid("this call has not begun: it waits for an approval", hint));
        }
        let call = id(&call.call_id)?;
        let request = CancelRequest { reason: Some("cancelled with remote_cancel".to_owned()) };
        match self.0.cancel_run(by, call.run(), request).await {
            Ok(_) => {}
            // It was quicker.
            Err(error) if error.code == Code::RunEnded => {}
            Err(error) => return Err(trouble(error)),
        }
        let result = self.0.call_result(by, call).await.map_err(trouble)?;
        Ok(Call { call_id: Some(call.to_string()), state: state(result, &self.0.origin()) })
    }
}

/// A call that began, or the approval that it waits for.
type Begun = Result<CallId, Call>;

impl HubAgents {
    async fn begin(&self, by: &Principal, task: Task, deadline: Instant) -> Result<Begun, Trouble> {
        let agent_type = self.agent(&task)?;
        let request = CallRequest { task: task.task, agent_type, context: task.context, ..CallRequest::default() };
        match self.0.call(by, request, CallHeaders::default()).await {
            Ok(call) => Ok(Ok(call)),
            Err(error) => match waited_for(&error) {
                Some(approval) => self.begin_approved(by, approval, deadline).await,
                None => Err(trouble(error)),
            },
        }
    }

    /// Begins what a person approves, when they have; it is one call, however often it is asked for.
    async fn begin_approved(&self, by: &Principal, id: PermissionId, deadline: Instant) -> Result<Begun, Trouble> {
        self.await_approval(by, id, deadline).await?;
        let request = self.0.request_of_approval(by, id).await.map_err(trouble)?;
        let headers = CallHeaders { approval: Some(id), ..CallHeaders::default() };
        match self.0.create_run(by, request, headers).await {
            Ok(CreatedRun::New(run) | CreatedRun::Existing(run)) => Ok(Ok(CallId::of(run.task_run_id))),
            Err(error) if waited_for(&error) == Some(id) => {
                Ok(Err(Call { call_id: Some(id.to_string()), state: unapproved(by, &error) }))
            }
            Err(error) => Err(trouble(error)),
        }
    }

    async fn give(&self, by: &Principal, answer: Answer, deadline: Instant) -> Result<Begun, Trouble> {
        let Answer { call, question_id, answer } = answer;
        let call = id(&call.call_id)?;
        let question = question_id.trim().parse().map_err(|_| {
            let hint = "It is in the result that asked.";
            Trouble::invalid(format!("`{question_id}` is not the id of a question"), hint)
        })?;
        let input = InputRequest { text: Some(answer), input_request_id: Some(question), ..InputRequest::default() };
        let mut given = self.0.give_input(by, call.run(), input.clone()).await;
        if let Some(approval) = given.as_ref().err().and_then(waited_for) {
            self.await_approval(by, approval, deadline).await?;
            given = self.0.give_input(by, call.run(), input).await;
        }
        match given {
            Ok(_) => Ok(Ok(call)),
            Err(error) if waited_for(&error).is_some() => {
                Ok(Err(Call { call_id: Some(call.to_string()), state: unapproved(by, &error) }))
            }
            Err(error) => Err(trouble(error)),
        }
    }

    async fn await_approval(&self, by: &Principal, id: PermissionId, deadline: Instant) -> Result<(), Trouble> {
        let wait = deadline.saturating_duration_since(Instant::now());
        self.0.await_approval(by, id, wait).await.map(drop).map_err(trouble)
    }

    /// Whom a URL of this hub means, or a bare name.
    fn agent(&self, task: &Task) -> Result<Option<String>, Trouble> {
        let url = task.agent_url.trim();
        if !url.contains("://") {
            return Ok(Some(url.to_owned()));
        }
        let origin = self.0.origin();
        match attache_mcp::agent_at(&origin, url) {
            Some(agent) => Ok(agent.or_else(|| task.agent_type.clone())),
            None => Err(Trouble::new(
                Code::NotFound.as_str(),
                format!("{url} is not an agent of this hub"),
                "list_agents shows its agents. A person brings in an agent elsewhere with `attache agents add NAME --peer URL`.",
            )),
        }
    }

    async fn follow(
        &self,
        by: &Principal,
        call: CallId,
        deadline: Instant,
        said: &watch::Sender<String>,
    ) -> Result<State, Trouble> {
        let mut frames = self.0.watch_call(by, call, Shown::Everything, None).await.map_err(trouble)?;
        let mut noticed = None;
        loop {
            let look = deadline.min(Instant::now() + LOOK);
            match timeout_at(look, frames.next()).await {
                Ok(Some(frame)) if matches!(frame.kind, "progress" | "message") => {
                    let words = frame.data.text_member("goal").or_else(|| frame.data.text_member("text"));
                    if let Some(words) = words.filter(|words| !words.trim().is_empty()) {
                        let _ = said.send(words);
                    }
                    continue;
                }
                Ok(_) => {
                    let result = self.0.call_result(by, call).await.map_err(trouble)?;
                    return Ok(state(result, &self.0.origin()));
                }
                Err(_) => {}
            }
            let run = self.0.run(by, call.run()).await.map_err(trouble)?;
            match waiting(by, &run) {
                Some(State::ApprovalRequired(approval)) => {
                    let since = *noticed.get_or_insert_with(Instant::now);
                    let _ = said.send(format!("waits for a person to approve {}", approval.what));
                    let patience = match approval.caller {
                        Attendance::User => deadline.min(since + APPROVAL_WAIT),
                        Attendance::Run => deadline,
                    };
                    if Instant::now() >= patience {
                        return Ok(State::ApprovalRequired(approval));
                    }
                }
                Some(state) => return Ok(state),
                None => noticed = None,
            }
            if Instant::now() >= deadline {
                return Ok(State::Running { last: Some(said.borrow().clone()).filter(|last| !last.is_empty()) });
            }
        }
    }
}

fn id(text: &str) -> Result<CallId, Trouble> {
    text.trim().parse().map_err(|_| {
        let hint = "Give the call_id of an earlier remote_agent result.";
        Trouble::invalid(format!("`{text}` is not the id of a call"), hint)
    })
}

/// The approval that a refusal is about, while a person may still give it.
fn waited_for(error: &attache_hub::Error) -> Option<PermissionId> {
    let asked = error.permission.as_ref().filter(|_| error.code == Code::ApprovalRequired)?;
    Some(asked.permission_request_id)
}

fn unapproved(by: &Principal, error: &attache_hub::Error) -> State {
    let asked = error.permission.as_ref();
    let task = asked.and_then(|asked| asked.input.text_member("task"));
    let what = match (asked, task) {
        (Some(asked), Some(task)) => format!("{}: {task}", asked.tool),
        _ => error.message.to_string(),
    };
    let id = asked.map(|asked| asked.permission_request_id.to_string());
    State::ApprovalRequired(Approval { id, what, caller: attendance(by) })
}

/// A run has no user of its own beside it.
const fn attendance(by: &Principal) -> Attendance {
    match by.who {
        Who::Run { .. } => Attendance::Run,
        Who::Key { .. } | Who::Runtime { .. } | Who::Outside { .. } | Who::Anonymous { .. } => Attendance::User,
    }
}

/// What the call waits for, if it does.
fn waiting(by: &Principal, run: &Run) -> Option<State> {
    let asked = run.waits_for.as_ref();
    match run.waiting? {
        Waiting::Input => Some(State::InputRequired {
            question_id: asked.map(|asked| asked.id.clone()).unwrap_or_default(),
            question: asked.map_or_else(|| "(it does not say what)".to_owned(), |asked| asked.what.clone()),
        }),
        Waiting::Approval => Some(State::ApprovalRequired(Approval {
            id: asked.map(|asked| asked.id.clone()),
            what: asked.map_or_else(|| "a step of the agent".to_owned(), |asked| asked.what.clone()),
            caller: attendance(by),
        })),
    }
}

fn state(result: CallResult, origin: &str) -> State {
    let text = |json: &attache_protocol::Json| json.parse().unwrap_or_else(|_| json.get().to_owned());
    match (result.status, &result.result) {
        (CallStatus::Completed, Some(answer)) => State::Completed {
            summary: text(&answer.summary),
            duration: Some(Duration::from_millis(result.stats.duration_ms)),
            full_output: answer.full_output.clone().map(|location| FullOutput::of(location, origin)),
        },
        (CallStatus::Cancelled, _) => State::Cancelled,
        (CallStatus::Failed, _) => {
            let message = result.error.as_ref().map_or_else(|| "the call failed".to_owned(), text);
            let code = result.code.unwrap_or_else(|| "task_failed".to_owned());
            State::Failed(Trouble::new(code, message, "Change the task, or ask another agent."))
        }
        (CallStatus::Started | CallStatus::Running | CallStatus::Completed, _) => State::Running { last: None },
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
