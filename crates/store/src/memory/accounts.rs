//! Agent accounts: names, changes, and the effects of archiving.

use std::collections::BTreeMap;

use attache_protocol::{
    AgentId, TenantId, UserId,
    rules::run::RunCommand,
    wire::{account::AddedPart, runtime::RuntimeState},
};

use super::{
    page::{self, NameCursor, PageOrder},
    state::{ModelKey, ModelState},
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry, outcome,
    record::{AccountPatch, AccountRecord, AgentRef, ArchivedNames, ListPage, NewAccount, Pagination, RuntimeKind},
};

const ARCHIVED: &str = "agent archived";

// === impl ModelState ===

impl ModelState {
    pub(super) fn create_account(&mut self, context: &WriteContext, new: NewAccount) -> Result<AccountRecord> {
        self.known_tenant(context.tenant)?;
        self.free_name(context, &new.name, new.archived_names)?;
        let authors = new.authors();
        let NewAccount {
            id,
            name,
            description,
            instructions,
            skills,
            a2a,
            approvals,
            callers,
            run_timeout,
            on_limit,
            confirm_approvals,
            archived_names: _,
            author: _,
        } = new;
        let account = AccountRecord {
            id,
            tenant: context.tenant,
            name,
            description,
            instructions,
            skills,
            a2a,
            approvals,
            authors,
            owner: context.user,
            callers,
            private_until: None,
            run_timeout,
            on_limit,
            confirm_approvals,
            created_at: context.at,
            archived_at: None,
            runtime: None,
            ended: Vec::new(),
        };
        self.append(context.tenant, context.at, &context.actor, entry::agent_created(id, &account.name));
        self.accounts.insert(id, account.clone());
        Ok(account)
    }

    pub(super) fn update_account(
        &mut self,
        context: &WriteContext,
        agent: &AgentRef,
        patch: AccountPatch,
    ) -> Result<AccountRecord> {
        let id = self.living_agent(context.tenant, agent)?.id;
        if let Some(name) = patch.name.as_ref().filter(|name| **name != self.accounts[&id].name) {
            self.free_name(context, name, patch.archived_names)?;
        }
        if let Some(Some(owner)) = patch.owner {
            self.present_user(context.tenant, owner)?;
        }
        if patch.owner.is_some_and(|owner| owner != self.accounts[&id].owner) {
            self.end_agent_keys(context, id);
        }
        let before = &self.accounts[&id];
        let (private_until, authors) = (before.private_until_after(&patch, context.at), before.authors_after(&patch));
        let (dropped, mut ended);
        if let Some(owner) = before.made_private(&patch) {
            dropped = before.private_approvals(&patch);
            ended = self.end_added_by_others(context, id, owner);
            ended.extend(dropped.as_ref().map(|_| AddedPart::ApprovalWebhook));
        } else {
            (dropped, ended) = (before.given_approvals(&patch), Vec::new());
        }
        if self.accounts[&id].demands_passkey(&patch) && self.revoke_grants(context, |record| record.agent == id) {
            ended.push(AddedPart::Grants);
        }
        let entry = entry::agent_updated(id, &patch, &ended);
        self.woken.push(WakeHint::Rights(context.tenant));
        let AccountPatch {
            name,
            archived_names: _,
            author: _,
            description,
            instructions,
            skills,
            a2a,
            approvals,
            owner,
            callers,
            run_timeout,
            on_limit,
            confirm_approvals,
        } = patch;
        let account = self.accounts.get_mut(&id).expect("it was just found");
        if let Some(name) = name.filter(|name| *name != account.name) {
            let former = std::mem::replace(&mut account.name, name);
            self.former_names.insert((context.tenant, former), account.owner);
        }
        account.authors = authors;
        account.description = description.or_else(|| account.description.clone());
        account.instructions = instructions.or_else(|| account.instructions.clone());
        account.skills = skills.unwrap_or_else(|| account.skills.clone());
        account.a2a = a2a.or_else(|| account.a2a.clone());
        account.approvals = approvals.or(dropped).or_else(|| account.approvals.clone());
        account.owner = owner.unwrap_or(account.owner);
        account.callers = callers.unwrap_or(account.callers);
        account.private_until = private_until;
        account.run_timeout = run_timeout.unwrap_or(account.run_timeout);
        account.on_limit = on_limit.unwrap_or(account.on_limit);
        account.confirm_approvals = confirm_approvals.unwrap_or(account.confirm_approvals);
        self.append(context.tenant, context.at, &context.actor, entry);
        Ok(AccountRecord { ended, ..self.shown_account(id) })
    }

