//! Cache of agents and runtimes for the hot writes: they change rarely, and every run needs both.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::connection::{Connection, OptionalExtension as _};
use attache_protocol::{
    AgentId, ChannelId, RuntimeId, TenantId, UserId, secret::SecretHash, wire::runtime::RuntimeState,
};

use super::{
    cache::MemoryChanges,
    frames::{HEAD, LAST_EVENT},
    rows::{self, IdBytes},
};
use crate::{Error, Result};

/// How many channels are remembered.
const MAX_CACHED_CHANNELS: usize = 50_000;

/// Filled on demand. Cleared by every change of an agent or a runtime, and by every rollback.
#[derive(Debug, Default)]
pub(super) struct LookupCache {
    agents: HashMap<AgentId, Arc<CachedAgent>>,
    runtimes: HashMap<RuntimeId, CachedRuntime>,
    lines: HashMap<ChannelId, CachedChannel>,
    /// What the open transaction changed, perhaps in a job that was rolled back.
    changed_channels: HashSet<ChannelId>,
    accounts_changed: bool,
}

#[derive(Debug)]
pub(super) struct CachedAgent {
    pub(super) id: AgentId,
    pub(super) tenant: TenantId,
    pub(super) name: String,
    pub(super) instructions: Option<String>,
    pub(super) archived: bool,
    /// See [`AccountRecord::instructing_owner`](crate::record::AccountRecord::instructing_owner).
    pub(super) instructing_owner: Option<UserId>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct CachedRuntime {
    pub(super) agent: AgentId,
    pub(super) state: RuntimeState,
}

/// A channel, as needed for its frames and events.
#[derive(Debug, Clone, Copy)]
pub(super) struct CachedChannel {
    pub(super) no: i64,
    pub(super) tenant: TenantId,
    pub(super) runtime: Option<RuntimeId>,
    pub(super) connected: bool,
    /// The hash of its resume token. `None` once it was superseded.
    pub(super) resume: Option<SecretHash>,
    /// Frames up to this seq are acknowledged or were dropped.
    pub(super) floor: i64,
    /// The seq of the newest frame.
    pub(super) head: i64,
    /// The seq of the newest event.
    pub(super) last_seq: i64,
}

// === impl LookupCache ===

impl LookupCache {
    pub(super) fn forget(&mut self) {
        self.agents.clear();
        self.runtimes.clear();
        self.lines.clear();
    }

    /// An agent or a runtime was changed.
    pub(super) fn accounts_changed(&mut self) {
        self.forget();
        self.accounts_changed = true;
    }

    /// Adds what the open transaction changed here.
    pub(super) fn note_changes(&self, changes: &mut MemoryChanges) {
        changes.channels.extend(&self.changed_channels);
        changes.accounts |= self.accounts_changed;
    }

    /// The transaction is over.
    pub(super) fn end_transaction(&mut self) {
        self.changed_channels.clear();
        self.accounts_changed = false;
    }

    /// What is remembered otherwise than the tables have it.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn difference(&self, connection: &Connection) -> Result<Option<String>> {
        let mut fresh = Self::default();
        let differs = |ours: String, theirs: String| {
            (ours != theirs).then(|| format!("remembered: {ours}\nin the tables: {theirs}"))
        };
        for (id, agent) in &self.agents {
            let found = differs(format!("{agent:?}"), format!("{:?}", fresh.agent(connection, *id)?));
            if found.is_some() {
                return Ok(found);
            }
        }
        for (id, runtime) in &self.runtimes {
            let found = differs(format!("{runtime:?}"), format!("{:?}", fresh.runtime(connection, *id)?));
            if found.is_some() {
                return Ok(found);
            }
        }
        for (id, line) in &self.lines {
            let found =
                differs(format!("{:?}", Ok::<_, Error>(*line)), format!("{:?}", fresh.channel(connection, *id)));
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Forgets what another writer changed.
    pub(super) fn catch_up(&mut self, changes: &MemoryChanges) {
        if changes.accounts {
            self.forget();
        }
        for channel in &changes.channels {
            self.lines.remove(channel);
        }
    }

    pub(super) fn agent(&mut self, connection: &Connection, id: AgentId) -> Result<Arc<CachedAgent>> {
        if let Some(agent) = self.agents.get(&id) {
            return Ok(Arc::clone(agent));
        }
        let account = connection
            .prepare_cached(&format!("select {} where a.id = ?1", rows::ACCOUNT))?
            .query_row([IdBytes(id.uuid())], rows::account)
            .optional()?
            .ok_or(Error::NotFound)?;
        let agent = Arc::new(CachedAgent {
            id,
            tenant: account.tenant,
            archived: account.archived_at.is_some(),
            instructing_owner: account.instructing_owner(),
            name: account.name,
            instructions: account.instructions,
        });
        self.agents.insert(id, Arc::clone(&agent));
        Ok(agent)
    }

    pub(super) fn runtime(&mut self, connection: &Connection, id: RuntimeId) -> Result<CachedRuntime> {
        if let Some(device) = self.runtimes.get(&id) {
            return Ok(*device);
        }
        let device = connection
            .prepare_cached("select agent, state from agent_runtimes where id = ?1")?
            .query_row([IdBytes(id.uuid())], |row| {
                Ok(CachedRuntime { agent: rows::agent_id(row.get(0)?), state: rows::runtime_state(row, 1)? })
            })
            .optional()?
            .ok_or(Error::NotFound)?;
        self.runtimes.insert(id, device);
        Ok(device)
    }

    pub(super) fn channel(&mut self, connection: &Connection, id: ChannelId) -> Result<CachedChannel> {
        if let Some(line) = self.lines.get(&id) {
            return Ok(*line);
        }
        let line = connection
            .prepare_cached(&format!(
                "select c.no, c.tenant, c.runtime, c.connected, c.resume, c.floor, {HEAD}, {LAST_EVENT}
                 from channels c where c.id = ?1"
            ))?
            .query_row([IdBytes(id.uuid())], |row| {
                Ok(CachedChannel {
                    no: row.get(0)?,
                    tenant: rows::tenant_id(row.get(1)?),
                    runtime: row.get::<Option<_>>(2)?.map(rows::runtime_id),
                    connected: row.get(3)?,
                    resume: row.get::<Option<_>>(4)?.map(SecretHash),
                    floor: row.get(5)?,
                    head: row.get(6)?,
                    last_seq: row.get(7)?,
                })
            })
            .optional()?
            .ok_or(Error::NotFound)?;
        if self.lines.len() >= MAX_CACHED_CHANNELS {
            self.lines.clear();
        }
        self.lines.insert(id, line);
        Ok(line)
    }

    /// Stores the job's changes of a channel.
    pub(super) fn set_channel(&mut self, id: ChannelId, line: CachedChannel) {
        self.changed_channels.insert(id);
        self.lines.insert(id, line);
    }

    /// The channel was changed, and is read again when it is needed.
    pub(super) fn forget_channel(&mut self, id: ChannelId) {
        self.changed_channels.insert(id);
        self.lines.remove(&id);
    }
}
