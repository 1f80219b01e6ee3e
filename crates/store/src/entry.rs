//! Builds the log rows: the type and data of every row in the tables of [`crate::Store`], shared by all engines.

pub(crate) mod channel;
pub(crate) mod delegation;
pub(crate) mod key;
pub(crate) mod notification;
pub(crate) mod peer;
pub(crate) mod removal;
pub(crate) mod user;
pub(crate) mod worker_request;
pub(crate) mod worktree;

use attache_protocol::{
    Actor, AgentId, ArtifactId, ConversationId, EventKind, InputId, Json, MessageId, RunId, RuntimeId, Timestamp,
    UserId, WorkspaceId, digest, log,
    rules::run::{FailureCode, LifecycleEvent, WaitReason, WorkerRef},
    wire::account::{AddedPart, ApprovalConfirmation, Callers},
};
use serde::Serialize;

use crate::record::{AccountPatch, ArtifactRecord, RunResult};

/// A row's `type` and `data`, before it has a seq, a time and an actor.
pub(crate) type LogEntry = (EventKind, Json);

#[derive(Serialize)]
struct TenantCreatedData<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct AgentData {
    agent_id: AgentId,
}

#[derive(Serialize)]
struct AgentUpdatedData<'a> {
    agent_id: AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    callers: Option<Callers>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[allow(clippy::option_option, reason = "an agent may be given to no one")]
    owner_id: Option<Option<UserId>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    confirm_approvals: Option<ApprovalConfirmation>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    ended: &'a [AddedPart],
}

#[derive(Serialize)]
struct AgentCreatedData<'a> {
    agent_id: AgentId,
    name: &'a str,
}

#[derive(Serialize)]
struct PairingCodeData {
    agent_id: AgentId,
    expires_at: Timestamp,
}

#[derive(Serialize)]
struct RuntimeData {
    agent_id: AgentId,
    runtime_id: RuntimeId,
}

#[derive(Serialize)]
struct RuntimeAttachedData<'a> {
    agent_id: AgentId,
    runtime_id: RuntimeId,
    device_name: Option<&'a str>,
}

#[derive(Serialize)]
struct TaskCreatedData<'a> {
    agent_id: AgentId,
    task_type: &'a str,
}

#[derive(Serialize)]
struct TaskClaimedData {
    runtime_id: RuntimeId,
    epoch: i64,
    attempt: i64,
}

#[derive(Serialize)]
struct TaskFinishedData<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<FailureCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Json>,
    #[serde(skip_serializing_if = "<[InputId]>::is_empty")]
    undelivered_inputs: &'a [InputId],
}

#[derive(Serialize)]
struct TaskDeferredData<'a> {
    until: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Json>,
    #[serde(skip_serializing_if = "<[InputId]>::is_empty")]
    undelivered_inputs: &'a [InputId],
}

#[derive(Serialize)]
struct TaskReasonData<'a> {
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct TaskWaitingData {
    waiting: Option<WaitReason>,
}

#[derive(Serialize)]
struct TaskRefusedData {
    task_run_id: RunId,
    call: &'static str,
    epoch: Option<i64>,
}

#[derive(Serialize)]
struct LateUsage<'a> {
    task_run_id: RunId,
    usage: &'a Json,
}

#[derive(Serialize)]
struct PushConfigData<'a> {
    task_run_id: RunId,
    config_id: &'a str,
}

#[derive(Serialize)]
struct ConversationData {
    conversation_id: ConversationId,
}

#[derive(Serialize)]
struct MessageAddedData {
    conversation_id: ConversationId,
    message_id: MessageId,
}

#[derive(Serialize)]
struct ArtifactChangedData<'a> {
    artifact_id: ArtifactId,
    workspace_id: WorkspaceId,
    name: &'a str,
    size: u64,
}

/// The actor of a runtime's actions.
pub(crate) const fn runtime_actor(runtime: RuntimeId) -> Actor {
    Actor::Runtime(runtime)
}

/// Retention removed the rows up to this one.
pub(crate) fn log_removed(through: i64, hash: &[u8; 32]) -> LogEntry {
    (EventKind::LogRemoved, Json::of(&log::LogRemoval { through, hash: digest::hex(hash) }))
}

pub(crate) fn tenant_created(name: &str) -> LogEntry {
    (EventKind::TenantCreated, Json::of(&TenantCreatedData { name }))
}

pub(crate) fn agent_created(agent: AgentId, name: &str) -> LogEntry {
    (EventKind::AgentCreated, Json::of(&AgentCreatedData { agent_id: agent, name }))
}

/// With who may call the agent, who owns it and what approvals need, if the change includes that, and what it ended.
pub(crate) fn agent_updated(agent: AgentId, patch: &AccountPatch, ended: &[AddedPart]) -> LogEntry {
    let AccountPatch { callers, owner, confirm_approvals, .. } = *patch;
    let row = AgentUpdatedData { agent_id: agent, callers, owner_id: owner, confirm_approvals, ended };
    (EventKind::AgentUpdated, Json::of(&row))
}

