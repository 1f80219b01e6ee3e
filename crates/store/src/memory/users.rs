//! Users and access rules.

use std::collections::BTreeMap;

use async_trait::async_trait;
use attache_protocol::{
    KeyId, PasskeyId, RuntimeId, TenantId, Timestamp, UserId,
    wire::{key::Role, runtime::RuntimeState},
};

use super::{
    MemoryStore,
    page::{self, NameCursor, PageOrder},
    state::{ModelKey, ModelState},
};
use crate::{
    Error, Result, UserStore, WakeHint, WriteContext, entry,
    record::{
        AuditEvent, KeyKind, ListPage, Pagination, RuntimeKind, StoredCredential,
        passkey::{NewPasskey, PasskeyRecord},
        user::{AccessRulesRecord, NewUser, SavedView, UserPatch, UserRecord, UserRef},
    },
};

// === impl ModelState ===

impl ModelState {
    fn create_user(&mut self, context: &WriteContext, new: NewUser) -> Result<UserRecord> {
        self.known_tenant(context.tenant)?;
        self.free_user_name(context.tenant, &new.name, None)?;
        let NewUser { id, name, role, password } = new;
        let tenant = context.tenant;
        let user = UserRecord { id, tenant, name, role, password, created_at: context.at, removed_at: None };
        self.append(tenant, context.at, &context.actor, entry::user::user_created(&user));
        self.users.insert(id, user.clone());
        Ok(user)
    }

    fn update_user(
        &mut self,
        context: &WriteContext,
        user: &UserRef,
        patch: UserPatch,
        keep: Option<KeyId>,
    ) -> Result<UserRecord> {
        let before = self.user(context.tenant, user)?.clone();
        if before.removed_at.is_some() {
            return Err(Error::NotFound);
        }
        if let Some(name) = &patch.name {
            self.free_user_name(context.tenant, name, Some(before.id))?;
        }
        if patch.role.is_some_and(|role| role != Role::Owner) {
            self.not_the_last_owner(&before)?;
        }
        if patch.password.is_some() {
            self.revoke_keys(context, |stored| {
                let ends = stored.key.kind() == KeyKind::Session && Some(stored.key.id) != keep;
                stored.key.user == Some(before.id) && ends
            });
        }
        // A viewer decides nothing.
        if patch.role == Some(Role::Viewer) {
            self.revoke_grants(context, |record| record.maker.user == Some(before.id));
        }
        let row = entry::user::user_updated(before.id, &patch);
        self.append(context.tenant, context.at, &context.actor, row);
        self.woken.push(WakeHint::Rights(context.tenant));
        let UserPatch { name, role, password } = patch;
        let after = UserRecord {
            name: name.unwrap_or(before.name),
            role: role.unwrap_or(before.role),
            password: password.or(before.password),
            ..before
        };
        self.users.insert(after.id, after.clone());
        Ok(after)
    }

    /// The views of a user who wasn't removed.
    fn views_of(&mut self, tenant: TenantId, user: UserId) -> Result<&mut Vec<SavedView>> {
        match self.user(tenant, &UserRef::Id(user))?.removed_at {
            None => Ok(self.saved_views.entry(user).or_default()),
            Some(_) => Err(Error::NotFound),
        }
    }

    fn add_passkey(&mut self, context: &WriteContext, new: NewPasskey) -> Result<PasskeyRecord> {
        self.present_user(context.tenant, new.user)?;
        if self.passkeys.iter().any(|known| known.credential == new.credential) {
            return Err(Error::NameTaken);
        }
        let passkey = new.into_record(context.tenant, context.at);
        self.append(context.tenant, context.at, &context.actor, entry::user::passkey_added(&passkey));
        self.passkeys.push(passkey.clone());
        Ok(passkey)
    }

    fn remove_passkey(&mut self, context: &WriteContext, user: UserId, id: PasskeyId) -> Result<PasskeyRecord> {
        let is_meant = |known: &PasskeyRecord| known.tenant == context.tenant && known.user == user && known.id == id;
        let place = self.passkeys.iter().position(is_meant).ok_or(Error::NotFound)?;
        let removed = self.passkeys.remove(place);
        self.revoke_keys(context, |stored| stored.key.passkey() == Some(id) && stored.key.revoked_at.is_none());
        self.append(context.tenant, context.at, &context.actor, entry::user::passkey_removed(&removed));
        Ok(removed)
    }

