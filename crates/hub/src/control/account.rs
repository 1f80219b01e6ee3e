//! Agent accounts: create, read, edit, archive.

use std::{ops::RangeInclusive, time::Duration};

use attache_protocol::{
    Code, Json, UserId,
    rules::{command_pattern::CommandPattern, permission_mode::PermissionMode},
    wire::{
        a2a_options::A2aOptions,
        account::{Account, AccountList, AccountRequest, ApprovalConfirmation, Callers},
        key::KeyScope,
        permission::ApprovalPolicy,
    },
};
use attache_store::{
    WriteContext,
    record::{AccountPatch, AccountRecord, AgentRef, ArchivedNames, NewAccount, RuntimeRecord, user::UserRef},
};

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check,
    control::{PageRequest, a2a_options::check_a2a_options, create_run::DURATIONS},
    error::{about, about_list},
    identity::{Action, Permit},
    visible_page::VisiblePage,
};

const MAX_TEXT: usize = 64 * 1024;
const MAX_SKILLS: usize = 100;
const MAX_TRUSTED_COMMANDS: usize = 100;
const MAX_TRUSTED_COMMAND: usize = 200;
/// What only the owner of an agent does, as in "Only the owner of this agent can …".
const INSTRUCTING: &str = "change what it is told with every task";
const APPROVING: &str = "approve its steps in advance";
/// How long a permission request may wait for a decision: one second to one year.
const APPROVAL_TIMEOUTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(365 * 24 * 60 * 60);

impl Handle {
    pub async fn create_account(&self, by: &Principal, request: AccountRequest) -> Result<Account> {
        by.may_all(Action::CreateAgent)?;
        check_request(&request)?;
        if let Some(name) = &request.name {
            self.free_of_rules(by, name, None).await?;
        }
        let owner = self.new_owner(by, request.owner.as_deref()).await?;
        if lets_others_in(&request) {
            self.check_forwarding(by).await?;
        }
        if request.instructions.as_deref().is_some_and(|new| !new.is_empty()) {
            self.check_instructor(by, (owner.unwrap_or(by.user), None), INSTRUCTING).await?;
        }
        check_recipients(by, &request, request.callers.unwrap_or_default(), owner.unwrap_or(by.user))?;
        let confirm_approvals = request.confirm_approvals.unwrap_or_default();
        if confirm_approvals != ApprovalConfirmation::None {
            self.check_confirmation(by, owner.unwrap_or(by.user), confirm_approvals).await?;
        }
        if check_approving(by, &request, &ApprovalPolicy::default())? {
            self.check_instructor(by, (owner.unwrap_or(by.user), None), APPROVING).await?;
        }
        self.check_webhook(&request).await?;
        // Read the card first: an agent that can't be used is not added.
        let peer = match request.peer.clone() {
            Some(peer) => Some(self.look_at_peer(peer, None).await?),
            None => None,
        };
        let request = peer.as_ref().map_or_else(|| request.clone(), |peer| peer.describe(request.clone()));
        let account = NewAccount {
            archived_names: archived_names(by),
            author: author(by),
            approvals: request.approvals.map(|policy| Json::of(&policy)),
            id: self.env().agent_id(),
            name: request.name.ok_or_else(|| Error::invalid("name", "is missing"))?,
            description: request.description,
            instructions: request.instructions,
            skills: Json::of(&request.skills.unwrap_or_default()),
            a2a: request.a2a,
            callers: request.callers.unwrap_or_default(),
            run_timeout: request.run_timeout_ms.and_then(run_timeout),
            on_limit: request.on_limit.unwrap_or_default(),
            confirm_approvals,
        };
        let context = self.context(by);
        let context = match owner {
            Some(owner) => context.for_user(owner),
            None => context,
        };
        let account = self.store().create_account(context, account).await.map_err(about("agent"))?;
        if let Some(peer) = peer {
            self.keep_peer(by, &account, peer).await?;
        }
        self.show_account(account).await
    }

    /// By id or by name.
    pub async fn account(&self, by: &Principal, agent: &str) -> Result<Account> {
        by.may_all(Action::SeeAgents)?;
        let agent = check::agent_in_path(agent)?;
        let account = self.store().account(by.tenant, agent).await.map_err(about("agent"))?;
        match self.caller_access(by).await?.agent(&account).await? {
            true => self.show_account_to(by, account).await,
            false => Err(Error::not_found("agent")),
        }
    }

