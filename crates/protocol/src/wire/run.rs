//! Task runs: what callers create and read, and what runtimes pull and report.

use crate::text_enum;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

pub use crate::rules::run::WaitReason;
use crate::{
    AgentId, ConversationId, InputId, Json, RunId, RuntimeId, Timestamp, UserId, WorkspaceId,
    rules::{
        permission_mode::PermissionMode,
        recovery::Recovery,
        run::{FailureCode, RunStatus},
    },
    wire::{
        adapter::RunTools,
        part::Part,
        questionnaire::Questionnaire,
        usage::{Budget, CostSource},
    },
};

/// Which runs to list, newest first, as in `GET /api/v1/task-runs?…`. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct RunQuery {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RunStatus>,
    /// Only runs of this agent, by id or name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_task_run_id: Option<RunId>,
    /// Only runs that wait for a person: for an approval or for input.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[param(value_type = Option<bool>)]
    pub waiting: bool,
    /// Only runs created at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only runs created before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Timestamp>,
    /// Only runs that cost at least this many dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(value_type = Option<f64>)]
    pub min_cost_usd: Option<String>,
    /// Only runs created by this person or agent, by name or id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// Only runs whose task, id, agent's name or caller contains this text, ignoring case. Of a task, the first 16 KiB
    /// are searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateRunRequest {
    /// The agent's id or name.
    pub agent_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<ConversationId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_task_run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_ttl_ms: Option<u64>,
    /// Higher goes first. Default: 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_fragments: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_root: Option<String>,
    /// The most it may use. Without a budget, only quotas apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Limits that the worker must enforce, or refuse the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// The id or name of an agent that gets the task if this one's model account has reached a usage limit. For people and
    /// their keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_agent_id: Option<String>,
    /// Replaces the agent's permission mode for this run. Only callers who can change the agent's own can choose one that
    /// isn't stricter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Let the run work in its own git worktree, on its own branch, instead of in the agent's folder. Only for callers who
    /// can change the agent, if its device supports it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// Called when the run has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_url: Option<String>,
    /// Other events to send to the callback: `approval`, when the run waits for a person's permission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_events: Option<Vec<CallbackEvent>>,
}

/// Limits on what a run may do. An absent member is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// True: no access to files outside the working folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd_only: Option<bool>,
    /// False: no network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_network: Option<bool>,
    /// False: can't run programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_exec: Option<bool>,
}

