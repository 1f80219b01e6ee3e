//! Approval before a run passes work to an agent that is private or does not ask for approval itself: a permission
//! request of the calling run, with the exact text the agent would get.
//!
//! An agent that needs approval for each risky step must not get around it by calling another agent. Whether the other
//! agent asks for approval is declared by its runtime; without a declaration, it counts as not asking. So does an agent
//! whose settings approve steps in advance.

use std::time::Duration;

use attache_protocol::{
    Code, Json, PermissionId, RunId,
    json::Members,
    rules::{
        permission::{
            ApprovalMode, ForwardingCheck, ForwardingReason, PermissionState, PermissionSubject, REMOTE_AGENT,
            forwarding,
        },
        permission_mode::{PermissionMode, of_run},
        run::WorkerRef,
    },
    wire::{
        run::CreateRunRequest,
        runtime::{ASKS, DeclaredExtension},
    },
};
use attache_store::record::{
    AccountRecord, AgentRef, RunRecord,
    worker_request::{NewPermission, PermissionRecord},
};
use serde::Serialize;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    control::{
        account::policy_of,
        permission::{ApprovalParties, MAX_INPUT},
    },
    error::about,
    identity::PrincipalKind,
    render,
    waiter::Waiter,
};

/// A call to another agent, as shown to the person who approves it.
#[derive(Debug, Clone)]
pub(super) struct CallApproval {
    tool: String,
    input: Json,
    /// Shared by all repetitions of the same call.
    name: String,
    agent: String,
    reason: ForwardingReason,
}

/// The request for a new run, so that exactly what was approved is executed.
#[derive(Serialize)]
struct TaskApprovalInput<'a> {
    agent: &'a str,
    /// An approval given before the agent became private doesn't cover it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    task: Json,
    /// The other members of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Json>,
}

#[derive(Serialize)]
struct AnswerApprovalInput<'a> {
    agent: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    private: bool,
    task_run_id: RunId,
    answer: &'a Json,
}

// === impl Handle ===

impl Handle {
    /// The step that a person must approve before this caller may create the run. `None` if no approval is needed.
    pub(super) async fn task_to_approve(
        &self,
        by: &Principal,
        request: &CreateRunRequest,
        key: Option<&str>,
    ) -> Result<Option<CallApproval>> {
        let agent = check::agent_ref("agent_id", &request.agent_id)?;
        let needed = self.account_needing_approval(by, agent, request.permission_mode).await?;
        let Some((account, reason)) = needed else { return Ok(None) };
        let input = request.input.clone().unwrap_or_else(Json::empty_object);
        let (task, input) = match text_alone(&input) {
            Some(text) => (Json::of(&text), None),
            None => (input.clone(), Some(input)),
        };
        // The id keeps its meaning even if the name is later given to another agent. The parent is the caller itself.
        let rest = CreateRunRequest {
            agent_id: account.id.to_string(),
            input: input.map(|_| Json::empty_object()),
            parent_task_run_id: None,
            ..request.clone()
        };
        let private = reason.is_private();
        let task = TaskApprovalInput { agent: &account.name, private, task, request: Some(Json::of(&rest)) };
        Ok(Some(CallApproval::new(&account, reason, Json::of(&task), "call", key)))
    }

    /// The same for input that this caller would send to a run it created.
    pub(super) async fn answer_to_approve(
        &self,
        by: &Principal,
        told: &RunRecord,
        words: &Json,
        key: Option<&str>,
    ) -> Result<Option<CallApproval>> {
        if !matches!(by.who, PrincipalKind::Run { .. }) {
            return Ok(None);
        }
        let needed = self.account_needing_approval(by, AgentRef::Id(told.agent), told.spec.permission_mode).await?;
        let Some((account, reason)) = needed else { return Ok(None) };
        let private = reason.is_private();
        let words = AnswerApprovalInput { agent: &account.name, private, task_run_id: told.id, answer: words };
        Ok(Some(CallApproval::new(&account, reason, Json::of(&words), "input", key)))
    }

    /// The agent, and why this caller needs approval to put it to work in this mode. `None` if it doesn't.
    async fn account_needing_approval(
        &self,
        by: &Principal,
        agent: AgentRef,
        mode: Option<PermissionMode>,
    ) -> Result<Option<(AccountRecord, ForwardingReason)>> {
        if !matches!(by.who, PrincipalKind::Run { .. }) {
            return Ok(None);
        }
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        Ok(match forwarding(approval_mode(&account, mode), account.callers) {
            ForwardingCheck::Free => None,
            ForwardingCheck::NeedsApproval(reason) => Some((account, reason)),
        })
    }

