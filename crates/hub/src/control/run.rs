//! Runs for callers: read, list, cancel. A runtime sees the runs it holds or held last. An agent with its own key also
//! sees the runs it created and those the access rules grant.

use attache_protocol::{
    Actor, ConversationId, RunId, Timestamp, UserId,
    rules::run::RunStatus,
    wire::run::{CancelRequest, Run, RunList},
};
use attache_store::record::{Pagination, RunDetail, RunFilter, RunRecord, RuntimeKind, user::UserRef};

use crate::{
    Error, Handle, Principal, Result, check,
    control::PageRequest,
    error::{about, about_list},
    identity::{
        Action, Permit, PrincipalKind, RoleColumn,
        access::{Visibility, has_part},
    },
    render,
};

/// How many store pages are read to fill one page for the caller. After that, the response says where to continue.
const MAX_LOOKS: usize = 25;

/// How many descendants of a cancelled run are processed in one call. Calling again continues.
const MAX_PARTS: usize = 1000;
const PART_CANCELLED: &str = "its parent run was cancelled";

/// Filters for runs. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunQuery {
    pub status: Option<RunStatus>,
    /// By id or name.
    pub agent: Option<String>,
    pub conversation: Option<ConversationId>,
    pub parent: Option<RunId>,
    /// Only runs that wait for a person.
    pub waiting: bool,
    /// Only runs created at this time or later.
    pub since: Option<Timestamp>,
    /// Only runs created by this person or agent, by name or id.
    pub caller: Option<String>,
    /// Only runs whose task, id or agent's name contains this text, ignoring case.
    pub text: Option<String>,
    pub page: PageRequest,
}

/// The filters the store does not support itself.
#[derive(Debug)]
struct RunMatcher {
    waiting: bool,
    since: Option<Timestamp>,
    caller: Option<Actor>,
}

impl Handle {
    pub async fn run(&self, by: &Principal, run: RunId) -> Result<Run> {
        let record = self.visible_run(by, run).await?;
        let waits_for = self.pending_question(by, &record).await?;
        Ok(Run { waits_for, ..self.show_run(record).await? })
    }

    /// Newest first. A long input or result is cut off, with `"truncated": true`.
    pub async fn runs(&self, by: &Principal, query: RunQuery) -> Result<RunList> {
        let permit = by.may(Action::SeeRuns)?;
        let mut page = query.page.page()?;
        let agent = match (by.who, query.agent) {
            (PrincipalKind::Runtime { agent, kind: RuntimeKind::Device | RuntimeKind::Hub, .. }, _) => Some(agent),
            (PrincipalKind::Anonymous { agent }, _) => Some(agent),
            (
                PrincipalKind::Runtime { .. }
                | PrincipalKind::Outside { .. }
                | PrincipalKind::Run { .. }
                | PrincipalKind::Key { .. },
                Some(agent),
            ) => Some(self.resolve_agent(by, &agent).await?),
            (
                PrincipalKind::Runtime { .. }
                | PrincipalKind::Outside { .. }
                | PrincipalKind::Run { .. }
                | PrincipalKind::Key { .. },
                None,
            ) => None,
        };
        // A run's token sees only its child runs.
        let parent = match by.who {
            PrincipalKind::Run { run, .. } => Some(query.parent.unwrap_or(run)),
            PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Key { .. }
            | PrincipalKind::Anonymous { .. } => query.parent,
        };
        if let Some(text) = &query.text {
            check::text("text", text, 1..=200)?;
        }
        let (user, caller) = self.caller_of(by, query.caller.as_deref()).await?;
        let status = if query.waiting { Some(RunStatus::Running) } else { query.status };
        let text = query.text.map(|text| text.to_lowercase());
        let sieve = RunMatcher { waiting: query.waiting, since: query.since, caller };
        // Long tasks and results must not shorten the page.
        let (conversation, detail) = (query.conversation, RunDetail::Excerpt);
        let filter = RunFilter { status, agent, conversation, parent, user, text, detail };
        let (mut reach, mut found, wanted) = (self.caller_access(by).await?, Vec::new(), page.limit);
        // Runs hidden from the caller leave no gaps in the page.
        let mut turn = None;
        for look in 0..MAX_LOOKS {
            if turn.is_none() && (look > 0 || filter.text.is_some()) {
                turn = Some(self.long_read(by).await);
            }
            let failed = about_list("run", &page);
            let asked = Pagination { limit: wanted - found.len(), cursor: page.cursor.take() };
            let listed = self.store().runs(by.tenant, filter.clone(), asked).await.map_err(failed)?;
            // Lists are newest first, so everything after the first run that is too old can be skipped.
            let is_over = listed.items.last().is_some_and(|oldest| sieve.is_too_old(oldest));
            for run in listed.items {
                if sieve.keeps(&run) && reach.run(&permit, &run).await? {
                    found.push(run);
                }
            }
            page.cursor = listed.next.filter(|_| !is_over);
            if page.cursor.is_none() || found.len() >= wanted {
                break;
            }
        }
        Ok(RunList { task_runs: self.show_runs(found).await?, next_cursor: page.cursor })
    }

