//! Rows of peers and of the tasks that they do: the table of [`crate::PeerStore`].

use attache_protocol::{AgentId, EventKind, Json, RunId, digest::hex};
use serde::Serialize;

use super::LogEntry;
use crate::record::peer::{PeerRecord, PeerTask, PeerTaskLogEffect, PinnedCard};

#[derive(Serialize)]
struct PeerSetData<'a> {
    agent_id: AgentId,
    url: &'a str,
}

#[derive(Serialize)]
struct PeerCardData {
    agent_id: AgentId,
    digest: String,
}

#[derive(Serialize)]
struct PeerTaskLinkedData<'a> {
    task_run_id: RunId,
    peer_task_id: Option<&'a str>,
    peer_context_id: Option<&'a str>,
    native_status: Option<&'a str>,
}

#[derive(Serialize)]
struct PeerTaskUpdatedData<'a> {
    task_run_id: RunId,
    peer_task_id: Option<&'a str>,
    native_status: Option<&'a str>,
}

pub(crate) fn set(peer: &PeerRecord) -> LogEntry {
    (EventKind::PeerSet, Json::of(&PeerSetData { agent_id: peer.agent, url: &peer.url }))
}

pub(crate) fn pinned(agent: AgentId, card: &PinnedCard) -> LogEntry {
    (EventKind::PeerPinned, about(agent, card))
}

pub(crate) fn card_changed(agent: AgentId, card: &PinnedCard) -> LogEntry {
    (EventKind::PeerCardChanged, about(agent, card))
}

pub(crate) fn trusted(agent: AgentId, card: &PinnedCard) -> LogEntry {
    (EventKind::PeerTrusted, about(agent, card))
}

fn about(agent: AgentId, card: &PinnedCard) -> Json {
    Json::of(&PeerCardData { agent_id: agent, digest: hex(&card.digest) })
}

/// The row for the current state of a task.
pub(crate) fn peer_task_changed(task: &PeerTask, told: PeerTaskLogEffect) -> Option<LogEntry> {
    let PeerTask { run, peer_task_id, peer_context_id, native_status, .. } = task;
    let (task_run_id, peer_task_id) = (*run, peer_task_id.as_deref());
    let (peer_context_id, native_status) = (peer_context_id.as_deref(), native_status.as_deref());
    match told {
        PeerTaskLogEffect::Linked => {
            let row = PeerTaskLinkedData { task_run_id, peer_task_id, peer_context_id, native_status };
            Some((EventKind::ChannelPeerTaskLinked, Json::of(&row)))
        }
        PeerTaskLogEffect::Updated => Some((
            EventKind::ChannelPeerTaskUpdated,
            Json::of(&PeerTaskUpdatedData { task_run_id, peer_task_id, native_status }),
        )),
        PeerTaskLogEffect::Nothing => None,
    }
}
