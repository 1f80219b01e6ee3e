//! Outside A2A agents that accounts stand for, and the tasks they execute for our runs.

use attache_protocol::{AgentId, Json, RunId, Timestamp, UserId, rules::recovery::Recovery};

/// The data of an outside agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRecord {
    pub agent: AgentId,
    pub url: String,
    /// Its credential, sealed by the hub. The store never sees it in plain text.
    pub sealed: Option<Vec<u8>>,
    /// The trusted card, pinned by its owner or on first use.
    pub pin: Option<PinnedCard>,
    /// A different card that waits for the owner's trust.
    pub offered: Option<PinnedCard>,
    /// Why it can't be used at the moment.
    pub problem: Option<String>,
    /// The user who set it last, with a credential of their own. `None` if unknown.
    pub set_by: Option<UserId>,
}

/// A card, as its agent served it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedCard {
    pub digest: [u8; 32],
    pub card: Json,
    /// When it was pinned or, if offered, first seen.
    pub pinned_at: Timestamp,
}

/// Makes an account an outside agent. The URL is used exactly as given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPeer {
    pub url: String,
    /// `None` keeps the credential, but never carries it over to another URL.
    pub sealed: Option<Option<Vec<u8>>>,
    /// The user who sets it, unless someone else issued their credential.
    pub set_by: Option<UserId>,
}

/// The task of a peer that executes one of our runs. Both ids exist side by side; neither replaces the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTask {
    pub run: RunId,
    pub agent: AgentId,
    /// The epoch of the claim that sent it.
    pub epoch: i64,
    /// Where it was sent.
    pub url: String,
    /// The id of our message that asked for it.
    pub message_id: String,
    pub peer_task_id: Option<String>,
    pub peer_context_id: Option<String>,
    /// Its state, in the peer's own words.
    pub native_status: Option<String>,
    pub recovery: Option<Recovery>,
    pub sent_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPeerTask {
    pub url: String,
    pub message_id: String,
}

/// The peer's report. `None` leaves a member as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerTaskChange {
    pub peer_task_id: Option<String>,
    pub peer_context_id: Option<String>,
    pub native_status: Option<String>,
    pub recovery: Option<Option<Recovery>>,
}

/// What an engine logs for a change, besides storing the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerTaskLogEffect {
    Linked,
    Updated,
    Nothing,
}

// === impl PeerRecord ===

impl PeerRecord {
    pub(crate) fn new(agent: AgentId, new: NewPeer) -> Self {
        let NewPeer { url, sealed, set_by } = new;
        Self { agent, url, sealed: sealed.flatten(), pin: None, offered: None, problem: None, set_by }
    }

    /// The peer after the change. Trust and credentials of one URL don't carry over to another.
    pub(crate) fn set(self, new: NewPeer) -> Self {
        if new.url != self.url {
            return Self::new(self.agent, new);
        }
        Self { sealed: new.sealed.unwrap_or(self.sealed), problem: None, set_by: new.set_by, ..self }
    }
}

// === impl PeerTask ===

impl PeerTask {
    /// The task after the peer's report, and what to log. `None` if it names a different task or context than before.
    pub(crate) fn changed(&self, change: PeerTaskChange, at: Timestamp) -> Option<(Self, PeerTaskLogEffect)> {
        let PeerTaskChange { peer_task_id, peer_context_id, native_status, recovery } = change;
        let after = Self {
            peer_task_id: known_or(&self.peer_task_id, peer_task_id)?,
            peer_context_id: known_or(&self.peer_context_id, peer_context_id)?,
            native_status: native_status.or_else(|| self.native_status.clone()),
            recovery: recovery.unwrap_or(self.recovery),
            ..self.clone()
        };
        if after == *self {
            return Some((after, PeerTaskLogEffect::Nothing));
        }
        let told = if after.peer_task_id != self.peer_task_id {
            PeerTaskLogEffect::Linked
        } else if after.native_status != self.native_status {
            PeerTaskLogEffect::Updated
        } else {
            PeerTaskLogEffect::Nothing
        };
        Some((Self { updated_at: at, ..after }, told))
    }
}

/// An id that can't change once it is known. `None` if it would.
#[allow(clippy::option_option, reason = "the outer one refuses, the inner one does not know yet")]
fn known_or(known: &Option<String>, said: Option<String>) -> Option<Option<String>> {
    match (known, said) {
        (Some(known), Some(said)) if *known != said => None,
        (Some(known), _) => Some(Some(known.clone())),
        (None, said) => Some(said),
    }
}
