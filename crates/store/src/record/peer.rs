//! Outside A2A agents that accounts stand for, and the tasks that they do for our runs.

use attache_protocol::{AgentId, Json, RunId, Timestamp, rules::recovery::Recovery};

/// What makes an account an outside agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRecord {
    pub agent: AgentId,
    pub url: String,
    /// The credential for it, sealed by the hub: the store never sees it.
    pub sealed: Option<Vec<u8>>,
    /// The card that its owner or the first use made the trusted one.
    pub pin: Option<PinnedCard>,
    /// A card that is not the trusted one and waits for the owner's trust.
    pub offered: Option<PinnedCard>,
    /// Why it cannot be worked with at the moment.
    pub problem: Option<String>,
}

/// A card, as its agent served it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedCard {
    pub digest: [u8; 32],
    pub card: Json,
    /// When it was pinned or, of an offered one, first seen.
    pub pinned_at: Timestamp,
}

/// What to make of an account. The url is as it will be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPeer {
    pub url: String,
    /// `None` leaves the credential as it is, but never takes it along to another url.
    pub sealed: Option<Option<Vec<u8>>>,
}

/// The task of a peer that does one of our runs. Both ids live side by side: neither stands for the other.
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
    /// When something of it changed last.
    pub updated_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPeerTask {
    pub url: String,
    pub message_id: String,
}

/// What the peer said; `None` leaves a member as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerTaskChange {
    pub peer_task_id: Option<String>,
    pub peer_context_id: Option<String>,
    pub native_status: Option<String>,
    pub recovery: Option<Option<Recovery>>,
}

/// What an engine does with a change, besides keeping the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerTaskLogEffect {
    Linked,
    Updated,
    Nothing,
}

// === impl PeerRecord ===

impl PeerRecord {
    pub(crate) fn new(agent: AgentId, new: NewPeer) -> Self {
        let NewPeer { url, sealed } = new;
        Self { agent, url, sealed: sealed.flatten(), pin: None, offered: None, problem: None }
    }

    /// The peer as it is from now on. Nothing that was trusted or told to one url holds for another.
    pub(crate) fn set(self, new: NewPeer) -> Self {
        if new.url != self.url {
            return Self::new(self.agent, new);
        }
        Self { sealed: new.sealed.unwrap_or(self.sealed), problem: None, ..self }
    }
}

// === impl PeerTask ===

impl PeerTask {
    /// The task as the peer tells of it now, and what that is worth telling. `None` if it names another task or context
    /// than before.
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

/// An id that stays what it is once it is known. `None` if it would not.
#[allow(clippy::option_option, reason = "the outer one refuses, the inner one does not know yet")]
fn known_or(known: &Option<String>, said: Option<String>) -> Option<Option<String>> {
    match (known, said) {
        (Some(known), Some(said)) if *known != said => None,
        (Some(known), _) => Some(Some(known.clone())),
        (None, said) => Some(said),
    }
}
