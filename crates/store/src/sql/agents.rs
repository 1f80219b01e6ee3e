//! Writes on tenants and agent accounts.

use super::connection::{Connection, OptionalExtension as _};
use attache_protocol::{
    AgentId, Json, TenantId, Timestamp, UserId,
    log::GENESIS,
    wire::account::{AddedPart, ApprovalConfirmation, OnLimit},
};
use rusqlite::params;

use super::{
    cache::LogHead,
    journal::LogStamp,
    log_keys::LogKeys,
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    record::{AccountPatch, AccountRecord, AgentRef, ArchivedNames, NewAccount, RuntimeKind, user::UserRef},
};

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn ensure_tenant(&mut self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId> {
        let oldest =
            self.connection.query_row("select id from tenants order by no limit 1", (), |row| row.get(0)).optional()?;
        if let Some(oldest) = oldest {
            return Ok(rows::tenant_id(oldest));
        }
        self.create_tenant(id, name, at)?;
        Ok(id)
    }

    pub(super) fn create_tenant(&mut self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        let number = self
            .connection
            .prepare_cached(
                "insert into tenants (id, name, created, log_floor_hash) values (?1, ?2, ?3, ?4) returning no",
            )?
            .insert(params![IdBytes(id.uuid()), name, at.millis(), GENESIS])?;
        let keys = LogKeys::of_new(number)?;
        self.cache.set_head(id, LogHead { keys, seq: 0, hash: GENESIS });
        let stamp = LogStamp { actor: WriteContext::SYSTEM, at };
        self.log(id, stamp, &entry::tenant_created(name), None).map(drop)
    }

    pub(super) fn account(&self, tenant: TenantId, agent: &AgentRef) -> Result<AccountRecord> {
        read_account(self.connection, tenant, agent)
    }

    pub(super) fn create_account(&mut self, context: &WriteContext, new: &NewAccount) -> Result<AccountRecord> {
        self.refuse_taken_name(context, &new.name, new.archived_names)?;
        let authors = new.authors();
        self.connection
            .prepare_cached(
                "insert into agent_accounts (id, tenant, name, description, instructions, skills, a2a, created,
                    approvals, owner, callers, run_timeout, on_limit, confirm_approvals, instructed_by, approved_by)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)",
            )?
            .execute(params![
                IdBytes(new.id.uuid()),
                IdBytes(context.tenant.uuid()),
                new.name,
                new.description,
                new.instructions,
                new.skills.get(),
                new.a2a.as_ref().map(Json::get),
                context.at.millis(),
                new.approvals.as_ref().map(Json::get),
                context.user.map(|user| IdBytes(user.uuid())),
                rows::callers_number(new.callers),
                new.run_timeout.map(rows::millis),
                new.on_limit.as_str(),
                new.confirm_approvals.as_str(),
                authors.instructions.map(|user| IdBytes(user.uuid())),
                authors.approvals.map(|user| IdBytes(user.uuid())),
            ])?;
        self.log(context.tenant, context.stamp(), &entry::agent_created(new.id, &new.name), None)?;
        self.account(context.tenant, &AgentRef::Id(new.id))
    }

    pub(super) fn update_account(
        &mut self,
        context: &WriteContext,
        agent: &AgentRef,
        patch: &AccountPatch,
    ) -> Result<AccountRecord> {
        let account = self.account(context.tenant, agent)?;
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        if let Some(name) = patch.name.as_ref().filter(|name| **name != account.name) {
            self.refuse_taken_name(context, name, patch.archived_names)?;
        }
        if let Some(Some(owner)) = patch.owner {
            self.present_user(context.tenant, &UserRef::Id(owner))?;
        }
        if patch.owner.is_some_and(|owner| owner != account.owner) {
            self.end_agent_keys(context, &account)?;
        }
        let (approvals, mut ended);
        if let Some(owner) = account.made_private(patch) {
            ended = self.end_added_by_others(context, account.id, owner)?;
            approvals = account.private_approvals(patch);
            ended.extend(approvals.as_ref().map(|_| AddedPart::ApprovalWebhook));
        } else {
            (approvals, ended) = (account.given_approvals(patch), Vec::new());
        }
        if account.demands_passkey(patch) && self.revoke_grants_of_agent(context, account.id)? {
            ended.push(AddedPart::Grants);
        }
        let authors = account.authors_after(patch);
        self.connection
            .prepare_cached(
                "update agent_accounts set name = coalesce(?2, name), description = coalesce(?3, description),
                    instructions = coalesce(?4, instructions), skills = coalesce(?5, skills), a2a = coalesce(?6, a2a),
                    approvals = coalesce(?7, approvals), owner = case when ?8 then ?9 else owner end,
                    callers = coalesce(?10, callers), run_timeout = case when ?11 then ?12 else run_timeout end,
                    private_until = ?13, on_limit = coalesce(?14, on_limit),
                    confirm_approvals = coalesce(?15, confirm_approvals), instructed_by = ?16, approved_by = ?17
                 where id = ?1",
            )?
            .execute(params![
                IdBytes(account.id.uuid()),
                patch.name,
                patch.description,
                patch.instructions,
                patch.skills.as_ref().map(Json::get),
                patch.a2a.as_ref().map(Json::get),
                patch.approvals.as_ref().or(approvals.as_ref()).map(Json::get),
                patch.owner.is_some(),
                patch.owner.flatten().map(|owner| IdBytes(owner.uuid())),
                patch.callers.map(rows::callers_number),
                patch.run_timeout.is_some(),
                patch.run_timeout.flatten().map(rows::millis),
                account.private_until_after(patch, context.at).map(Timestamp::millis),
                patch.on_limit.map(OnLimit::as_str),
                patch.confirm_approvals.map(ApprovalConfirmation::as_str),
                authors.instructions.map(|user| IdBytes(user.uuid())),
                authors.approvals.map(|user| IdBytes(user.uuid())),
            ])?;
        if patch.name.as_ref().is_some_and(|name| *name != account.name) {
            self.reserve_name(&account)?;
        }
        self.directory.accounts_changed();
        self.log(context.tenant, context.stamp(), &entry::agent_updated(account.id, patch, &ended), None)?;
        self.woken.push(WakeHint::Rights(context.tenant));
        Ok(AccountRecord { ended, ..self.account(context.tenant, &AgentRef::Id(account.id))? })
    }

    /// A private agent is only as private as what works for it, and only its owner decides for it.
    fn end_added_by_others(
        &mut self,
        context: &WriteContext,
        agent: AgentId,
        owner: Option<UserId>,
    ) -> Result<Vec<AddedPart>> {
        let mut ended = Vec::new();
        let runtime = self.account(context.tenant, &AgentRef::Id(agent))?.runtime;
        if self.remove_peer_of_others(agent, owner)? {
            ended.push(AddedPart::Peer);
            if let Some(runtime) = &runtime {
                self.revoke_runtime(context, runtime.id)?;
            }
        } else if let Some(runtime) = runtime.filter(|runtime| runtime.is_of_others(owner)) {
            ended.push(AddedPart::Runtime);
            self.revoke_runtime(context, runtime.id)?;
        }
        let keys = self.keys_of_agent_by_others(agent, owner)?;
        ended.extend((!keys.is_empty()).then_some(AddedPart::Key));
        for key in keys {
            self.revoke_key(context, key)?;
        }
        ended.extend(self.revoke_grants_of_others(context, agent, owner)?.then_some(AddedPart::Grants));
        Ok(ended)
    }

    /// The key an agent was registered with acts for its owner, and ends when the owner changes.
    fn end_agent_keys(&mut self, context: &WriteContext, account: &AccountRecord) -> Result<()> {
        if let Some(runtime) = account.runtime.as_ref().filter(|runtime| runtime.kind == RuntimeKind::AgentKey) {
            self.revoke_runtime(context, runtime.id)?;
        }
        for key in self.keys_of_agent(account.id)? {
            self.revoke_key(context, key)?;
        }
        self.woken.push(WakeHint::Runtime(account.id));
        Ok(())
    }

    pub(super) fn archive_account(&mut self, context: &WriteContext, agent: &AgentRef) -> Result<AccountRecord> {
        let account = self.account(context.tenant, agent)?;
        if account.archived_at.is_some() {
            return Ok(account);
        }
        if let Some(runtime) = &account.runtime {
            self.revoke_runtime(context, runtime.id)?;
        }
        self.end_agent_keys(context, &account)?;
        for hot in self.live_runs(account.id)? {
            self.cancel(&hot, context.stamp(), Some("agent archived"))?;
        }
        self.connection.execute(
            "update agent_accounts set archived = ?2 where id = ?1",
            params![IdBytes(account.id.uuid()), context.at.millis()],
        )?;
        self.reserve_name(&account)?;
        self.directory.accounts_changed();
        self.log(context.tenant, context.stamp(), &entry::agent_archived(account.id), None)?;
        if self.is_peer(account.id)? {
            self.woken.push(WakeHint::Peers);
        }
        self.account(context.tenant, &AgentRef::Id(account.id))
    }

    /// An account gives up its name, which its callers may still use.
    fn reserve_name(&self, account: &AccountRecord) -> Result<()> {
        self.connection
            .prepare_cached(
                "insert into former_names (tenant, name, owner) values (?1, ?2, ?3)
                 on conflict (tenant, name) do update set owner = excluded.owner",
            )?
            .execute(params![
                IdBytes(account.tenant.uuid()),
                account.name,
                account.owner.map(|owner| IdBytes(owner.uuid())),
            ])?;
        Ok(())
    }

    fn refuse_taken_name(&self, context: &WriteContext, name: &str, archived_names: ArchivedNames) -> Result<()> {
        let tenant = IdBytes(context.tenant.uuid());
        let taken = self
            .connection
            .prepare_cached("select 1 from agent_accounts where tenant = ?1 and name = ?2 and archived is null")?
            .exists(params![tenant, name])?;
        if taken {
            return Err(Error::NameTaken);
        }
        if archived_names == ArchivedNames::All {
            return Ok(());
        }
        match last_owner_of(self.connection, context.tenant, name)? {
            Some(owner) if owner.is_none() || owner != context.user => Err(Error::NameReserved),
            Some(_) | None => Ok(()),
        }
    }
}