    /// Accounts that are not archived, by name.
    pub async fn accounts(&self, by: &Principal, page: PageRequest) -> Result<AccountList> {
        by.may_all(Action::SeeAgents)?;
        let (mut reach, mut visible) = (self.caller_access(by).await?, VisiblePage::new(page.page()?));
        while let Some(asked) = visible.next_read(self, by).await {
            let failed = about_list("agent", &asked);
            let listed = self.store().accounts(by.tenant, asked).await.map_err(failed)?;
            let mut seen = Vec::with_capacity(listed.items.len());
            for account in &listed.items {
                seen.push(reach.agent(account).await?);
            }
            visible.take(listed, &seen);
        }
        let (accounts, next_cursor) = visible.finish();
        let mut agent_accounts = Vec::with_capacity(accounts.len());
        for account in accounts {
            agent_accounts.push(self.show_account_to(by, account).await?);
        }
        Ok(AccountList { agent_accounts, next_cursor })
    }

    /// What an agent is told with every task, what is approved in advance, and where its requests are sent is for those who
    /// may change it.
    async fn show_account_to(&self, by: &Principal, account: AccountRecord) -> Result<Account> {
        let is_own = by.user.is_some() && by.user == account.owner;
        let may_edit = is_own
            || match by.may(Action::EditAgent) {
                Ok(permit) => {
                    self.find_agent(&permit, &account.id.to_string()).await.is_ok()
                        && self.check_editor(by, &account).await.is_ok()
                }
                Err(_) => false,
            };
        let shown = self.show_account(account).await?;
        if may_edit {
            return Ok(shown);
        }
        // The mode says what a caller can expect.
        let mode = shown.approvals.as_ref().and_then(|policy| policy.mode);
        let approvals = mode.map(|mode| ApprovalPolicy { mode: Some(mode), ..ApprovalPolicy::default() });
        Ok(Account { instructions: None, approvals, ..shown })
    }

    pub async fn update_account(&self, by: &Principal, agent: &str, request: AccountRequest) -> Result<Account> {
        let permit = by.may(Action::EditAgent)?;
        let agent = self.find_agent(&permit, agent).await?;
        check_request(&request)?;
        // An admin may stop such an agent, but can't put it to work.
        let mut account = self.store().account(by.tenant, agent.clone()).await.map_err(about("agent"))?;
        self.check_editor(by, &account).await?;
        let shares = request.callers == Some(Callers::Everyone) && account.callers == Callers::Owner;
        if lets_others_in(&request) || shares || request.owner.is_some() {
            self.check_forwarding(by).await?;
        }
        if check_approving(by, &request, &policy_of(&account))? {
            self.check_instructor(by, (account.owner, account.runtime.as_ref()), APPROVING).await?;
        }
        if let Some(needed) = request.confirm_approvals.filter(|needed| *needed != account.confirm_approvals) {
            self.check_confirmation(by, account.owner, needed).await?;
        }
        // Instructions are part of every prompt, also of the owner's own runs.
        let instructs = request.instructions.as_deref().is_some_and(|new| account.instructions.as_deref() != Some(new));
        if instructs {
            self.check_instructor(by, (account.owner, account.runtime.as_ref()), INSTRUCTING).await?;
        }
        // Who sends something to a name means the agent that had it.
        let renames = request.name.as_ref().is_some_and(|name| *name != account.name);
        if lets_others_in(&request) || instructs || renames {
            self.check_owner(by, account.owner).await?;
        }
        if let Some(name) = request.name.as_ref().filter(|name| **name != account.name) {
            self.keep_limits(&permit, &agent).await?;
            self.free_of_rules(by, name, Some(&account.name)).await?;
        }
        self.check_webhook(&request).await?;
        let peer = match request.peer.clone() {
            Some(peer) => Some(self.look_at_peer(peer, Some(&account)).await?),
            None => None,
        };
        if lets_others_in(&request) {
            // They were looked up, which takes as long as others like. The agent may have become private meanwhile.
            account = self.store().account(by.tenant, agent.clone()).await.map_err(about("agent"))?;
            self.check_editor(by, &account).await?;
        }
        let owner = self.new_owner(by, request.owner.as_deref()).await?;
        if owner.is_some() {
            self.check_owner(by, account.owner).await?;
        }
        check_recipients(by, &request, request.callers.unwrap_or(account.callers), owner.unwrap_or(account.owner))?;
        let patch = AccountPatch {
            archived_names: archived_names(by),
            author: author(by),
            owner,
            approvals: request.approvals.map(|policy| Json::of(&policy)),
            name: request.name,
            description: request.description,
            instructions: request.instructions,
            skills: request.skills.map(|skills| Json::of(&skills)),
            a2a: request.a2a,
            callers: request.callers,
            run_timeout: request.run_timeout_ms.map(run_timeout),
            on_limit: request.on_limit,
            confirm_approvals: request.confirm_approvals,
        };
        let updated = self.store().update_account(self.context(by), agent, patch).await.map_err(about("agent"))?;
        self.access().names.agents.forget(&updated.id);
        if (updated.callers, updated.owner) != (account.callers, account.owner) {
            // Keys and devices of others have been revoked, or now act for another user.
            self.credentials().forget_agent(updated.id);
            self.bus().wake([Topic::Rights(by.tenant)]);
        }
        if let Some(peer) = peer {
            self.keep_peer(by, &updated, peer).await?;
        }
        self.show_account(updated).await
    }

