//! Outside A2A agents and the tasks they execute for runs.

use std::time::Duration;

use async_trait::async_trait;
use attache_protocol::{
    AgentId, Json, RunId, RuntimeId, TenantId, Timestamp, UserId,
    rules::run::{RunCommand, WorkerRef},
};

use super::{MemoryStore, state::ModelState};
use crate::{
    Error, PeerStore, Result, WakeHint, WriteContext,
    entry::{self, call},
    record::{
        AgentRef, RuntimeKind, RuntimeRecord,
        peer::{NewPeer, NewPeerTask, PeerRecord, PeerTask, PeerTaskChange, PinnedCard},
    },
};

// === impl ModelState ===

impl ModelState {
    fn set_peer(&mut self, context: &WriteContext, agent: &AgentRef, new: NewPeer) -> Result<PeerRecord> {
        let agent = self.living_agent(context.tenant, agent)?.id;
        if self.active_runtime(agent).is_some_and(|runtime| self.runtimes[&runtime].kind != RuntimeKind::Hub) {
            return Err(Error::IsPaired);
        }
        let peer = match self.peers.get_mut(&agent) {
            Some(known) => {
                *known = known.clone().set(new);
                known.clone()
            }
            None => {
                let peer = PeerRecord::new(agent, new);
                self.peers.insert(agent, peer.clone());
                peer
            }
        };
        self.append(context.tenant, context.at, &context.actor, entry::peer::set(&peer));
        self.woken.push(WakeHint::Peers);
        Ok(peer)
    }

    fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>> {
        self.agent(tenant, &AgentRef::Id(agent))?;
        Ok(self.peers.get(&agent).cloned())
    }

    /// Makes the agent an ordinary one again, if anyone but `owner` made it stand for an outside agent.
    pub(super) fn remove_peer_of_others(&mut self, agent: AgentId, owner: Option<UserId>) -> bool {
        let is_others = self.peers.get(&agent).is_some_and(|peer| owner.is_none() || peer.set_by != owner);
        if is_others {
            self.peers.remove(&agent);
            self.woken.push(WakeHint::Peers);
        }
        is_others
    }

    /// An outside agent can't be paired with a device.
    pub(super) fn no_peer(&self, agent: AgentId) -> Result<()> {
        if self.peers.get(&agent).is_some() { Err(Error::IsPeer) } else { Ok(()) }
    }

    fn all_peers(&self) -> Vec<(TenantId, PeerRecord)> {
        let account = |peer: &PeerRecord| &self.accounts[&peer.agent];
        let living = self.peers.values().filter(|peer| account(peer).archived_at.is_none());
        living.map(|peer| (account(peer).tenant, peer.clone())).collect()
    }

    /// A peer of the tenant that currently has this URL.
    fn peer_at(&mut self, tenant: TenantId, agent: AgentId, url: &str) -> Result<&mut PeerRecord> {
        self.agent(tenant, &AgentRef::Id(agent))?;
        self.peers.get_mut(&agent).filter(|peer| peer.url == url).ok_or(Error::NotFound)
    }

