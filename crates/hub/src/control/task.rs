//! A caller's own runs of one agent, as A2A lists tasks.

use attache_protocol::{AgentId, ConversationId, Timestamp, wire::run::Run};
use attache_store::record::task::{TaskFilter, TaskPage};

use crate::{Handle, Principal, Result, control::PageRequest, error::about_list, identity::Action};

pub use attache_store::record::task::RunTaskState;

/// Filters for tasks. All given members must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskQuery {
    pub agent: AgentId,
    pub conversation: Option<ConversationId>,
    pub state: Option<RunTaskState>,
    /// Only tasks that entered their current state at this time or later.
    pub after: Option<Timestamp>,
    pub page: PageRequest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTask {
    pub run: Run,
    /// When it entered its current state.
    pub since: Timestamp,
    /// The cursor of a page that starts after it.
    pub cursor: String,
}

/// One page of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnTaskPage {
    pub tasks: Vec<OwnTask>,
    pub next_cursor: Option<String>,
    /// The number of matches on all pages.
    pub total: u64,
}

// === impl Handle ===

impl Handle {
    /// Tasks the caller created, most recently changed first.
    pub async fn own_tasks(&self, by: &Principal, query: TaskQuery) -> Result<OwnTaskPage> {
        let permit = by.may(Action::SeeRuns)?;
        let TaskQuery { agent, conversation, state, after, page } = query;
        let page = page.page()?;
        let failed = about_list("task", &page);
        let filter = TaskFilter { agent, of: Some(permit.own_runs()), conversation, state, after };
        // All of the agent's runs may have to be looked at.
        let _turn = self.long_read(by).await;
        let TaskPage { items, next, total } = self.store().tasks(by.tenant, filter, page).await.map_err(failed)?;
        let places: Vec<_> = items.iter().map(|item| (item.run.status_at(), item.cursor.clone())).collect();
        let records: Vec<_> = items.into_iter().map(|item| item.run).collect();
        let runs = self.show_runs(records).await?;
        let tasks = runs.into_iter().zip(places).map(|(run, (since, cursor))| OwnTask { run, since, cursor });
        Ok(OwnTaskPage { tasks: tasks.collect(), next_cursor: next, total })
    }
}