/// The owner of the account that gave up this name last.
pub(super) fn last_owner_of(connection: &Connection, tenant: TenantId, name: &str) -> Result<Option<Option<UserId>>> {
    let owner = connection
        .prepare_cached("select owner from former_names where tenant = ?1 and name = ?2")?
        .query_row(params![IdBytes(tenant.uuid()), name], |row| rows::maybe_user(row, 0))
        .optional()?;
    Ok(owner)
}

// === impl WriteContext ===

impl WriteContext {
    pub(super) fn stamp(&self) -> LogStamp<'_> {
        LogStamp { actor: &self.actor, at: self.at }
    }
}

pub(super) fn read_account(connection: &Connection, tenant: TenantId, agent: &AgentRef) -> Result<AccountRecord> {
    let found = match agent {
        AgentRef::Id(id) => connection
            .prepare_cached(&format!("select {} where a.id = ?1 and a.tenant = ?2", rows::ACCOUNT))?
            .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], rows::account)
            .optional()?,
        AgentRef::Name(name) => connection
            .prepare_cached(&format!(
                "select {} where a.tenant = ?1 and a.name = ?2 and a.archived is null",
                rows::ACCOUNT
            ))?
            .query_row(params![IdBytes(tenant.uuid()), name], rows::account)
            .optional()?,
    };
    found.ok_or(Error::NotFound)
}
