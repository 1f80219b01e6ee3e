//! Push notification configs, and the deliveries that they ask for.

use async_trait::async_trait;
use attache_protocol::{EventKind, RunId, TenantId, Timestamp};

use super::{MemoryStore, state::ModelState};
use crate::{
    Error, MAX_PUSH_CONFIGS, PushStore, Result, WriteContext, entry,
    record::{
        delivery::DeliveryRecord,
        push::{NewPushConfig, PushConfigRecord},
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn set_push_config(
        &mut self,
        context: &WriteContext,
        run: RunId,
        config: NewPushConfig,
    ) -> Result<PushConfigRecord> {
        self.place(context.tenant, run)?;
        let configs = self.pushes.entry(run).or_default();
        let known = configs.iter().position(|known| known.id == config.id);
        if known.is_none() && configs.len() >= MAX_PUSH_CONFIGS {
            return Err(Error::TooManyPushConfigs);
        }
        let config = config.into_record(known.map_or(context.at, |known| configs[known].created_at));
        match known {
            Some(known) => configs[known] = config.clone(),
            None => configs.push(config.clone()),
        }
        self.append(context.tenant, context.at, &context.actor, entry::push_configured(run, &config.id));
        Ok(config)
    }

    fn push_configs(&self, tenant: TenantId, run: RunId) -> Result<Vec<PushConfigRecord>> {
        self.place(tenant, run)?;
        Ok(self.pushes.get(&run).cloned().unwrap_or_default())
    }

    fn push_config(&self, tenant: TenantId, run: RunId, id: &str) -> Result<PushConfigRecord> {
        let mut configs = self.push_configs(tenant, run)?.into_iter();
        configs.find(|config| config.id == id).ok_or(Error::NotFound)
    }

    fn remove_push_config(&mut self, context: &WriteContext, run: RunId, id: &str) -> Result<()> {
        self.push_config(context.tenant, run, id)?;
        self.pushes.entry(run).or_default().retain(|config| config.id != id);
        self.append(context.tenant, context.at, &context.actor, entry::push_removed(run, id));
        Ok(())
    }

    /// Leaves a delivery for every subscriber of a run whose newest row is of this type.
    pub(super) fn push(&mut self, place: usize, at: Timestamp, kind: EventKind) {
        if !kind.is_pushed() {
            return;
        }
        let record = &self.runs[place].record;
        let (tenant, run, seq) = (record.tenant, record.id, record.last_seq);
        for config in self.pushes.get(&run).cloned().unwrap_or_default() {
            self.deliver(DeliveryRecord::push(tenant, run, &config, seq, at));
        }
    }

    /// Forgets the configs of runs that ended before this.
    pub(super) fn cut_pushes(&mut self, before: Timestamp) {
        let (runs, places) = (&self.runs, &self.places);
        let ended = |run: &RunId| runs[places[run]].record.ended_at;
        self.pushes.retain(|run, _| ended(run).is_none_or(|ended| ended >= before));
    }
}

// === impl MemoryStore ===

#[async_trait]
impl PushStore for MemoryStore {
    async fn set_push_config(
        &self,
        context: WriteContext,
        run: RunId,
        config: NewPushConfig,
    ) -> Result<PushConfigRecord> {
        self.write(|state| state.set_push_config(&context, run, config))
    }

    async fn push_config(&self, tenant: TenantId, run: RunId, id: &str) -> Result<PushConfigRecord> {
        self.read(|state| state.push_config(tenant, run, id))
    }

    async fn push_configs(&self, tenant: TenantId, run: RunId) -> Result<Vec<PushConfigRecord>> {
        self.read(|state| state.push_configs(tenant, run))
    }

    async fn remove_push_config(&self, context: WriteContext, run: RunId, id: &str) -> Result<()> {
        self.write(|state| state.remove_push_config(&context, run, id))
    }
}