    fn pin_card(&mut self, context: &WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord> {
        let peer = self.peer_at(context.tenant, agent, url)?;
        let is_new = match &peer.pin {
            Some(pin) if pin.digest != card.digest => return Err(Error::CardPinned),
            Some(_) => false,
            None => true,
        };
        peer.problem = None;
        let entry = entry::peer::pinned(agent, &card);
        if is_new {
            peer.pin = Some(card);
        }
        let peer = peer.clone();
        if is_new {
            self.append(context.tenant, context.at, &context.actor, entry);
        }
        Ok(peer)
    }

    fn offer_card(
        &mut self,
        context: &WriteContext,
        agent: AgentId,
        url: &str,
        card: PinnedCard,
        problem: &str,
    ) -> Result<PeerRecord> {
        let peer = self.peer_at(context.tenant, agent, url)?;
        if peer.pin.as_ref().is_some_and(|pin| pin.digest == card.digest) {
            return Ok(peer.clone());
        }
        peer.problem = Some(problem.to_owned());
        if peer.offered.as_ref().is_some_and(|offered| offered.digest == card.digest) {
            return Ok(peer.clone());
        }
        let entry = entry::peer::card_changed(agent, &card);
        peer.offered = Some(card);
        let peer = peer.clone();
        self.append(context.tenant, context.at, &context.actor, entry);
        Ok(peer)
    }

    fn trust_card(&mut self, context: &WriteContext, agent: &AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord> {
        let agent = self.living_agent(context.tenant, agent)?.id;
        let peer = self.peers.get_mut(&agent).ok_or(Error::NotFound)?;
        let offered = peer.offered.as_ref().ok_or(Error::NothingOffered)?;
        if seen.is_some_and(|seen| seen != offered.digest) {
            return Err(Error::VersionChanged);
        }
        let card = PinnedCard { pinned_at: context.at, ..offered.clone() };
        let entry = entry::peer::trusted(agent, &card);
        *peer = PeerRecord { pin: Some(card), offered: None, problem: None, ..peer.clone() };
        let peer = peer.clone();
        self.append(context.tenant, context.at, &context.actor, entry);
        self.woken.push(WakeHint::Peers);
        Ok(peer)
    }

    fn note_peer(&mut self, agent: AgentId, problem: Option<String>) -> Result<()> {
        self.peers.get_mut(&agent).ok_or(Error::NotFound)?.problem = problem;
        Ok(())
    }

    fn begin_peer_task(
        &mut self,
        by: WorkerRef,
        run: RunId,
        new: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        let place = self.work(by, run)?;
        let renewed = self.judge_worker(place, &RunCommand::Progress { by, lease }, by, call::PEER_TASK, at)?;
        let record = &mut self.runs[place].record;
        record.state = renewed.state;
        if let Some(known) = self.peer_tasks.get(&run) {
            return Ok(known.clone());
        }
        let NewPeerTask { url, message_id } = new;
        let task = PeerTask {
            run,
            agent: record.agent,
            epoch: record.state.epoch,
            url,
            message_id,
            peer_task_id: None,
            peer_context_id: None,
            native_status: None,
            recovery: None,
            sent_at: at,
            updated_at: at,
        };
        self.peer_tasks.insert(run, task.clone());
        Ok(task)
    }

    fn link_peer_task(
        &mut self,
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        let place = self.work(by, run)?;
        let renewed = self.judge_worker(place, &RunCommand::Progress { by, lease }, by, call::PEER_TASK, at)?;
        let before = self.peer_tasks.get_mut(&run).ok_or(Error::NotFound)?;
        let (task, told) = before.changed(change, at).ok_or(Error::PeerTaskDiffers)?;
        *before = task.clone();
        self.runs[place].record.state = renewed.state;
        if let Some(entry) = entry::peer::peer_task_changed(&task, told) {
            self.append_for(place, at, &entry::runtime_actor(by.runtime), entry);
        }
        Ok(task)
    }

    fn peer_task(&self, tenant: TenantId, run: RunId) -> Result<Option<PeerTask>> {
        self.place(tenant, run)?;
        Ok(self.peer_tasks.get(&run).cloned())
    }

    fn peer_task_by_id(&self, agent: AgentId, id: &str) -> Option<PeerTask> {
        let named = |task: &&PeerTask| task.agent == agent && task.peer_task_id.as_deref() == Some(id);
        self.peer_tasks.values().filter(named).last().cloned()
    }

    fn open_peer_tasks(&self, agent: AgentId) -> Vec<PeerTask> {
        let open = |task: &&PeerTask| {
            task.agent == agent && !self.runs[self.places[&task.run]].record.state.status().is_terminal()
        };
        self.peer_tasks.values().filter(open).cloned().collect()
    }

    fn declare_extensions(&mut self, runtime: RuntimeId, extensions: Option<Json>) -> Result<RuntimeRecord> {
        self.working(runtime)?;
        let known = self.runtimes.get_mut(&runtime).expect("it was just found");
        if known.extensions != extensions {
            known.extensions = extensions;
            self.woken.push(WakeHint::Runtime(known.agent));
        }
        Ok(known.clone())
    }
}

// === impl MemoryStore ===

#[async_trait]
impl PeerStore for MemoryStore {
    async fn set_peer(&self, context: WriteContext, agent: AgentRef, peer: NewPeer) -> Result<PeerRecord> {
        self.write(|state| state.set_peer(&context, &agent, peer))
    }

    async fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>> {
        self.read(|state| state.peer(tenant, agent))
    }

    async fn peers(&self) -> Result<Vec<(TenantId, PeerRecord)>> {
        self.read(|state| Ok(state.all_peers()))
    }

    async fn pin_card(&self, context: WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord> {
        self.write(|state| state.pin_card(&context, agent, url, card))
    }

    async fn offer_card(
        &self,
        context: WriteContext,
        agent: AgentId,
        url: &str,
        card: PinnedCard,
        problem: &str,
    ) -> Result<PeerRecord> {
        self.write(|state| state.offer_card(&context, agent, url, card, problem))
    }

    async fn trust_card(&self, context: WriteContext, agent: AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord> {
        self.write(|state| state.trust_card(&context, &agent, seen))
    }

    async fn note_peer(&self, agent: AgentId, problem: Option<String>) -> Result<()> {
        self.write(|state| state.note_peer(agent, problem))
    }

    async fn begin_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        task: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        self.write(|state| state.begin_peer_task(by, run, task, lease, at))
    }

    async fn link_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        self.write(|state| state.link_peer_task(by, run, change, lease, at))
    }

    async fn peer_task(&self, tenant: TenantId, run: RunId) -> Result<Option<PeerTask>> {
        self.read(|state| state.peer_task(tenant, run))
    }

    async fn peer_task_by_id(&self, agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>> {
        self.read(|state| Ok(state.peer_task_by_id(agent, peer_task_id)))
    }

    async fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>> {
        self.read(|state| Ok(state.open_peer_tasks(agent)))
    }

    async fn declare_extensions(&self, runtime: RuntimeId, extensions: Option<Json>) -> Result<RuntimeRecord> {
        self.write(|state| state.declare_extensions(runtime, extensions))
    }
}
