//! Lists the caller's tasks at this agent, most recently changed first.

use attache_a2a_wire::{ListTasks, Task, TaskList, TaskState};
use attache_hub::{
    control::{OwnTask, PageRequest, RunTaskState as Doing, TaskQuery},
    stream::OutlineScope,
};
use attache_protocol::{ConversationId, Json, Timestamp, wire::run::Run};

use super::history;
use crate::{
    agent_request::AgentRequest,
    error::{Error, Result},
    view::TaskView,
};

const DEFAULT_PAGE: i32 = 50;
const MAX_PAGE: i32 = 100;
/// A page ends with the task that exceeds this size.
const MAX_WEIGHT: usize = 4 << 20;

impl AgentRequest {
    pub(crate) async fn list(&self, request: ListTasks) -> Result<TaskList> {
        self.tenant(request.tenant.as_deref())?;
        let page_size = request.page_size.unwrap_or(DEFAULT_PAGE);
        if !(1..=MAX_PAGE).contains(&page_size) {
            return Err(Error::invalid("pageSize", "must be between 1 and 100"));
        }
        let most = history(request.history_length)?;
        let conversation = match request.context_id.as_deref().filter(|name| !name.is_empty()) {
            Some(name) => Some(self.conversation_named(name).await?),
            None => None,
        };
        let cursor = request.page_token.filter(|token| !token.is_empty());
        let is_first = cursor.is_none();
        let page = PageRequest { limit: usize::try_from(page_size).ok(), cursor };
        let query = TaskQuery {
            agent: self.face.agent,
            conversation,
            state: request.status.map(doing),
            after: request.status_timestamp_after,
            page,
        };
        let found = match self.hub.own_tasks(self.by(), query).await {
            Err(error) if !is_first && error.code.http_status() < 500 => {
                return Err(Error::invalid("pageToken", "isn't a token from this list"));
            }
            other => other?,
        };
        let (mut tasks, mut weight, mut next) = (Vec::with_capacity(found.tasks.len()), 0, found.next_cursor);
        let mut last = None;
        for OwnTask { run, since, cursor } in &found.tasks {
            let task = self.listed(run, *since, request.include_artifacts == Some(true)).await?.task(most);
            let task = match request.include_artifacts {
                Some(true) => task,
                Some(false) | None => Task { artifacts: None, ..task },
            };
            weight += Json::of(&task).get().len();
            if weight > MAX_WEIGHT && !tasks.is_empty() {
                next = last;
                break;
            }
            tasks.push(task);
            last = Some(cursor.clone());
        }
        Ok(TaskList {
            tasks,
            next_page_token: next.unwrap_or_default(),
            page_size,
            total_size: i32::try_from(found.total).unwrap_or(i32::MAX),
        })
    }

    /// A task for a list: from the run's record and, if requested, with its artifacts.
    async fn listed(&self, run: &Run, since: Timestamp, with_artifacts: bool) -> Result<TaskView> {
        if !with_artifacts || run.last_seq <= 3 {
            return Ok(TaskView::of_record(run, since, self.reader()));
        }
        let outline = self.hub.run_outline(self.by(), run.task_run_id, run.last_seq, OutlineScope::Artifacts).await?;
        Ok(TaskView::now(run, &outline, self.reader()))
    }

    /// Whether the caller has a task in this conversation.
    pub(super) async fn has_task_in(&self, conversation: ConversationId) -> Result<bool> {
        let query = TaskQuery {
            agent: self.face.agent,
            conversation: Some(conversation),
            state: None,
            after: None,
            page: PageRequest { limit: Some(1), cursor: None },
        };
        Ok(self.hub.own_tasks(self.by(), query).await?.total > 0)
    }
}

const fn doing(state: TaskState) -> Doing {
    match state {
        TaskState::TaskStateSubmitted => Doing::Submitted,
        TaskState::TaskStateWorking => Doing::Working,
        TaskState::TaskStateInputRequired => Doing::InputRequired,
        TaskState::TaskStateAuthRequired => Doing::AuthRequired,
        TaskState::TaskStateCompleted => Doing::Completed,
        TaskState::TaskStateRejected => Doing::Rejected,
        TaskState::TaskStateFailed => Doing::Failed,
        TaskState::TaskStateCanceled => Doing::Cancelled,
    }
}
