//! Runs as callers see them: read, list, cancel. A runtime sees the runs that it claims, and those it
//! claimed last; an agent with a key of its own also those that it asked for.

use attache_protocol::{
    ConversationId, RunId,
    rules::run::{Phase, Status},
    wire::run::{CancelRequest, Run, RunList},
};
use attache_store::record::{Page, RunFilter, RunRecord, RuntimeKind};

use crate::{
    Error, Handle, Principal, Result,
    control::{PageRequest, check},
    error::{about, about_list},
    identity::{Action, Verdict, Who},
    render,
};

/// Which runs to list; every member that is given must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunQuery {
    pub status: Option<Status>,
    /// By id or name.
    pub agent: Option<String>,
    pub conversation: Option<ConversationId>,
    pub parent: Option<RunId>,
    pub page: PageRequest,
}

impl Handle {
    pub async fn run(&self, by: &Principal, run: RunId) -> Result<Run> {
        let record = self.visible_run(by, run).await?;
        self.show_run(record).await
    }

    /// Newest first.
    pub async fn runs(&self, by: &Principal, query: RunQuery) -> Result<RunList> {
        by.may(Action::SeeRuns)?;
        let page = query.page.page()?;
        let agent = match (by.who, query.agent) {
            (Who::Runtime { agent, kind: RuntimeKind::Device, .. }, _) => Some(agent),
            (Who::Runtime { .. } | Who::Key { .. }, Some(agent)) => Some(self.resolve_agent(by, &agent).await?),
            (Who::Runtime { .. } | Who::Key { .. }, None) => None,
        };
        let filter = RunFilter {
            status: query.status,
            agent,
            conversation: query.conversation,
            parent: query.parent,
            user: None,
        };
        let failed = about_list("run", &page);
        let listed = self.store().runs(by.tenant, filter, page).await.map_err(failed)?;
        let task_runs = self.show_runs(listed.items.into_iter().filter(|run| sees(by, run))).await?;
        Ok(RunList { task_runs, next_cursor: listed.next })
    }

    /// Ends the run at once; the device that executes it learns it from the run's stream.
    pub async fn cancel_run(&self, by: &Principal, run: RunId, request: CancelRequest) -> Result<Run> {
        if by.may(Action::CancelRun)? == Verdict::Own {
            self.own_run(by, run).await?;
        }
        if let Some(reason) = &request.reason {
            check::text("reason", reason, 0..=4096)?;
        }
        self.store().cancel_run(self.context(by), run, request.reason).await.map(render::run).map_err(about("run"))
    }

    /// The run, if the caller may see it; unknown and not yours are the same answer.
    pub(crate) async fn visible_run(&self, by: &Principal, run: RunId) -> Result<RunRecord> {
        by.may(Action::SeeRuns)?;
        let record = self.store().run(by.tenant, run).await.map_err(about("run"))?;
        if sees(by, &record) { Ok(record) } else { Err(Error::not_found("run")) }
    }

    /// The run, if the caller asked for it.
    pub(crate) async fn own_run(&self, by: &Principal, run: RunId) -> Result<RunRecord> {
        let record = self.store().run(by.tenant, run).await.map_err(about("run"))?;
        if record.caller == by.actor() { Ok(record) } else { Err(Error::not_found("run")) }
    }

    /// Whether the caller may see what belongs to a conversation: a person always, a runtime through one of its runs.
    pub(crate) async fn check_conversation(
        &self,
        by: &Principal,
        action: Action,
        conversation: ConversationId,
        what: &'static str,
    ) -> Result<()> {
        let (Verdict::Own, Who::Runtime { agent, kind, .. }) = (by.may(action)?, by.who) else { return Ok(()) };
        let filter = RunFilter {
            // An agent with a key of its own may also have asked another agent.
            agent: (kind == RuntimeKind::Device).then_some(agent),
            conversation: Some(conversation),
            // Only what is being worked on takes new artifacts.
            status: (action == Action::UploadArtifact).then_some(Status::Running),
            ..RunFilter::default()
        };
        let mut cursor = None;
        loop {
            let page = Page { limit: check::MAX_PAGE, cursor };
            let listed = self.store().runs(by.tenant, filter.clone(), page).await.map_err(about(what))?;
            if listed.items.iter().any(|run| sees(by, run)) {
                return Ok(());
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Err(Error::not_found(what));
            }
        }
    }
}

/// A runtime sees what it holds, and what it held last once that has ended; an agent also what it asked for.
fn sees(by: &Principal, run: &RunRecord) -> bool {
    let Who::Runtime { runtime, kind, .. } = by.who else { return true };
    if kind == RuntimeKind::AgentKey && run.caller == by.actor() {
        return true;
    }
    match &run.state.phase {
        Phase::Pending { .. } => false,
        Phase::Running(claim) => claim.runtime == runtime,
        Phase::Ended { .. } => run.runtime == Some(runtime),
    }
}
