//! What can be asked, whatever the binding and the version: each takes the parameters of version 1.0 and answers with its
//! types.

mod delegation;
mod list;
mod push;
mod send;
mod task;
mod updates;

pub(crate) use updates::Updates;

use attache_protocol::{RunId, wire::run::Run};

use crate::{
    ask::Asked,
    error::{Error, Result},
    view::View,
};

impl Asked {
    /// The run behind a task of this agent that the caller asked for. What is not theirs is not there.
    async fn own_run(&self, task: &str) -> Result<Run> {
        let id: RunId = task.parse().map_err(|_| Error::no_task(task))?;
        let run = match self.hub.run(self.by(), id).await {
            Ok(run) => run,
            Err(error) if matches!(error.code.http_status(), 404) => return Err(Error::no_task(task)),
            Err(error) => return Err(error.into()),
        };
        if self.is_own(&run) { Ok(run) } else { Err(Error::no_task(task)) }
    }

    fn is_own(&self, run: &Run) -> bool {
        let by = self.by();
        let same_person = by.role().is_some() && by.user.is_some() && run.user_id == by.user;
        run.agent_id == self.face.agent && (same_person || run.caller == by.actor())
    }

    /// The task as it is now, from everything that the run said so far.
    async fn view(&self, run: &Run) -> Result<View> {
        // Made, claimed, ended: nothing was said in between.
        if run.status.is_terminal() && run.last_seq <= 3 {
            return Ok(View::of_ended(run, self.origin.clone()));
        }
        let mut view = View::begin(run, self.origin.clone());
        loop {
            let page = self.hub.run_events(self.by(), run.task_run_id, Some(view.seq()), None).await?;
            let Some(last) = page.events.last().map(|event| event.seq) else { break };
            // Not past the run: what has happened since is told to those who watch as it happened.
            let known = page.events.iter().take_while(|event| event.seq <= run.last_seq);
            known.for_each(|event| drop(view.take(event)));
            if last >= run.last_seq {
                break;
            }
        }
        Ok(view)
    }
}

/// `historyLength`: absent is everything, nought is nothing.
fn history(length: Option<i32>) -> Result<Option<usize>> {
    match length {
        None => Ok(None),
        Some(length) => {
            usize::try_from(length).map(Some).map_err(|_| Error::invalid("historyLength", "must not be negative"))
        }
    }
}
