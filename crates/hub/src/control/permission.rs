//! The permission bridge: a worker asks for a risky step and waits, a person decides once, and grants answer the next time.

use std::time::Duration;

use attache_protocol::{
    AgentId, ChannelId, Code, GrantId, PermissionId, RunId, Timestamp,
    rules::permission::{
        ApprovalDecision, DecisionScope, OnTimeout, PermissionState, PermissionSubject, hides_input, widest,
    },
    wire::permission::{
        ApprovalPolicy, CreatePermissionRequest, DecisionRequest, GrantList, PermissionAnswer, PermissionGrant,
        PermissionList, PermissionRequest,
    },
};
use attache_store::record::{
    AgentRef, Pagination,
    worker_request::{NewDecision, NewPermission, PermissionFilter, PermissionRecord},
};
use tokio::time::Instant;

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    control::{PageRequest, approval::REMOTE_AGENT, check, pull::MAX_WAIT},
    error::{about, about_list},
    identity::{Action, CredentialGuard},
    render,
};

pub(super) const MAX_INPUT: usize = 256 * 1024;
const MAX_DIFF: usize = 256 * 1024;
const MAX_PATHS: usize = 1000;
/// All of them together.
const MAX_PATH_BYTES: usize = 64 * 1024;
const MAX_UNDISCLOSED: usize = 20;

/// Why an approval cannot reach further than its own request.
const UNSEEN: &str = "must be `once`: the agent does not disclose what the tool would be given, and a wider approval would \
                      cover steps that nobody has seen";

/// Which permission requests to list; every member that is given must match.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PermissionQuery {
    pub state: Option<PermissionState>,
    pub run: Option<RunId>,
    /// By id or name.
    pub agent: Option<String>,
}

/// Where a decision was made, for the record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionOrigin {
    /// The surface: `rest`, `console` or `channel`.
    pub via: &'static str,
    /// The address of the person's browser or program.
    pub from: Option<String>,
}

// === impl Handle ===

