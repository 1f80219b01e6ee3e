//! Permission requests: a worker asks before a risky step and waits, a person decides once, and grants answer later
//! requests.

use std::time::Duration;

use attache_protocol::{
    AgentId, ChannelId, Code, GrantId, PermissionId, RunId, Timestamp, UserId,
    rules::{
        command_pattern::CommandPattern,
        permission::{
            ApprovalDecision, DecisionScope, OnTimeout, OnceReason, PermissionState, PermissionSubject, REMOTE_AGENT,
            widest,
        },
        permission_mode::{self, PermissionMode, PlanState, StepAssurance, StepFacts},
    },
    wire::{
        account::ApprovalConfirmation,
        permission::{
            ApprovalPolicy, CreatePermissionRequest, DecisionRequest, GrantList, PermissionAnswer, PermissionGrant,
            PermissionList, PermissionRequest,
        },
    },
};
use attache_store::record::{
    AgentRef, Pagination,
    worker_request::{GrantMaker, NewDecision, NewPermission, PermissionFilter, PermissionRecord},
};
use serde::Deserialize;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    control::{PageRequest, account::policy_of},
    error::{about, about_list},
    identity::{Action, Permit, access::CallerAccess},
    render,
    visible_page::VisiblePage,
    waiter::Waiter,
};

pub(super) const MAX_INPUT: usize = 256 * 1024;
const MAX_DIFF: usize = 256 * 1024;
const MAX_PATHS: usize = 1000;
/// All paths together.
const MAX_PATH_BYTES: usize = 64 * 1024;
const MAX_UNDISCLOSED: usize = 20;

/// Why the settings of the agent and the run approve this step, if they do.
fn trusted(
    policy: &ApprovalPolicy,
    (chosen, plan): (Option<PermissionMode>, PlanState),
    request: &CreatePermissionRequest,
    is_own: bool,
) -> Option<String> {
    let commands: Vec<CommandPattern> =
        policy.trusted_commands.iter().filter_map(|text| CommandPattern::parse(text).ok()).collect();
    let assured: Vec<StepAssurance> =
        request.assured.iter().filter_map(|word| StepAssurance::from_text(word)).collect();
    let step = StepFacts {
        input: &request.input,
        cwd: request.cwd.as_deref(),
        undisclosed: &request.undisclosed,
        assured: &assured,
        is_own,
    };
    let mode = permission_mode::of_run(chosen, policy.mode.unwrap_or_default());
    permission_mode::trusted(mode, plan, &commands, step).map(|reason| reason.to_string())
}

/// Why an approval can't cover more than its own request.
const fn once_only(reason: OnceReason) -> &'static str {
    match reason {
        OnceReason::HiddenInput => {
            "must be `once`: the agent does not disclose the tool's input, and a broader approval would cover steps no \
             one has reviewed"
        }
        OnceReason::PrivateAgent => {
            "must be `once`: a private agent acts with its owner's rights, so each call is decided separately"
        }
        OnceReason::Plan => "must be `once`: every plan is decided separately",
    }
}

/// Filters for permission requests. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionQuery {
    pub state: Option<PermissionState>,
    pub run: Option<RunId>,
    /// By id or name.
    pub agent: Option<String>,
}

/// Where a decision was made, for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionOrigin {
    /// The surface: `rest`, `console`, `channel`, `notification`, or `passkey` for the console with a passkey.
    pub via: &'static str,
    /// The address of the person's browser or program.
    pub from: Option<String>,
}

/// Who takes part in deciding a run's requests, and how the run restricts them.
#[derive(Debug, Default)]
pub(super) struct ApprovalParties {
    /// The caller's webhook, if it subscribed to approval requests.
    pub(super) callback: Option<String>,
    /// The only person whose comments reach the agent. `None` if everybody's do.
    pub(super) speaker: Option<UserId>,
    /// The mode that replaces the agent's.
    mode: Option<PermissionMode>,
    pub(super) plan: PlanState,
}

/// What identifies the private agent in the hub's own request to call it: the id in the request for a new run, or the run
/// that gets input. A name could belong to another agent by now.
#[derive(Deserialize)]
struct PrivateCall {
    request: Option<PrivateCallTarget>,
    task_run_id: Option<RunId>,
}

