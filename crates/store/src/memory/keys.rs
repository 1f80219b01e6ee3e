//! Keys, and the credentials behind bearer secrets.

use attache_protocol::{KeyId, RuntimeId, TenantId, UserId, secret::SecretHash};

use super::{
    page::{self, PageOrder},
    state::{ModelKey, ModelState},
};
use crate::{
    Error, Result, WakeHint, WriteContext, entry,
    record::{
        AgentRef, KeyKind, KeyRecord, ListPage, NewKey, Pagination, StoredCredential, TokenState,
        passkey::PasskeyRecord,
    },
};

// === impl ModelState ===

impl ModelState {
    pub(super) fn credential(&self, secret: SecretHash) -> Option<StoredCredential> {
        if let Some((runtime, token)) = self.token(secret) {
            let runtime = &self.runtimes[&runtime];
            let (tenant, agent, kind, state) = (runtime.tenant, runtime.agent, runtime.kind, runtime.state);
            let user = self.accounts[&agent].owner;
            let role = user.map(|user| self.users[&user].role);
            return Some(StoredCredential::Runtime {
                tenant,
                runtime: runtime.id,
                agent,
                user,
                role,
                kind,
                state,
                token,
            });
        }
        self.keys.values().find(|stored| stored.secret == secret).map(|stored| self.credential_of(stored))
    }

    fn token(&self, secret: SecretHash) -> Option<(RuntimeId, TokenState)> {
        let current = self.tokens.get(&secret).map(|runtime| (*runtime, TokenState::Current));
        let offered = || self.offered_tokens.iter().find(|(_, offered)| **offered == secret);
        let offered = || offered().map(|(runtime, _)| (*runtime, TokenState::Offered));
        let replaced = || self.replaced_tokens.get(&secret).map(|(runtime, at)| (*runtime, TokenState::Replaced(*at)));
        current.or_else(offered).or_else(replaced)
    }

    /// The current permissions of a key, at most those of its user.
    pub(super) fn credential_of(&self, stored: &ModelKey) -> StoredCredential {
        let ModelKey { tenant, key, .. } = stored;
        let user = key.user.map(|user| &self.users[&user]);
        StoredCredential::Key {
            tenant: *tenant,
            key: key.id,
            user: key.user,
            role: user.map_or(key.role, |user| user.role.min(key.role)),
            user_role: user.map(|user| user.role),
            scopes: key.scopes.clone(),
            expires_at: key.expires_at,
            revoked: key.revoked_at.is_some() || user.is_some_and(|user| user.removed_at.is_some()),
            kind: key.kind(),
            agent: key.agent,
            opener: key.opener(),
        }
    }

    pub(super) fn create_key(&mut self, context: &WriteContext, new: NewKey) -> Result<KeyRecord> {
        self.known_tenant(context.tenant)?;
        if let Some(user) = new.user {
            self.present_user(context.tenant, user)?;
        }
        if let Some(passkey) = new.opening.as_ref().and_then(|opening| opening.passkey) {
            let is_theirs = |known: &PasskeyRecord| known.id == passkey && Some(known.user) == new.user;
            if !self.passkeys.iter().any(is_theirs) {
                return Err(Error::NotFound);
            }
        }
        if let Some(agent) = new.agent {
            self.living_agent(context.tenant, &AgentRef::Id(agent))?;
        }
        let opener = new.opener();
        let NewKey { id, opening, issuer, agent, name, role, user, scopes, secret, mut expires_at } = new;
        if let Some(opener) = opener {
            let opener = &self.key(context.tenant, opener)?.key;
            if !opener.is_valid(context.at) {
                return Err(Error::NotFound);
            }
            expires_at = expires_at.into_iter().chain(opener.expires_at).min();
        }
        let created_at = context.at;
        let key = KeyRecord {
            id,
            opening,
            issuer,
            agent,
            name,
            role,
            user,
            scopes,
            created_at,
            expires_at,
            revoked_at: None,
        };
        self.append(context.tenant, context.at, &context.actor, entry::key::created(&key));
        self.keys.insert(id, ModelKey { tenant: context.tenant, secret, key: key.clone() });
        Ok(key)
    }

    fn key(&self, tenant: TenantId, id: KeyId) -> Result<&ModelKey> {
        self.keys.get(&id).filter(|stored| stored.tenant == tenant).ok_or(Error::NotFound)
    }

    pub(super) fn revoke_key(&mut self, context: &WriteContext, id: KeyId) -> Result<KeyRecord> {
        let key = self.key(context.tenant, id)?.key.clone();
        if key.revoked_at.is_some() {
            return Ok(key);
        }
        let revoked = KeyRecord { revoked_at: Some(context.at), ..key };
        self.keys.get_mut(&id).expect("it was just found").key = revoked.clone();
        self.append(context.tenant, context.at, &context.actor, entry::key::revoked(&revoked));
        self.woken.push(WakeHint::Key(id));
        self.revoke_grants(context, |record| record.maker.key == Some(id));
        self.revoke_keys(context, |stored| stored.key.opener() == Some(id));
        Ok(revoked)
    }

    pub(super) fn keys(
        &self,
        tenant: TenantId,
        kind: KeyKind,
        user: Option<UserId>,
        page: &Pagination,
    ) -> Result<ListPage<KeyRecord>> {
        let of_user = |key: &KeyRecord| user.is_none() || key.user == user;
        let listed = |stored: &ModelKey| stored.tenant == tenant && stored.key.kind() == kind && of_user(&stored.key);
        let items = self.keys.iter().rev().filter(|(_, stored)| listed(stored));
        page::cut(items.map(|(place, stored)| (place, stored.key.clone())), PageOrder::Descending, page)
    }
}