    /// Resolves a caller's name: a user, whose runs the store finds, or an actor as recorded in runs.
    async fn caller_of(&self, by: &Principal, name: Option<&str>) -> Result<(Option<UserId>, Option<Actor>)> {
        let Some(name) = name else { return Ok((None, None)) };
        check::line("caller", name, 1..=200)?;
        let user = match name.parse() {
            Ok(user) => UserRef::Id(user),
            Err(_) => UserRef::Name(name.to_owned()),
        };
        match self.store().user(by.tenant, user).await {
            Ok(user) => return Ok((Some(user.id), None)),
            Err(attache_store::Error::NotFound) => {}
            Err(error) => return Err(Error::from_store("user", error)),
        }
        let agent = match check::agent_ref("caller", name) {
            Ok(agent) => self.store().account(by.tenant, agent).await.ok(),
            Err(_) => None,
        };
        Ok((None, Some(agent.map_or_else(|| Actor::from(name), |agent| Actor::Agent(agent.id)))))
    }

    /// Ends the run and its child runs immediately. The executing device learns about it from the run's stream.
    pub async fn cancel_run(&self, by: &Principal, run: RunId, request: CancelRequest) -> Result<Run> {
        self.find_run(&by.may(Action::CancelRun)?, run).await?;
        if let Some(reason) = &request.reason {
            check::text("reason", reason, 0..=4096)?;
        }
        let cancelled = self.store().cancel_run(self.context(by), run, request.reason).await.map_err(about("run"))?;
        self.cancel_parts(by, run).await?;
        Ok(render::run(cancelled))
    }

    /// Cancels all live descendants of the run, including those below ended ones.
    async fn cancel_parts(&self, by: &Principal, run: RunId) -> Result<()> {
        let (mut above, mut looked_at) = (vec![run], 0);
        while let Some(parent) = above.pop() {
            let filter = RunFilter { parent: Some(parent), detail: RunDetail::Excerpt, ..RunFilter::default() };
            let mut parts = check::all_pages("run", |page| self.store().runs(by.tenant, filter.clone(), page));
            while let Some(part) = parts.next().await? {
                looked_at += 1;
                if looked_at > MAX_PARTS {
                    tracing::warn!(%run, "only some descendants of a cancelled run were cancelled");
                    return Ok(());
                }
                above.push(part.id);
                if !part.state.status().is_terminal() {
                    let reason = Some(PART_CANCELLED.to_owned());
                    match self.store().cancel_run(self.context(by), part.id, reason).await {
                        // It ended first.
                        Ok(_) | Err(attache_store::Error::Refused { .. }) => {}
                        Err(error) => return Err(Error::from_store("run", error)),
                    }
                }
            }
        }
        Ok(())
    }

    /// The run, if the caller may see it.
    pub(crate) async fn visible_run(&self, by: &Principal, run: RunId) -> Result<RunRecord> {
        self.find_run(&by.may(Action::SeeRuns)?, run).await
    }

