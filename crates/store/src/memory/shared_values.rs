//! Short-lived values that nodes share.

use std::collections::BTreeSet;

use async_trait::async_trait;
use attache_protocol::{TenantId, Timestamp};

use super::{MemoryStore, state::ModelState};
use crate::{
    Result, SharedValueStore,
    record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn drop_expired_values(&mut self, at: Timestamp) {
        self.shared_values.retain(|value| value.expires_at > at);
    }

    fn keep_value(&mut self, new: SharedValue, limit: SharedValueLimit, at: Timestamp) -> bool {
        self.drop_expired_values(at);
        let is_same = |known: &SharedValue| known.kind == new.kind && known.name == new.name;
        if let SharedValueLimit::Total { values, bytes, .. } = limit {
            let others = || self.shared_values.iter().filter(|known| known.kind == new.kind && !is_same(known));
            let held: usize = others().map(|known| known.value.len()).sum();
            if others().count() >= values || held + new.value.len() > bytes {
                return false;
            }
        }
        let is_own =
            |known: &SharedValue| known.kind == new.kind && known.tenant == new.tenant && known.holder == new.holder;
        match self.shared_values.iter().position(is_same) {
            Some(place) => self.shared_values[place] = new.clone(),
            None => self.shared_values.push(new.clone()),
        }
        if let SharedValueLimit::PerHolder(most) | SharedValueLimit::Total { per_holder: most, .. } = limit {
            let mut surplus = self.shared_values.iter().filter(|known| is_own(known)).count().saturating_sub(most);
            self.shared_values.retain(|known| {
                let gives_way = surplus > 0 && is_own(known);
                surplus -= usize::from(gives_way);
                !gives_way
            });
        }
        true
    }

    fn values_of(&self, kind: SharedValueKind, at: Timestamp) -> impl Iterator<Item = &SharedValue> {
        self.shared_values.iter().filter(move |value| value.kind == kind && value.expires_at > at)
    }

    fn take_value(
        &mut self,
        kind: SharedValueKind,
        name: &str,
        until: Timestamp,
        at: Timestamp,
    ) -> Option<SharedValue> {
        let is_wanted = |value: &&mut SharedValue| value.kind == kind && value.name == name && value.expires_at > at;
        let found = self.shared_values.iter_mut().find(is_wanted)?;
        found.expires_at = found.expires_at.min(until);
        let taken = found.clone();
        if until <= at {
            self.shared_values.retain(|value| *value != taken);
        }
        Some(taken)
    }

    fn drop_values(&mut self, kind: SharedValueKind, tenant: TenantId, holder: &str) {
        self.shared_values.retain(|value| value.kind != kind || value.tenant != tenant || value.holder != holder);
    }
}

// === impl MemoryStore ===

#[async_trait]
impl SharedValueStore for MemoryStore {
    async fn keep_value(&self, value: SharedValue, limit: SharedValueLimit, at: Timestamp) -> Result<bool> {
        self.write(|state| Ok(state.keep_value(value, limit, at)))
    }

    async fn shared_value(&self, kind: SharedValueKind, name: &str, at: Timestamp) -> Result<Option<SharedValue>> {
        self.read(|state| Ok(state.values_of(kind, at).find(|value| value.name == name).cloned()))
    }

    async fn shared_values(&self, kind: SharedValueKind, at: Timestamp) -> Result<Vec<SharedValue>> {
        self.read(|state| Ok(state.values_of(kind, at).cloned().collect()))
    }

    async fn value_holders(&self, kind: SharedValueKind, at: Timestamp) -> Result<Vec<(TenantId, String)>> {
        self.read(|state| {
            let holders = state.values_of(kind, at).map(|value| (value.tenant, value.holder.clone()));
            Ok(holders.collect::<BTreeSet<_>>().into_iter().collect())
        })
    }

    async fn take_value(
        &self,
        kind: SharedValueKind,
        name: &str,
        until: Timestamp,
        at: Timestamp,
    ) -> Result<Option<SharedValue>> {
        self.write(|state| Ok(state.take_value(kind, name, until, at)))
    }

    async fn drop_values(&self, kind: SharedValueKind, tenant: TenantId, holder: &str) -> Result<()> {
        self.write(|state| {
            state.drop_values(kind, tenant, holder);
            Ok(())
        })
    }
}
