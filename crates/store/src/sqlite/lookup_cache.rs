//! Cache of agents and runtimes for the hot writes: they change rarely, and every run needs both.

use std::{collections::HashMap, sync::Arc};

use attache_protocol::{AgentId, ChannelId, RuntimeId, TenantId, UserId, wire::runtime::RuntimeState};
use rusqlite::{Connection, OptionalExtension as _};

use super::{
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
}

#[derive(Debug)]
pub(super) struct CachedAgent {
    pub(super) id: AgentId,
    pub(super) tenant: TenantId,
    pub(super) name: String,
    pub(super) instructions: Option<String>,
    pub(super) archived: bool,
    pub(super) owner: Option<UserId>,
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
    pub(super) superseded: bool,
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

    pub(super) fn agent(&mut self, connection: &Connection, id: AgentId) -> Result<Arc<CachedAgent>> {
        if let Some(agent) = self.agents.get(&id) {
            return Ok(Arc::clone(agent));
        }
        let agent = connection
            .prepare_cached("select tenant, name, instructions, archived, owner from agent_accounts where id = ?1")?
            .query_row([IdBytes(id.uuid())], |row| {
                Ok(CachedAgent {
                    id,
                    tenant: rows::tenant_id(row.get(0)?),
                    name: row.get(1)?,
                    instructions: row.get(2)?,
                    archived: row.get::<_, Option<i64>>(3)?.is_some(),
                    owner: row.get::<_, Option<_>>(4)?.map(rows::user_id),
                })
            })
            .optional()?
            .ok_or(Error::NotFound)?;
        let agent = Arc::new(agent);
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
                "select c.no, c.tenant, c.runtime, c.connected, c.resume is null, c.floor, {HEAD}, {LAST_EVENT}
                 from channels c where c.id = ?1"
            ))?
            .query_row([IdBytes(id.uuid())], |row| {
                Ok(CachedChannel {
                    no: row.get(0)?,
                    tenant: rows::tenant_id(row.get(1)?),
                    runtime: row.get::<_, Option<_>>(2)?.map(rows::runtime_id),
                    connected: row.get(3)?,
                    superseded: row.get(4)?,
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
        self.lines.insert(id, line);
    }

    /// The channel is read again when it is needed.
    pub(super) fn forget_channel(&mut self, id: ChannelId) {
        self.lines.remove(&id);
    }
}
