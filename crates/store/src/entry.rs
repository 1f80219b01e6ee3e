//! What the log says: the type and data of every row in the table of [`crate::Store`], once for every engine.

pub(crate) mod ask;
pub(crate) mod channel;
pub(crate) mod delegation;
pub(crate) mod key;
pub(crate) mod peer;
pub(crate) mod people;
pub(crate) mod removal;

use attache_protocol::{
    AgentId, ArtifactId, ConversationId, EventKind, Json, MessageId, RunId, RuntimeId, Timestamp, WorkspaceId, log,
    rules::run::{Event, FailureCode, Waiting, Worker},
    wire::account::Callers,
};
use serde::Serialize;

use crate::record::{Artifact, Outcome};

/// A row's `type` and `data`, before it has a seq, a time and an actor.
pub(crate) type Entry = (EventKind, Json);

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Agent {
    agent_id: AgentId,
}

#[derive(Serialize)]
struct UpdatedAgent {
    agent_id: AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    callers: Option<Callers>,
}

#[derive(Serialize)]
struct NamedAgent<'a> {
    agent_id: AgentId,
    name: &'a str,
}

#[derive(Serialize)]
struct PairingCode {
    agent_id: AgentId,
    expires_at: Timestamp,
}

#[derive(Serialize)]
struct Runtime {
    agent_id: AgentId,
    runtime_id: RuntimeId,
}

#[derive(Serialize)]
struct Device<'a> {
    agent_id: AgentId,
    runtime_id: RuntimeId,
    device_name: Option<&'a str>,
}

#[derive(Serialize)]
struct Task<'a> {
    agent_id: AgentId,
    task_type: &'a str,
}

#[derive(Serialize)]
struct Claim {
    runtime_id: RuntimeId,
    epoch: i64,
    attempt: i64,
}

#[derive(Serialize)]
struct Finish<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<FailureCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Json>,
}

#[derive(Serialize)]
struct Reason<'a> {
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Wait {
    waiting: Option<Waiting>,
}

#[derive(Serialize)]
struct Refused {
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
struct Push<'a> {
    task_run_id: RunId,
    config_id: &'a str,
}

#[derive(Serialize)]
struct Conversation {
    conversation_id: ConversationId,
}

#[derive(Serialize)]
struct Message {
    conversation_id: ConversationId,
    message_id: MessageId,
}

#[derive(Serialize)]
struct Change<'a> {
    artifact_id: ArtifactId,
    workspace_id: WorkspaceId,
    name: &'a str,
    size: u64,
}

/// The actor of what a runtime does.
pub(crate) fn runtime_actor(runtime: RuntimeId) -> String {
    format!("runtime:{runtime}")
}

/// Retention removed the rows up to this one.
pub(crate) fn log_removed(through: i64, hash: &[u8; 32]) -> Entry {
    (EventKind::LogRemoved, Json::of(&log::Removal { through, hash: log::hex(hash) }))
}

pub(crate) fn tenant_created(name: &str) -> Entry {
    (EventKind::TenantCreated, Json::of(&Named { name }))
}

pub(crate) fn agent_created(agent: AgentId, name: &str) -> Entry {
    (EventKind::AgentCreated, Json::of(&NamedAgent { agent_id: agent, name }))
}

/// `callers` where the change says who may put the agent to work.
pub(crate) fn agent_updated(agent: AgentId, callers: Option<Callers>) -> Entry {
    (EventKind::AgentUpdated, Json::of(&UpdatedAgent { agent_id: agent, callers }))
}

pub(crate) fn agent_archived(agent: AgentId) -> Entry {
    (EventKind::AgentArchived, Json::of(&Agent { agent_id: agent }))
}

pub(crate) fn pairing_code_created(agent: AgentId, expires_at: Timestamp) -> Entry {
    (EventKind::PairingCodeCreated, Json::of(&PairingCode { agent_id: agent, expires_at }))
}

pub(crate) fn pairing_confirmed(agent: AgentId) -> Entry {
    (EventKind::PairingConfirmed, Json::of(&Agent { agent_id: agent }))
}

pub(crate) fn pairing_rejected() -> Entry {
    (EventKind::PairingRejected, Json::empty_object())
}

pub(crate) fn runtime_attached(agent: AgentId, runtime: RuntimeId, device_name: Option<&str>) -> Entry {
    (EventKind::RuntimeAttached, Json::of(&Device { agent_id: agent, runtime_id: runtime, device_name }))
}