text_enum! {
    /// A limit of a run. A worker declares which ones it enforces.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
    pub enum SandboxLimit {
        /// No access to files outside its folder.
        CwdOnly = "cwd_only",
        /// No network access.
        NoNetwork = "no_network",
        /// Can't run programs.
        NoExec = "no_exec",
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallbackEvent {
    /// The run has ended. Always sent.
    Ended,
    /// A person's permission is needed.
    Approval,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Run {
    pub task_run_id: RunId,
    pub agent_id: AgentId,
    pub agent_name: String,
    pub conversation_id: ConversationId,
    pub workspace_id: WorkspaceId,
    pub parent_task_run_id: Option<RunId>,
    pub status: RunStatus,
    pub waiting: Option<WaitReason>,
    /// What it waits for. Only when reading a single run, not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<PendingQuestion>,
    /// The state of the work on the device, while the run is claimed.
    pub recovery: Option<Recovery>,
    pub task_type: String,
    pub attempt: i64,
    pub max_attempts: i64,
    pub epoch: i64,
    pub priority: i64,
    pub timeout_ms: u64,
    pub input: Json,
    /// The output of a completed run, or `{"error","code","native_code"?}` of a failed one. Null before the end.
    pub task_result: Option<Json>,
    /// The run's total so far.
    pub usage: Option<Json>,
    /// The reliability of the usage. Null before anything was reported.
    #[serde(default)]
    pub usage_source: Option<CostSource>,
    /// The limits its caller required.
    #[serde(default)]
    pub sandbox: Option<Sandbox>,
    /// The permission mode that replaces the agent's, or `plan_first` if that was the agent's.
    #[serde(default)]
    pub permission_mode: Option<PermissionMode>,
    /// Whether it works in its own git worktree, on its own branch, instead of in the agent's folder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// The caller, as `kind:id`.
    pub caller: String,
    /// The person it was created for, if known.
    pub user_id: Option<UserId>,
    pub trace_id: Option<String>,
    pub runtime_id: Option<RuntimeId>,
    pub created_at: Timestamp,
    pub claimed_at: Option<Timestamp>,
    pub lease_expires_at: Option<Timestamp>,
    /// When a pending run expires.
    pub expires_at: Option<Timestamp>,
    /// When a pending run goes back to the queue, because the usage limit that it reached resets then. Nobody can claim it before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deferred_until: Option<Timestamp>,
    /// The run that this one continues, because that one's agent had reached a usage limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<RunId>,
    pub ended_at: Option<Timestamp>,
    /// The seq of the newest event in `/events`.
    pub last_seq: i64,
}

/// The oldest question a run waits for. Text from the agent is untrusted: show it inert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PendingQuestion {
    /// `approval` is decided by a person, `input` is answered by the caller.
    pub kind: WaitReason,
    /// `prm_…` of a permission request, `ask_…` of a question.
    pub id: String,
    /// The question, or the step to approve: `Bash: touch x`.
    pub what: String,
    /// The same question as a form, if the agent offered options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub questionnaire: Option<Questionnaire>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunList {
    pub task_runs: Vec<Run>,
    pub next_cursor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A claimed run, as its runtime receives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClaimedRun {
    pub task_run_id: RunId,
    pub agent_id: AgentId,
    pub conversation_id: ConversationId,
    pub workspace_id: WorkspaceId,
    pub task_type: String,
    pub input: Json,
    pub instructions: Option<String>,
    pub context_fragments: Option<Json>,
    pub allowed_tools: Option<Json>,
    pub workspace_root: Option<String>,
    pub parent_task_run_id: Option<RunId>,
    /// The caller, as `kind:id`. For a delegation, by name if there is one: `user:ann`, `agent:planner`.
    #[serde(default)]
    pub caller: String,
    pub trace_id: Option<String>,
    pub epoch: i64,
    pub attempt: i64,
    pub lease_expires_at: Timestamp,
    /// When the run times out.
    pub deadline: Timestamp,
    /// What is left of its own budget and of the quotas that apply. An absent member is not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// The limits its caller required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// `plan_first` if the agent must get its plan approved before it changes anything. Other modes concern only the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Whether it works in its own git worktree, on its own branch, instead of in the agent's folder.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub worktree: bool,
    /// Whether the agent's owner created it in person, not through an agent or another run.
    #[serde(default)]
    pub for_owner: bool,
    /// The session on the device that the conversation continues, if the run is `for_owner`. Otherwise, it can't be executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_session: Option<String>,
    /// The hub's tools, with a token limited to this run's rights while this claim lasts. Must not be logged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub mcp: Option<RunTools>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PullResponse {
    pub task_run: Option<ClaimedRun>,
}

/// A worker's progress report. Each member that is present becomes one event, in this order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProgressRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The worker's sequence number of its reports on this claim, from 1. A repeated report is acknowledged and
    /// ignored. Without it, a repeated report appears twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<f64>,
    /// Partial text of the answer: a string, or `{"text"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<Json>,
    /// A line of the host's log: a string, or `{"level","message"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call: Option<Json>,
    /// An artifact the agent produced: `{"artifact_id","name"?,"parts","append"?,"last_chunk"?}`, kept as sent. The
    /// parts are A2A 1.0 parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Json>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProgressResponse {
    pub status: RunStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CompleteRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// `{"text","details"?,"artifact_refs"?:["art_…"],"message"?:{"parts"},"artifacts"?:[{"artifact_id"?,"name"?,"parts"}],
    /// "reply"?:"message"}`, kept as sent. The last three are for A2A callers.
    pub output: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Json>,
    /// What the agent got of the unsolicited input to the run. Whatever isn't listed is reported as undelivered. Without
    /// the member, nothing is known about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_taken: Option<Vec<InputId>>,
}

/// `message` of an output: the agent's final message, for A2A.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputMessage {
    pub parts: Vec<Part>,
}

/// An entry of `artifacts` of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputArtifact {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub parts: Vec<Part>,
}

