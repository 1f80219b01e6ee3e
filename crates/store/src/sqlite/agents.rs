//! Writes on agent accounts and API keys.

use attache_protocol::{Json, KeyId, TenantId, Timestamp, log::GENESIS};
use rusqlite::{OptionalExtension as _, params};

use super::{
    cache::Head,
    journal::Stamp,
    log_keys::LogKeys,
    rows::{self, Key16},
    writer::Transaction,
};
use crate::{
    Context, Error, Result, entry,
    record::{Account, AccountPatch, AgentRef, Key, KeyKind, NewAccount, NewKey},
};

pub(super) const KEY: &str = "id, name, role, created, expires, revoked from api_keys";

// === impl Transaction ===

impl Transaction<'_, '_> {
    pub(super) fn ensure_tenant(&mut self, id: TenantId, name: &str, at: Timestamp) -> Result<TenantId> {
        let oldest =
            self.connection.query_row("select id from tenants order by no limit 1", [], |row| row.get(0)).optional()?;
        if let Some(oldest) = oldest {
            return Ok(rows::tenant_id(oldest));
        }
        self.create_tenant(id, name, at)?;
        Ok(id)
    }

    pub(super) fn create_tenant(&mut self, id: TenantId, name: &str, at: Timestamp) -> Result<()> {
        self.connection.execute(
            "insert into tenants (id, name, created, log_floor_hash) values (?1, ?2, ?3, ?4)",
            params![Key16(id.uuid()), name, at.millis(), GENESIS],
        )?;
        let keys = LogKeys::of_new(self.connection.last_insert_rowid())?;
        self.cache.set_head(id, Head { keys, seq: 0, hash: GENESIS });
        let stamp = Stamp { actor: Context::SYSTEM, at };
        self.log(id, stamp, &entry::tenant_created(name), None).map(drop)
    }

    pub(super) fn account(&self, tenant: TenantId, agent: &AgentRef) -> Result<Account> {
        read_account(self.connection, tenant, agent)
    }

