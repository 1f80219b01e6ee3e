//! The hub's `/mcp` endpoint: its agents as the tools `remote_agent`, `remote_cancel` and `list_agents`, with the
//! caller's permissions.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use attache_hub::{
    Handle, Principal, all_pages,
    control::{CallHeaders, CreatedRun, PageRequest},
    identity::PrincipalKind,
    stream::CallDetail,
    surface::caller,
};
use attache_mcp::{
    AgentBackend, AgentCall, AgentCallAnswer, AgentCallRef, AgentCallState, AgentQuestion, AgentTask, CallerKind,
    FullOutput, ListedAgent, McpService, Options, PendingApproval, RefusedForms, RemoteAgentRequest, ToolCaller,
    ToolError,
};
use attache_protocol::{
    Code, PermissionId,
    rules::run::WaitReason,
    wire::{
        call::{CallId, CallRequest, CallResult, CallStatus},
        input_request::GiveInputRequest,
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
struct HubAgentBackend(Handle);

/// A model can't choose from more.
const MAX_LISTED: usize = 200;
/// Interval between checks for an open question.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// How long to wait for a person's decision before telling a model that has a user to notify.
const APPROVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// The router. Requests need a hub key and get that key's permissions.
pub(crate) fn router(hub: Handle, stop: CancellationToken) -> Router {
    let options = Options { env: hub.env().clone(), ..Options::default() };
    let service = McpService {
        agents: Arc::new(HubAgentBackend(hub.clone())),
        delegations: None,
        options,
        refused: RefusedForms::default(),
    };
    attache_mcp::http::router(service, stop).layer(middleware::from_fn_with_state(hub, authenticate))
}

async fn authenticate(Shared(hub): Shared<Handle>, request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    match caller(&parts, &hub).await {
        Ok(Some(principal)) => {
            parts.extensions.insert(principal);
            next.run(Request::from_parts(parts, body)).await
        }
        Ok(None) => attache_hub::Error::no_credential().into_response(),
        Err(error) => error.into_response(),
    }
}

// === impl HubAgentBackend ===

#[async_trait]
impl AgentBackend for HubAgentBackend {
    async fn list(&self, by: ToolCaller<'_>) -> Result<Vec<ListedAgent>, ToolError> {
        let by = principal(by)?;
        let origin = self.0.origin();
        let mut agents = Vec::new();
        let mut accounts = all_pages(usize::MAX, |cursor| async move {
            let list = self.0.accounts(by, PageRequest { limit: Some(200), cursor }).await.map_err(tool_error)?;
            Ok::<_, ToolError>((list.agent_accounts, list.next_cursor))
        });
        while agents.len() < MAX_LISTED
            && let Some(account) = accounts.next().await?
        {
            agents.extend(account.archived_at.is_none().then(|| ListedAgent::of(&account, &origin)));
        }
        Ok(agents)
    }

    async fn ask(
        &self,
        by: ToolCaller<'_>,
        ask: RemoteAgentRequest,
        wait: Duration,
        said: &watch::Sender<String>,
    ) -> Result<AgentCall, ToolError> {
        let by = principal(by)?;
        let deadline = Instant::now() + wait;
        let begun = match ask {
            RemoteAgentRequest::Wait(call) => match call.call_id.trim().parse::<PermissionId>() {
                Ok(approval) => self.begin_approved(by, approval, deadline).await?,
                Err(_) => Ok(id(&call.call_id)?),
            },
            RemoteAgentRequest::Answer(answer) => self.answer_question(by, answer, deadline).await?,
            RemoteAgentRequest::Task(task) => self.begin(by, task, deadline).await?,
        };
        match begun {
            Ok(call) => {
                let state = self.follow(by, call, deadline, said).await?;
                Ok(AgentCall { call_id: Some(call.to_string()), state })
            }
            Err(waiting) => Ok(waiting),
        }
    }

    async fn cancel(&self, by: ToolCaller<'_>, call: AgentCallRef) -> Result<AgentCall, ToolError> {
        let by = principal(by)?;
        if call.call_id.trim().parse::<PermissionId>().is_ok() {
            let hint = "Continue without it. The approval request is withdrawn when your run ends.";
            return Err(ToolError::invalid("this call hasn't started: it is waiting for approval", hint));
        }
        let call = id(&call.call_id)?;
        let request = CancelRequest { reason: Some("cancelled with remote_cancel".to_owned()) };
        match self.0.cancel_run(by, call.run(), request).await {
            Ok(_) => {}
            // The run finished first.
            Err(error) if error.code == Code::RunEnded => {}
            Err(error) => return Err(tool_error(error)),
        }
        let result = self.0.call_result(by, call).await.map_err(tool_error)?;
        Ok(AgentCall { call_id: Some(call.to_string()), state: state(result, &self.0.origin()) })
    }
}

/// A call that started, or the approval it is waiting for.
type StartedCall = Result<CallId, AgentCall>;

impl HubAgentBackend {
    async fn begin(&self, by: &Principal, task: AgentTask, deadline: Instant) -> Result<StartedCall, ToolError> {
        let agent_type = self.agent(&task)?;
        let request = CallRequest { task: task.task, agent_type, context: task.context, ..CallRequest::default() };
        match self.0.call(by, request, CallHeaders::default()).await {
            Ok(call) => Ok(Ok(call)),
            Err(error) => match pending_approval(&error) {
                Some(approval) => self.begin_approved(by, approval, deadline).await,
                None => Err(tool_error(error)),
            },
        }
    }

    /// Starts the call once a person has approved it. Repeated requests start only one call.
    async fn begin_approved(
        &self,
        by: &Principal,
        id: PermissionId,
        deadline: Instant,
    ) -> Result<StartedCall, ToolError> {
        self.await_approval(by, id, deadline).await?;
        let request = self.0.request_of_approval(by, id).await.map_err(tool_error)?;
        let headers = CallHeaders { approval: Some(id), ..CallHeaders::default() };
        match self.0.create_run(by, request, headers).await {
            Ok(CreatedRun::New(run) | CreatedRun::Existing(run)) => Ok(Ok(CallId::of(run.task_run_id))),
            Err(error) if pending_approval(&error) == Some(id) => {
                Ok(Err(AgentCall { call_id: Some(id.to_string()), state: unapproved(by, &error) }))
            }
            Err(error) => Err(tool_error(error)),
        }
    }

    async fn answer_question(
        &self,
        by: &Principal,
        answer: AgentCallAnswer,
        deadline: Instant,
    ) -> Result<StartedCall, ToolError> {
        let AgentCallAnswer { call, question_id, answer } = answer;
        let call = id(&call.call_id)?;
        let question = question_id.trim().parse().map_err(|_| {
            let hint = "Use the question id from the result that asked the question.";
            ToolError::invalid(format!("`{question_id}` is not a question id"), hint)
        })?;
        let (parts, input_request_id) = (Some(answer.into_parts()), Some(question));
        let input = GiveInputRequest { parts, input_request_id, ..GiveInputRequest::default() };
        let mut given = self.0.give_input(by, call.run(), input.clone()).await;
        if let Some(approval) = given.as_ref().err().and_then(pending_approval) {
            self.await_approval(by, approval, deadline).await?;
            given = self.0.give_input(by, call.run(), input).await;
        }
        match given {
            Ok(_) => Ok(Ok(call)),
            Err(error) if pending_approval(&error).is_some() => {
                Ok(Err(AgentCall { call_id: Some(call.to_string()), state: unapproved(by, &error) }))
            }
            Err(error) => Err(tool_error(error)),
        }
    }

    async fn await_approval(&self, by: &Principal, id: PermissionId, deadline: Instant) -> Result<(), ToolError> {
        let wait = deadline.saturating_duration_since(Instant::now());
        self.0.await_approval(by, id, wait).await.map(drop).map_err(tool_error)
    }

    /// The agent that a URL of this hub, or a plain name, refers to.
    fn agent(&self, task: &AgentTask) -> Result<Option<String>, ToolError> {
        let url = task.agent_url.trim();
        if !url.contains("://") {
            return Ok(Some(url.to_owned()));
        }
        let origin = self.0.origin();
        match attache_mcp::agent_at(&origin, url) {
            Some(agent) => Ok(agent.or_else(|| task.agent_type.clone())),
            None => Err(ToolError::new(
                Code::NotFound.as_str(),
                format!("{url} is not an agent of this hub"),
                "Call list_agents to see its agents. A person can add an outside agent with `attache agents add NAME --peer URL`.",
            )),
        }
    }

    async fn follow(
        &self,
        by: &Principal,
        call: CallId,
        deadline: Instant,
        said: &watch::Sender<String>,
    ) -> Result<AgentCallState, ToolError> {
        let mut frames = self.0.watch_call(by, call, CallDetail::Everything, None).await.map_err(tool_error)?;
        let mut noticed = None;
        loop {
            let look = deadline.min(Instant::now() + POLL_INTERVAL);
            match timeout_at(look, frames.next()).await {
                Ok(Some(frame)) if matches!(frame.kind, "progress" | "message") => {
                    let words = frame.data.text_member("goal").or_else(|| frame.data.text_member("text"));
                    if let Some(words) = words.filter(|words| !words.trim().is_empty()) {
                        let _ = said.send(words);
                    }
                    continue;
                }
                Ok(_) => {
                    let result = self.0.call_result(by, call).await.map_err(tool_error)?;
                    return Ok(state(result, &self.0.origin()));
                }
                Err(_) => {}
            }
            let run = self.0.run(by, call.run()).await.map_err(tool_error)?;
            match waiting(by, &run) {
                Some(AgentCallState::ApprovalRequired(approval)) => {
                    let since = *noticed.get_or_insert_with(Instant::now);
                    let _ = said.send(format!("waiting for a person to approve {}", approval.what));
                    let patience = match approval.caller {
                        CallerKind::User => deadline.min(since + APPROVAL_TIMEOUT),
                        CallerKind::Run => deadline,
                    };
                    if Instant::now() >= patience {
                        return Ok(AgentCallState::ApprovalRequired(approval));
                    }
                }
                Some(state) => return Ok(state),
                None => noticed = None,
            }
            if Instant::now() >= deadline {
                return Ok(AgentCallState::Running {
                    last: Some(said.borrow().clone()).filter(|last| !last.is_empty()),
                });
            }
        }
    }
}

fn id(text: &str) -> Result<CallId, ToolError> {
    text.trim().parse().map_err(|_| {
        let hint = "Pass the call_id of an earlier remote_agent result.";
        ToolError::invalid(format!("`{text}` is not a call id"), hint)
    })
}

/// The pending approval request that a refusal is about.
fn pending_approval(error: &attache_hub::Error) -> Option<PermissionId> {
    let asked = error.permission.as_ref().filter(|_| error.code == Code::ApprovalRequired)?;
    Some(asked.permission_request_id)
}

fn unapproved(by: &Principal, error: &attache_hub::Error) -> AgentCallState {
    let asked = error.permission.as_ref();
    let task = asked.and_then(|asked| asked.input.text_member("task"));
    let what = match (asked, task) {
        (Some(asked), Some(task)) => format!("{}: {task}", asked.tool),
        _ => error.message.to_string(),
    };
    let id = asked.map(|asked| asked.permission_request_id.to_string());
    AgentCallState::ApprovalRequired(PendingApproval { id, what, caller: attendance(by) })
}

/// A run has no person at its side; other callers do.
const fn attendance(by: &Principal) -> CallerKind {
    match by.who {
        PrincipalKind::Run { .. } => CallerKind::Run,
        PrincipalKind::Key { .. }
        | PrincipalKind::Runtime { .. }
        | PrincipalKind::Outside { .. }
        | PrincipalKind::Anonymous { .. } => CallerKind::User,
    }
}

/// What the call is waiting for, if anything.
fn waiting(by: &Principal, run: &Run) -> Option<AgentCallState> {
    let asked = run.waits_for.as_ref();
    match run.waiting? {
        WaitReason::Input => Some(AgentCallState::InputRequired(AgentQuestion {
            id: asked.map(|asked| asked.id.clone()).unwrap_or_default(),
            text: asked.map_or_else(|| "(no question text)".to_owned(), |asked| asked.what.clone()),
            questionnaire: asked.and_then(|asked| asked.questionnaire.clone()),
            caller: attendance(by),
        })),
        WaitReason::Approval => Some(AgentCallState::ApprovalRequired(PendingApproval {
            id: asked.map(|asked| asked.id.clone()),
            what: asked.map_or_else(|| "a step of the agent".to_owned(), |asked| asked.what.clone()),
            caller: attendance(by),
        })),
    }
}

fn state(result: CallResult, origin: &str) -> AgentCallState {
    let text = |json: &attache_protocol::Json| json.parse().unwrap_or_else(|_| json.get().to_owned());
    match (result.status, &result.result) {
        (CallStatus::Completed, Some(answer)) => AgentCallState::Completed {
            summary: text(&answer.summary),
            duration: Some(Duration::from_millis(result.stats.duration_ms)),
            full_output: answer.full_output.clone().map(|location| FullOutput::of(location, origin)),
        },
        (CallStatus::Cancelled, _) => AgentCallState::Cancelled,
        (CallStatus::Failed, _) => {
            let message = result.error.as_ref().map_or_else(|| "the call failed".to_owned(), text);
            let code = result.code.unwrap_or_else(|| "task_failed".to_owned());
            AgentCallState::Failed(ToolError::new(code, message, "Change the task or call another agent."))
        }
        (CallStatus::Started | CallStatus::Running | CallStatus::Completed, _) => {
            AgentCallState::Running { last: None }
        }
    }
}

/// The caller, set by `authenticate`.
fn principal(by: ToolCaller<'_>) -> Result<&Principal, ToolError> {
    by.get().ok_or_else(|| {
        ToolError::new(
            Code::Unauthenticated.as_str(),
            "the request has no credentials",
            "Send `Authorization: Bearer ak_…`.",
        )
    })
}

fn tool_error(error: attache_hub::Error) -> ToolError {
    let hint = error.hint.as_deref().unwrap_or_else(|| error.code.hint()).to_owned();
    ToolError::new(error.code.as_str(), error.message, hint)
}
