//! Outside A2A agents and the tasks that they do for runs.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{AgentId, Json, RunId, RuntimeId, TenantId, Timestamp, rules::run::WorkerRef};

use crate::{
    Result, WriteContext,
    record::{
        AgentRef, RuntimeRecord,
        peer::{NewPeer, NewPeerTask, PeerRecord, PeerTask, PeerTaskChange, PinnedCard},
    },
};

/// The rules of [`crate::Store`] hold here too. An agent is a peer or has devices, never both: pairing and attaching are
/// refused with `IsPeer` once it is one (after every other error, and the code stays usable), and `set_peer` with
/// `IsPaired` while a device or an agent's own key works for it. A runtime of [`crate::record::RuntimeKind::Hub`] is
/// neither.
///
/// | method | log rows |
/// |---|---|
/// | `set_peer` | `peer.set {"agent_id","url"}`, also when nothing changes |
/// | `pin_card` | `peer.pinned {"agent_id","digest"}` |
/// | `offer_card` | `peer.card_changed {"agent_id","digest"}`, when this card was not offered before |
/// | `trust_card` | `peer.trusted {"agent_id","digest"}` |
/// | `link_peer_task` | `channel.peer_task.linked {"task_run_id","peer_task_id","peer_context_id","native_status"}` when the peer's id becomes known; else `channel.peer_task.updated {"task_run_id","peer_task_id","native_status"}` when its state is another |
///
/// The rows of `link_peer_task` carry the run's id and its next run seq, as `task.*` do. A stale epoch is refused and
/// recorded as in [`crate::Store::progress`]; `call` is `peer_task`. Digests are in hex.
///
/// A hint [`crate::Woken::PeerStore`] follows `set_peer`, `trust_card` and the archiving of a peer: what others decide and the
/// bridge to peers acts upon.
#[async_trait]
pub trait PeerStore: Send + Sync {
    /// Makes an account a peer, or changes one. Another url drops everything that was known of the old one; the same one
    /// keeps its cards and forgets its problem. Errors, in this order: `AgentArchived`, `IsPaired`.
    async fn set_peer(&self, context: WriteContext, agent: AgentRef, peer: NewPeer) -> Result<PeerRecord>;

    /// `None` for an account that is none; `NotFound` for an unknown one.
    async fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>>;

    /// Those of every tenant whose accounts are not archived, in the order in which they became peers.
    async fn peers(&self) -> Result<Vec<(TenantId, PeerRecord)>>;

    /// Trusts the first card that was read from `url`, and forgets its problem. The card that is pinned already changes
    /// nothing else, another one is `CardPinned`. `NotFound` unless the agent is a peer at this url.
    async fn pin_card(&self, context: WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord>;

    /// A card that was read from `url` and must not be used yet, and why. The pinned card itself changes nothing, one that
    /// was offered before only the problem. `NotFound` unless the agent is a peer at this url.
    async fn offer_card(
        &self,
        context: WriteContext,
        agent: AgentId,
        url: &str,
        card: PinnedCard,
        problem: &str,
    ) -> Result<PeerRecord>;

    /// The offered card becomes the pinned one, now, and the problem is forgotten. `NothingOffered` if there is none,
    /// `VersionChanged` if it is another than the one that was looked at.
    async fn trust_card(&self, context: WriteContext, agent: AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord>;

    /// Why the peer cannot be worked with at the moment, or that it can. Not logged.
    async fn note_peer(&self, agent: AgentId, problem: Option<String>) -> Result<()>;

    /// Notes what is about to be sent to the peer, before it is sent. A run has one such task, whatever its attempts: the
    /// one that is there already is given back as it is, so that nothing is sent twice. Renews the claim.
    async fn begin_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        task: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask>;

    /// What the peer said. `PeerTaskDiffers` for another task or context than it named before; that changes nothing.
    /// `NotFound` for a run that was not sent. Renews the claim.
    async fn link_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask>;

    /// `NotFound` for an unknown run.
    async fn peer_task(&self, tenant: TenantId, run: RunId) -> Result<Option<PeerTask>>;

    /// The newest one that has this id at the peer.
    async fn peer_task_by_id(&self, agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>>;

    /// Those of runs that have not ended, in the order in which they were begun.
    async fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>>;

    /// What an active runtime says it understands: a JSON array, or nothing. Not logged. A hint
    /// [`crate::Woken::Runtime`] follows a change. `RuntimeEnded` if the runtime is not active.
    async fn declare_extensions(&self, runtime: RuntimeId, extensions: Option<Json>) -> Result<RuntimeRecord>;
}