    /// A private agent is only as private as what works for it, and only its owner decides for it.
    fn end_added_by_others(&mut self, context: &WriteContext, agent: AgentId, owner: Option<UserId>) -> Vec<AddedPart> {
        let mut ended = Vec::new();
        let is_peer = self.remove_peer_of_others(agent, owner);
        let runtime = self.active_runtime(agent).filter(|id| is_peer || self.runtimes[id].is_of_others(owner));
        ended.extend(is_peer.then_some(AddedPart::Peer).or(runtime.map(|_| AddedPart::Runtime)));
        if let Some(runtime) = runtime {
            self.end_runtime(runtime, RuntimeState::Revoked, &context.actor, context.at);
        }
        let is_valid = |stored: &&ModelKey| stored.key.agent == Some(agent) && stored.key.revoked_at.is_none();
        let keys = self.keys.values().filter(is_valid).map(|stored| stored.key.id);
        let keys: Vec<_> = keys.filter(|key| owner.is_none() || !self.has_only_keys_of(Some(*key), owner)).collect();
        ended.extend((!keys.is_empty()).then_some(AddedPart::Key));
        self.revoke_keys(context, |stored| keys.contains(&stored.key.id));
        ended.extend(self.revoke_grants_of_others(context, agent, owner).then_some(AddedPart::Grants));
        ended
    }

    /// The key an agent was registered with acts for its owner, and ends when the owner changes.
    fn end_agent_keys(&mut self, context: &WriteContext, agent: AgentId) {
        let active = self.active_runtime(agent).filter(|id| self.runtimes[id].kind == RuntimeKind::AgentKey);
        if let Some(runtime) = active {
            self.end_runtime(runtime, RuntimeState::Revoked, &context.actor, context.at);
        }
        self.revoke_keys(context, |stored| stored.key.agent == Some(agent));
        self.woken.push(WakeHint::Runtime(agent));
    }

    pub(super) fn archive_account(&mut self, context: &WriteContext, agent: &AgentRef) -> Result<AccountRecord> {
        let account = self.agent(context.tenant, agent)?;
        let id = account.id;
        if account.archived_at.is_some() {
            return Ok(self.shown_account(id));
        }
        if let Some(runtime) = self.active_runtime(id) {
            self.end_runtime(runtime, RuntimeState::Revoked, &context.actor, context.at);
        }
        self.end_agent_keys(context, id);
        for place in self.runs.places() {
            let record = &self.runs[place].record;
            if record.agent == id && !record.state.status().is_terminal() {
                let transition = self
                    .judge(place, &RunCommand::Cancel { outcome: outcome::NO_DIGEST }, context.at)
                    .expect("a live run can be cancelled");
                self.cancel(place, transition, Some(ARCHIVED), context);
            }
        }
        let account = self.accounts.get_mut(&id).expect("it was just found");
        account.archived_at = Some(context.at);
        self.former_names.insert((context.tenant, account.name.clone()), account.owner);
        self.append(context.tenant, context.at, &context.actor, entry::agent_archived(id));
        if self.no_peer(id).is_err() {
            self.woken.push(WakeHint::Peers);
        }
        Ok(self.shown_account(id))
    }

    pub(super) fn account(&self, tenant: TenantId, agent: &AgentRef) -> Result<AccountRecord> {
        self.agent(tenant, agent).map(|account| self.shown_account(account.id))
    }

    pub(super) fn accounts(&self, tenant: TenantId, page: &Pagination) -> Result<ListPage<AccountRecord>> {
        let by_name: BTreeMap<NameCursor, AgentId> = self
            .accounts
            .values()
            .filter(|account| account.tenant == tenant && account.archived_at.is_none())
            .map(|account| (NameCursor(account.name.clone()), account.id))
            .collect();
        let shown = by_name.into_iter().map(|(name, id)| (name, self.shown_account(id)));
        page::cut(shown, PageOrder::Ascending, page)
    }

    /// The account with its currently active runtime.
    fn shown_account(&self, id: AgentId) -> AccountRecord {
        let runtime = self.active_runtime(id).map(|runtime| self.runtimes[&runtime].clone());
        AccountRecord { runtime, ..self.accounts[&id].clone() }
    }

    /// Whether no account has the name, and none had it that keeps it from this user.
    fn free_name(&self, context: &WriteContext, name: &str, archived_names: ArchivedNames) -> Result<()> {
        let named =
            || self.accounts.values().filter(|account| account.tenant == context.tenant && account.name == name);
        if named().any(|account| account.archived_at.is_none()) {
            return Err(Error::NameTaken);
        }
        match self.last_owner_of(context.tenant, name).filter(|_| archived_names == ArchivedNames::Own) {
            Some(owner) if owner.is_none() || owner != context.user => Err(Error::NameReserved),
            Some(_) | None => Ok(()),
        }
    }

    /// The owner of the account that gave up this name last.
    pub(super) fn last_owner_of(&self, tenant: TenantId, name: &str) -> Option<Option<UserId>> {
        self.former_names.get(&(tenant, name.to_owned())).copied()
    }
}
