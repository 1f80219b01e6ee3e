//! Agent accounts: their names, their changes, and what archiving takes with it.

use std::collections::BTreeMap;

use attache_protocol::{AgentId, TenantId, rules::run::Command, wire::runtime::RuntimeState};

use super::{
    page::{self, Name, Order},
    state::State,
};
use crate::{
    Context, Error, Result, Woken, entry, outcome,
    record::{Account, AccountPatch, AgentRef, Listed, NewAccount, Page, RuntimeKind},
};

const ARCHIVED: &str = "agent archived";

// === impl State ===

impl State {
    pub(super) fn create_account(&mut self, context: &Context, new: NewAccount) -> Result<Account> {
        self.known_tenant(context.tenant)?;
        self.free_name(context.tenant, &new.name, None)?;
        let NewAccount { id, name, description, instructions, skills, a2a, approvals, callers, run_timeout } = new;
        let account = Account {
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
        context: &Context,
        agent: &AgentRef,
        patch: AccountPatch,
    ) -> Result<Account> {
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

    /// The key that an agent was registered with acts for its owner, and ends when that is somebody else.
    fn end_agent_keys(&mut self, context: &Context, agent: AgentId) {
        let active = self.active_runtime(agent).filter(|id| self.runtimes[id].kind == RuntimeKind::AgentKey);
        if let Some(runtime) = active {
            self.end_runtime(runtime, RuntimeState::Revoked, &context.actor, context.at);
        }
        self.revoke_keys(context, |stored| stored.key.agent == Some(agent));
        self.woken.push(Woken::Runtime(agent));
    }

    pub(super) fn archive_account(&mut self, context: &Context, agent: &AgentRef) -> Result<Account> {
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
                    .judge(place, &Command::Cancel { outcome: outcome::NO_DIGEST }, context.at)
                    .expect("a live run can be cancelled");
                self.cancel(place, transition, Some(ARCHIVED), context);
            }
        }
        self.accounts.get_mut(&id).expect("it was just found").archived_at = Some(context.at);
        self.append(context.tenant, context.at, &context.actor, entry::agent_archived(id));
        if self.no_peer(id).is_err() {
            self.woken.push(Woken::Peers);
        }
        Ok(self.shown_account(id))
    }

    pub(super) fn account(&self, tenant: TenantId, agent: &AgentRef) -> Result<Account> {
        self.agent(tenant, agent).map(|account| self.shown_account(account.id))
    }

    pub(super) fn accounts(&self, tenant: TenantId, page: &Page) -> Result<Listed<Account>> {
        let by_name: BTreeMap<Name, AgentId> = self
            .accounts
            .values()
            .filter(|account| account.tenant == tenant && account.archived_at.is_none())
            .map(|account| (Name(account.name.clone()), account.id))
            .collect();
        let shown = by_name.into_iter().map(|(name, id)| (name, self.shown_account(id)));
        page::cut(shown, Order::Ascending, page)
    }

    /// The account with the runtime that is active now.
    fn shown_account(&self, id: AgentId) -> Account {
        let runtime = self.active_runtime(id).map(|runtime| self.runtimes[&runtime].clone());
        Account { runtime, ..self.accounts[&id].clone() }
    }

    /// Whether nobody but `except` has the name.
    fn free_name(&self, tenant: TenantId, name: &str, except: Option<AgentId>) -> Result<()> {
        match self.agent(tenant, &AgentRef::Name(name.to_owned())) {
            Ok(holder) if Some(holder.id) != except => Err(Error::NameTaken),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
