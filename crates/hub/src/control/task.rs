//! A caller's own runs of one agent, as A2A lists tasks.

use attache_protocol::{AgentId, ConversationId, Timestamp, wire::run::Run};
use attache_store::record::task::{TaskFilter, TaskListed};

use crate::{Handle, Principal, Result, control::PageRequest, error::about_list, identity::Action};

pub use attache_store::record::task::TaskState;

/// Which tasks to list; every member that is given must match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskQuery {
    pub agent: AgentId,
    pub conversation: Option<ConversationId>,
    pub state: Option<TaskState>,
    /// Only those whose state began at this time or later.
    pub after: Option<Timestamp>,
    pub page: PageRequest,
}

/// One page of tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tasks {
    /// Each with the time since when it does what it does.
    pub runs: Vec<(Run, Timestamp)>,
    pub next_cursor: Option<String>,
    /// How many match on all pages.
    pub total: u64,
}

// === impl Handle ===

impl Handle {
    /// Those that the caller asked for, the latest change first.
    pub async fn own_tasks(&self, by: &Principal, query: TaskQuery) -> Result<Tasks> {
        by.may(Action::SeeRuns)?;
        let TaskQuery { agent, conversation, state, after, page } = query;
        let page = page.page()?;
        let failed = about_list("task", &page);
        let filter = TaskFilter { agent, of: Some(by.own_runs()), conversation, state, after };
        let TaskListed { items, next, total } = self.store().tasks(by.tenant, filter, page).await.map_err(failed)?;
        let since: Vec<Timestamp> = items.iter().map(|record| record.status_at()).collect();
        let runs = self.show_runs(items).await?.into_iter().zip(since).collect();
        Ok(Tasks { runs, next_cursor: next, total })
    }
}