#[derive(Deserialize)]
struct PrivateCallTarget {
    agent_id: AgentId,
}

// === impl Handle ===

impl Handle {
    /// A worker asks for permission. The run waits, unless a standing grant answers immediately. The same request again
    /// returns the existing one. `via` is the channel it came over.
    pub async fn request_permission(
        &self,
        by: &Principal,
        run: RunId,
        request: CreatePermissionRequest,
        via: Option<ChannelId>,
    ) -> Result<PermissionRequest> {
        let permit = by.may(Action::Work)?;
        let ((_, agent), worker) = (permit.device()?, permit.worker(request.epoch)?);
        check_permission_request(&request)?;
        let account = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        let policy = policy_of(&account);
        let (expires_at, on_timeout) = self.approval_timeout(&policy);
        let ApprovalParties { callback, speaker, mode, plan } = self.approval_parties(by, run).await?;
        let trusted = match account.confirm_approvals {
            ApprovalConfirmation::None => trusted(&policy, (mode, plan), &request, self.is_own_work(by, run).await?),
            // Nobody has confirmed it.
            ApprovalConfirmation::Passkey => None,
        };
        let permission = NewPermission {
            id: self.env().permission_id(),
            run,
            subject: PermissionSubject::of(&request.tool, &request.input, request.cwd.as_deref(), &request.paths)
                .showing(request.diff.as_deref(), &request.undisclosed),
            tool: request.tool,
            input: request.input,
            cwd: request.cwd,
            paths: request.paths,
            reason: request.reason,
            risk: request.risk,
            diff: request.diff,
            undisclosed: request.undisclosed,
            private_agent: false,
            request: request.request_id,
            channel: via,
            expires_at,
            on_timeout,
            notify: callback.or(policy.webhook_url),
            speaker,
            trusted,
            plan,
        };
        let lease = self.options().heartbeat_timeout;
        match self.store().request_permission(worker, permission, lease, self.now()).await {
            Ok(asked) => Ok(render::permission(asked)),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// The worker waits up to `wait` (at most a minute) for the decision, and gets the request's state at that point.
    pub async fn permission_answer(
        &self,
        by: &Principal,
        run: RunId,
        permission: PermissionId,
        wait: Duration,
    ) -> Result<PermissionAnswer> {
        let permit = by.may(Action::Work)?;
        let _slot = self.wait_slot(by, wait)?;
        let mut waiter = Waiter::new(self, by, Topic::Asked(run), Some(wait.min(Waiter::MAX_WAIT)));
        loop {
            let found = self.own_permission(&permit, run, permission).await?;
            if found.state != PermissionState::Pending || !waiter.changed().await? {
                return Ok(render::answer(found));
            }
        }
    }

    /// Newest first.
    pub async fn permissions(
        &self,
        by: &Principal,
        query: PermissionQuery,
        page: PageRequest,
    ) -> Result<PermissionList> {
        by.may_all(Action::SeePermissions)?;
        let mut visible = VisiblePage::new(page.page()?);
        let agent = match query.agent {
            Some(agent) => Some(self.resolve_agent(by, &agent).await?),
            None => None,
        };
        let filter = PermissionFilter { state: query.state, run: query.run, agent };
        let mut reach = self.caller_access(by).await?;
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("permission request", &asked);
            let listed = self.store().permissions(by.tenant, filter.clone(), asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for request in &listed.items {
                seen.push(self.sees_permission(&mut reach, by, request).await?);
            }
            visible.take(listed, &seen);
        }
        let (requests, next_cursor) = visible.finish();
        Ok(PermissionList { permission_requests: requests.into_iter().map(render::permission).collect(), next_cursor })
    }

    /// Whether the caller may see a request: neither the agent that asks nor the private agent that it wants to call is
    /// hidden from them.
    pub(super) async fn sees_permission(
        &self,
        reach: &mut CallerAccess<'_>,
        by: &Principal,
        asked: &PermissionRecord,
    ) -> Result<bool> {
        if !reach.request(asked.agent, asked.run).await? {
            return Ok(false);
        }
        if !asked.private_agent {
            return Ok(true);
        }
        match self.called_private_agent(by, asked).await? {
            Some(called) => reach.request(called, asked.run).await,
            None => Ok(false),
        }
    }

    /// The private agent that a request is about. `None` if it can't be determined any more.
    async fn called_private_agent(&self, by: &Principal, asked: &PermissionRecord) -> Result<Option<AgentId>> {
        let Ok(PrivateCall { request, task_run_id }) = asked.input.parse::<PrivateCall>() else { return Ok(None) };
        match (request, task_run_id) {
            (Some(request), _) => Ok(Some(request.agent_id)),
            (None, Some(run)) => match self.store().run(by.tenant, run).await {
                Ok(run) => Ok(Some(run.agent)),
                Err(attache_store::Error::NotFound) => Ok(None),
                Err(error) => Err(Error::from_store("run", error)),
            },
            (None, None) => Ok(None),
        }
    }

    /// The request, unless it is hidden from the caller.
    pub(super) async fn find_permission(
        &self,
        permit: &Permit<'_>,
        permission: PermissionId,
    ) -> Result<PermissionRecord> {
        const WHAT: &str = "permission request";
        let by = permit.by();
        let found = self.store().permission(by.tenant, permission).await.map_err(about(WHAT))?;
        if permit.covers_others() && self.sees_permission(&mut self.caller_access(by).await?, by, &found).await? {
            Ok(found)
        } else {
            Err(Error::not_found(WHAT))
        }
    }

    pub async fn permission(&self, by: &Principal, permission: PermissionId) -> Result<PermissionRequest> {
        self.find_permission(&by.may(Action::SeePermissions)?, permission).await.map(render::permission)
    }

    /// How many pending permission requests the caller may see. Only the newest page is checked.
    pub async fn pending_permissions(&self, by: &Principal) -> Result<u64> {
        by.may_all(Action::SeePermissions)?;
        let mut pending = self.store().pending_permissions(by.tenant).await.map_err(about("permission request"))?;
        if pending == 0 {
            return Ok(0);
        }
        let filter = PermissionFilter { state: Some(PermissionState::Pending), ..PermissionFilter::default() };
        let page = Pagination { limit: check::MAX_PAGE, cursor: None };
        let newest = self.store().permissions(by.tenant, filter, page).await.map_err(about("permission request"))?;
        let mut reach = self.caller_access(by).await?;
        for request in &newest.items {
            if !self.sees_permission(&mut reach, by, request).await? {
                pending = pending.saturating_sub(1);
            }
        }
        Ok(pending)
    }

    /// A person decides. The first decision counts. The same person repeating it gets the same result. Anyone else
    /// learns who decided ([`Error::permission`]), and the attempt is logged.
    pub async fn decide(
        &self,
        by: &Principal,
        permission: PermissionId,
        request: DecisionRequest,
        place: DecisionOrigin,
    ) -> Result<PermissionRequest> {
        self.decide_confirmed(by, permission, request, place, ApprovalConfirmation::None).await
    }

    /// The same for a decision that the person confirmed in this way.
    pub(super) async fn decide_confirmed(
        &self,
        by: &Principal,
        permission: PermissionId,
        request: DecisionRequest,
        place: DecisionOrigin,
        confirmed: ApprovalConfirmation,
    ) -> Result<PermissionRequest> {
        let permit = by.may(Action::DecidePermission)?;
        check_decision(&request, self.now())?;
        let asked = self.find_permission(&permit, permission).await?;
        self.check_told(by, &asked).await?;
        let needs_passkey = asked.confirm_approvals == ApprovalConfirmation::Passkey;
        if request.approved && needs_passkey && confirmed != ApprovalConfirmation::Passkey {
            let message = format!("Approvals of `{}` need a passkey.", asked.agent_name);
            return Err(Error::new(Code::PasskeyRequired, message));
        }
        // The agent is told the comment.
        if request.comment.as_deref().is_some_and(|comment| !comment.trim().is_empty()) {
            let run = self.store().run(by.tenant, asked.run).await.map_err(about("run"))?;
            self.check_listener(by, &run).await?;
            if matches!(request.scope, DecisionScope::Conversation | DecisionScope::Agent) {
                self.check_later_speaker(by, asked.agent).await?;
            }
        }
        if request.this_channel_only || request.scope != DecisionScope::Once {
            // Without a channel, the grant would apply everywhere.
            if request.this_channel_only && asked.channel.is_none() {
                return Err(Error::invalid("this_channel_only", "requires a request that came over a channel"));
            }
            // Rejected rather than narrowed: the person must know what the decision applies to.
            if let Some(reason) = asked.once().filter(|_| request.scope != DecisionScope::Once)
                && widest(request.approved, Some(reason)) == DecisionScope::Once
            {
                return Err(Error::invalid("scope", once_only(reason)));
            }
        }
        let backing = self.backing_key(by).await?;
        let (key, key_ends) = backing.map_or((None, None), |(key, ends_at)| (Some(key), ends_at));
        // An approval doesn't outlive the key or token it was given with.
        let until = match request.approved && request.scope != DecisionScope::Once {
            true => request.until.into_iter().chain(key_ends).chain(by.token_ends_at()).min(),
            false => request.until,
        };
        let decision = ApprovalDecision {
            approved: request.approved,
            scope: request.scope,
            tool_pattern: request.tool_pattern,
            until,
            this_channel_only: request.this_channel_only,
            comment: request.comment,
        };
        let new = NewDecision {
            decision,
            grant: self.env().grant_id(),
            maker: GrantMaker { user: by.user, key, in_person: by.is_in_person() },
            via: place.via.to_owned(),
            from: place.from,
        };
        let decided = self.store().decide_permission(self.context(by), permission, new).await;
        decided.map(render::permission).map_err(about("permission request"))
    }

    /// Standing grants and denials, newest first, including ended ones.
    pub async fn grants(&self, by: &Principal, page: PageRequest) -> Result<GrantList> {
        by.may_all(Action::SeeGrants)?;
        let (mut reach, mut visible) = (self.caller_access(by).await?, VisiblePage::new(page.page()?));
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("grant", &asked);
            let listed = self.store().grants(by.tenant, asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for grant in &listed.items {
                seen.push(reach.belongings(grant.agent).await?);
            }
            visible.take(listed, &seen);
        }
        let (grants, next_cursor) = visible.finish();
        Ok(GrantList { permission_grants: grants.into_iter().map(render::grant).collect(), next_cursor })
    }

    /// The grant stops answering requests. Revoking again has no effect.
    pub async fn revoke_grant(&self, by: &Principal, grant: GrantId) -> Result<PermissionGrant> {
        self.check_grant(&by.may(Action::RevokeGrant)?, grant).await?;
        let revoked = self.store().revoke_grant(self.context(by), grant).await;
        revoked.map(render::grant).map_err(about("grant"))
    }

    /// Only the owner of a private agent decides what other agents may ask it to do.
    pub(super) async fn check_told(&self, by: &Principal, asked: &PermissionRecord) -> Result<()> {
        let Some(name) = asked.tool.strip_prefix(REMOTE_AGENT) else { return Ok(()) };
        let told = match asked.private_agent {
            true => self.called_private_agent(by, asked).await?.map(AgentRef::Id),
            false => Some(AgentRef::Name(name.to_owned())),
        };
        let told = told.ok_or_else(|| Error::not_found("permission request"))?;
        match self.store().account(by.tenant, told).await {
            Ok(told) => self.check_caller(by, &told).await,
            Err(attache_store::Error::NotFound) => Ok(()),
            Err(error) => Err(Error::from_store("agent", error)),
        }
    }

    /// A grant of an agent hidden from the caller does not exist for them.
    async fn check_grant(&self, permit: &Permit<'_>, grant: GrantId) -> Result<()> {
        let by = permit.by();
        let mut reach = self.caller_access(by).await?;
        let mut grants = check::all_pages("grant", |page| self.store().grants(by.tenant, page));
        while let Some(found) = grants.next().await? {
            if found.grant.id == grant && permit.covers_others() && reach.belongings(found.agent).await? {
                return Ok(());
            }
        }
        Err(Error::not_found("grant"))
    }

    pub(super) async fn approval_policy(&self, by: &Principal, agent: AgentId) -> Result<ApprovalPolicy> {
        let account = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        Ok(policy_of(&account))
    }

    /// The run's callback for permission requests, which replaces the agent's webhook. The store decides whether the
    /// run exists and accepts a request.
    pub(super) async fn approval_parties(&self, by: &Principal, run: RunId) -> Result<ApprovalParties> {
        let run = match self.store().run(by.tenant, run).await {
            Ok(run) => run,
            // The request itself is refused with the reason.
            Err(attache_store::Error::NotFound) => return Ok(ApprovalParties::default()),
            Err(error) => return Err(Error::from_store("run", error)),
        };
        let (speaker, plan) = (self.only_speaker(&run).await?, self.plan_state(&run).await?);
        let mode = run.spec.permission_mode;
        let callback = run.spec.callback.filter(|callback| callback.approvals).map(|callback| callback.url);
        Ok(ApprovalParties { callback, speaker, mode, plan })
    }

    /// When a new request expires under this policy, and what happens then.
    pub(super) fn approval_timeout(&self, policy: &ApprovalPolicy) -> (Option<Timestamp>, OnTimeout) {
        let on_timeout = policy.on_timeout.unwrap_or(self.options().on_permission_timeout);
        let timeout = policy.timeout_ms.map_or(self.options().permission_timeout, Duration::from_millis);
        let expires_at = (on_timeout != OnTimeout::KeepWaiting).then(|| self.now().plus(timeout));
        (expires_at, on_timeout)
    }

    /// Only the runtime that asked gets the answer.
    async fn own_permission(
        &self,
        permit: &Permit<'_>,
        run: RunId,
        permission: PermissionId,
    ) -> Result<PermissionRecord> {
        let (runtime, _) = permit.device()?;
        let found =
            self.store().permission(permit.by().tenant, permission).await.map_err(about("permission request"))?;
        if found.run == run && found.runtime == runtime {
            return Ok(found);
        }
        Err(Error::not_found("permission request"))
    }
}

/// The agent's text is stored as is. Only its size is limited.
fn check_permission_request(request: &CreatePermissionRequest) -> Result<()> {
    check::line("tool", &request.tool, 1..=200)?;
    // A worker that could ask in the hub's name could get a call to a private agent approved as something else.
    if request.tool.starts_with(REMOTE_AGENT) {
        return Err(Error::invalid(
            "tool",
            "must not start with `remote_agent/`: the hub itself asks for calls to other agents",
        ));
    }
    check::sized("input", &request.input, MAX_INPUT)?;
    if let Some(cwd) = &request.cwd {
        check::text("cwd", cwd, 1..=4096)?;
    }
    if request.paths.len() > MAX_PATHS {
        return Err(Error::invalid("paths", "must have at most 1000 entries"));
    }
    for path in &request.paths {
        check::text("paths", path, 1..=4096)?;
    }
    if request.paths.iter().map(String::len).sum::<usize>() > MAX_PATH_BYTES {
        return Err(Error::in_field(Code::TooLarge, "paths", &format!("is larger than {MAX_PATH_BYTES} bytes")));
    }
    if let Some(reason) = &request.reason {
        check::text("reason", reason, 0..=16 * 1024)?;
    }
    if let Some(risk) = &request.risk {
        check::line("risk", risk, 1..=32)?;
    }
    if let Some(diff) = &request.diff {
        check::text("diff", diff, 0..=MAX_DIFF)?;
    }
    if request.undisclosed.len() > MAX_UNDISCLOSED {
        return Err(Error::invalid("undisclosed", "must have at most 20 entries"));
    }
    for what in &request.undisclosed {
        check::line("undisclosed", what, 1..=200)?;
    }
    request.request_id.as_deref().map_or(Ok(()), |name| check::token("request_id", name, 1..=200))
}

fn check_decision(request: &DecisionRequest, now: Timestamp) -> Result<()> {
    if let Some(pattern) = &request.tool_pattern {
        check::line("tool_pattern", pattern, 1..=200)?;
    }
    if request.scope == DecisionScope::Once && (request.tool_pattern.is_some() || request.until.is_some()) {
        let field = if request.until.is_some() { "until" } else { "tool_pattern" };
        return Err(Error::invalid(field, "requires a scope other than `once`: `run`, `conversation` or `agent`"));
    }
    if request.until.is_some_and(|until| until <= now) {
        return Err(Error::invalid("until", "must be in the future"));
    }
    request.comment.as_deref().map_or(Ok(()), |comment| check::text("comment", comment, 0..=4096))
}
