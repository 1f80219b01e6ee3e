//! The operations, independent of binding and version: each takes the parameters of version 1.0 and returns its types.

mod delegation;
mod list;
mod push;
mod send;
mod task;
mod updates;

pub(crate) use updates::TaskUpdates;

use attache_hub::{Error as HubError, PrincipalKind, stream::OutlineScope};
use attache_protocol::{RunId, wire::run::Run};

use crate::{
    agent_request::AgentRequest,
    error::{Error, Result},
    view::TaskView,
};

impl AgentRequest {
    /// The run behind one of the caller's tasks at this agent. Other callers' tasks count as not found.
    async fn own_run(&self, task: &str) -> Result<Run> {
        let id: RunId = task.parse().map_err(|_| Error::no_task(task))?;
        let run = match self.hub.run(self.by(), id).await {
            Ok(run) => run,
            Err(error) if matches!(error.code.http_status(), 404) => return Err(Error::no_task(task)),
            Err(error) => return Err(error.into()),
        };
        if self.is_own(&run) { Ok(run) } else { Err(Error::no_task(task)) }
    }

    /// Rejects unauthenticated callers.
    fn credential(&self, why: &'static str) -> Result<()> {
        match self.by().who {
            PrincipalKind::Anonymous { .. } => Err(HubError::unauthenticated(why).into()),
            PrincipalKind::Key { .. }
            | PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. } => Ok(()),
        }
    }

    fn is_own(&self, run: &Run) -> bool {
        let by = self.by();
        let same_person = by.role().is_some() && by.user.is_some() && run.user_id == by.user;
        run.agent_id == self.face.agent && (same_person || run.caller == by.actor().to_string())
    }

    /// The current task.
    async fn view(&self, run: &Run) -> Result<TaskView> {
        // Created, claimed, ended: there was no output in between.
        if run.status.is_terminal() && run.last_seq <= 3 {
            return Ok(TaskView::of_record(run, run.created_at, self.reader()));
        }
        // Not beyond the run's record: watchers get later events as they happen.
        let outline = self.hub.run_outline(self.by(), run.task_run_id, run.last_seq, OutlineScope::Everything).await?;
        Ok(TaskView::now(run, &outline, self.reader()))
    }
}

/// `historyLength`: absent means everything, zero means nothing.
fn history(length: Option<i32>) -> Result<Option<usize>> {
    match length {
        None => Ok(None),
        Some(length) => {
            usize::try_from(length).map(Some).map_err(|_| Error::invalid("historyLength", "must not be negative"))
        }
    }
}
