//! Rows of peers and of the tasks that they do: the table of [`crate::Peers`].

use attache_protocol::{AgentId, EventKind, Json, RunId, log::hex};
use serde::Serialize;

use super::Entry;
use crate::record::peer::{Peer, PeerTask, Pin, Told};

#[derive(Serialize)]
struct Set<'a> {
    agent_id: AgentId,
    url: &'a str,
}

#[derive(Serialize)]
struct Card {
    agent_id: AgentId,
    digest: String,
}

#[derive(Serialize)]
struct Linked<'a> {
    task_run_id: RunId,
    peer_task_id: Option<&'a str>,
    peer_context_id: Option<&'a str>,
    native_status: Option<&'a str>,
}

#[derive(Serialize)]
struct Updated<'a> {
    task_run_id: RunId,
    peer_task_id: Option<&'a str>,
    native_status: Option<&'a str>,
}

pub(crate) fn set(peer: &Peer) -> Entry {
    (EventKind::PeerSet, Json::of(&Set { agent_id: peer.agent, url: &peer.url }))
}

pub(crate) fn pinned(agent: AgentId, card: &Pin) -> Entry {
    (EventKind::PeerPinned, about(agent, card))
}

pub(crate) fn card_changed(agent: AgentId, card: &Pin) -> Entry {
    (EventKind::PeerCardChanged, about(agent, card))
}

pub(crate) fn trusted(agent: AgentId, card: &Pin) -> Entry {
    (EventKind::PeerTrusted, about(agent, card))
}

fn about(agent: AgentId, card: &Pin) -> Json {
    Json::of(&Card { agent_id: agent, digest: hex(&card.digest) })
}

/// What there is to tell of a task as it is now.
pub(crate) fn told(task: &PeerTask, told: Told) -> Option<Entry> {
    let PeerTask { run, peer_task_id, peer_context_id, native_status, .. } = task;
    let (task_run_id, peer_task_id) = (*run, peer_task_id.as_deref());
    let (peer_context_id, native_status) = (peer_context_id.as_deref(), native_status.as_deref());
    match told {
        Told::Linked => {
            let row = Linked { task_run_id, peer_task_id, peer_context_id, native_status };
            Some((EventKind::ChannelPeerTaskLinked, Json::of(&row)))
        }
        Told::Updated => {
            Some((EventKind::ChannelPeerTaskUpdated, Json::of(&Updated { task_run_id, peer_task_id, native_status })))
        }
        Told::Nothing => None,
    }
}
