//! Agents and runtimes as the hot writes need them, remembered: they change rarely and every run asks for both.

use std::{collections::HashMap, sync::Arc};

use attache_protocol::{AgentId, RuntimeId, TenantId, wire::runtime::RuntimeState};
use rusqlite::{Connection, OptionalExtension as _};

use super::rows::{self, Key16};
use crate::{Error, Result};

/// Filled on demand, emptied by every change of an agent or a runtime and by every roll-back.
#[derive(Debug, Default)]
pub(super) struct Directory {
    agents: HashMap<AgentId, Arc<Agent>>,
    runtimes: HashMap<RuntimeId, Device>,
}

#[derive(Debug)]
pub(super) struct Agent {
    pub(super) id: AgentId,
    pub(super) tenant: TenantId,
    pub(super) name: String,
    pub(super) instructions: Option<String>,
    pub(super) archived: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Device {
    pub(super) agent: AgentId,
    pub(super) state: RuntimeState,
}

// === impl Directory ===

impl Directory {
    pub(super) fn forget(&mut self) {
        self.agents.clear();
        self.runtimes.clear();
    }

    pub(super) fn agent(&mut self, connection: &Connection, id: AgentId) -> Result<Arc<Agent>> {
        if let Some(agent) = self.agents.get(&id) {
            return Ok(Arc::clone(agent));
        }
        let agent = connection
            .prepare_cached("select tenant, name, instructions, archived from agent_accounts where id = ?1")?
            .query_row([Key16(id.uuid())], |row| {
                Ok(Agent {
                    id,
                    tenant: rows::tenant_id(row.get(0)?),
                    name: row.get(1)?,
                    instructions: row.get(2)?,
                    archived: row.get::<_, Option<i64>>(3)?.is_some(),
                })
            })
            .optional()?
            .ok_or(Error::NotFound)?;
        let agent = Arc::new(agent);
        self.agents.insert(id, Arc::clone(&agent));
        Ok(agent)
    }

    pub(super) fn runtime(&mut self, connection: &Connection, id: RuntimeId) -> Result<Device> {
        if let Some(device) = self.runtimes.get(&id) {
            return Ok(*device);
        }
        let device = connection
            .prepare_cached("select agent, state from agent_runtimes where id = ?1")?
            .query_row([Key16(id.uuid())], |row| {
                Ok(Device { agent: rows::agent_id(row.get(0)?), state: rows::runtime_state(row, 1)? })
            })
            .optional()?
            .ok_or(Error::NotFound)?;
        self.runtimes.insert(id, device);
        Ok(device)
    }
}
