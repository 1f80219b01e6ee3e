//! Log rows of removals and damaged records.

use attache_protocol::{AgentId, ConversationId, EventKind, Json, RunId};
use serde::Serialize;

use super::LogEntry;
use crate::record::Class;

#[derive(Serialize)]
struct RemovedByAge {
    class: &'static str,
    count: u64,
}

#[derive(Serialize)]
struct DeletedRun {
    task_run_id: RunId,
    agent_id: AgentId,
}

#[derive(Serialize)]
struct RemovedDamagedRun {
    task_run_id: RunId,
}

#[derive(Serialize)]
struct DeletedConversation {
    conversation_id: ConversationId,
}

/// Retention removed this many of them.
pub(crate) fn by_age(class: Class, count: u64) -> LogEntry {
    (EventKind::DataRemoved, Json::of(&RemovedByAge { class: class.as_str(), count }))
}

/// Someone deleted a run.
pub(crate) fn task_deleted(run: RunId, agent: AgentId) -> LogEntry {
    (EventKind::TaskDeleted, Json::of(&DeletedRun { task_run_id: run, agent_id: agent }))
}

/// A run that hadn't ended couldn't be read, and was failed.
pub(crate) fn task_damaged(run: RunId) -> LogEntry {
    (EventKind::TaskDamaged, Json::of(&RemovedDamagedRun { task_run_id: run }))
}

/// Someone deleted a conversation with its runs.
pub(crate) fn conversation_deleted(conversation: ConversationId) -> LogEntry {
    (EventKind::ConversationDeleted, Json::of(&DeletedConversation { conversation_id: conversation }))
}