impl Handle {
    /// A worker asks. The run waits, unless a standing grant answers at once. Asking the same again gives the same request
    /// back. `via` is the channel over which it is asked.
    pub async fn request_permission(
        &self,
        by: &Principal,
        run: RunId,
        request: CreatePermissionRequest,
        via: Option<ChannelId>,
    ) -> Result<PermissionRequest> {
        by.may(Action::Work)?;
        let (_, agent) = by.device()?;
        let worker = by.worker(request.epoch)?;
        check_permission_request(&request)?;
        let policy = self.approval_policy(by, agent).await?;
        let (expires_at, on_timeout) = self.approval_timeout(&policy);
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
            request: request.request_id,
            channel: via,
            expires_at,
            on_timeout,
            notify: self.callback_for_approval(by, run).await.or(policy.webhook_url),
        };
        let lease = self.options().heartbeat_timeout;
        match self.store().request_permission(worker, permission, lease, self.now()).await {
            Ok(asked) => Ok(render::permission(asked)),
            Err(error) => Err(self.refusal(by, error).await),
        }
    }

    /// The asker waits up to `wait` (at most a minute) for the answer, and gets the request as it is then.
    pub async fn permission_answer(
        &self,
        by: &Principal,
        run: RunId,
        permission: PermissionId,
        wait: Duration,
    ) -> Result<PermissionAnswer> {
        by.may(Action::Work)?;
        let deadline = Instant::now() + wait.min(MAX_WAIT);
        let mut asked = self.bus().watch(Topic::Asked(run));
        let mut guard = CredentialGuard::new(self, by);
        loop {
            let found = self.own_permission(by, run, permission).await?;
            if found.state != PermissionState::Pending || Instant::now() >= deadline {
                return Ok(render::answer(found));
            }
            let look_again = deadline.min(Instant::now() + self.options().poll_every);
            tokio::select! {
                () = asked.moved() => {}
                () = tokio::time::sleep_until(look_again) => {}
                () = self.drained() => return Ok(render::answer(found)),
                error = guard.broken() => return Err(error),
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
        by.may(Action::SeePermissions)?;
        let page = page.page()?;
        let agent = match query.agent {
            Some(agent) => Some(self.resolve_agent(by, &agent).await?),
            None => None,
        };
        let filter = PermissionFilter { state: query.state, run: query.run, agent };
        let failed = about_list("permission request", &page);
        let listed = self.store().permissions(by.tenant, filter, page).await.map_err(failed)?;
        let (mut reach, mut permission_requests) = (self.caller_access(by).await?, Vec::new());
        for request in listed.items {
            if reach.belongings(request.agent).await? {
                permission_requests.push(render::permission(request));
            }
        }
        Ok(PermissionList { permission_requests, next_cursor: listed.next })
    }

    /// The request, unless it is of an agent that is kept from the caller.
    async fn open_permission(&self, by: &Principal, permission: PermissionId) -> Result<PermissionRecord> {
        const WHAT: &str = "permission request";
        let found = self.store().permission(by.tenant, permission).await.map_err(about(WHAT))?;
        if self.caller_access(by).await?.belongings(found.agent).await? {
            Ok(found)
        } else {
            Err(Error::not_found(WHAT))
        }
    }

    pub async fn permission(&self, by: &Principal, permission: PermissionId) -> Result<PermissionRequest> {
        by.may(Action::SeePermissions)?;
        self.open_permission(by, permission).await.map(render::permission)
    }

    /// How many permission requests wait for a person who may see them; those beyond the newest page are not looked at.
    pub async fn pending_permissions(&self, by: &Principal) -> Result<u64> {
        by.may(Action::SeePermissions)?;
        let mut pending = self.store().pending_permissions(by.tenant).await.map_err(about("permission request"))?;
        if pending == 0 {
            return Ok(0);
        }
        let filter = PermissionFilter { state: Some(PermissionState::Pending), ..PermissionFilter::default() };
        let page = Pagination { limit: check::MAX_PAGE, cursor: None };
        let newest = self.store().permissions(by.tenant, filter, page).await.map_err(about("permission request"))?;
        let mut reach = self.caller_access(by).await?;
        for request in &newest.items {
            if !reach.belongings(request.agent).await? {
                pending = pending.saturating_sub(1);
            }
        }
        Ok(pending)
    }

    /// A person decides. The first decision counts; the same person repeating it gets it back; everybody else is told
    /// who was first ([`Error::permission`]), and that they tried is recorded.
    pub async fn decide(
        &self,
        by: &Principal,
        permission: PermissionId,
        request: DecisionRequest,
        place: DecisionOrigin,
    ) -> Result<PermissionRequest> {
        by.may(Action::DecidePermission)?;
        check_decision(&request, self.now())?;
        let asked = self.open_permission(by, permission).await?;
        self.check_told(by, &asked.tool).await?;
        if request.this_channel_only || request.scope != DecisionScope::Once {
            // Without a channel the grant would hold everywhere.
            if request.this_channel_only && asked.channel.is_none() {
                return Err(Error::invalid("this_channel_only", "needs a request that was asked over a channel"));
            }
            // Refused rather than narrowed: whoever decides must know how far the answer reaches.
            if request.scope != DecisionScope::Once
                && widest(request.approved, hides_input(&asked.undisclosed)) == DecisionScope::Once
            {
                return Err(Error::invalid("scope", UNSEEN));
            }
        }
        let decision = ApprovalDecision {
            approved: request.approved,
            scope: request.scope,
            tool_pattern: request.tool_pattern,
            until: request.until,
            this_channel_only: request.this_channel_only,
            comment: request.comment,
        };
        let new = NewDecision { decision, grant: self.env().grant_id(), via: place.via.to_owned(), from: place.from };
        let decided = self.store().decide_permission(self.context(by), permission, new).await;
        decided.map(render::permission).map_err(about("permission request"))
    }

    /// Standing grants and denials, newest first, with those that ended.
    pub async fn grants(&self, by: &Principal, page: PageRequest) -> Result<GrantList> {
        by.may(Action::SeeGrants)?;
        let page = page.page()?;
        let failed = about_list("grant", &page);
        let listed = self.store().grants(by.tenant, page).await.map_err(failed)?;
        let (mut reach, mut permission_grants) = (self.caller_access(by).await?, Vec::new());
        for grant in listed.items {
            if reach.belongings(grant.agent).await? {
                permission_grants.push(render::grant(grant));
            }
        }
        Ok(GrantList { permission_grants, next_cursor: listed.next })
    }

    /// From now on it answers nothing. Revoking again changes nothing.
    pub async fn revoke_grant(&self, by: &Principal, grant: GrantId) -> Result<PermissionGrant> {
        by.may(Action::RevokeGrant)?;
        self.check_grant(by, grant).await?;
        let revoked = self.store().revoke_grant(self.context(by), grant).await;
        revoked.map(render::grant).map_err(about("grant"))
    }

    /// Only its owner decides what other agents tell an agent that is its owner's alone.
    async fn check_told(&self, by: &Principal, tool: &str) -> Result<()> {
        let Some(told) = tool.strip_prefix(REMOTE_AGENT) else { return Ok(()) };
        match self.store().account(by.tenant, AgentRef::Name(told.to_owned())).await {
            Ok(told) => self.check_caller(by, &told).await,
            Err(attache_store::Error::NotFound) => Ok(()),
            Err(error) => Err(Error::from_store("agent", error)),
        }
    }

    /// A grant of an agent that is kept from the caller is not there.
    async fn check_grant(&self, by: &Principal, grant: GrantId) -> Result<()> {
        let (mut reach, mut cursor) = (self.caller_access(by).await?, None);
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.store().grants(by.tenant, page).await.map_err(about("grant"))?;
            if let Some(found) = listed.items.iter().find(|found| found.grant.id == grant) {
                return if reach.belongings(found.agent).await? { Ok(()) } else { Err(Error::not_found("grant")) };
            }
            cursor = listed.next;
            if cursor.is_none() {
                return Err(Error::not_found("grant"));
            }
        }
    }

    pub(super) async fn approval_policy(&self, by: &Principal, agent: AgentId) -> Result<ApprovalPolicy> {
        let account = self.store().account(by.tenant, AgentRef::Id(agent)).await.map_err(about("agent"))?;
        Ok(account.approvals.and_then(|policy| policy.parse().ok()).unwrap_or_default())
    }

    /// Where the run's caller wants to be told of its permission requests, instead of the agent's webhook. Whether the run
    /// is there and takes a request is for the store to say.
    pub(super) async fn callback_for_approval(&self, by: &Principal, run: RunId) -> Option<String> {
        let callback = self.store().run(by.tenant, run).await.ok()?.callback?;
        callback.approvals.then_some(callback.url)
    }

    /// When a new request expires under this policy, and what happens then.
    pub(super) fn approval_timeout(&self, policy: &ApprovalPolicy) -> (Option<Timestamp>, OnTimeout) {
        let on_timeout = policy.on_timeout.unwrap_or(self.options().on_permission_timeout);
        let timeout = policy.timeout_ms.map_or(self.options().permission_timeout, Duration::from_millis);
        let expires_at = (on_timeout != OnTimeout::KeepWaiting).then(|| self.now().plus(timeout));
        (expires_at, on_timeout)
    }

    /// Only the runtime that asked hears the answer.
    async fn own_permission(&self, by: &Principal, run: RunId, permission: PermissionId) -> Result<PermissionRecord> {
        let (runtime, _) = by.device()?;
        let found = self.store().permission(by.tenant, permission).await.map_err(about("permission request"))?;
        if found.run == run && found.runtime == runtime {
            return Ok(found);
        }
        Err(Error::not_found("permission request"))
    }
}

/// What an agent says is kept as it is; only its size is limited.
fn check_permission_request(request: &CreatePermissionRequest) -> Result<()> {
    check::line("tool", &request.tool, 1..=200)?;
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
        return Err(Error::new(Code::TooLarge, format!("`paths` is larger than {MAX_PATH_BYTES} bytes.")));
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
        return Err(Error::invalid(field, "needs a scope beyond `once`: `run`, `conversation` or `agent`"));
    }
    if request.until.is_some_and(|until| until <= now) {
        return Err(Error::invalid("until", "must lie in the future"));
    }
    request.comment.as_deref().map_or(Ok(()), |comment| check::text("comment", comment, 0..=4096))
}
