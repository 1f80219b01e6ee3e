//! Runs for callers: read, list, cancel. A runtime sees the runs it holds or held last. An agent with its own key also
//! sees the runs it created and those the access rules grant.

use attache_protocol::{
    Actor, ConversationId, RunId, UserId,
    rules::{quota::micro_usd, run::RunStatus},
    wire::run::{CancelRequest, Run, RunList, RunQuery},
};
use attache_store::record::{RunDetail, RunFilter, RunRecord, RuntimeKind, user::UserRef};

use crate::{
    Error, Handle, Principal, Result, check,
    control::PageRequest,
    error::{about, about_list},
    identity::{
        Action, Permit, PrincipalKind, RoleColumn,
        access::{Visibility, has_part},
    },
    render,
    visible_page::VisiblePage,
};

/// How many descendants of a cancelled run are processed in one call. Calling again continues.
const MAX_PARTS: usize = 1000;
const PART_CANCELLED: &str = "its parent run was cancelled";

/// The filters the store does not support itself.
#[derive(Debug)]
struct RunPostFilter {
    waiting: bool,
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
        let page = PageRequest { limit: query.limit, cursor: query.cursor }.page()?;
        let agent = match (by.who, query.agent_id) {
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
            PrincipalKind::Run { run, .. } => Some(query.parent_task_run_id.unwrap_or(run)),
            PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Key { .. }
            | PrincipalKind::Anonymous { .. } => query.parent_task_run_id,
        };
        if let Some(text) = &query.text {
            check::text("text", text, 1..=200)?;
        }
        let (user, caller) = self.caller_of(by, query.caller.as_deref()).await?;
        let status = if query.waiting { Some(RunStatus::Running) } else { query.status };
        let text = query.text.map(|text| text.to_lowercase());
        let cost = query.min_cost_usd.as_deref();
        let min_micro_usd = cost.map(|cost| micro_usd(cost).ok_or_else(|| not_a_cost(cost))).transpose()?;
        let post_filter = RunPostFilter { waiting: query.waiting, caller };
        let filter = RunFilter {
            status,
            agent,
            conversation: query.conversation_id,
            parent,
            user,
            since: query.since,
            before: query.before,
            min_micro_usd,
            text,
            // Long tasks and results must not shorten the page.
            detail: RunDetail::Excerpt,
        };
        let mut reach = self.caller_access(by).await?;
        // Runs hidden from the caller leave no gaps in the page, and no trace in its cursor. A part is read whole, also what
        // its excerpts leave out.
        let mut visible = VisiblePage::new(page).of_long_read(true);
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("run", &asked);
            let listed = self.store().runs(by.tenant, filter.clone(), asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for run in &listed.items {
                seen.push(post_filter.keeps(run) && reach.run(&permit, run).await?);
            }
            visible.take(listed, &seen);
        }
        let (found, next_cursor) = visible.finish();
        Ok(RunList { task_runs: self.show_runs(found).await?, next_cursor })
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

fn not_a_cost(text: &str) -> Error {
    Error::invalid("min_cost_usd", &format!("must be a number of dollars, such as 0.50, not {text:?}"))
}

// === impl RunPostFilter ===

impl RunPostFilter {
    fn keeps(&self, run: &RunRecord) -> bool {
        let waits = !self.waiting || run.state.waiting().is_some();
        let asked = self.caller.as_ref().is_none_or(|caller| run.caller == *caller);
        waits && asked
    }
}
