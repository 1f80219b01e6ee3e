//! Steps around outside agents: create, trust, and their tasks.

use attache_protocol::rules::recovery::Recovery;

use super::StepGenerator;
use crate::{
    PeerStore as _,
    conformance::{generator_state::LEASE, step::StoreStep},
    memory::MemoryStore,
    record::{
        NewRuntime, PairingProof, RuntimeKind,
        peer::{NewPeer, NewPeerTask, PeerRecord, PeerTaskChange, PinnedCard},
    },
};

/// Only a few of everything, so that values repeat.
const URLS: [&str; 3] = ["https://peer.example/a2a", "https://other.example/", "http://[::1]:9/日本"];
const TASKS: [&str; 3] = ["task-1", "run_of_theirs", ""];
const STATES: [&str; 4] = ["TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED", "working", "Fertig"];

// === impl StepGenerator ===

impl StepGenerator {
    /// The hub itself works for an agent, the only option for an outside one.
    pub(super) fn attach_hub(&self) -> StoreStep {
        let new = NewRuntime {
            // A device is refused.
            kind: if self.draw.percent(80) { RuntimeKind::Hub } else { RuntimeKind::Device },
            id: self.draw.env.runtime_id(),
            token: self.draw.secret(),
            proof: PairingProof::Owner { tenant: self.tenant(), agent: self.outsider() },
            paired_by: None,
            device_name: self.draw.maybe_text(),
            labels: self.draw.json(),
        };
        StoreStep::AttachRuntime(new, self.at())
    }

    pub(super) fn set_peer(&self) -> StoreStep {
        let sealed = match self.draw.below(3) {
            0 => None,
            1 => Some(None),
            _ => Some(Some(self.draw.bytes::<5>().to_vec())),
        };
        let set_by = self.draw.percent(50).then(|| self.user());
        StoreStep::SetPeer(self.context(), self.agent_ref(), NewPeer { url: self.peer_url(), sealed, set_by })
    }

    /// A card is read and pinned or offered, the owner trusts one, or it can't be read.
    pub(super) async fn peer_card(&self, model: &MemoryStore) -> StoreStep {
        let agent = self.outsider();
        let peer = model.peer(self.tenant, agent).await.ok().flatten();
        let url = match &peer {
            Some(peer) if self.draw.percent(90) => peer.url.clone(),
            Some(_) | None => self.peer_url(),
        };
        let waits = peer.as_ref().is_some_and(|peer| peer.offered.is_some());
        match self.draw.below(100) {
            _ if waits && self.draw.percent(25) => {
                let seen = peer.and_then(|peer| peer.offered).map(|offered| offered.digest);
                StoreStep::TrustCard(self.context(), agent.into(), seen.filter(|_| self.draw.percent(70)))
            }
            0..35 => StoreStep::PinCard(self.context(), agent, url, self.card(peer.as_ref())),
            35..65 => StoreStep::OfferCard(self.context(), agent, url, self.card(peer.as_ref()), self.draw.text()),
            65..85 => {
                let offered = peer.and_then(|peer| peer.offered).map(|offered| offered.digest);
                let seen = if self.draw.percent(25) { Some(self.draw.bytes()) } else { offered };
                StoreStep::TrustCard(self.context(), agent.into(), seen.filter(|_| self.draw.percent(85)))
            }
            _ => StoreStep::NotePeer(agent, self.draw.maybe_text()),
        }
    }

    pub(super) async fn begin_peer_task(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        let task = NewPeerTask { url: self.peer_url(), message_id: self.draw.text() };
        StoreStep::BeginPeerTask { by, run, task, lease: LEASE, at: self.at() }
    }

    pub(super) async fn link_peer_task(&self, model: &MemoryStore) -> StoreStep {
        let (by, run) = self.worker(model).await;
        let some =
            |words: &[&str]| self.draw.percent(50).then(|| self.draw.one_of(words).unwrap_or_default().to_owned());
        // Usually the same id as before: another one is a mistake of the peer.
        let known = model.peer_task(self.tenant, run).await.ok().flatten();
        if known.is_none() && self.draw.percent(70) {
            let task = NewPeerTask { url: self.peer_url(), message_id: self.draw.text() };
            return StoreStep::BeginPeerTask { by, run, task, lease: LEASE, at: self.at() };
        }
        let again = |said: Option<String>| said.filter(|_| !self.draw.percent(50));
        let task = known.as_ref().and_then(|known| again(known.peer_task_id.clone()));
        let context = known.as_ref().and_then(|known| again(known.peer_context_id.clone()));
        let change = PeerTaskChange {
            peer_task_id: task.or_else(|| some(&TASKS)),
            peer_context_id: context.or_else(|| some(&TASKS)),
            native_status: some(&STATES),
            recovery: self.draw.percent(40).then(|| self.draw.one_of(&Recovery::ALL).filter(|_| self.draw.percent(80))),
        };
        StoreStep::LinkPeerTask { by, run, change, lease: LEASE, at: self.at() }
    }

    pub(super) fn read_peers(&self) -> StoreStep {
        match self.draw.below(5) {
            0 => StoreStep::Peer(self.tenant(), self.outsider()),
            1 => StoreStep::Peers,
            2 => StoreStep::PeerTask(self.tenant(), self.run()),
            3 => StoreStep::PeerTaskById(self.agent(), self.draw.one_of(&TASKS).unwrap_or_default().to_owned()),
            _ => StoreStep::OpenPeerTasks(self.agent()),
        }
    }

    pub(super) async fn declare_extensions(&self, model: &MemoryStore) -> StoreStep {
        StoreStep::DeclareExtensions(self.some_runtime(model).await, self.draw.maybe_json())
    }

    fn peer_url(&self) -> String {
        self.draw.one_of(&URLS).unwrap_or_default().to_owned()
    }

    fn outsider(&self) -> attache_protocol::AgentId {
        let known = self.draw.recent(&self.known.outsiders).filter(|_| !self.draw.percent(8));
        known.unwrap_or_else(|| self.agent())
    }

    /// A new card, or a known one.
    fn card(&self, peer: Option<&PeerRecord>) -> PinnedCard {
        let known = match self.draw.below(4) {
            0 => peer.and_then(|peer| peer.pin.clone()),
            1 => peer.and_then(|peer| peer.offered.clone()),
            _ => None,
        };
        known.unwrap_or_else(|| PinnedCard { digest: self.draw.bytes(), card: self.draw.json(), pinned_at: self.at() })
    }
}
