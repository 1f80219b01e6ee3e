//! Runs as A2A lists them.

use std::cmp::Reverse;

use attache_protocol::TenantId;

use super::{
    page::{self, PageOrder},
    state::ModelState,
};
use crate::{
    Result,
    record::{
        ListPage, Pagination, RunRecord,
        task::{TaskCursor, TaskFilter, TaskItem, TaskPage},
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn tasks(&self, tenant: TenantId, filter: &TaskFilter, page: &Pagination) -> Result<TaskPage> {
        let wanted = |record: &RunRecord| {
            record.tenant == tenant
                && record.agent == filter.agent
                && filter.of.as_ref().is_none_or(|of| of.matches(record))
                && filter.conversation.is_none_or(|conversation| conversation == record.conversation)
                && filter.state.is_none_or(|state| state == record.task_state())
                && filter.after.is_none_or(|after| after <= record.status_at())
        };
        let mut found: Vec<(TaskCursor, TaskItem)> = Vec::new();
        for at in self.runs.places() {
            let run = &self.runs[at];
            if !wanted(&run.record) {
                continue;
            }
            let number = i64::try_from(at).unwrap_or(i64::MAX);
            let place = TaskCursor { at: run.record.status_at(), number };
            found.push((place, TaskItem { run: self.shown(at), cursor: place.to_string() }));
        }
        found.sort_by_key(|(place, _)| Reverse(*place));
        let total = u64::try_from(found.len()).unwrap_or(u64::MAX);
        let ListPage { items, next } = page::cut(found.into_iter(), PageOrder::Descending, page)?;
        Ok(TaskPage { items, next, total })
    }
}
