//! The call API: a task for an agent becomes a run, and the run is shown as a call.

use attache_a2a_wire::{A2aRole, Message, Part};
use attache_protocol::{
    Code, Json, RunId,
    wire::{
        call::{CallId, CallInput, CallRequest, CallResult, CallTask, CallTaskRequest},
        run::{CreateRunRequest, Run},
    },
};

use crate::{
    Error, Handle, Principal, Result, check,
    control::{CallHeaders, CreatedRun, route::AgentSelector},
    identity::Action,
};

const MAX_TASK: usize = 1 << 20;
const WHAT: &str = "call";

impl Handle {
    /// Starts a run for the agent the call selects, and returns immediately. The same idempotency key returns the same
    /// call.
    pub async fn call(&self, by: &Principal, request: CallRequest, headers: CallHeaders) -> Result<CallId> {
        self.call_within(by, None, request, headers).await
    }

    /// The same as a child of another run, which limits how far the work can be passed on.
    pub(crate) async fn call_within(
        &self,
        by: &Principal,
        parent: Option<RunId>,
        mut request: CallRequest,
        headers: CallHeaders,
    ) -> Result<CallId> {
        let permit = by.may(Action::CreateRun)?;
        check_task("task", &request.task)?;
        let wanted = request.agent_type.as_deref().map_or(AgentSelector::Default, AgentSelector::Type);
        let agent = self.route(&permit, wanted).await?;
        let (callback_url, callback_events) = (request.callback_url.take(), request.callback_events.take());
        let message = request.parts.take().map(|parts| message_of(&request.task, parts));
        let run = CreateRunRequest {
            parent_task_run_id: parent.or(request.parent_task_run_id),
            budget: request.budget.take(),
            sandbox: request.sandbox,
            fallback_agent_id: request.fallback_agent_id.take(),
            permission_mode: request.permission_mode,
            worktree: request.worktree,
            conversation_id: request.conversation_id,
            priority: request.priority,
            timeout_ms: request.timeout_ms,
            callback_url,
            callback_events,
            ..run_request(&agent.to_string(), &CallInput { message, ..request.into() })
        };
        let created = self.create_run(by, run, headers).await?;
        let (CreatedRun::New(run) | CreatedRun::Existing(run)) = created;
        Ok(CallId::of(run.task_run_id))
    }

    /// The same in the header/task form.
    pub async fn call_task(
        &self,
        by: &Principal,
        mut request: CallTaskRequest,
        headers: CallHeaders,
    ) -> Result<CreatedRun> {
        let permit = by.may(Action::CreateRun)?;
        check_task("task.description", &request.task.description)?;
        if request.header.as_ref().is_some_and(|header| !header.is_object() && header.get() != "null") {
            return Err(Error::invalid("header", "must be a JSON object"));
        }
        let required = request.task.capabilities_required.as_deref().unwrap_or_default();
        let wanted = if required.is_empty() { AgentSelector::Default } else { AgentSelector::All(required) };
        let agent = self.route(&permit, wanted).await?;
        let (callback_url, callback_events) = (request.callback_url.take(), request.callback_events.take());
        let run = CreateRunRequest {
            budget: request.budget.take(),
            sandbox: request.sandbox,
            callback_url,
            callback_events,
            ..run_request(&agent.to_string(), &request.into())
        };
        self.create_run(by, run, headers).await
    }

    pub async fn call_result(&self, by: &Principal, call: CallId) -> Result<CallResult> {
        Ok(CallResult::of(&self.called(by, call).await?, self.now()))
    }

    /// The call in the header/task form.
    pub async fn called_task(&self, by: &Principal, call: CallId) -> Result<CallTask> {
        Ok(CallTask::of(&self.called(by, call).await?, self.now()))
    }

    async fn called(&self, by: &Principal, call: CallId) -> Result<Run> {
        self.run(by, call.run()).await.map_err(about_call)
    }
}

/// For its caller, a missing run is a missing call.
pub(crate) fn about_call(error: Error) -> Error {
    if error.code == Code::NotFound { Error::not_found(WHAT) } else { error }
}

/// In a path, text that is not a valid call id names a call that does not exist.
pub(crate) fn call_in_path(text: &str) -> Result<CallId> {
    text.parse().map_err(|_| Error::not_found(WHAT))
}

fn check_task(field: &str, text: &str) -> Result<()> {
    if text.trim().is_empty() {
        return Err(Error::invalid(field, "must not be empty"));
    }
    check::text(field, text, 1..=MAX_TASK)
}

/// The task and its attachments as a message that any kind of agent can read. The same input gives the same message,
/// because a request whose response was lost is repeated.
fn message_of(task: &str, parts: Vec<Part>) -> Json {
    let parts: Vec<Part> = std::iter::once(Part::text(task)).chain(parts).collect();
    let digest = blake3::hash(Json::of(&parts).get().as_bytes());
    Json::of(&Message {
        message_id: format!("msg-{}", &digest.to_hex()[..32]),
        role: A2aRole::User,
        parts,
        context_id: None,
        task_id: None,
        metadata: None,
        extensions: Vec::new(),
        reference_task_ids: Vec::new(),
    })
}

fn run_request(agent: &str, input: &CallInput) -> CreateRunRequest {
    CreateRunRequest { agent_id: agent.to_owned(), input: Some(Json::of(input)), ..CreateRunRequest::default() }
}