    /// The run, if the permit covers it and its agent is not hidden from the caller. Unknown and forbidden ids get the
    /// same answer.
    pub(crate) async fn find_run(&self, permit: &Permit<'_>, run: RunId) -> Result<RunRecord> {
        let record = self.store().run(permit.by().tenant, run).await.map_err(about("run"))?;
        self.check_run_access(permit, &record).await?;
        Ok(record)
    }

    /// The same for a run that was read before.
    pub(crate) async fn check_run_access(&self, permit: &Permit<'_>, run: &RunRecord) -> Result<()> {
        let by = permit.by();
        let mut reach = self.caller_access(by).await?;
        if reach.run(permit, run).await? {
            return Ok(());
        }
        // People see each other's runs, so this does not reveal anything.
        match by.role().is_some() && reach.is_open(run).await? {
            true => Err(Error::forbidden("This run belongs to someone else.")),
            false => Err(Error::not_found("run")),
        }
    }

    /// Whether the caller may see what belongs to a conversation: a person always, a runtime through one of its runs,
    /// an agent also by rule.
    pub(crate) async fn check_conversation(
        &self,
        permit: &Permit<'_>,
        conversation: ConversationId,
        what: &'static str,
    ) -> Result<()> {
        let (by, action) = (permit.by(), permit.action());
        if permit.covers_others() {
            return self.check_kept(by, conversation, what).await;
        }
        // A device adds to its own run's workspace, whatever else is there; it reads nothing of a private agent.
        if action != Action::UploadArtifact {
            self.check_kept(by, conversation, what).await?;
        }
        if action == Action::SeeConversations && by.column() == RoleColumn::AgentKey {
            let found = self.store().conversation(by.tenant, conversation).await.map_err(about(what))?;
            if self.caller_access(by).await?.conversation(&found).await? == Visibility::Yes {
                return Ok(());
            }
        }
        if self.has_part_in(permit, conversation, what).await? { Ok(()) } else { Err(Error::not_found(what)) }
    }

    /// A conversation with someone else's private agent does not exist for other people. What does not exist has nothing
    /// to hide.
    pub(crate) async fn check_kept(
        &self,
        by: &Principal,
        conversation: ConversationId,
        what: &'static str,
    ) -> Result<()> {
        match self.store().conversation(by.tenant, conversation).await {
            Ok(found) if self.private_work(by).sees_conversation(&found).await? => Ok(()),
            Ok(_) => Err(Error::not_found(what)),
            Err(attache_store::Error::NotFound) => Ok(()),
            Err(error) => Err(Error::from_store(what, error)),
        }
    }

    /// Whether one of the conversation's runs belongs to the runtime.
    pub(crate) async fn has_part_in(
        &self,
        permit: &Permit<'_>,
        conversation: ConversationId,
        what: &'static str,
    ) -> Result<bool> {
        let by = permit.by();
        let (agent, kind) = match by.who {
            PrincipalKind::Key { .. } => return Ok(true),
            PrincipalKind::Run { .. } | PrincipalKind::Anonymous { .. } => return Ok(false),
            PrincipalKind::Outside { agent, .. } => (agent, RuntimeKind::AgentKey),
            PrincipalKind::Runtime { agent, kind, .. } => (agent, kind),
        };
        let filter = RunFilter {
            // An agent with its own key may also have called another agent.
            agent: (kind != RuntimeKind::AgentKey).then_some(agent),
            conversation: Some(conversation),
            // Only runs in progress accept new artifacts.
            status: (permit.action() == Action::UploadArtifact).then_some(RunStatus::Running),
            ..RunFilter::default()
        };
        let mut runs = check::all_pages(what, |page| self.store().runs(by.tenant, filter.clone(), page));
        while let Some(run) = runs.next().await? {
            if has_part(by, &run) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

// === impl RunMatcher ===

impl RunMatcher {
    fn is_too_old(&self, run: &RunRecord) -> bool {
        self.since.is_some_and(|since| run.created_at < since)
    }

    fn keeps(&self, run: &RunRecord) -> bool {
        let waits = !self.waiting || run.state.waiting().is_some();
        let asked = self.caller.as_ref().is_none_or(|caller| run.caller == *caller);
        waits && asked && !self.is_too_old(run)
    }
}
