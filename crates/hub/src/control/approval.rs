//! Approval before a run's work is forwarded to an agent that asks nobody: a permission request of the run that it comes
//! from, about the very words that the agent would get.
//!
//! An agent that asks a person before each risky step must not do the same step unasked through another one. Whether the
//! other asks by itself is what its runtime declares; what declares nothing does not ask.

use std::time::Duration;

use attache_protocol::{
    Code, Json, PermissionId, RunId,
    json::Members,
    rules::{
        permission::{ApprovalMode, ForwardingCheck, PermissionState, PermissionSubject, forwarding},
        run::WorkerRef,
    },
    wire::{
        run::CreateRunRequest,
        runtime::{ASKS, DeclaredExtension},
    },
};
use attache_store::record::{
    AccountRecord, AgentRef,
    worker_request::{NewPermission, PermissionRecord},
};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    control::{check, permission::MAX_INPUT},
    error::about,
    identity::{CredentialGuard, PrincipalKind},
    render,
};

/// What the tool is called by which a run tells another agent something, before the agent's name.
pub(super) const REMOTE_AGENT: &str = "remote_agent/";

/// What a run wants another agent to be told, as a person sees it.
#[derive(Debug, Clone)]
pub(super) struct CallApproval {
    tool: String,
    input: Json,
    /// What is in common of all askings for it.
    name: String,
    agent: String,
}

/// The request of a new run, so that what was approved is what is done.
#[derive(Serialize)]
struct TaskApprovalInput<'a> {
    agent: &'a str,
    task: Json,
    /// What else the agent would get.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Json>,
}

#[derive(Serialize)]
struct AnswerApprovalInput<'a> {
    agent: &'a str,
    task_run_id: RunId,
    answer: &'a Json,
}

// === impl Handle ===

impl Handle {
    /// The step that a person must approve before this caller may have the run made; none where nobody has to.
    pub(super) async fn task_to_approve(
        &self,
        by: &Principal,
        request: &CreateRunRequest,
        key: Option<&str>,
    ) -> Result<Option<CallApproval>> {
        let agent = check::agent_ref("agent_id", &request.agent_id)?;
        let Some(account) = self.account_needing_approval(by, agent).await? else { return Ok(None) };
        let input = request.input.clone().unwrap_or_else(Json::empty_object);
        let (task, input) = match text_alone(&input) {
            Some(text) => (Json::of(&text), None),
            None => (input.clone(), Some(input)),
        };
        // The id stands for the agent also when its name goes to another one. The parent is the caller itself.
        let rest = CreateRunRequest {
            agent_id: account.id.to_string(),
            input: input.map(|_| Json::empty_object()),
            parent_task_run_id: None,
            ..request.clone()
        };
        let task = TaskApprovalInput { agent: &account.name, task, request: Some(Json::of(&rest)) };
        Ok(Some(CallApproval::new(&account.name, Json::of(&task), "call", key)))
    }

    /// The same for what this caller would say to a run that it asked for.
    pub(super) async fn answer_to_approve(
        &self,
        by: &Principal,
        run: RunId,
        words: &Json,
        key: Option<&str>,
    ) -> Result<Option<CallApproval>> {
        if !matches!(by.who, PrincipalKind::Run { .. }) {
            return Ok(None);
        }
        let told = self.own_run(by, run).await?;
        let Some(account) = self.account_needing_approval(by, AgentRef::Id(told.agent)).await? else { return Ok(None) };
        let words = AnswerApprovalInput { agent: &account.name, task_run_id: run, answer: words };
        Ok(Some(CallApproval::new(&account.name, Json::of(&words), "input", key)))
    }

    /// The agent, if this caller must not put it to work unasked.
    async fn account_needing_approval(&self, by: &Principal, agent: AgentRef) -> Result<Option<AccountRecord>> {
        if !matches!(by.who, PrincipalKind::Run { .. }) {
            return Ok(None);
        }
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        Ok(match forwarding(asks(&account)) {
            ForwardingCheck::Free => None,
            ForwardingCheck::NeedsApproval => Some(account),
        })
    }