    /// The approval of a step, or an error that says whose approval is missing. Each `time` needs its own approval.
    pub(super) async fn approved(&self, by: &Principal, step: &CallApproval, time: usize) -> Result<PermissionId> {
        let PrincipalKind::Run { run, agent } = by.who else {
            return Err(Error::forbidden("Only runs can request approvals."));
        };
        check::sized("task", &step.input, MAX_INPUT)?;
        let record = self.store().run(by.tenant, run).await.map_err(about("run"))?;
        let claim = record.state.claim().ok_or_else(|| Error::unauthenticated("The run has ended."))?;
        let worker = WorkerRef { runtime: claim.runtime, epoch: Some(record.state.epoch) };
        let policy = self.approval_policy(by, agent).await?;
        let (expires_at, on_timeout) = self.approval_timeout(&policy);
        let ApprovalParties { callback, speaker, plan, .. } = self.approval_parties(by, run).await?;
        let new = NewPermission {
            id: self.env().permission_id(),
            run,
            subject: step.subject(),
            tool: step.tool.clone(),
            input: step.input.clone(),
            cwd: None,
            paths: Vec::new(),
            reason: Some(match step.reason {
                ForwardingReason::NoApprovals => {
                    format!(
                        "`{}` does not ask for approval before each step. It carries out whatever it is told.",
                        step.agent
                    )
                }
                ForwardingReason::PrivateAgent => {
                    format!(
                        "`{}` is private and acts with its owner's rights. Its owner approves every call.",
                        step.agent
                    )
                }
            }),
            risk: Some("high".to_owned()),
            diff: None,
            undisclosed: Vec::new(),
            private_agent: step.reason.is_private(),
            request: Some(format!("{}-{time}", step.name)),
            channel: None,
            expires_at,
            on_timeout,
            notify: callback.or(policy.webhook_url),
            speaker,
            // What another agent is told to do is always a person's decision.
            trusted: None,
            plan,
        };
        let lease = self.options().heartbeat_timeout;
        match self.store().request_permission(worker, new, lease, self.now()).await {
            Ok(asked) => settled(asked),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// An earlier approval of this step.
    pub(super) async fn approved_before(
        &self,
        by: &Principal,
        step: &CallApproval,
        id: PermissionId,
    ) -> Result<PermissionId> {
        let found = self.own_approval(by, id).await?;
        // It covers only what the person saw.
        if found.subject != step.subject() {
            return Err(Error::not_found("approval"));
        }
        settled(found)
    }

    /// The run's own approval request once it is settled, or its state after `wait`.
    pub async fn await_approval(&self, by: &Principal, id: PermissionId, wait: Duration) -> Result<PermissionState> {
        let _slot = self.wait_slot(by, wait)?;
        // Its run names the topic, and never changes.
        let run = self.own_approval(by, id).await?.run;
        let mut waiter = Waiter::new(self, by, Topic::Asked(run), Some(wait));
        loop {
            let found = self.own_approval(by, id).await?;
            if found.state != PermissionState::Pending || !waiter.changed().await? {
                return Ok(found.state);
            }
        }
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

/// Whether an agent asks people for approval itself in a run with this mode, as its device declares and its settings say.
fn approval_mode(account: &AccountRecord, chosen: Option<PermissionMode>) -> ApprovalMode {
    let policy = policy_of(account);
    if of_run(chosen, policy.mode.unwrap_or_default()).trusts() || !policy.trusted_commands.is_empty() {
        return ApprovalMode::No;
    }
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
            Error::new(Code::ApprovalDenied, format!("The approval request expired unanswered ({id})."))
        }
    };
    Err(Error { permission: Some(Box::new(render::permission(asked))), ..error })
}

/// The text of an input that consists only of text.
fn text_alone(input: &Json) -> Option<String> {
    let Members(members) = input.parse::<Members>().ok()?;
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
    fn new(account: &AccountRecord, reason: ForwardingReason, input: Json, kind: &str, key: Option<&str>) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(input.get().as_bytes()).update(b"\0").update(key.unwrap_or_default().as_bytes());
        let name = format!("{kind}-{}", &hasher.finalize().to_hex()[..32]);
        let agent = account.name.clone();
        Self { tool: format!("{REMOTE_AGENT}{agent}"), input, name, agent, reason }
    }

    fn subject(&self) -> PermissionSubject {
        PermissionSubject::of(&self.tool, &self.input, None, &[])
    }
}
