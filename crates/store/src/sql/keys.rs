//! API keys, sessions, and the credentials behind bearer secrets.

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{AgentId, KeyId, TenantId, Timestamp, UserId, secret::SecretHash};
use rusqlite::params;

use super::{
    rows::{self, IdBytes},
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    record::{AgentRef, AuditEvent, KeyKind, KeyRecord, NewKey, StoredCredential, TokenState, user::UserRef},
};

/// The columns that [`rows::key`] reads, with their table.
pub(super) const KEY: &str =
    "id, name, role, created, expires, revoked, user, scopes, kind, opener, address, agent, passkey from api_keys";

/// The columns that [`worth`] reads, with their tables.
const WORTH: &str = "k.tenant, k.id, k.user, k.role, u.role, k.scopes, k.expires, \
     k.revoked is not null or u.removed is not null, k.kind, k.opener, k.agent \
     from api_keys k left join users u on u.id = k.user";

/// Which keys of a user end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyRevocation {
    All,
    Sessions { keep: Option<KeyId> },
}

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn create_key(&mut self, context: &WriteContext, new: &NewKey) -> Result<KeyRecord> {
        self.cache.head(context.tenant).ok_or(Error::NotFound)?;
        if let Some(user) = new.user {
            self.present_user(context.tenant, &UserRef::Id(user))?;
        }
        if let Some(passkey) = new.opening.as_ref().and_then(|opening| opening.passkey) {
            self.check_passkey(passkey, new.user)?;
        }
        if let Some(agent) = new.agent
            && self.account(context.tenant, &AgentRef::Id(agent))?.archived_at.is_some()
        {
            return Err(Error::AgentArchived);
        }
        let opening = new.opening.clone().unwrap_or_default();
        let mut expires_at = new.expires_at;
        if let Some(opener) = new.opener() {
            let opener = self.key(context.tenant, opener)?;
            if !opener.is_valid(context.at) {
                return Err(Error::NotFound);
            }
            expires_at = expires_at.into_iter().chain(opener.expires_at).min();
        }
        self.connection.execute(
            "insert into api_keys (id, tenant, kind, name, role, secret, created, expires, user, scopes, opener,
                address, agent, passkey)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
            params![
                IdBytes(new.id.uuid()),
                IdBytes(context.tenant.uuid()),
                kind_number(new.kind()),
                new.name,
                new.role.as_str(),
                new.secret.0,
                context.at.millis(),
                expires_at.map(Timestamp::millis),
                new.user.map(|user| IdBytes(user.uuid())),
                new.scopes.as_deref().map(rows::scopes_text),
                new.opener().map(|opener| IdBytes(opener.uuid())),
                opening.address,
                new.agent.map(|agent| IdBytes(agent.uuid())),
                opening.passkey.map(|passkey| IdBytes(passkey.uuid())),
            ],
        )?;
        let key = self.key(context.tenant, new.id)?;
        self.log(context.tenant, context.stamp(), &entry::key::created(&key), None)?;
        Ok(key)
    }

    pub(super) fn revoke_key(&mut self, context: &WriteContext, id: KeyId) -> Result<KeyRecord> {
        let key = self.key(context.tenant, id)?;
        if key.revoked_at.is_some() {
            return Ok(key);
        }
        self.connection.execute(
            "update api_keys set revoked = ?2 where id = ?1",
            params![IdBytes(id.uuid()), context.at.millis()],
        )?;
        self.log(context.tenant, context.stamp(), &entry::key::revoked(&key), None)?;
        self.woken.push(WakeHint::Key(id));
        self.revoke_grants_of_key(context, id)?;
        for opened in self.opened_by(id)? {
            self.revoke_key(context, opened)?;
        }
        Ok(KeyRecord { revoked_at: Some(context.at), ..key })
    }

    /// The unrevoked sessions and keys that end with the key or session, in order of creation.
    fn opened_by(&self, opener: KeyId) -> Result<Vec<KeyId>> {
        Ok(self
            .connection
            .prepare_cached("select id from api_keys where opener = ?1 and revoked is null order by no")?
            .query_map([IdBytes(opener.uuid())], |row| Ok(rows::key_id(row.get(0)?)))?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// The unrevoked keys of an outside agent, in order of creation.
    pub(super) fn keys_of_agent(&self, agent: AgentId) -> Result<Vec<KeyId>> {
        Ok(self
            .connection
            .prepare_cached("select id from api_keys where agent = ?1 and revoked is null order by no")?
            .query_map([IdBytes(agent.uuid())], |row| Ok(rows::key_id(row.get(0)?)))?
            .collect::<rusqlite::Result<_>>()?)
    }

    /// Those of them that anyone but `owner` had a part in creating.
    pub(super) fn keys_of_agent_by_others(&self, agent: AgentId, owner: Option<UserId>) -> Result<Vec<KeyId>> {
        let others = issued_by_others("api_keys.id");
        Ok(self
            .connection
            .prepare_cached(&format!(
                "select id from api_keys where agent = ?1 and revoked is null and ({others} or ?2 is null) order by no"
            ))?
            .query_map(params![IdBytes(agent.uuid()), owner.map(|owner| IdBytes(owner.uuid()))], |row| {
                Ok(rows::key_id(row.get(0)?))
            })?
            .collect::<rusqlite::Result<_>>()?)
    }

    pub(super) fn record_event(&mut self, context: &WriteContext, event: &AuditEvent) -> Result<()> {
        self.log(context.tenant, context.stamp(), &entry::key::event(event), None).map(drop)
    }

    /// Revokes the unrevoked keys of a user, in order of creation: all of them, or all sessions but one.
    pub(super) fn revoke_keys(&mut self, context: &WriteContext, user: UserId, which: KeyRevocation) -> Result<()> {
        let keys = self
            .connection
            .prepare_cached("select id, kind from api_keys where user = ?1 and revoked is null order by no")?
            .query_map([IdBytes(user.uuid())], |row| Ok((rows::key_id(row.get(0)?), rows::key_kind(row, 1)?)))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for (key, kind) in keys {
            let ends = match which {
                KeyRevocation::All => true,
                KeyRevocation::Sessions { keep } => kind == KeyKind::Session && Some(key) != keep,
            };
            if ends {
                self.revoke_key(context, key)?;
            }
        }
        Ok(())
    }

    fn key(&self, tenant: TenantId, id: KeyId) -> Result<KeyRecord> {
        self.connection
            .prepare_cached(&format!("select {KEY} where id = ?1 and tenant = ?2"))?
            .query_row([IdBytes(id.uuid()), IdBytes(tenant.uuid())], rows::key)
            .optional()?
            .ok_or(Error::NotFound)
    }
}

/// A condition: the key in this column, or one that it was issued or opened with, does not belong to the user `?2`.
pub(super) fn issued_by_others(column: &str) -> String {
    format!(
        "exists (
            with recursive issuers (id, user, opener) as (
                select id, user, opener from api_keys where id = {column}
                union
                select k.id, k.user, k.opener from api_keys k join issuers on k.id = issuers.opener)
            select 1 from issuers where user is distinct from ?2)"
    )
}

