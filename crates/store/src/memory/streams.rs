//! The two streams: a run's own, merged from the log and its chunks, and a tenant's log.

use std::cmp::Reverse;

use attache_protocol::{EventKind, RunId, TenantId, log::GENESIS, wire::event::Event};

use super::state::{ModelRun, ModelState, ModelTenant};
use crate::{
    Error, Result, entry,
    output_search::{OutputSearch, SearchStep},
    record::{LogPage, OutlineScope, OutputMatches, RunEvents, RunOutline},
    run_outline::OutlineBuilder,
    weight,
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn run_events(&self, tenant: TenantId, run: RunId, after: i64, limit: usize) -> Result<RunEvents> {
        let stored = &self.runs[self.place(tenant, run)?];
        let floor = self.floor(stored);
        let mut events: Vec<Event> = self.life_cycle(stored).chain(stored.chunks.iter().cloned()).collect();
        events.retain(|event| event.seq > after && event.seq > floor);
        events.sort_by_key(|event| event.seq);
        events.truncate(limit);
        events.truncate(weight::fitting(&events));
        let status = stored.record.state.status();
        Ok(RunEvents { events, floor, last_seq: stored.record.last_seq, status })
    }

    pub(super) fn run_outline(
        &self,
        tenant: TenantId,
        run: RunId,
        upto: i64,
        shown: OutlineScope,
    ) -> Result<RunOutline> {
        let stored = &self.runs[self.place(tenant, run)?];
        let floor = self.floor(stored);
        let newest_first = |mut events: Vec<Event>| {
            events.retain(|event| event.seq > floor && event.seq <= upto);
            events.sort_by_key(|event| Reverse(event.seq));
            events.into_iter().map(Ok::<_, Error>)
        };
        let mut outline = OutlineBuilder::new(floor);
        if shown == OutlineScope::Everything {
            outline.newest(newest_first(stored.chunks.clone()))?;
        }
        let before = outline.reached(upto);
        let is_artifact = |event: &&Event| event.kind == EventKind::ArtifactChanged && event.seq <= before;
        outline.take(newest_first(stored.chunks.iter().filter(is_artifact).cloned().collect()))?;
        outline.take(newest_first(self.life_cycle(stored).collect()))?;
        Ok(outline.done())
    }

    pub(super) fn output_matches(
        &self,
        tenant: TenantId,
        run: RunId,
        words: &str,
        limit: usize,
    ) -> Result<OutputMatches> {
        let stored = &self.runs[self.place(tenant, run)?];
        let floor = self.floor(stored);
        let mut search = OutputSearch::new(words, limit);
        for event in stored.chunks.iter().filter(|event| event.seq > floor) {
            if search.take(event.seq, &event.kind, event.data.get()) == SearchStep::Full {
                break;
            }
        }
        Ok(search.done())
    }

    fn life_cycle<'a>(&'a self, ModelRun { record, .. }: &'a ModelRun) -> impl Iterator<Item = Event> + 'a {
        let log = self.tenant(record.tenant).map(|tenant| tenant.log.as_slice()).unwrap_or_default();
        log.iter().filter(|row| row.run == Some(record.id)).map(|row| {
            let data = match &record.result {
                Some(result) if entry::shows_output(&row.kind) => entry::with_output(&row.data, result),
                Some(_) | None => row.data.clone(),
            };
            Event { seq: row.run_seq.unwrap_or(0), kind: row.kind.clone(), at: row.at, data }
        })
    }

    fn floor(&self, stored: &ModelRun) -> i64 {
        let forgotten = stored.record.ended_at.is_some_and(|ended_at| ended_at < self.chunks_before);
        stored.log_floor.max(if forgotten { stored.record.last_seq - 1 } else { 0 })
    }

    pub(super) fn log(&self, tenant: TenantId, after: i64, limit: usize) -> LogPage {
        let Some(ModelTenant { log, head, head_hash, floor, floor_hash, .. }) = self.tenant(tenant) else {
            return LogPage { rows: Vec::new(), head: 0, head_hash: GENESIS, floor: 0, floor_hash: GENESIS };
        };
        let mut rows: Vec<_> = log.iter().filter(|row| row.seq > after).take(limit).cloned().collect();
        rows.truncate(weight::fitting(&rows));
        LogPage { rows, head: *head, head_hash: *head_hash, floor: *floor, floor_hash: *floor_hash }
    }
}
