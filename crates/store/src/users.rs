//! Users, and the access rules of a tenant.

use attache_protocol::{KeyId, PasskeyId, TenantId, Timestamp, UserId};

use crate::{
    Result, WriteContext,
    record::{
        AuditEvent, ListPage, Pagination, StoredCredential,
        passkey::{NewPasskey, PasskeyRecord},
        user::{AccessRulesRecord, NewUser, SavedView, UserPatch, UserRecord, UserRef},
    },
    store_part::store_part,
};

store_part! {
    /// The rules of [`crate::Store`] apply here too.
    ///
    /// | method | log rows |
    /// |---|---|
    /// | `create_user` | `user.created {"user_id","name","role"}` |
    /// | `update_user` | for every session that a new password ends what `revoke_key` logs, then `user.updated {"user_id","name","role","password"}`, where `name`, `role` are the new values or null and `password` is whether it was changed |
    /// | `remove_user` | what `revoke_runtime` logs for each of the user's agents that has a key of its own, what `revoke_key` logs for each of the user's keys and sessions that was not revoked, each in order of creation, then `user.removed {"user_id","name"}` |
    /// | `add_passkey` | `passkey.added {"passkey_id","user_id","name"}` |
    /// | `remove_passkey` | what `revoke_key` logs for each of its sessions that was not revoked, in order of creation, then `passkey.removed {"passkey_id","user_id","name"}` |
    /// | `record_event` | `token.created {"key_id","jti","audience","role","scopes","expires_at"}`, `login_link.created {"user_id","role","expires_at"}`, `tunnel.opened {"tunnel_id","delegation_id","expires_at","max_bytes"}` or `tunnel.closed {"tunnel_id","delegation_id","bytes"}` |
    /// | `set_access_rules` | `rules.changed {"version","digest"}`; `digest` is the BLAKE3 of the text in hexadecimal |
    pub trait UserStore, layer UserStoreLayer, call UserCall {
        /// `NameTaken` if a user of the tenant that was not removed has the name.
        async fn create_user(&self, context: WriteContext, user: NewUser) -> Result<UserRecord>;

        /// Errors, in this order: `NotFound`, also for a removed one; `NameTaken`; `LastOwner` if no owner would be left. A
        /// patch that changes nothing is logged like any other. A new password ends every session of the user except `keep`.
        async fn update_user(
            &self,
            context: WriteContext,
            user: UserRef,
            patch: UserPatch,
            keep: Option<KeyId>,
        ) -> Result<UserRecord>;

        /// Revokes the user's keys and sessions and the keys of their agents, removes their passkeys, and frees the name. Agents
        /// and runs stay theirs. `LastOwner` as above. Removing again, by id, changes nothing.
        async fn remove_user(&self, context: WriteContext, user: UserRef) -> Result<UserRecord>;

        /// By name, only users that weren't removed are found.
        async fn user(&self, tenant: TenantId, user: UserRef) -> Result<UserRecord>;

        /// Users that weren't removed, by name ascending, in byte order.
        async fn users(&self, tenant: TenantId, page: Pagination) -> Result<ListPage<UserRecord>>;

        /// Keeps the view under its name, in the place of the one that had the name. `NotFound` for an unknown or removed user.
        /// Not logged.
        async fn save_view(&self, tenant: TenantId, user: UserId, view: SavedView) -> Result<()>;

        /// `NotFound` if the user, who wasn't removed, has no view with this name. Not logged.
        async fn remove_view(&self, tenant: TenantId, user: UserId, name: &str) -> Result<()>;

        /// In the order in which they were made. A removed user has none.
        async fn saved_views(&self, tenant: TenantId, user: UserId) -> Result<Vec<SavedView>>;

        /// `NotFound` for an unknown or removed user, `NameTaken` if the credential is known, whoever's it is.
        async fn add_passkey(&self, context: WriteContext, passkey: NewPasskey) -> Result<PasskeyRecord>;

        /// The one with this credential.
        async fn passkey(&self, tenant: TenantId, credential: &[u8]) -> Result<PasskeyRecord>;

        /// In the order in which they were added. A removed user has none.
        async fn passkeys(&self, tenant: TenantId, user: UserId) -> Result<Vec<PasskeyRecord>>;

        /// Notes a use, unless [`PasskeyRecord::accepts`] refuses the counter. Returns whether it did. Not logged.
        async fn use_passkey(
            &self,
            tenant: TenantId,
            passkey: PasskeyId,
            counter: u32,
            at: Timestamp,
        ) -> Result<bool>;

        /// Ends the sessions that were opened with it. `NotFound` unless it is this user's.
        async fn remove_passkey(
            &self,
            context: WriteContext,
            user: UserId,
            passkey: PasskeyId,
        ) -> Result<PasskeyRecord>;

        /// The credential of the key, whatever its secret. `None` if unknown.
        async fn key_credential(&self, key: KeyId) -> Result<Option<StoredCredential>>;

        /// Records an event that changes nothing else.
        async fn record_event(&self, context: WriteContext, event: AuditEvent) -> Result<()>;

        /// `None` until they are set.
        async fn access_rules(&self, tenant: TenantId) -> Result<Option<AccessRulesRecord>>;

        /// `VersionChanged` unless `expected` is the current version (0 if there are none yet); `None` replaces any
        /// version. The text isn't validated. Setting the same text again, with the right version, changes nothing and
        /// returns the current rules.
        async fn set_access_rules(
            &self,
            context: WriteContext,
            text: String,
            expected: Option<i64>,
        ) -> Result<AccessRulesRecord>;
    }
}