pub(crate) fn agent_archived(agent: AgentId) -> LogEntry {
    (EventKind::AgentArchived, Json::of(&AgentData { agent_id: agent }))
}

pub(crate) fn pairing_code_created(agent: AgentId, expires_at: Timestamp) -> LogEntry {
    (EventKind::PairingCodeCreated, Json::of(&PairingCodeData { agent_id: agent, expires_at }))
}

pub(crate) fn pairing_confirmed(agent: AgentId) -> LogEntry {
    (EventKind::PairingConfirmed, Json::of(&AgentData { agent_id: agent }))
}

pub(crate) fn pairing_rejected() -> LogEntry {
    (EventKind::PairingRejected, Json::empty_object())
}

pub(crate) fn runtime_attached(agent: AgentId, runtime: RuntimeId, device_name: Option<&str>) -> LogEntry {
    (EventKind::RuntimeAttached, Json::of(&RuntimeAttachedData { agent_id: agent, runtime_id: runtime, device_name }))
}

pub(crate) fn runtime_superseded(agent: AgentId, runtime: RuntimeId) -> LogEntry {
    (EventKind::RuntimeSuperseded, Json::of(&RuntimeData { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_revoked(agent: AgentId, runtime: RuntimeId) -> LogEntry {
    (EventKind::RuntimeRevoked, Json::of(&RuntimeData { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_token_rotated(agent: AgentId, runtime: RuntimeId) -> LogEntry {
    (EventKind::RuntimeTokenRotated, Json::of(&RuntimeData { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_token_reused(agent: AgentId, runtime: RuntimeId) -> LogEntry {
    (EventKind::RuntimeTokenReused, Json::of(&RuntimeData { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_online(agent: AgentId, runtime: RuntimeId) -> LogEntry {
    (EventKind::RuntimeOnline, Json::of(&RuntimeData { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_offline(agent: AgentId, runtime: RuntimeId) -> LogEntry {
    (EventKind::RuntimeOffline, Json::of(&RuntimeData { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn task_created(agent: AgentId, task_type: &str) -> LogEntry {
    (EventKind::TaskCreated, Json::of(&TaskCreatedData { agent_id: agent, task_type }))
}

pub(crate) fn task_claimed(runtime: RuntimeId, epoch: i64, attempt: i64) -> LogEntry {
    (LifecycleEvent::Claimed.kind(), Json::of(&TaskClaimedData { runtime_id: runtime, epoch, attempt }))
}

/// A worker's report.
/// The end of a worker's work, with the unsolicited input that its agent didn't get.
pub(crate) fn task_finished(outcome: &RunResult, usage: Option<&Json>, undelivered_inputs: &[InputId]) -> LogEntry {
    match outcome {
        RunResult::Completed { .. } => {
            (LifecycleEvent::Completed.kind(), Json::of(&TaskFinishedData { code: None, usage, undelivered_inputs }))
        }
        RunResult::Failed { code, .. } => (
            LifecycleEvent::Failed { code: *code }.kind(),
            Json::of(&TaskFinishedData { code: Some(*code), usage, undelivered_inputs }),
        ),
        RunResult::Deferred { until } => (
            LifecycleEvent::Deferred { until: *until }.kind(),
            Json::of(&TaskDeferredData { until: *until, usage, undelivered_inputs }),
        ),
    }
}

/// A failure decided by the rules.
pub(crate) fn task_failed(code: FailureCode) -> LogEntry {
    (
        LifecycleEvent::Failed { code }.kind(),
        Json::of(&TaskFinishedData { code: Some(code), usage: None, undelivered_inputs: &[] }),
    )
}

pub(crate) fn task_cancelled(reason: Option<&str>) -> LogEntry {
    (LifecycleEvent::Cancelled.kind(), Json::of(&TaskReasonData { reason }))
}

pub(crate) fn task_requeued(reason: &'static str) -> LogEntry {
    (LifecycleEvent::Requeued { reason }.kind(), Json::of(&TaskReasonData { reason: Some(reason) }))
}

pub(crate) fn task_waiting(waiting: Option<WaitReason>) -> LogEntry {
    (LifecycleEvent::Waiting { waiting }.kind(), Json::of(&TaskWaitingData { waiting }))
}

/// A worker's call with a stale epoch. `call` is one of [`call`].
pub(crate) fn task_refused(run: RunId, call: &'static str, by: WorkerRef) -> LogEntry {
    (EventKind::TaskRefused, Json::of(&TaskRefusedData { task_run_id: run, call, epoch: by.epoch }))
}

/// The final usage of a run, which its worker learned only after the run had ended.
pub(crate) fn task_usage(run: RunId, usage: &Json) -> LogEntry {
    (EventKind::TaskUsage, Json::of(&LateUsage { task_run_id: run, usage }))
}

pub(crate) fn push_configured(run: RunId, config: &str) -> LogEntry {
    (EventKind::PushConfigured, Json::of(&PushConfigData { task_run_id: run, config_id: config }))
}

pub(crate) fn push_removed(run: RunId, config: &str) -> LogEntry {
    (EventKind::PushRemoved, Json::of(&PushConfigData { task_run_id: run, config_id: config }))
}

pub(crate) fn conversation_created(conversation: ConversationId) -> LogEntry {
    (EventKind::ConversationCreated, Json::of(&ConversationData { conversation_id: conversation }))
}

pub(crate) fn message_added(conversation: ConversationId, message: MessageId) -> LogEntry {
    (EventKind::MessageAdded, Json::of(&MessageAddedData { conversation_id: conversation, message_id: message }))
}

pub(crate) fn artifact_changed(artifact: &ArtifactRecord) -> LogEntry {
    let ArtifactRecord { id, workspace, ref name, size, .. } = *artifact;
    (
        EventKind::ArtifactChanged,
        Json::of(&ArtifactChangedData { artifact_id: id, workspace_id: workspace, name, size }),
    )
}

/// The worker calls that are fenced by an epoch, as named in `task.refused`.
pub(crate) mod call {
    use crate::record::RunResult;

    pub(crate) const PROGRESS: &str = "progress";
    pub(crate) const PERMISSION: &str = "permission";
    pub(crate) const ASK: &str = "ask";
    pub(crate) const PEER_TASK: &str = "peer_task";
    pub(crate) const RELEASE: &str = "release";

    pub(crate) const fn finish(outcome: &RunResult) -> &'static str {
        match outcome {
            RunResult::Completed { .. } => "complete",
            RunResult::Failed { .. } | RunResult::Deferred { .. } => "fail",
        }
    }
}

/// Whether events of this type include the run's result in the run's stream.
pub(crate) fn shows_output(kind: &str) -> bool {
    EventKind::parse(kind).is_some_and(EventKind::is_terminal)
}

/// `data` of a terminal row with the run's result as its first member, as in the run's stream.
pub(crate) fn with_output(data: &Json, output: &Json) -> Json {
    let members = data.get().strip_prefix('{').expect("the log's data is an object that we wrote");
    let comma = if members == "}" { "" } else { "," };
    Json::from_text(format!("{{\"output\":{}{comma}{members}", output.get()))
        .expect("an object with one more member is an object")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_has_the_documented_members_in_order() {
        let usage = Json::from_text(r#"{"tokens":1.50}"#).unwrap();
        let completed = RunResult::Completed { output: Json::empty_object(), artifacts: Vec::new() };
        let failed = RunResult::Failed { code: FailureCode::TaskFailed, result: Json::empty_object() };
        let nil = "00000000000000000000000000000000";
        let run: RunId = format!("run_{nil}").parse().unwrap();
        let runtime: RuntimeId = format!("rtm_{nil}").parse().unwrap();
        let agent: AgentId = format!("agt_{nil}").parse().unwrap();
        let rows = [
            task_finished(&completed, None, &[]),
            task_finished(&completed, Some(&usage), &[]),
            task_finished(&failed, Some(&usage), &[]),
            task_failed(FailureCode::Expired),
            task_cancelled(None),
            task_requeued("released"),
            task_refused(run, call::finish(&failed), WorkerRef { runtime, epoch: None }),
            task_usage(run, &usage),
            runtime_attached(agent, runtime, None),
            push_configured(run, "a\"b"),
            push_removed(run, ""),
        ];
        let rows: Vec<String> = rows.iter().map(|(kind, data)| format!("{kind} {data:?}")).collect();
        assert_eq!(
            rows,
            [
                "task.completed {}".to_owned(),
                r#"task.completed {"usage":{"tokens":1.50}}"#.to_owned(),
                r#"task.failed {"code":"task_failed","usage":{"tokens":1.50}}"#.to_owned(),
                r#"task.failed {"code":"expired"}"#.to_owned(),
                r#"task.cancelled {"reason":null}"#.to_owned(),
                r#"task.requeued {"reason":"released"}"#.to_owned(),
                format!(r#"task.refused {{"task_run_id":"run_{nil}","call":"fail","epoch":null}}"#),
                format!(r#"task.usage {{"task_run_id":"run_{nil}","usage":{{"tokens":1.50}}}}"#),
                format!(r#"runtime.attached {{"agent_id":"agt_{nil}","runtime_id":"rtm_{nil}","device_name":null}}"#),
                format!(r#"push.configured {{"task_run_id":"run_{nil}","config_id":"a\"b"}}"#),
                format!(r#"push.removed {{"task_run_id":"run_{nil}","config_id":""}}"#),
            ]
        );
    }

    #[test]
    fn the_result_is_the_first_member_in_a_stream() {
        let output = Json::from_text(r#"{"text":"hi"}"#).unwrap();
        let (_, empty) =
            task_finished(&RunResult::Completed { output: output.clone(), artifacts: Vec::new() }, None, &[]);
        assert_eq!(with_output(&empty, &output).get(), r#"{"output":{"text":"hi"}}"#);
        let (_, cancelled) = task_cancelled(Some("enough"));
        assert_eq!(with_output(&cancelled, &output).get(), r#"{"output":{"text":"hi"},"reason":"enough"}"#);
    }
}