/// `reply` of an output: the form of the response to an A2A caller, if not a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputReply {
    Message,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailRequest {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// `{"error","code"?}`.
    pub output: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Json>,
    /// What the agent got of the unsolicited input to the run. Whatever isn't listed is reported as undelivered. Without
    /// the member, nothing is known about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inputs_taken: Option<Vec<InputId>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FinishResponse {
    pub task_run_id: RunId,
    pub status: RunStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRequest {
    pub epoch: i64,
}

/// 409: includes the run's current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunConflict {
    pub error: crate::error::ErrorDetail,
    pub task_run: Run,
}

/// The members of a failed run's `task_result` that the hub writes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunFailure {
    pub error: String,
    pub code: FailureCode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_code: Option<String>,
}

// === impl Sandbox ===

impl Sandbox {
    /// The limits of both combined.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let stricter = |ours: Option<bool>, theirs: Option<bool>, strict: bool| {
            if ours == Some(strict) { ours } else { theirs.or(ours) }
        };
        Self {
            cwd_only: stricter(self.cwd_only, other.cwd_only, true),
            allow_network: stricter(self.allow_network, other.allow_network, false),
            allow_exec: stricter(self.allow_exec, other.allow_exec, false),
        }
    }

    /// The limits it requires.
    pub fn limits(self) -> Vec<SandboxLimit> {
        let wanted = [
            (self.cwd_only == Some(true), SandboxLimit::CwdOnly),
            (self.allow_network == Some(false), SandboxLimit::NoNetwork),
            (self.allow_exec == Some(false), SandboxLimit::NoExec),
        ];
        wanted.into_iter().filter_map(|(is_asked, limit)| is_asked.then_some(limit)).collect()
    }

    /// Describes the required limits that are not among the enforced ones. `None` if all are enforced.
    pub fn unmet(self, enforced: &[SandboxLimit]) -> Option<String> {
        let missing: Vec<String> = self
            .limits()
            .into_iter()
            .filter(|limit| !enforced.contains(limit))
            .map(|limit| limit.to_string())
            .collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    }
}

// === impl SandboxLimit ===

impl SandboxLimit {
    /// The known limits in a list of words. A newer worker may enforce more.
    pub fn known<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        let known = |word: &str| Self::ALL.into_iter().find(|limit| limit.as_str() == word.trim());
        words.into_iter().filter_map(known).collect()
    }
}

impl fmt::Display for SandboxLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CwdOnly => "only its folder (cwd_only)",
            Self::NoNetwork => "no network (allow_network: false)",
            Self::NoExec => "no programs (allow_exec: false)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_limits_of_two_sandboxes_apply() {
        let none = Sandbox::default();
        let strict = Sandbox { cwd_only: Some(true), allow_network: Some(false), allow_exec: Some(false) };
        let open = Sandbox { cwd_only: Some(false), allow_network: Some(true), allow_exec: Some(true) };
        for (one, other, both) in [
            (none, none, none),
            (none, open, open),
            (strict, none, strict),
            (strict, open, strict),
            (Sandbox { allow_exec: Some(false), ..none }, open, Sandbox { allow_exec: Some(false), ..open }),
        ] {
            assert_eq!((one.and(other), other.and(one)), (both, both), "{one:?} {other:?}");
        }
    }
}
