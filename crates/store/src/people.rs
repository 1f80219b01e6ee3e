//! Users, and the access rules of a tenant.

use async_trait::async_trait;
use attache_protocol::{KeyId, TenantId};

use crate::{
    Context, Result,
    record::{
        AuditEvent, Credential, Listed, Page,
        people::{AccessRules, NewUser, User, UserPatch, UserRef},
    },
};

/// The rules of [`crate::Store`] hold here too.
///
/// | method | log rows |
/// |---|---|
/// | `create_user` | `user.created {"user_id","name","role"}` |
/// | `update_user` | for every session that a new password ends what `revoke_key` logs, then `user.updated {"user_id","name","role","password"}`, where `name`, `role` are the new values or null and `password` is whether it was changed |
/// | `remove_user` | what `revoke_runtime` logs for each of the user's agents that has a key of its own, what `revoke_key` logs for each of the user's keys and sessions that was not revoked, each in order of creation, then `user.removed {"user_id","name"}` |
/// | `record_event` | `login_link.created {"user_id","role","expires_at"}`, `tunnel.opened {"tunnel_id","delegation_id","expires_at","max_bytes"}` or `tunnel.closed {"tunnel_id","delegation_id","bytes"}` |
/// | `set_access_rules` | `rules.changed {"version","digest"}`; `digest` is the BLAKE3 of the text in hexadecimal |
#[async_trait]
pub trait People: Send + Sync {
    /// `NameTaken` if a user of the tenant that was not removed has the name.
    async fn create_user(&self, context: Context, user: NewUser) -> Result<User>;

    /// Errors, in this order: `NotFound`, also for a removed one; `NameTaken`; `LastOwner` if no owner would be left. A
    /// patch that changes nothing is logged like any other. A new password ends every session of the user except `keep`.
    async fn update_user(&self, context: Context, user: UserRef, patch: UserPatch, keep: Option<KeyId>)
    -> Result<User>;

    /// Revokes the user's keys and sessions and the keys of their agents, and frees the name; agents and runs stay theirs. `LastOwner` as above.
    /// Removing again, by id, changes nothing.
    async fn remove_user(&self, context: Context, user: UserRef) -> Result<User>;

    /// By name only users that were not removed are found.
    async fn user(&self, tenant: TenantId, user: UserRef) -> Result<User>;

    /// Users that were not removed, by name ascending, byte by byte.
    async fn users(&self, tenant: TenantId, page: Page) -> Result<Listed<User>>;

    /// What the key stands for, whatever its secret; `None` if unknown.
    async fn key_credential(&self, key: KeyId) -> Result<Option<Credential>>;

    /// Writes something down that changes nothing else.
    async fn record_event(&self, context: Context, event: AuditEvent) -> Result<()>;

    /// `None` until somebody sets them.
    async fn access_rules(&self, tenant: TenantId) -> Result<Option<AccessRules>>;

    /// `VersionChanged` unless `expected` is the present version (0: there are none yet); `None` replaces whatever is
    /// there. The text is not looked at. The same text again, if the version is right, changes nothing and answers the
    /// rules as they are.
    async fn set_access_rules(&self, context: Context, text: String, expected: Option<i64>) -> Result<AccessRules>;
}
