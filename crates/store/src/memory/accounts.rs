//! Agent accounts: names, changes, and the effects of archiving.

use std::collections::BTreeMap;

use attache_protocol::{
    AgentId, TenantId,
    rules::run::RunCommand,
    wire::{account::Callers, runtime::RuntimeState},
};

use super::{
    page::{self, NameCursor, PageOrder},
    state::ModelState,
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry, outcome,
    record::{AccountPatch, AccountRecord, AgentRef, ListPage, NewAccount, Pagination, RuntimeKind},
};

const ARCHIVED: &str = "agent archived";

// === impl ModelState ===

impl ModelState {
    pub(super) fn create_account(&mut self, context: &WriteContext, new: NewAccount) -> Result<AccountRecord> {
        self.known_tenant(context.tenant)?;
        self.free_name(context.tenant, &new.name, None)?;
        let NewAccount { id, name, description, instructions, skills, a2a, approvals, callers, run_timeout } = new;
        let account = AccountRecord {
            id,
            tenant: context.tenant,
            name,
            description,
            instructions,
            skills,
            a2a,
            approvals,
            owner: context.user,
            callers,
            run_timeout,
            created_at: context.at,
            archived_at: None,
            runtime: None,
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
        if let Some(name) = &patch.name {
            self.free_name(context.tenant, name, Some(id))?;
        }
        if let Some(Some(owner)) = patch.owner {
            self.present_user(context.tenant, owner)?;
        }
        if patch.owner.is_some_and(|owner| owner != self.accounts[&id].owner) {
            self.end_agent_keys(context, id);
        }
        let before = &self.accounts[&id];
        let (owner, callers) = (patch.owner.unwrap_or(before.owner), patch.callers.unwrap_or(before.callers));
        if callers == Callers::Owner && (before.callers != callers || before.owner != owner) {
            self.revoke_grants_of_others(context, id, owner);
        }
        let AccountPatch { name, description, instructions, skills, a2a, approvals, owner, callers, run_timeout } =
            patch;
        let account = self.accounts.get_mut(&id).expect("it was just found");
        account.name = name.unwrap_or_else(|| account.name.clone());
        account.description = description.or_else(|| account.description.clone());
        account.instructions = instructions.or_else(|| account.instructions.clone());
        account.skills = skills.unwrap_or_else(|| account.skills.clone());
        account.a2a = a2a.or_else(|| account.a2a.clone());
        account.approvals = approvals.or_else(|| account.approvals.clone());
        account.owner = owner.unwrap_or(account.owner);
        account.callers = callers.unwrap_or(account.callers);
        account.run_timeout = run_timeout.unwrap_or(account.run_timeout);
        self.append(context.tenant, context.at, &context.actor, entry::agent_updated(id, callers));
        Ok(self.shown_account(id))
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
        self.accounts.get_mut(&id).expect("it was just found").archived_at = Some(context.at);
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

    /// Whether no account but `except` has the name.
    fn free_name(&self, tenant: TenantId, name: &str, except: Option<AgentId>) -> Result<()> {
        match self.agent(tenant, &AgentRef::Name(name.to_owned())) {
            Ok(holder) if Some(holder.id) != except => Err(Error::NameTaken),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