    pub(super) fn create_account(&mut self, context: &Context, new: &NewAccount) -> Result<Account> {
        self.refuse_taken_name(context.tenant, &new.name)?;
        self.connection
            .prepare_cached(
                "insert into agent_accounts (id, tenant, name, description, instructions, skills, a2a, created,
                    approvals)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            )?
            .execute(params![
                Key16(new.id.uuid()),
                Key16(context.tenant.uuid()),
                new.name,
                new.description,
                new.instructions,
                new.skills.get(),
                new.a2a.as_ref().map(Json::get),
                context.at.millis(),
                new.approvals.as_ref().map(Json::get),
            ])?;
        self.log(context.tenant, context.stamp(), &entry::agent_created(new.id, &new.name), None)?;
        self.account(context.tenant, &AgentRef::Id(new.id))
    }

    pub(super) fn update_account(
        &mut self,
        context: &Context,
        agent: &AgentRef,
        patch: &AccountPatch,
    ) -> Result<Account> {
        let account = self.account(context.tenant, agent)?;
        if account.archived_at.is_some() {
            return Err(Error::AgentArchived);
        }
        if let Some(name) = patch.name.as_ref().filter(|name| **name != account.name) {
            self.refuse_taken_name(context.tenant, name)?;
        }
        self.connection
            .prepare_cached(
                "update agent_accounts set name = coalesce(?2, name), description = coalesce(?3, description),
                    instructions = coalesce(?4, instructions), skills = coalesce(?5, skills), a2a = coalesce(?6, a2a),
                    approvals = coalesce(?7, approvals)
                 where id = ?1",
            )?
            .execute(params![
                Key16(account.id.uuid()),
                patch.name,
                patch.description,
                patch.instructions,
                patch.skills.as_ref().map(Json::get),
                patch.a2a.as_ref().map(Json::get),
                patch.approvals.as_ref().map(Json::get),
            ])?;
        self.directory.forget();
        self.log(context.tenant, context.stamp(), &entry::agent_updated(account.id), None)?;
        self.account(context.tenant, &AgentRef::Id(account.id))
    }

    pub(super) fn archive_account(&mut self, context: &Context, agent: &AgentRef) -> Result<Account> {
        let account = self.account(context.tenant, agent)?;
        if account.archived_at.is_some() {
            return Ok(account);
        }
        if let Some(runtime) = &account.runtime {
            self.revoke_runtime(context, runtime.id)?;
        }
        for hot in self.live_runs(account.id)? {
            self.cancel(&hot, context.stamp(), Some("agent archived"))?;
        }
        self.connection.execute(
            "update agent_accounts set archived = ?2 where id = ?1",
            params![Key16(account.id.uuid()), context.at.millis()],
        )?;
        self.directory.forget();
        self.log(context.tenant, context.stamp(), &entry::agent_archived(account.id), None)?;
        self.account(context.tenant, &AgentRef::Id(account.id))
    }

    fn refuse_taken_name(&self, tenant: TenantId, name: &str) -> Result<()> {
        let taken = self
            .connection
            .prepare_cached("select 1 from agent_accounts where tenant = ?1 and name = ?2 and archived is null")?
            .exists(params![Key16(tenant.uuid()), name])?;
        if taken { Err(Error::NameTaken) } else { Ok(()) }
    }

    pub(super) fn create_key(&mut self, context: &Context, new: &NewKey) -> Result<Key> {
        // Sessions are not logged, so the log cannot refuse an unknown tenant for them.
        self.cache.head(context.tenant).ok_or(Error::NotFound)?;
        let kind = match new.kind {
            KeyKind::Api => 0,
            KeyKind::Session => 1,
        };
        self.connection.execute(
            "insert into api_keys (id, tenant, kind, name, role, secret, created, expires)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            params![
                Key16(new.id.uuid()),
                Key16(context.tenant.uuid()),
                kind,
                new.name,
                new.role.as_str(),
                new.secret.0,
                context.at.millis(),
                new.expires_at.map(Timestamp::millis),
            ],
        )?;
        if new.kind == KeyKind::Api {
            self.log(context.tenant, context.stamp(), &entry::key_created(new.id, &new.name, new.role), None)?;
        }
        self.key(context.tenant, new.id).map(|(key, _)| key)
    }

    pub(super) fn revoke_key(&mut self, context: &Context, id: KeyId) -> Result<Key> {
        let (key, kind) = self.key(context.tenant, id)?;
        if key.revoked_at.is_some() {
            return Ok(key);
        }
        self.connection.execute(
            "update api_keys set revoked = ?2 where id = ?1",
            params![Key16(id.uuid()), context.at.millis()],
        )?;
        if kind == KeyKind::Api {
            self.log(context.tenant, context.stamp(), &entry::key_revoked(id), None)?;
        }
        Ok(Key { revoked_at: Some(context.at), ..key })
    }

    fn key(&self, tenant: TenantId, id: KeyId) -> Result<(Key, KeyKind)> {
        self.connection
            .prepare_cached(
                "select id, name, role, created, expires, revoked, kind from api_keys where id = ?1 and tenant = ?2",
            )?
            .query_row([Key16(id.uuid()), Key16(tenant.uuid())], |row| {
                let kind = if row.get::<_, i64>(6)? == 0 { KeyKind::Api } else { KeyKind::Session };
                Ok((rows::key(row)?, kind))
            })
            .optional()?
            .ok_or(Error::NotFound)
    }
}

// === impl Context ===

impl Context {
    pub(super) fn stamp(&self) -> Stamp<'_> {
        Stamp { actor: &self.actor, at: self.at }
    }
}

pub(super) fn read_account(connection: &rusqlite::Connection, tenant: TenantId, agent: &AgentRef) -> Result<Account> {
    let found = match agent {
        AgentRef::Id(id) => connection
            .prepare_cached(&format!("select {} where a.id = ?1 and a.tenant = ?2", rows::ACCOUNT))?
            .query_row([Key16(id.uuid()), Key16(tenant.uuid())], rows::account)
            .optional()?,
        AgentRef::Name(name) => connection
            .prepare_cached(&format!(
                "select {} where a.tenant = ?1 and a.name = ?2 and a.archived is null",
                rows::ACCOUNT
            ))?
            .query_row(params![Key16(tenant.uuid()), name], rows::account)
            .optional()?,
    };
    found.ok_or(Error::NotFound)
}
