//! Outside A2A agents.

use std::time::Duration;

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{AgentId, Json, RunId, RuntimeId, TenantId, Timestamp, UserId, rules::run::WorkerRef};
use rusqlite::params;

use super::{
    SqlStore, agents, peer_tasks,
    rows::{self, IdBytes},
    runtimes,
    writer::{UndoMode, WriteTransaction},
};
use crate::{
    Error, PeerStore, Result, WakeHint, WriteContext, entry,
    record::{
        AgentRef, RuntimeKind, RuntimeRecord,
        peer::{NewPeer, NewPeerTask, PeerRecord, PeerTask, PeerTaskChange, PinnedCard},
    },
};

/// The columns that [`peer`] reads, with their table.
const PEER: &str = "p.agent, p.url, p.sealed, p.pin_digest, p.pin_card, p.pinned, p.offered_digest, p.offered_card, \
     p.offered, p.problem, p.tenant, p.set_by from peers p";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn set_peer(&mut self, context: &WriteContext, agent: &AgentRef, new: NewPeer) -> Result<PeerRecord> {
        let account = self.account(context.tenant, agent)?;
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        if account.runtime.is_some_and(|runtime| runtime.kind != RuntimeKind::Hub) {
            return Err(Error::IsPaired);
        }
        let peer = match read_peer(self.connection, account.id)? {
            Some(known) => known.set(new),
            None => PeerRecord::new(account.id, new),
        };
        self.connection.execute(
            "insert into peers (agent, tenant, url) values (?1, ?2, ?3) on conflict (agent) do nothing",
            params![IdBytes(account.id.uuid()), IdBytes(context.tenant.uuid()), peer.url],
        )?;
        self.put_peer(&peer)?;
        self.log(context.tenant, context.stamp(), &entry::peer::set(&peer), None)?;
        self.woken.push(WakeHint::Peers);
        Ok(peer)
    }

    /// Makes the agent an ordinary one again, if anyone but `owner` made it stand for an outside agent.
    pub(super) fn remove_peer_of_others(&mut self, agent: AgentId, owner: Option<UserId>) -> Result<bool> {
        let owner = owner.map(|owner| IdBytes(owner.uuid()));
        let removed = self.connection.execute(
            "delete from peers where agent = ?1 and (set_by is distinct from ?2 or ?2 is null)",
            params![IdBytes(agent.uuid()), owner],
        )?;
        if removed > 0 {
            self.woken.push(WakeHint::Peers);
        }
        Ok(removed > 0)
    }

    /// An outside agent can't be paired with a device.
    pub(super) fn no_peer(&self, agent: AgentId) -> Result<()> {
        if self.is_peer(agent)? { Err(Error::IsPeer) } else { Ok(()) }
    }

    pub(super) fn is_peer(&self, agent: AgentId) -> Result<bool> {
        let mut found = self.connection.prepare_cached("select 1 from peers where agent = ?1")?;
        Ok(found.exists([IdBytes(agent.uuid())])?)
    }

    /// A peer of the tenant that currently has this URL.
    fn peer_at(&self, tenant: TenantId, agent: AgentId, url: &str) -> Result<PeerRecord> {
        agents::read_account(self.connection, tenant, &AgentRef::Id(agent))?;
        read_peer(self.connection, agent)?.filter(|peer| peer.url == url).ok_or(Error::NotFound)
    }

    fn pin_card(&mut self, context: &WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord> {
        let peer = PeerRecord { problem: None, ..self.peer_at(context.tenant, agent, url)? };
        match &peer.pin {
            Some(pin) if pin.digest != card.digest => Err(Error::CardPinned),
            Some(_) => {
                self.put_peer(&peer)?;
                Ok(peer)
            }
            None => {
                let pinned = entry::peer::pinned(agent, &card);
                let peer = PeerRecord { pin: Some(card), ..peer };
                self.put_peer(&peer)?;
                self.log(context.tenant, context.stamp(), &pinned, None)?;
                Ok(peer)
            }
        }
    }

    fn offer_card(
        &mut self,
        context: &WriteContext,
        agent: AgentId,
        url: &str,
        card: PinnedCard,
        problem: String,
    ) -> Result<PeerRecord> {
        let peer = self.peer_at(context.tenant, agent, url)?;
        let is = |known: &Option<PinnedCard>| known.as_ref().is_some_and(|known| known.digest == card.digest);
        if is(&peer.pin) {
            return Ok(peer);
        }
        let known = is(&peer.offered);
        let peer = PeerRecord { problem: Some(problem), ..peer };
        if known {
            self.put_peer(&peer)?;
            return Ok(peer);
        }
        let changed = entry::peer::card_changed(agent, &card);
        let peer = PeerRecord { offered: Some(card), ..peer };
        self.put_peer(&peer)?;
        self.log(context.tenant, context.stamp(), &changed, None)?;
        Ok(peer)
    }

    fn trust_card(&mut self, context: &WriteContext, agent: &AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord> {
        let account = self.account(context.tenant, agent)?;
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        let peer = read_peer(self.connection, account.id)?.ok_or(Error::NotFound)?;
        let Some(offered) = peer.offered else { return Err(Error::NothingOffered) };
        if seen.is_some_and(|seen| seen != offered.digest) {
            return Err(Error::VersionChanged);
        }
        let card = PinnedCard { pinned_at: context.at, ..offered };
        let trusted = entry::peer::trusted(account.id, &card);
        let peer = PeerRecord { pin: Some(card), offered: None, problem: None, ..peer };
        self.put_peer(&peer)?;
        self.log(context.tenant, context.stamp(), &trusted, None)?;
        self.woken.push(WakeHint::Peers);
        Ok(peer)
    }

    fn note_peer(&self, agent: AgentId, problem: Option<&str>) -> Result<()> {
        let changed = self
            .connection
            .prepare_cached("update peers set problem = ?2 where agent = ?1")?
            .execute(params![IdBytes(agent.uuid()), problem])?;
        if changed == 0 { Err(Error::NotFound) } else { Ok(()) }
    }

    /// Stores an existing peer.
    fn put_peer(&self, peer: &PeerRecord) -> Result<()> {
        let (pin, offered) = (peer.pin.as_ref(), peer.offered.as_ref());
        self.connection
            .prepare_cached(
                "update peers set url = ?2, sealed = ?3, pin_digest = ?4, pin_card = ?5, pinned = ?6,
                    offered_digest = ?7, offered_card = ?8, offered = ?9, problem = ?10, set_by = ?11
                 where agent = ?1",
            )?
            .execute(params![
                IdBytes(peer.agent.uuid()),
                peer.url,
                peer.sealed,
                pin.map(|pin| pin.digest),
                pin.map(|pin| pin.card.get()),
                pin.map(|pin| pin.pinned_at.millis()),
                offered.map(|offered| offered.digest),
                offered.map(|offered| offered.card.get()),
                offered.map(|offered| offered.pinned_at.millis()),
                peer.problem,
                peer.set_by.map(|user| IdBytes(user.uuid())),
            ])?;
        Ok(())
    }

    fn declare_extensions(&mut self, id: RuntimeId, extensions: Option<&Json>) -> Result<RuntimeRecord> {
        self.working(id)?;
        let changed = self
            .connection
            .prepare_cached(
                "update agent_runtimes set extensions = ?2 where id = ?1 and extensions is distinct from ?2",
            )?
            .execute(params![IdBytes(id.uuid()), extensions.map(Json::get)])?;
        let runtime = runtimes::any_runtime(self.connection, id)?;
        if changed > 0 {
            self.woken.push(WakeHint::Runtime(runtime.agent));
        }
        Ok(runtime)
    }
}

fn read_peer(connection: &Connection, agent: AgentId) -> Result<Option<PeerRecord>> {
    Ok(connection
        .prepare_cached(&format!("select {PEER} where p.agent = ?1"))?
        .query_row([IdBytes(agent.uuid())], peer)
        .optional()?)
}

fn living_peers(connection: &Connection) -> Result<Vec<(TenantId, PeerRecord)>> {
    Ok(connection
        .prepare_cached(&format!(
            "select {PEER} cross join agent_accounts a on a.id = p.agent where a.archived is null order by p.no"
        ))?
        .query_map((), |row| Ok((rows::tenant_id(row.get(10)?), peer(row)?)))?
        .collect::<rusqlite::Result<_>>()?)
}

/// Reads [`PEER`].
fn peer(row: &Row<'_>) -> rusqlite::Result<PeerRecord> {
    Ok(PeerRecord {
        agent: rows::agent_id(row.get(0)?),
        url: row.get(1)?,
        sealed: row.get(2)?,
        pin: pin(row, 3)?,
        offered: pin(row, 6)?,
        problem: row.get(9)?,
        set_by: rows::maybe_user(row, 11)?,
    })
}

fn pin(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<PinnedCard>> {
    let Some(digest) = row.get(first)? else { return Ok(None) };
    Ok(Some(PinnedCard { digest, card: rows::json(row, first + 1)?, pinned_at: rows::time(row, first + 2)? }))
}

// === impl SqlStore ===

#[async_trait]
impl PeerStore for SqlStore {
    async fn set_peer(&self, context: WriteContext, agent: AgentRef, peer: NewPeer) -> Result<PeerRecord> {
        self.write(move |transaction| transaction.set_peer(&context, &agent, peer)).await
    }

    async fn peer(&self, tenant: TenantId, agent: AgentId) -> Result<Option<PeerRecord>> {
        self.read(move |connection| {
            agents::read_account(connection, tenant, &AgentRef::Id(agent))?;
            read_peer(connection, agent)
        })
        .await
    }

    async fn peers(&self) -> Result<Vec<(TenantId, PeerRecord)>> {
        self.read(living_peers).await
    }

    async fn pin_card(&self, context: WriteContext, agent: AgentId, url: &str, card: PinnedCard) -> Result<PeerRecord> {
        let url = url.to_owned();
        self.write(move |transaction| transaction.pin_card(&context, agent, &url, card)).await
    }

    async fn offer_card(
        &self,
        context: WriteContext,
        agent: AgentId,
        url: &str,
        card: PinnedCard,
        problem: &str,
    ) -> Result<PeerRecord> {
        let (url, problem) = (url.to_owned(), problem.to_owned());
        self.write(move |transaction| transaction.offer_card(&context, agent, &url, card, problem)).await
    }

    async fn trust_card(&self, context: WriteContext, agent: AgentRef, seen: Option<[u8; 32]>) -> Result<PeerRecord> {
        self.write(move |transaction| transaction.trust_card(&context, &agent, seen)).await
    }

    async fn note_peer(&self, agent: AgentId, problem: Option<String>) -> Result<()> {
        self.write(move |transaction| transaction.note_peer(agent, problem.as_deref())).await
    }

    async fn begin_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        task: NewPeerTask,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        self.settle(UndoMode::Savepoint, move |transaction| transaction.begin_peer_task(by, run, task, lease, at)).await
    }

    async fn link_peer_task(
        &self,
        by: WorkerRef,
        run: RunId,
        change: PeerTaskChange,
        lease: Duration,
        at: Timestamp,
    ) -> Result<PeerTask> {
        self.settle(UndoMode::Savepoint, move |transaction| transaction.link_peer_task(by, run, change, lease, at))
            .await
    }

    async fn peer_task(&self, tenant: TenantId, run: RunId) -> Result<Option<PeerTask>> {
        self.read(move |connection| peer_tasks::of_run(connection, tenant, run)).await
    }

    async fn peer_task_by_id(&self, agent: AgentId, peer_task_id: &str) -> Result<Option<PeerTask>> {
        let id = peer_task_id.to_owned();
        self.read(move |connection| peer_tasks::by_id(connection, agent, &id)).await
    }

    async fn open_peer_tasks(&self, agent: AgentId) -> Result<Vec<PeerTask>> {
        self.write(move |transaction| transaction.open_peer_tasks(agent)).await
    }

    async fn declare_extensions(&self, runtime: RuntimeId, extensions: Option<Json>) -> Result<RuntimeRecord> {
        self.write(move |transaction| transaction.declare_extensions(runtime, extensions.as_ref())).await
    }
}