    /// Revokes the agent's runtime and cancels its live runs. Its name stays with its owner.
    pub async fn archive_account(&self, by: &Principal, agent: &str) -> Result<Account> {
        let permit = by.may(Action::ArchiveAgent)?;
        let agent = self.find_agent(&permit, agent).await?;
        self.keep_limits(&permit, &agent).await?;
        self.check_archiving(by, &agent).await?;
        let account = self.store().account(by.tenant, agent.clone()).await.map_err(about("agent"))?;
        self.check_owner(by, account.owner).await?;
        let archived = self.store().archive_account(self.context(by), agent).await.map_err(about("agent"))?;
        self.credentials().forget_agent(archived.id);
        self.show_account(archived).await
    }

    /// Whoever may put the agent to work. Once its owner was removed, an owner of the hub decides what becomes of it.
    async fn check_editor(&self, by: &Principal, account: &AccountRecord) -> Result<()> {
        match self.check_caller(by, account).await {
            Err(_) if by.is_owner(None) && by.scopes.is_none() && self.has_left(by, account.owner).await? => Ok(()),
            checked => checked,
        }
    }

    /// What an agent is told with every task, and which of its steps are approved in advance, also counts in runs that its
    /// owner starts in person. Written by others, it keeps these inside walls ([`AccountRecord::instructing_owner`]), so
    /// nobody else changes it once the owner has paired a device.
    async fn check_instructor(
        &self,
        by: &Principal,
        (owner, device): (Option<UserId>, Option<&RuntimeRecord>),
        tried: &str,
    ) -> Result<()> {
        self.check_lasting(by, tried).await?;
        let refused = |message: String, hint: &'static str| Err(Error::new(Code::Forbidden, message).hint(hint));
        let is_paired = device.is_some_and(|device| owner.is_some() && device.paired_by == owner);
        match owner {
            Some(owner) if by.is_in_person_as(owner) => Ok(()),
            Some(owner) if by.user == Some(owner) && (is_paired || !by.is_issued) => refused(
                format!("This credential has fewer rights than its person, so it can't {tried}."),
                "Sign in with your password, or use a key of yours with your own role and without scopes.",
            ),
            Some(_) if is_paired && !self.has_left(by, owner).await? => refused(
                format!("Only the owner of this agent can {tried}."),
                "It also counts in runs outside the sandbox of their device. Ask them, or become its owner.",
            ),
            Some(_) | None if by.scopes.is_none() => Ok(()),
            Some(_) | None => refused(format!("A key with scopes can't {tried}."), "Use a key without scopes."),
        }
    }

    /// Where an agent's work is sent, and whether anonymous callers may call it, outlasts whoever says so. It can also show them
    /// what their key may not read, or call what it may not.
    pub(crate) async fn check_forwarding(&self, by: &Principal) -> Result<()> {
        self.check_lasting(by, "open an agent to others or decide where its work is sent").await?;
        let has = |scope| by.scopes.as_ref().is_none_or(|scopes| scopes.contains(&scope));
        match has(KeyScope::Read) && has(KeyScope::Call) {
            true => Ok(()),
            false => Err(Error::forbidden("This key can't open an agent to others or decide where its work is sent.")
                .hint("Use a key with the scopes read, call and manage, or one without scopes.")),
        }
    }