pub(crate) fn runtime_superseded(agent: AgentId, runtime: RuntimeId) -> Entry {
    (EventKind::RuntimeSuperseded, Json::of(&Runtime { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_revoked(agent: AgentId, runtime: RuntimeId) -> Entry {
    (EventKind::RuntimeRevoked, Json::of(&Runtime { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_token_rotated(agent: AgentId, runtime: RuntimeId) -> Entry {
    (EventKind::RuntimeTokenRotated, Json::of(&Runtime { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_token_reused(agent: AgentId, runtime: RuntimeId) -> Entry {
    (EventKind::RuntimeTokenReused, Json::of(&Runtime { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_online(agent: AgentId, runtime: RuntimeId) -> Entry {
    (EventKind::RuntimeOnline, Json::of(&Runtime { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn runtime_offline(agent: AgentId, runtime: RuntimeId) -> Entry {
    (EventKind::RuntimeOffline, Json::of(&Runtime { agent_id: agent, runtime_id: runtime }))
}

pub(crate) fn task_created(agent: AgentId, task_type: &str) -> Entry {
    (EventKind::TaskCreated, Json::of(&Task { agent_id: agent, task_type }))
}

pub(crate) fn task_claimed(runtime: RuntimeId, epoch: i64, attempt: i64) -> Entry {
    (Event::Claimed.kind(), Json::of(&Claim { runtime_id: runtime, epoch, attempt }))
}

/// A worker's report.
pub(crate) fn task_finished(outcome: &Outcome, usage: Option<&Json>) -> Entry {
    match outcome {
        Outcome::Completed { .. } => (Event::Completed.kind(), Json::of(&Finish { code: None, usage })),
        Outcome::Failed { code, .. } => {
            (Event::Failed { code: *code }.kind(), Json::of(&Finish { code: Some(*code), usage }))
        }
    }
}

/// A failure that the rules decide.
pub(crate) fn task_failed(code: FailureCode) -> Entry {
    (Event::Failed { code }.kind(), Json::of(&Finish { code: Some(code), usage: None }))
}

pub(crate) fn task_cancelled(reason: Option<&str>) -> Entry {
    (Event::Cancelled.kind(), Json::of(&Reason { reason }))
}

pub(crate) fn task_requeued(reason: &'static str) -> Entry {
    (Event::Requeued { reason }.kind(), Json::of(&Reason { reason: Some(reason) }))
}

pub(crate) fn task_waiting(waiting: Option<Waiting>) -> Entry {
    (Event::Waiting { waiting }.kind(), Json::of(&Wait { waiting }))
}

/// A worker's call with an epoch that is not the current one. `call` is one of [`call`].
pub(crate) fn task_refused(run: RunId, call: &'static str, by: Worker) -> Entry {
    (EventKind::TaskRefused, Json::of(&Refused { task_run_id: run, call, epoch: by.epoch }))
}

/// What a run used in all, which its worker only knew after the run had ended.
pub(crate) fn task_usage(run: RunId, usage: &Json) -> Entry {
    (EventKind::TaskUsage, Json::of(&LateUsage { task_run_id: run, usage }))
}

pub(crate) fn push_configured(run: RunId, config: &str) -> Entry {
    (EventKind::PushConfigured, Json::of(&Push { task_run_id: run, config_id: config }))
}

pub(crate) fn push_removed(run: RunId, config: &str) -> Entry {
    (EventKind::PushRemoved, Json::of(&Push { task_run_id: run, config_id: config }))
}

pub(crate) fn conversation_created(conversation: ConversationId) -> Entry {
    (EventKind::ConversationCreated, Json::of(&Conversation { conversation_id: conversation }))
}

pub(crate) fn message_added(conversation: ConversationId, message: MessageId) -> Entry {
    (EventKind::MessageAdded, Json::of(&Message { conversation_id: conversation, message_id: message }))
}

pub(crate) fn artifact_changed(artifact: &Artifact) -> Entry {
    let Artifact { id, workspace, ref name, size, .. } = *artifact;
    (EventKind::ArtifactChanged, Json::of(&Change { artifact_id: id, workspace_id: workspace, name, size }))
}

/// The calls of a worker that an epoch fences, as `task.refused` names them.
pub(crate) mod call {
    use crate::record::Outcome;

    pub(crate) const PROGRESS: &str = "progress";
    pub(crate) const PERMISSION: &str = "permission";
    pub(crate) const ASK: &str = "ask";
    pub(crate) const PEER_TASK: &str = "peer_task";
    pub(crate) const RELEASE: &str = "release";

    pub(crate) const fn finish(outcome: &Outcome) -> &'static str {
        match outcome {
            Outcome::Completed { .. } => "complete",
            Outcome::Failed { .. } => "fail",
        }
    }
}

/// Whether the run's stream shows the run's result in events of this type.
pub(crate) fn shows_output(kind: &str) -> bool {
    EventKind::parse(kind).is_some_and(EventKind::is_terminal)
}

/// `data` of a terminal row with the run's result as its first member, as the run's stream shows it.
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
        let completed = Outcome::Completed { output: Json::empty_object(), artifacts: Vec::new() };
        let failed = Outcome::Failed { code: FailureCode::TaskFailed, result: Json::empty_object() };
        let nil = "00000000000000000000000000000000";
        let run: RunId = format!("run_{nil}").parse().unwrap();
        let runtime: RuntimeId = format!("rtm_{nil}").parse().unwrap();
        let agent: AgentId = format!("agt_{nil}").parse().unwrap();
        let rows = [
            task_finished(&completed, None),
            task_finished(&completed, Some(&usage)),
            task_finished(&failed, Some(&usage)),
            task_failed(FailureCode::Expired),
            task_cancelled(None),
            task_requeued("released"),
            task_refused(run, call::finish(&failed), Worker { runtime, epoch: None }),
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
    fn the_result_comes_first_in_a_stream() {
        let output = Json::from_text(r#"{"text":"hi"}"#).unwrap();
        let (_, empty) = task_finished(&Outcome::Completed { output: output.clone(), artifacts: Vec::new() }, None);
        assert_eq!(with_output(&empty, &output).get(), r#"{"output":{"text":"hi"}}"#);
        let (_, cancelled) = task_cancelled(Some("enough"));
        assert_eq!(with_output(&cancelled, &output).get(), r#"{"output":{"text":"hi"},"reason":"enough"}"#);
    }
}