    fn remove_user(&mut self, context: &WriteContext, user: &UserRef) -> Result<UserRecord> {
        let user = self.user(context.tenant, user)?.clone();
        if user.removed_at.is_some() {
            return Ok(user);
        }
        self.not_the_last_owner(&user)?;
        self.revoke_agent_keys(context, user.id);
        self.revoke_keys(context, |stored| stored.key.user == Some(user.id));
        self.revoke_grants(context, |record| record.maker.user == Some(user.id));
        self.saved_views.remove(&user.id);
        self.passkeys.retain(|passkey| passkey.user != user.id);
        self.append(context.tenant, context.at, &context.actor, entry::user::user_removed(&user));
        self.woken.push(WakeHint::Rights(context.tenant));
        let removed = UserRecord { removed_at: Some(context.at), ..user };
        self.users.insert(removed.id, removed.clone());
        Ok(removed)
    }

    /// The keys of a person's agents act for that person, so they are revoked. Devices stay paired and keep working.
    fn revoke_agent_keys(&mut self, context: &WriteContext, owner: UserId) {
        let found = self.runtimes.values().filter(|runtime| {
            let is_key = runtime.kind == RuntimeKind::AgentKey && runtime.state == RuntimeState::Active;
            is_key && self.accounts[&runtime.agent].owner == Some(owner)
        });
        let found: Vec<RuntimeId> = found.map(|runtime| runtime.id).collect();
        for runtime in found {
            self.end_runtime(runtime, RuntimeState::Revoked, &context.actor, context.at);
        }
    }

    /// Revokes the selected keys of the tenant, in order of creation.
    pub(super) fn revoke_keys(&mut self, context: &WriteContext, wanted: impl Fn(&ModelKey) -> bool) {
        let found = self.keys.values().filter(|stored| stored.tenant == context.tenant && wanted(stored));
        let found: Vec<KeyId> = found.map(|stored| stored.key.id).collect();
        for key in found {
            self.revoke_key(context, key).expect("it was just found");
        }
    }

    /// By name, only users that weren't removed are found.
    fn user(&self, tenant: TenantId, user: &UserRef) -> Result<&UserRecord> {
        let mut users = self.users.values().filter(|user| user.tenant == tenant);
        match user {
            UserRef::Id(id) => users.find(|user| user.id == *id),
            UserRef::Name(name) => users.find(|user| user.name == *name && user.removed_at.is_none()),
        }
        .ok_or(Error::NotFound)
    }

    /// A user who wasn't removed.
    pub(super) fn present_user(&self, tenant: TenantId, user: UserId) -> Result<()> {
        let user = self.user(tenant, &UserRef::Id(user))?;
        if user.removed_at.is_none() { Ok(()) } else { Err(Error::NotFound) }
    }

