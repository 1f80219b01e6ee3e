//! Users, and the access rules of a tenant.

use super::connection::{Connection, OptionalExtension as _, Row};
use async_trait::async_trait;
use attache_protocol::{KeyId, PasskeyId, Secret, TenantId, Timestamp, UserId, wire::key::Role};
use rusqlite::params;

use super::{
    SqlStore,
    keys::{self, KeyRevocation},
    lists, passkeys,
    rows::{self, IdBytes},
    saved_views,
    writer::WriteTransaction,
};
use crate::{
    Error, Result, UserStore, WakeHint, WriteContext, entry,
    record::{
        AuditEvent, ListPage, Pagination, RuntimeKind, StoredCredential,
        passkey::{NewPasskey, PasskeyRecord},
        user::{AccessRulesRecord, NewUser, SavedView, UserPatch, UserRecord, UserRef},
    },
};

/// The columns that [`user`] reads, with their table.
const USER: &str = "id, tenant, name, role, password, created, removed from users";

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    fn create_user(&mut self, context: &WriteContext, new: NewUser) -> Result<UserRecord> {
        self.refuse_taken_user(context.tenant, &new.name)?;
        let NewUser { id, name, role, password } = new;
        let tenant = context.tenant;
        let user = UserRecord { id, tenant, name, role, password, created_at: context.at, removed_at: None };
        self.log(tenant, context.stamp(), &entry::user::user_created(&user), None)?;
        self.connection
            .prepare_cached(
                "insert into users (id, tenant, name, role, password, created) values (?1, ?2, ?3, ?4, ?5, ?6)",
            )?
            .execute(params![
                IdBytes(id.uuid()),
                IdBytes(tenant.uuid()),
                user.name,
                role.as_str(),
                user.password.as_ref().map(Secret::expose),
                context.at.millis(),
            ])?;
        Ok(user)
    }

    fn update_user(
        &mut self,
        context: &WriteContext,
        user: &UserRef,
        patch: &UserPatch,
        keep: Option<KeyId>,
    ) -> Result<UserRecord> {
        let before = self.present_user(context.tenant, user)?;
        if let Some(name) = patch.name.as_ref().filter(|name| **name != before.name) {
            self.refuse_taken_user(context.tenant, name)?;
        }
        if patch.role.is_some_and(|role| role != Role::Owner) {
            self.refuse_last_owner(&before)?;
        }
        if patch.password.is_some() {
            self.revoke_keys(context, before.id, KeyRevocation::Sessions { keep })?;
        }
        if patch.role == Some(Role::Viewer) {
            self.revoke_grants_of_user(context, before.id)?;
        }
        self.log(context.tenant, context.stamp(), &entry::user::user_updated(before.id, patch), None)?;
        self.woken.push(WakeHint::Rights(context.tenant));
        let UserPatch { name, role, password } = patch.clone();
        let after = UserRecord {
            name: name.unwrap_or(before.name),
            role: role.unwrap_or(before.role),
            password: password.or(before.password),
            ..before
        };
        self.connection.prepare_cached("update users set name = ?2, role = ?3, password = ?4 where id = ?1")?.execute(
            params![
                IdBytes(after.id.uuid()),
                after.name,
                after.role.as_str(),
                after.password.as_ref().map(Secret::expose),
            ],
        )?;
        Ok(after)
    }

    fn remove_user(&mut self, context: &WriteContext, user: &UserRef) -> Result<UserRecord> {
        let user = read_user(self.connection, context.tenant, user)?;
        if user.removed_at.is_some() {
            return Ok(user);
        }
        self.refuse_last_owner(&user)?;
        self.revoke_agent_keys(context, user.id)?;
        self.revoke_keys(context, user.id, KeyRevocation::All)?;
        self.revoke_grants_of_user(context, user.id)?;
        self.remove_views_of(user.id)?;
        self.remove_passkeys_of(user.id)?;
        self.log(context.tenant, context.stamp(), &entry::user::user_removed(&user), None)?;
        self.woken.push(WakeHint::Rights(context.tenant));
        self.connection
            .prepare_cached("update users set removed = ?2 where id = ?1")?
            .execute(params![IdBytes(user.id.uuid()), context.at.millis()])?;
        Ok(UserRecord { removed_at: Some(context.at), ..user })
    }

    /// The keys of a person's agents act for that person, so they are revoked. Devices stay paired and keep working.
    fn revoke_agent_keys(&mut self, context: &WriteContext, owner: UserId) -> Result<()> {
        let runtimes = self
            .connection
            .prepare_cached(
                "select t.id from agent_runtimes t cross join agent_accounts a on a.id = t.agent
                 where t.state = 0 and t.kind = ?2 and a.owner = ?1 order by t.no",
            )?
            .query_map(params![IdBytes(owner.uuid()), rows::runtime_kind_number(RuntimeKind::AgentKey)], |row| {
                Ok(rows::runtime_id(row.get(0)?))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        for runtime in runtimes {
            self.revoke_runtime(context, runtime)?;
        }
        Ok(())
    }

    /// A user who wasn't removed.
    pub(super) fn present_user(&self, tenant: TenantId, user: &UserRef) -> Result<UserRecord> {
        let user = read_user(self.connection, tenant, user)?;
        if user.removed_at.is_none() { Ok(user) } else { Err(Error::NotFound) }
    }

    fn refuse_taken_user(&self, tenant: TenantId, name: &str) -> Result<()> {
        match read_user(self.connection, tenant, &UserRef::Name(name.to_owned())) {
            Ok(_) => Err(Error::NameTaken),
            Err(Error::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn refuse_last_owner(&self, user: &UserRecord) -> Result<()> {
        if user.role != Role::Owner {
            return Ok(());
        }
        let others = self
            .connection
            .prepare_cached("select 1 from users where tenant = ?1 and removed is null and role = ?2 and id <> ?3")?
            .exists(params![IdBytes(user.tenant.uuid()), Role::Owner.as_str(), IdBytes(user.id.uuid())])?;
        if others { Ok(()) } else { Err(Error::LastOwner) }
    }

    fn set_access_rules(
        &mut self,
        context: &WriteContext,
        text: String,
        expected: Option<i64>,
    ) -> Result<AccessRulesRecord> {
        self.cache.head(context.tenant).ok_or(Error::NotFound)?;
        let present = read_rules(self.connection, context.tenant)?;
        let version = present.as_ref().map_or(0, |rules| rules.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(Error::VersionChanged);
        }
        if let Some(same) = present.filter(|rules| rules.text == text) {
            return Ok(same);
        }
        let changed_by = context.actor.clone();
        let rules = AccessRulesRecord { text, version: version + 1, changed_at: context.at, changed_by };
        self.log(context.tenant, context.stamp(), &entry::user::rules_changed(&rules), None)?;
        self.woken.push(WakeHint::Rights(context.tenant));
        self.connection
            .prepare_cached(
                "insert into access_rules (tenant, text, version, changed, changed_by) values (?1, ?2, ?3, ?4, ?5)
                 on conflict (tenant) do update set text = excluded.text, version = excluded.version,
                    changed = excluded.changed, changed_by = excluded.changed_by",
            )?
            .execute(params![
                IdBytes(context.tenant.uuid()),
                rules.text,
                rules.version,
                rules.changed_at.millis(),
                rules.changed_by.to_string(),
            ])?;
        Ok(rules)
    }
}

pub(super) fn read_user(connection: &Connection, tenant: TenantId, named: &UserRef) -> Result<UserRecord> {
    let tenant = IdBytes(tenant.uuid());
    let found = match named {
        UserRef::Id(id) => connection
            .prepare_cached(&format!("select {USER} where tenant = ?1 and id = ?2"))?
            .query_row([tenant, IdBytes(id.uuid())], user),
        UserRef::Name(name) => connection
            .prepare_cached(&format!("select {USER} where tenant = ?1 and name = ?2 and removed is null"))?
            .query_row(params![tenant, name], user),
    };
    found.optional()?.ok_or(Error::NotFound)
}

fn users(connection: &Connection, tenant: TenantId, page: &Pagination) -> Result<ListPage<UserRecord>> {
    let items = connection
        .prepare_cached(&format!(
            "select {USER} where tenant = ?1 and name >= ?2 and removed is null order by name limit ?3"
        ))?
        .query_map(params![IdBytes(tenant.uuid()), lists::first_name(page)?, lists::one_more(page)], user)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(lists::paged_by_name(items, page.limit, |user| &user.name))
}

fn read_rules(connection: &Connection, tenant: TenantId) -> Result<Option<AccessRulesRecord>> {
    Ok(connection
        .prepare_cached("select text, version, changed, changed_by from access_rules where tenant = ?1")?
        .query_row([IdBytes(tenant.uuid())], |row| {
            Ok(AccessRulesRecord {
                text: row.get(0)?,
                version: row.get(1)?,
                changed_at: rows::time(row, 2)?,
                changed_by: rows::actor(row, 3)?,
            })
        })
        .optional()?)
}

/// Reads [`USER`].
fn user(row: &Row<'_>) -> rusqlite::Result<UserRecord> {
    Ok(UserRecord {
        id: rows::user_id(row.get(0)?),
        tenant: rows::tenant_id(row.get(1)?),
        name: row.get(2)?,
        role: rows::role(row, 3)?,
        password: row.get::<Option<String>>(4)?.map(Secret::new),
        created_at: rows::time(row, 5)?,
        removed_at: rows::maybe_time(row, 6)?,
    })
}

// === impl SqlStore ===

#[async_trait]
impl UserStore for SqlStore {
    async fn create_user(&self, context: WriteContext, user: NewUser) -> Result<UserRecord> {
        self.write(move |transaction| transaction.create_user(&context, user)).await
    }

    async fn update_user(
        &self,
        context: WriteContext,
        user: UserRef,
        patch: UserPatch,
        keep: Option<KeyId>,
    ) -> Result<UserRecord> {
        self.write(move |transaction| transaction.update_user(&context, &user, &patch, keep)).await
    }

    async fn remove_user(&self, context: WriteContext, user: UserRef) -> Result<UserRecord> {
        self.write(move |transaction| transaction.remove_user(&context, &user)).await
    }

    async fn user(&self, tenant: TenantId, user: UserRef) -> Result<UserRecord> {
        self.read(move |connection| read_user(connection, tenant, &user)).await
    }

    async fn users(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<UserRecord>> {
        self.read(move |connection| users(connection, tenant, &page)).await
    }

    async fn save_view(&self, tenant: TenantId, user: UserId, view: SavedView) -> Result<()> {
        self.write(move |transaction| transaction.save_view(tenant, user, &view)).await
    }

    async fn remove_view(&self, tenant: TenantId, user: UserId, name: &str) -> Result<()> {
        let name = name.to_owned();
        self.write(move |transaction| transaction.remove_view(tenant, user, &name)).await
    }

    async fn saved_views(&self, tenant: TenantId, user: UserId) -> Result<Vec<SavedView>> {
        self.read(move |connection| saved_views::saved_views(connection, tenant, user)).await
    }

    async fn add_passkey(&self, context: WriteContext, passkey: NewPasskey) -> Result<PasskeyRecord> {
        self.write(move |transaction| transaction.add_passkey(&context, passkey)).await
    }

    async fn passkey(&self, tenant: TenantId, credential: &[u8]) -> Result<PasskeyRecord> {
        let credential = credential.to_owned();
        self.read(move |connection| passkeys::passkey(connection, tenant, &credential)).await
    }

    async fn passkeys(&self, tenant: TenantId, user: UserId) -> Result<Vec<PasskeyRecord>> {
        self.read(move |connection| passkeys::passkeys(connection, tenant, user)).await
    }

    async fn use_passkey(&self, tenant: TenantId, passkey: PasskeyId, counter: u32, at: Timestamp) -> Result<bool> {
        self.write(move |transaction| transaction.use_passkey(tenant, passkey, counter, at)).await
    }

    async fn remove_passkey(&self, context: WriteContext, user: UserId, passkey: PasskeyId) -> Result<PasskeyRecord> {
        self.write(move |transaction| transaction.remove_passkey(&context, user, passkey)).await
    }

    async fn key_credential(&self, key: KeyId) -> Result<Option<StoredCredential>> {
        self.read(move |connection| keys::key_credential(connection, key)).await
    }

    async fn record_event(&self, context: WriteContext, event: AuditEvent) -> Result<()> {
        self.write(move |transaction| transaction.record_event(&context, &event)).await
    }

    async fn access_rules(&self, tenant: TenantId) -> Result<Option<AccessRulesRecord>> {
        self.read(move |connection| read_rules(connection, tenant)).await
    }

    async fn set_access_rules(
        &self,
        context: WriteContext,
        text: String,
        expected: Option<i64>,
    ) -> Result<AccessRulesRecord> {
        self.write(move |transaction| transaction.set_access_rules(&context, text, expected)).await
    }
}
