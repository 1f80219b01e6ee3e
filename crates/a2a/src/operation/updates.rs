//! The updates of a stream: the current task, then everything that happens to it, in the order of the run's events.
//!
//! They are a function of the run's log, so all watchers see the same updates, and a task read after reconnecting
//! contains what was missed.

use std::collections::VecDeque;

use attache_a2a_wire::{StreamResponse, TaskState};
use attache_hub::stream::RunFollow;
use attache_protocol::wire::run::Run;

use crate::{
    agent_request::{A2aVersion, AgentRequest},
    error::Result,
    view::TaskView,
};

#[derive(Debug)]
pub(crate) struct TaskUpdates {
    events: RunFollow,
    view: TaskView,
    ready: VecDeque<StreamResponse>,
    closes: StreamEnd,
    closed: bool,
}

/// The states that end a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamEnd {
    /// The task ended or waits for its caller. A permission comes from someone else, so the stream stays open.
    Input,
    /// The last event of 0.3, which also includes waiting for a permission.
    Interruption,
    End,
}

// === impl TaskUpdates ===

impl TaskUpdates {
    /// For a message that was just sent.
    pub(crate) async fn of_message(asked: &AgentRequest, run: &Run, history: Option<usize>) -> Result<Self> {
        let closes = match asked.version {
            A2aVersion::V10 => StreamEnd::Input,
            A2aVersion::V03 => StreamEnd::Interruption,
        };
        Self::new(asked, run, closes, history).await
    }

    /// For a subscription to a task.
    pub(crate) async fn of_task(asked: &AgentRequest, run: &Run) -> Result<Self> {
        let closes = match asked.version {
            A2aVersion::V10 => StreamEnd::End,
            A2aVersion::V03 => StreamEnd::Interruption,
        };
        Self::new(asked, run, closes, None).await
    }

    async fn new(asked: &AgentRequest, run: &Run, closes: StreamEnd, history: Option<usize>) -> Result<Self> {
        let view = asked.view(run).await?;
        let events = asked.hub.follow_run(asked.by(), run.task_run_id, Some(view.seq())).await?;
        let closed = view.state().is_terminal();
        let first = StreamResponse::Task(view.task(history));
        Ok(Self { events, view, ready: VecDeque::from([first]), closes, closed })
    }

    /// The next update. `None` once the stream has ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<StreamResponse> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Some(update);
            }
            if self.closed {
                return None;
            }
            let event = self.events.next().await?;
            let before = self.view.state();
            self.ready.extend(self.view.take(&event));
            let state = self.view.state();
            self.closed = state.is_terminal() || (state != before && self.closes.at(state));
        }
    }
}

// === impl StreamEnd ===

impl StreamEnd {
    const fn at(self, state: TaskState) -> bool {
        match self {
            Self::Input => matches!(state, TaskState::TaskStateInputRequired),
            Self::Interruption => state.is_interrupted(),
            Self::End => false,
        }
    }
}
