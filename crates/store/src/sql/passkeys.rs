//! Passkeys of people.

use super::connection::{Connection, OptionalExtension as _, Row};
use attache_protocol::{PasskeyId, TenantId, Timestamp, UserId};
use rusqlite::params;

use super::{
    rows::{self, IdBytes},
    users::read_user,
    writer::WriteTransaction,
};
use crate::{
    Error, Result, WriteContext, entry,
    record::{
        passkey::{NewPasskey, PasskeyRecord},
        user::UserRef,
    },
};

/// The columns that [`row`] reads, with their table.
const PASSKEY: &str = "id, tenant, user, name, credential, public_key, counter, created, used from passkeys";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn add_passkey(&mut self, context: &WriteContext, new: NewPasskey) -> Result<PasskeyRecord> {
        self.present_user(context.tenant, &UserRef::Id(new.user))?;
        let is_known = self
            .connection
            .prepare_cached("select 1 from passkeys where credential = ?1")?
            .exists([new.credential.as_slice()])?;
        if is_known {
            return Err(Error::NameTaken);
        }
        let passkey = new.into_record(context.tenant, context.at);
        self.log(context.tenant, context.stamp(), &entry::user::passkey_added(&passkey), None)?;
        self.connection
            .prepare_cached(
                "insert into passkeys (id, tenant, user, name, credential, public_key, counter, created)
                 values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                IdBytes(passkey.id.uuid()),
                IdBytes(passkey.tenant.uuid()),
                IdBytes(passkey.user.uuid()),
                passkey.name,
                passkey.credential,
                passkey.public_key,
                i64::from(passkey.counter),
                passkey.created_at.millis(),
            ])?;
        Ok(passkey)
    }

    /// Fails unless it is this user's.
    pub(super) fn check_passkey(&self, passkey: PasskeyId, user: Option<UserId>) -> Result<()> {
        let is_theirs = self
            .connection
            .prepare_cached("select 1 from passkeys where id = ?1 and user = ?2")?
            .exists(params![IdBytes(passkey.uuid()), user.map(|user| IdBytes(user.uuid()))])?;
        if is_theirs { Ok(()) } else { Err(Error::NotFound) }
    }

    pub(super) fn use_passkey(
        &self,
        tenant: TenantId,
        passkey: PasskeyId,
        counter: u32,
        at: Timestamp,
    ) -> Result<bool> {
        let accepted = self.passkey(tenant, passkey)?.accepts(counter);
        if accepted {
            self.connection
                .prepare_cached("update passkeys set counter = ?2, used = ?3 where id = ?1")?
                .execute(params![IdBytes(passkey.uuid()), i64::from(counter), at.millis()])?;
        }
        Ok(accepted)
    }

    pub(super) fn remove_passkey(
        &mut self,
        context: &WriteContext,
        user: UserId,
        passkey: PasskeyId,
    ) -> Result<PasskeyRecord> {
        let passkey = self.passkey(context.tenant, passkey)?;
        if passkey.user != user {
            return Err(Error::NotFound);
        }
        let sessions = self
            .connection
            .prepare_cached("select id from api_keys where passkey = ?1 and revoked is null order by no")?
            .query_map([IdBytes(passkey.id.uuid())], |row| Ok(rows::key_id(row.get(0)?)))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for session in sessions {
            self.revoke_key(context, session)?;
        }
        self.log(context.tenant, context.stamp(), &entry::user::passkey_removed(&passkey), None)?;
        self.connection.prepare_cached("delete from passkeys where id = ?1")?.execute([IdBytes(passkey.id.uuid())])?;
        Ok(passkey)
    }

    pub(super) fn remove_passkeys_of(&self, user: UserId) -> Result<()> {
        self.connection.prepare_cached("delete from passkeys where user = ?1")?.execute([IdBytes(user.uuid())])?;
        Ok(())
    }

    fn passkey(&self, tenant: TenantId, passkey: PasskeyId) -> Result<PasskeyRecord> {
        self.connection
            .prepare_cached(&format!("select {PASSKEY} where id = ?1 and tenant = ?2"))?
            .query_row([IdBytes(passkey.uuid()), IdBytes(tenant.uuid())], row)
            .optional()?
            .ok_or(Error::NotFound)
    }
}

/// The one with this credential.
pub(super) fn passkey(connection: &Connection, tenant: TenantId, credential: &[u8]) -> Result<PasskeyRecord> {
    connection
        .prepare_cached(&format!("select {PASSKEY} where credential = ?1 and tenant = ?2"))?
        .query_row(params![credential, IdBytes(tenant.uuid())], row)
        .optional()?
        .ok_or(Error::NotFound)
}

pub(super) fn passkeys(connection: &Connection, tenant: TenantId, user: UserId) -> Result<Vec<PasskeyRecord>> {
    read_user(connection, tenant, &UserRef::Id(user))?;
    let mut statement = connection.prepare_cached(&format!("select {PASSKEY} where user = ?1 order by no"))?;
    let passkeys = statement.query_map([IdBytes(user.uuid())], row)?;
    Ok(passkeys.collect::<rusqlite::Result<_>>()?)
}

/// Reads [`PASSKEY`].
fn row(row: &Row<'_>) -> rusqlite::Result<PasskeyRecord> {
    let counter: i64 = row.get(6)?;
    Ok(PasskeyRecord {
        id: rows::passkey_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        user: rows::user_id(row.get(2)?),
        name: row.get(3)?,
        credential: row.get(4)?,
        public_key: row.get(5)?,
        counter: u32::try_from(counter).map_err(|_| rows::corrupt(6, "not a signature counter"))?,
        created_at: rows::time(row, 7)?,
        last_used_at: rows::maybe_time(row, 8)?,
    })
}