    /// Whether this owner was removed.
    pub(crate) async fn has_left(&self, by: &Principal, owner: Option<UserId>) -> Result<bool> {
        let Some(owner) = owner else { return Ok(false) };
        let owner = self.store().user(by.tenant, UserRef::Id(owner)).await.map_err(about("user"))?;
        Ok(owner.removed_at.is_some())
    }

    /// Owners and admins can take the name of an archived agent, and whoever takes it gets what its owner still sends there. So
    /// only its owner archives a private agent, unless they have left.
    async fn check_archiving(&self, by: &Principal, agent: &AgentRef) -> Result<()> {
        let account = self.store().account(by.tenant, agent.clone()).await.map_err(about("agent"))?;
        let Some(owner) = account.owner.filter(|_| self.private_work(by).is_kept(&account)) else { return Ok(()) };
        let owner = self.store().user(by.tenant, UserRef::Id(owner)).await.map_err(about("user"))?;
        if owner.removed_at.is_some() {
            return Ok(());
        }
        Err(Error::new(Code::Forbidden, format!("The agent `{}` is private to {}.", account.name, owner.name)).hint(
            "Only they can archive it. If they have left, remove the person first (`attache users remove NAME`). To stop \
             its device, revoke the runtime.",
        ))
    }

    async fn check_webhook(&self, request: &AccountRequest) -> Result<()> {
        match request.approvals.as_ref().and_then(|policy| policy.webhook_url.as_deref()) {
            Some(url) => self.check_egress("approvals.webhook_url", url).await,
            None => Ok(()),
        }
    }

    /// The agent in a path, if the permit covers it.
    pub(crate) async fn find_agent(&self, permit: &Permit<'_>, agent: &str) -> Result<AgentRef> {
        let agent = check::agent_in_path(agent)?;
        if permit.covers_others() {
            return Ok(agent);
        }
        let account = self.store().account(permit.by().tenant, agent).await.map_err(about("agent"))?;
        if permit.covers_user(account.owner) { Ok(AgentRef::Id(account.id)) } else { Err(not_own()) }
    }

    /// The new owner in a request, if any. An empty string means no owner.
    async fn new_owner(&self, by: &Principal, owner: Option<&str>) -> Result<Option<Option<UserId>>> {
        let Some(owner) = owner else { return Ok(None) };
        by.may_all(Action::GiveAgent)?;
        if owner.is_empty() {
            return Ok(Some(None));
        }
        let owner = self.named_user(by, "owner", owner).await?;
        match by.is_below(&owner) {
            true => Err(Error::forbidden("You can't give an agent to a person whose role is above yours.")
                .hint("The agent would act with that person's rights. Ask them to add their own agent.")),
            false => Ok(Some(Some(owner.id))),
        }
    }

    /// A device or program that becomes an agent acts for its owner, so a caller with a lower role can't pair one.
    pub(crate) async fn check_owner(&self, by: &Principal, owner: Option<UserId>) -> Result<()> {
        let Some(owner) = owner.filter(|owner| by.user != Some(*owner)) else { return Ok(()) };
        let owner = self.store().user(by.tenant, UserRef::Id(owner)).await.map_err(about("user"))?;
        match by.is_below(&owner) {
            true => Err(Error::forbidden("This agent belongs to a person whose role is above yours.")
                .hint("Ask its owner to do it.")),
            false => Ok(()),
        }
    }

    /// The write context: actor, time and tenant.
    pub(crate) fn context(&self, by: &Principal) -> WriteContext {
        WriteContext::new(by.tenant, by.actor(), self.now()).for_user(by.user)
    }
}

/// Users can see each other's agents, so this does not reveal anything.
fn not_own() -> Error {
    Error::forbidden("This agent belongs to someone else.").hint("Ask its owner or an admin.")
}

/// Whether the request says where an agent's work or approval requests are sent, lets anonymous callers call it, or approves
/// something in advance.
fn lets_others_in(request: &AccountRequest) -> bool {
    let is_open = A2aOptions::of(request.a2a.as_ref()).anonymous;
    let is_told = |policy: &ApprovalPolicy| {
        let trusts = policy.mode.is_some_and(PermissionMode::trusts) || !policy.trusted_commands.is_empty();
        policy.webhook_url.is_some() || trusts
    };
    is_open || request.peer.is_some() || request.approvals.as_ref().is_some_and(is_told)
}

