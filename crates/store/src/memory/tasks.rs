//! Runs as A2A lists them.

use std::cmp::Reverse;

use attache_protocol::TenantId;

use super::{
    page::{self, Order},
    state::State,
};
use crate::{
    Result,
    record::{
        Listed, Page, RunRecord,
        task::{Place, TaskFilter, TaskItem, TaskListed},
    },
};

// === impl State ===

impl State {
    pub(super) fn tasks(&self, tenant: TenantId, filter: &TaskFilter, page: &Page) -> Result<TaskListed> {
        let wanted = |record: &RunRecord| {
            record.tenant == tenant
                && record.agent == filter.agent
                && filter.of.as_ref().is_none_or(|of| of.matches(record))
                && filter.conversation.is_none_or(|conversation| conversation == record.conversation)
                && filter.state.is_none_or(|state| state == record.task_state())
                && filter.after.is_none_or(|after| after <= record.status_at())
        };
        let mut found: Vec<(Place, TaskItem)> = Vec::new();
        for at in self.runs.places() {
            let run = &self.runs[at];
            if !wanted(&run.record) {
                continue;
            }
            let number = i64::try_from(at).unwrap_or(i64::MAX);
            let place = Place { at: run.record.status_at(), number };
            found.push((place, TaskItem { run: self.shown(at), cursor: place.to_string() }));
        }
        found.sort_by_key(|(place, _)| Reverse(*place));
        let total = u64::try_from(found.len()).unwrap_or(u64::MAX);
        let Listed { items, next } = page::cut(found.into_iter(), Order::Descending, page)?;
        Ok(TaskListed { items, next, total })
    }
}
