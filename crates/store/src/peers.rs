//! Outside A2A agents and the tasks they execute for runs.

use std::time::Duration;

use attache_protocol::{AgentId, Json, RunId, RuntimeId, TenantId, Timestamp, rules::run::WorkerRef};

use crate::{
    Result, WriteContext,
    record::{
        AgentRef, RuntimeRecord,
        peer::{NewPeer, NewPeerTask, PeerRecord, PeerTask, PeerTaskChange, PinnedCard},
    },
    store_part::store_part,
};

store_part! {
    /// The rules of [`crate::Store`] apply here too. An agent is a peer or has devices, never both: for a peer, pairing and
    /// attaching are refused with `IsPeer` (after every other error, and the code stays usable), and `set_peer` is refused
    /// with `IsPaired` while the agent has a device or its own key. A runtime of [`crate::record::RuntimeKind::Hub`]
    /// is neither.
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `set_peer` | `peer.set {"agent_id","url"}`, also when nothing changes |
    /// | `pin_card` | `peer.pinned {"agent_id","digest"}` |
    /// | `offer_card` | `peer.card_changed {"agent_id","digest"}`, when this card was not offered before |
    /// | `trust_card` | `peer.trusted {"agent_id","digest"}` |
    /// | `link_peer_task` | `channel.peer_task.linked {"task_run_id","peer_task_id","peer_context_id","native_status"}` when the peer's id becomes known; else `channel.peer_task.updated {"task_run_id","peer_task_id","native_status"}` when its state is another |
    ///
    /// The rows of `link_peer_task` carry the run's id and its next run seq, like `task.*` rows. A stale epoch is refused
    /// and recorded as in [`crate::Store::progress`]; `call` is `peer_task`. Digests are in hex.
    ///
    /// A hint [`crate::WakeHint::Peers`] follows `set_peer`, `trust_card` and the archiving of a peer, for the bridge
    /// to peers.
    pub trait PeerStore, layer PeerStoreLayer, call PeerCall {
        /// Makes an account a peer, or changes one. Another URL drops everything known about the old one. The same URL
        /// keeps its cards and clears its problem. Errors, in this order: `AgentArchived`, `IsPaired`.
        async fn set_peer(&self, context: WriteContext, agent: AgentRef, peer: NewPeer) -> Result<PeerRecord>;

        /// `None` for an account that isn't a peer; `NotFound` for an unknown one.
        async fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>>;

        /// The peers of every tenant whose accounts aren't archived, in the order in which they became peers.
        async fn peers(&self) -> Result<Vec<(TenantId, PeerRecord)>>;

        /// Trusts the first card read from `url`, and clears the problem. If this card is already pinned, nothing else
        /// changes; if another one is, `CardPinned`. `NotFound` unless the agent is a peer at this URL.
        async fn pin_card(&self, context: WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord>;

        /// Records a card read from `url` that must not be used yet, and why. The pinned card changes nothing; a card
        /// offered before changes only the problem. `NotFound` unless the agent is a peer at this URL.
        async fn offer_card(
            &self,
            context: WriteContext,
            agent: AgentId,
            url: &str,
            card: PinnedCard,
            problem: &str,
        ) -> Result<PeerRecord>;

        /// Pins the offered card, now, and clears the problem. `NothingOffered` if there is none, `VersionChanged` if it
        /// isn't the card that was reviewed.
        async fn trust_card(&self, context: WriteContext, agent: AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord>;

        /// Sets or clears the reason why the peer can't be used at the moment. Not logged.
        async fn note_peer(&self, agent: AgentId, problem: Option<String>) -> Result<()>;

        /// Records what is about to be sent to the peer, before it is sent. A run has one such task, whatever its attempts:
        /// an existing one is returned unchanged, so that nothing is sent twice. Renews the claim.
        async fn begin_peer_task(
            &self,
            by: WorkerRef,
            run: RunId,
            task: NewPeerTask,
            lease: Duration,
            at: Timestamp,
        ) -> Result<PeerTask>;

        /// Records the peer's answer. `PeerTaskDiffers` if it names a different task or context than before; then nothing
        /// changes. `NotFound` for a run that wasn't sent. Renews the claim.
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

        /// The newest one with this id at the peer.
        async fn peer_task_by_id(&self, agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>>;

        /// The tasks of runs that haven't ended, in the order they were started.
        async fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>>;

        /// The extensions an active runtime supports: a JSON array, or none. Not logged. A hint
        /// [`crate::WakeHint::Runtime`] follows a change. `RuntimeEnded` if the runtime isn't active.
        async fn declare_extensions(&self, runtime: RuntimeId, extensions: Option<Json>) -> Result<RuntimeRecord>;
    }
}