/// The credential behind this secret.
pub(super) fn credential(connection: &Connection, secret: SecretHash) -> Result<Option<StoredCredential>> {
    let current = runtime_credential(connection, "t.token = ?1", secret, |_| Ok(TokenState::Current))?;
    if current.is_some() {
        return Ok(current);
    }
    let key = connection
        .prepare_cached(&format!("select {WORTH} where k.secret = ?1"))?
        .query_row([secret.0], worth)
        .optional()?;
    if key.is_some() {
        return Ok(key);
    }
    let offered = runtime_credential(connection, "t.token_offered = ?1", secret, |_| Ok(TokenState::Offered))?;
    if offered.is_some() {
        return Ok(offered);
    }
    let replaced = "t.id = (select runtime from replaced_tokens where token = ?1)";
    runtime_credential(connection, replaced, secret, |row| rows::time(row, 6).map(TokenState::Replaced))
}

fn runtime_credential(
    connection: &Connection,
    condition: &'static str,
    secret: SecretHash,
    token: impl Fn(&Row<'_>) -> rusqlite::Result<TokenState>,
) -> Result<Option<StoredCredential>> {
    let found = connection
        .prepare_cached(&format!(
            "select t.tenant, t.id, t.agent, t.state, t.kind, a.owner,
               (select replaced from replaced_tokens where token = ?1), u.role
             from agent_runtimes t cross join agent_accounts a on a.id = t.agent left join users u on u.id = a.owner
             where {condition}"
        ))?
        .query_row([secret.0], |row| {
            Ok(StoredCredential::Runtime {
                tenant: rows::tenant_id(row.get(0)?),
                runtime: rows::runtime_id(row.get(1)?),
                agent: rows::agent_id(row.get(2)?),
                user: rows::maybe_user(row, 5)?,
                role: rows::maybe_user(row, 5)?.map(|_| rows::role(row, 7)).transpose()?,
                kind: rows::runtime_kind(row, 4)?,
                state: rows::runtime_state(row, 3)?,
                token: token(row)?,
            })
        })
        .optional()?;
    Ok(found)
}

/// The credential of the key, whatever its secret.
pub(super) fn key_credential(connection: &Connection, key: KeyId) -> Result<Option<StoredCredential>> {
    Ok(connection
        .prepare_cached(&format!("select {WORTH} where k.id = ?1"))?
        .query_row([IdBytes(key.uuid())], worth)
        .optional()?)
}

/// Reads [`WORTH`]: a key has at most its user's permissions.
fn worth(row: &Row<'_>) -> rusqlite::Result<StoredCredential> {
    let user = rows::maybe_user(row, 2)?;
    let own = rows::role(row, 3)?;
    let user_role = user.map(|_| rows::role(row, 4)).transpose()?;
    Ok(StoredCredential::Key {
        tenant: rows::tenant_id(row.get(0)?),
        key: rows::key_id(row.get(1)?),
        user,
        role: user_role.map_or(own, |role| own.min(role)),
        user_role,
        scopes: rows::maybe_scopes(row, 5)?,
        expires_at: rows::maybe_time(row, 6)?,
        revoked: row.get(7)?,
        kind: rows::key_kind(row, 8)?,
        opener: rows::maybe_key(row, 9)?,
        agent: row.get::<Option<_>>(10)?.map(rows::agent_id),
    })
}

pub(super) const fn kind_number(kind: KeyKind) -> i64 {
    match kind {
        KeyKind::Api => 0,
        KeyKind::Session => 1,
    }
}
