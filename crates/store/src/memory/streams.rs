//! The two streams: a run's own, merged from the log and its chunks, and a tenant's log.

use attache_protocol::{RunId, TenantId, log::GENESIS, wire::event::Event};

use super::state::{State, Tenant};
use crate::{
    Result, entry,
    record::{LogPage, RunEvents},
};

// === impl State ===

impl State {
    pub(super) fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        let stored = &self.runs[self.place(tenant, run)?];
        let log = self.tenant(tenant).map(|tenant| tenant.log.as_slice()).unwrap_or_default();
        let life_cycle = log.iter().filter(|row| row.run == Some(run)).map(|row| {
            let data = match &stored.record.result {
                Some(result) if entry::shows_output(&row.kind) => entry::with_output(&row.data, result),
                Some(_) | None => row.data.clone(),
            };
            Event { seq: row.run_seq.unwrap_or(0), kind: row.kind.clone(), at: row.at, data }
        });
        let forgotten = stored.record.ended_at.is_some_and(|ended_at| ended_at < self.chunks_before);
        let floor = stored.log_floor.max(if forgotten { stored.record.last_seq - 1 } else { 0 });
        let mut events: Vec<Event> = life_cycle.chain(stored.chunks.iter().cloned()).collect();
        events.retain(|event| event.seq > after && event.seq > floor);
        events.sort_by_key(|event| event.seq);
        events.truncate(limit);
        let status = stored.record.state.status();
        Ok(RunEvents { events, floor, last_seq: stored.record.last_seq, status })
    }

    pub(super) fn log(&self, tenant: TenantId, after: i64, limit: usize) -> LogPage {
        let Some(Tenant { log, head, floor, floor_hash, .. }) = self.tenant(tenant) else {
            return LogPage { rows: Vec::new(), head: 0, floor: 0, floor_hash: GENESIS };
        };
        let rows = log.iter().filter(|row| row.seq > after).take(limit).cloned().collect();
        LogPage { rows, head: *head, floor: *floor, floor_hash: *floor_hash }
    }
}