    /// Whether no user but `except` has the name.
    fn free_user_name(&self, tenant: TenantId, name: &str, except: Option<UserId>) -> Result<()> {
        match self.user(tenant, &UserRef::Name(name.to_owned())) {
            Ok(holder) if Some(holder.id) != except => Err(Error::NameTaken),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn not_the_last_owner(&self, user: &UserRecord) -> Result<()> {
        let owners = self.users.values().filter(|known| known.tenant == user.tenant && known.removed_at.is_none());
        let mut owners = owners.filter(|known| known.role == Role::Owner);
        if user.role == Role::Owner && owners.all(|owner| owner.id == user.id) {
            return Err(Error::LastOwner);
        }
        Ok(())
    }

    fn users(&self, tenant: TenantId, page: &Pagination) -> Result<ListPage<UserRecord>> {
        let users = self.users.values().filter(|user| user.tenant == tenant && user.removed_at.is_none());
        let by_name: BTreeMap<NameCursor, UserRecord> =
            users.map(|user| (NameCursor(user.name.clone()), user.clone())).collect();
        page::cut(by_name.into_iter(), PageOrder::Ascending, page)
    }

    fn set_access_rules(
        &mut self,
        context: &WriteContext,
        text: String,
        expected: Option<i64>,
    ) -> Result<AccessRulesRecord> {
        self.known_tenant(context.tenant)?;
        let present = self.rules.get(&context.tenant);
        let version = present.map_or(0, |rules| rules.version);
        if expected.is_some_and(|expected| expected != version) {
            return Err(Error::VersionChanged);
        }
        if let Some(same) = present.filter(|rules| rules.text == text) {
            return Ok(same.clone());
        }
        let changed_by = context.actor.clone();
        let rules = AccessRulesRecord { text, version: version + 1, changed_at: context.at, changed_by };
        self.append(context.tenant, context.at, &context.actor, entry::user::rules_changed(&rules));
        self.woken.push(WakeHint::Rights(context.tenant));
        self.rules.insert(context.tenant, rules.clone());
        Ok(rules)
    }
}

// === impl MemoryStore ===

#[async_trait]
impl UserStore for MemoryStore {
    async fn create_user(&self, context: WriteContext, user: NewUser) -> Result<UserRecord> {
        self.write(|state| state.create_user(&context, user))
    }

    async fn update_user(
        &self,
        context: WriteContext,
        user: UserRef,
        patch: UserPatch,
        keep: Option<KeyId>,
    ) -> Result<UserRecord> {
        self.write(|state| state.update_user(&context, &user, patch, keep))
    }

    async fn remove_user(&self, context: WriteContext, user: UserRef) -> Result<UserRecord> {
        self.write(|state| state.remove_user(&context, &user))
    }

    async fn user(&self, tenant: TenantId, user: UserRef) -> Result<UserRecord> {
        self.read(|state| state.user(tenant, &user).cloned())
    }

    async fn users(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<UserRecord>> {
        self.read(|state| state.users(tenant, &page))
    }

    async fn save_view(&self, tenant: TenantId, user: UserId, view: SavedView) -> Result<()> {
        self.write(|state| {
            let views = state.views_of(tenant, user)?;
            match views.iter_mut().find(|saved| saved.name == view.name) {
                Some(saved) => saved.query = view.query,
                None => views.push(view),
            }
            Ok(())
        })
    }

    async fn remove_view(&self, tenant: TenantId, user: UserId, name: &str) -> Result<()> {
        self.write(|state| {
            let views = state.views_of(tenant, user)?;
            let place = views.iter().position(|saved| saved.name == name).ok_or(Error::NotFound)?;
            views.remove(place);
            Ok(())
        })
    }

    async fn saved_views(&self, tenant: TenantId, user: UserId) -> Result<Vec<SavedView>> {
        self.read(|state| {
            state.user(tenant, &UserRef::Id(user))?;
            Ok(state.saved_views.get(&user).cloned().unwrap_or_default())
        })
    }

    async fn add_passkey(&self, context: WriteContext, passkey: NewPasskey) -> Result<PasskeyRecord> {
        self.write(|state| state.add_passkey(&context, passkey))
    }

    async fn passkey(&self, tenant: TenantId, credential: &[u8]) -> Result<PasskeyRecord> {
        self.read(|state| {
            let mut passkeys = state.passkeys.iter();
            let found = passkeys.find(|known| known.tenant == tenant && known.credential == credential);
            found.cloned().ok_or(Error::NotFound)
        })
    }

    async fn passkeys(&self, tenant: TenantId, user: UserId) -> Result<Vec<PasskeyRecord>> {
        self.read(|state| {
            state.user(tenant, &UserRef::Id(user))?;
            Ok(state.passkeys.iter().filter(|known| known.user == user).cloned().collect())
        })
    }

    async fn use_passkey(&self, tenant: TenantId, passkey: PasskeyId, counter: u32, at: Timestamp) -> Result<bool> {
        self.write(|state| {
            let mut passkeys = state.passkeys.iter_mut();
            let found = passkeys.find(|known| known.tenant == tenant && known.id == passkey).ok_or(Error::NotFound)?;
            let accepted = found.accepts(counter);
            if accepted {
                (found.counter, found.last_used_at) = (counter, Some(at));
            }
            Ok(accepted)
        })
    }

    async fn remove_passkey(&self, context: WriteContext, user: UserId, passkey: PasskeyId) -> Result<PasskeyRecord> {
        self.write(|state| state.remove_passkey(&context, user, passkey))
    }

    async fn key_credential(&self, key: KeyId) -> Result<Option<StoredCredential>> {
        self.read(|state| Ok(state.keys.get(&key).map(|stored| state.credential_of(stored))))
    }

    async fn record_event(&self, context: WriteContext, event: AuditEvent) -> Result<()> {
        self.write(|state| {
            state.known_tenant(context.tenant)?;
            state.append(context.tenant, context.at, &context.actor, entry::key::event(&event));
            Ok(())
        })
    }

    async fn access_rules(&self, tenant: TenantId) -> Result<Option<AccessRulesRecord>> {
        self.read(|state| Ok(state.rules.get(&tenant).cloned()))
    }

    async fn set_access_rules(
        &self,
        context: WriteContext,
        text: String,
        expected: Option<i64>,
    ) -> Result<AccessRulesRecord> {
        self.write(|state| state.set_access_rules(&context, text, expected))
    }
}