/// The agent's settings for approvals.
pub(super) fn policy_of(account: &AccountRecord) -> ApprovalPolicy {
    account.approvals.as_ref().and_then(|policy| policy.parse().ok()).unwrap_or_default()
}

/// Approving steps in advance, or no longer planning first, takes the same rights as deciding on requests. Returns whether
/// the request approves more in advance.
fn check_approving(by: &Principal, request: &AccountRequest, before: &ApprovalPolicy) -> Result<bool> {
    let Some(new) = &request.approvals else { return Ok(false) };
    let widens = !new.mode.unwrap_or_default().is_within(before.mode.unwrap_or_default());
    let trusts = !new.trusted_commands.is_empty() && new.trusted_commands != before.trusted_commands;
    if widens || trusts {
        by.may_all(Action::DecidePermission)?;
    }
    Ok(widens && new.mode.is_some_and(PermissionMode::trusts) || trusts)
}

/// No one but its owner chooses who receives what a private agent is asked, or who else calls it.
fn check_recipients(by: &Principal, request: &AccountRequest, callers: Callers, owner: Option<UserId>) -> Result<()> {
    match callers == Callers::Owner && lets_others_in(request) && !by.is_owner(owner) {
        true => Err(Error::forbidden("Only its owner can let others take part in the work of a private agent.")
            .hint("Leave out `webhook_url`, `mode` and `trusted_commands` of `approvals`, `peer` and `a2a.anonymous`; the owner can add them.")),
        false => Ok(()),
    }
}

/// 0 means the hub's default.
fn run_timeout(millis: u64) -> Option<Duration> {
    (millis > 0).then(|| Duration::from_millis(millis))
}

fn check_trusted_commands(commands: &[String]) -> Result<()> {
    if commands.len() > MAX_TRUSTED_COMMANDS {
        return Err(Error::invalid("approvals.trusted_commands", "has more than 100 patterns"));
    }
    for (number, command) in commands.iter().enumerate() {
        check::text("approvals.trusted_commands", command, 1..=MAX_TRUSTED_COMMAND)?;
        CommandPattern::parse(command)
            .map_err(|error| Error::invalid(&format!("approvals.trusted_commands[{number}]"), &error.to_string()))?;
    }
    Ok(())
}

/// Only words in person count as somebody's own.
fn author(by: &Principal) -> Option<UserId> {
    by.user.filter(|_| by.is_in_person())
}

/// Owners and admins decide about names of others.
fn archived_names(by: &Principal) -> ArchivedNames {
    match by.may_all(Action::GiveAgent) {
        Ok(_) => ArchivedNames::All,
        Err(_) => ArchivedNames::Own,
    }
}

fn check_request(request: &AccountRequest) -> Result<()> {
    if let Some(name) = &request.name {
        check::agent_name(name)?;
    }
    if let Some(description) = &request.description {
        check::text("description", description, 0..=MAX_TEXT)?;
    }
    if let Some(instructions) = &request.instructions {
        check::text("instructions", instructions, 0..=MAX_TEXT)?;
    }
    if let Some(millis) = request.approvals.as_ref().and_then(|policy| policy.timeout_ms) {
        check::millis("approvals.timeout_ms", millis, APPROVAL_TIMEOUTS)?;
    }
    if let Some(policy) = &request.approvals {
        check_trusted_commands(&policy.trusted_commands)?;
    }
    if let Some(millis) = request.run_timeout_ms.filter(|millis| *millis > 0) {
        check::millis("run_timeout_ms", millis, DURATIONS)?;
    }
    if let Some(a2a) = &request.a2a {
        check_a2a_options(a2a)?;
    }
    let skills = request.skills.as_deref().unwrap_or_default();
    if skills.len() > MAX_SKILLS {
        return Err(Error::invalid("skills", "must have at most 100 entries"));
    }
    for skill in skills {
        check::line("skills.id", &skill.id, 1..=200)?;
        check::line("skills.name", &skill.name, 1..=200)?;
        check::text("skills.description", &skill.description, 0..=4096)?;
        if skill.tags.len() > MAX_SKILLS {
            return Err(Error::invalid("skills.tags", "must have at most 100 entries"));
        }
        for tag in &skill.tags {
            check::line("skills.tags", tag, 1..=200)?;
        }
    }
    Ok(())
}