    /// The approval of a step, or the refusal that says who has to give it. Each `time` is approved by itself.
    pub(super) async fn approved(&self, by: &Principal, step: &CallApproval, time: usize) -> Result<PermissionId> {
        let PrincipalKind::Run { run, agent } = by.who else {
            return Err(Error::forbidden("Only a run has its steps approved."));
        };
        check::sized("task", &step.input, MAX_INPUT)?;
        let record = self.store().run(by.tenant, run).await.map_err(about("run"))?;
        let claim = record.state.claim().ok_or_else(|| Error::unauthenticated("The run has ended."))?;
        let worker = WorkerRef { runtime: claim.runtime, epoch: Some(record.state.epoch) };
        let policy = self.approval_policy(by, agent).await?;
        let (expires_at, on_timeout) = self.approval_timeout(&policy);
        let new = NewPermission {
            id: self.env().permission_id(),
            run,
            subject: step.subject(),
            tool: step.tool.clone(),
            input: step.input.clone(),
            cwd: None,
            paths: Vec::new(),
            reason: Some(format!("`{}` asks nobody before it acts: what it is told, it does.", step.agent)),
            risk: Some("high".to_owned()),
            diff: None,
            undisclosed: Vec::new(),
            request: Some(format!("{}-{time}", step.name)),
            channel: None,
            expires_at,
            on_timeout,
            notify: self.callback_for_approval(by, run).await.or(policy.webhook_url),
        };
        let lease = self.options().heartbeat_timeout;
        match self.store().request_permission(worker, new, lease, self.now()).await {
            Ok(asked) => settled(asked),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// The approval that this step was given before.
    pub(super) async fn approved_before(
        &self,
        by: &Principal,
        step: &CallApproval,
        id: PermissionId,
    ) -> Result<PermissionId> {
        let found = self.own_approval(by, id).await?;
        // It holds for what the person saw.
        if found.subject != step.subject() {
            return Err(Error::not_found("approval"));
        }
        settled(found)
    }

    /// The run's own request for an approval when it is settled, or as it is after `wait`.
    pub async fn await_approval(&self, by: &Principal, id: PermissionId, wait: Duration) -> Result<PermissionState> {
        let deadline = Instant::now() + wait;
        let mut found = self.own_approval(by, id).await?;
        let mut asked = self.bus().watch(Topic::Asked(found.run));
        let mut guard = CredentialGuard::new(self, by);
        while found.state == PermissionState::Pending && Instant::now() < deadline {
            let look_again = deadline.min(Instant::now() + self.options().poll_every);
            tokio::select! {
                () = asked.moved() => {}
                () = tokio::time::sleep_until(look_again) => {}
                () = self.drained() => break,
                error = guard.broken() => return Err(error),
            }
            found = self.own_approval(by, id).await?;
        }
        Ok(found.state)
    }

    /// The request that an approval of this run was about.
    pub async fn request_of_approval(&self, by: &Principal, id: PermissionId) -> Result<CreateRunRequest> {
        let found = self.own_approval(by, id).await?;
        let members: Members = found.input.parse().map_err(|_| Error::not_found("approval"))?;
        let request = members.find("request").and_then(|request| request.parse::<CreateRunRequest>().ok());
        let (Some(mut request), Some(task)) = (request, members.find("task")) else {
            return Err(Error::not_found("approval"));
        };
        request.input = Some(match request.input {
            Some(_) => task.clone(),
            None => text(task),
        });
        Ok(request)
    }

    async fn own_approval(&self, by: &Principal, id: PermissionId) -> Result<PermissionRecord> {
        let found = self.store().permission(by.tenant, id).await.map_err(about("approval"))?;
        match by.who {
            PrincipalKind::Run { run, .. } if found.run == run => Ok(found),
            _ => Err(Error::not_found("approval")),
        }
    }
}

/// Whether an agent asks people by itself, as the device that works for it says.
pub(super) fn asks(account: &AccountRecord) -> ApprovalMode {
    let declared = account.runtime.as_ref().and_then(|runtime| runtime.extensions.as_ref());
    let declared: Vec<DeclaredExtension> = declared.and_then(|declared| declared.parse().ok()).unwrap_or_default();
    if declared.iter().any(|extension| extension.uri == ASKS) { ApprovalMode::Yes } else { ApprovalMode::No }
}

fn settled(asked: PermissionRecord) -> Result<PermissionId> {
    let (id, state) = (asked.id, asked.state);
    let comment = asked.settled.as_ref().and_then(|settled| settled.decision.as_ref()?.comment.clone());
    let error = match state {
        PermissionState::Approved => return Ok(id),
        PermissionState::Pending => {
            Error::new(Code::ApprovalRequired, format!("A person must approve this first ({id}): {}.", asked.tool))
        }
        PermissionState::Denied => {
            let comment = comment.map(|comment| format!(": {comment}")).unwrap_or_default();
            Error::new(Code::ApprovalDenied, format!("A person denied this ({id}){comment}."))
        }
        PermissionState::Expired | PermissionState::Cancelled => {
            Error::new(Code::ApprovalDenied, format!("Nobody approved this in time ({id})."))
        }
    };
    Err(Error { permission: Some(Box::new(render::permission(asked))), ..error })
}

/// The text of an input that is nothing but a text.
fn text_alone(input: &Json) -> Option<String> {
    let Members(members) = input.parse().ok()?;
    match &members[..] {
        [(name, value)] if name == "text" => value.parse().ok(),
        _ => None,
    }
}

fn text(task: &Json) -> Json {
    Json::of(&Members(vec![("text".to_owned(), task.clone())]))
}

// === impl CallApproval ===

impl CallApproval {
    fn new(agent: &str, input: Json, kind: &str, key: Option<&str>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(input.get().as_bytes()).update(b"\0").update(key.unwrap_or_default().as_bytes());
        let name = format!("{kind}-{}", &hasher.finalize().to_hex()[..32]);
        Self { tool: format!("{REMOTE_AGENT}{agent}"), input, name, agent: agent.to_owned() }
    }

    fn subject(&self) -> PermissionSubject {
        PermissionSubject::of(&self.tool, &self.input, None, &[])
    }
}
