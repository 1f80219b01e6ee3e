//! The first owner and the key in `admin.key`: created at the first start, and recreated when lost.

use std::io;

use attache_protocol::{KeyId, Secret, TenantId, Timestamp, UserId, env::Env, secret::Kind, wire::key::Role};
use attache_store::{
    Store, WriteContext,
    record::{
        KeyKind, NewKey, Pagination, StoredCredential,
        user::{NewUser, UserRecord, UserRef},
    },
};

use crate::{
    StartError,
    identity::IdentityFolder,
    options::{Options, OwnerKey},
};

/// The state of the owner key in `admin.key` at start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerKeyState {
    /// It is in the file and valid.
    InFile,
    /// The file is missing or contains no valid owner key, but somebody is an owner.
    Elsewhere,
    /// A new one is in the file, and the previous ones were revoked.
    Recovered { revoked: usize },
}

/// The name of the key in `admin.key`.
const OWNER_KEY: &str = "owner (admin.key)";

/// The owner key is written to its file before the store, so that the next start repairs a crash in between. A key that
/// replaces a lost one revokes it.
pub(crate) async fn ensure_owner(
    options: &Options,
    folder: &IdentityFolder,
    store: &dyn Store,
    env: &Env,
    tenant: TenantId,
) -> Result<OwnerKeyState, StartError> {
    let failed = |source| StartError::Folder { path: options.data.display().to_string(), source };
    let filed = match std::fs::read_to_string(folder.admin_key()) {
        Ok(text) => Some(Secret::new(text.trim().to_owned())).filter(|key| is_key(key.expose())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    let known = match &filed {
        Some(key) => store.credential(key.hash()).await.map_err(StartError::Store)?,
        None => None,
    };
    let is_good = known.as_ref().is_some_and(|known| is_owner_key(known, env.now()));
    if is_good {
        return Ok(OwnerKeyState::InFile);
    }
    let has_owner = has_owner(store, tenant, env.now()).await.map_err(StartError::Store)?;
    if options.owner_key == OwnerKey::FirstStart && has_owner {
        return Ok(OwnerKeyState::Elsewhere);
    }
    let secret = match filed.filter(|_| known.is_none()) {
        Some(key) => key,
        None => {
            let key = Kind::ApiKey.generate(env);
            folder.write_admin_key(&key).map_err(failed)?;
            key
        }
    };
    let lost = if has_owner { lost_keys(store, tenant).await.map_err(StartError::Store)? } else { Vec::new() };
    let key = NewKey {
        id: env.key_id(),
        opening: None,
        issuer: None,
        agent: None,
        name: OWNER_KEY.to_owned(),
        role: Role::Owner,
        user: owner_user(store, env, tenant).await.map_err(StartError::Store)?,
        scopes: None,
        secret: secret.hash(),
        expires_at: None,
    };
    let context = || WriteContext::new(tenant, WriteContext::SYSTEM, env.now());
    store.create_key(context(), key).await.map_err(StartError::Store)?;
    for key in &lost {
        store.revoke_key(context(), *key).await.map_err(StartError::Store)?;
    }
    Ok(if has_owner { OwnerKeyState::Recovered { revoked: lost.len() } } else { OwnerKeyState::InFile })
}

/// Text that someone wrote there by hand is not one of our keys.
fn is_key(text: &str) -> bool {
    let body = text.strip_prefix(Kind::ApiKey.prefix());
    body.is_some_and(|body| body.len() == 64 && body.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn is_owner_key(credential: &StoredCredential, now: Timestamp) -> bool {
    match credential {
        StoredCredential::Key { role, expires_at, revoked, .. } => {
            *role == Role::Owner && !revoked && expires_at.is_none_or(|at| at > now)
        }
        StoredCredential::Runtime { .. } => false,
    }
}

/// The valid keys that were once written to the file.
async fn lost_keys(store: &dyn Store, tenant: TenantId) -> attache_store::Result<Vec<KeyId>> {
    let (mut lost, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.keys(tenant, KeyKind::Api, None, Pagination { limit: 200, cursor }).await?;
        let filed = page.items.iter().filter(|key| key.name == OWNER_KEY && key.revoked_at.is_none());
        lost.extend(filed.map(|key| key.id));
        cursor = page.next;
        if cursor.is_none() {
            return Ok(lost);
        }
    }
}

/// The user of the owner key: `owner`, created at the first start without a password. If someone else has that name,
/// the key gets no user.
async fn owner_user(store: &dyn Store, env: &Env, tenant: TenantId) -> attache_store::Result<Option<UserId>> {
    match store.user(tenant, UserRef::Name("owner".to_owned())).await {
        Ok(user) => return Ok(Some(user.id).filter(|_| user.role == Role::Owner)),
        Err(attache_store::Error::NotFound) => {}
        Err(error) => return Err(error),
    }
    let user = NewUser { id: env.user_id(), name: "owner".to_owned(), role: Role::Owner, password: None };
    let context = WriteContext::new(tenant, WriteContext::SYSTEM, env.now());
    store.create_user(context, user).await.map(|user| Some(user.id))
}

/// Whether anybody can get in as an owner, with a key or a password.
async fn has_owner(store: &dyn Store, tenant: TenantId, now: Timestamp) -> attache_store::Result<bool> {
    let mut cursor = None;
    loop {
        let page = store.users(tenant, Pagination { limit: 200, cursor }).await?;
        let signs_in =
            |user: &UserRecord| user.role == Role::Owner && user.password.is_some() && user.removed_at.is_none();
        if page.items.iter().any(signs_in) {
            return Ok(true);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    loop {
        let page = store.keys(tenant, KeyKind::Api, None, Pagination { limit: 200, cursor }).await?;
        if page.items.iter().any(|key| key.role == Role::Owner && key.is_valid(now)) {
            return Ok(true);
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(false);
        }
    }
}
