//! Login links that work once, and the console's sessions that they open.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use attache_protocol::{
    Secret, Timestamp,
    secret::{Kind, SecretHash},
    wire::{key::Role, system::LoginLink},
};
use attache_store::record::{KeyKind, NewKey};

use crate::{
    Error, Handle, Result,
    identity::{Action, Principal, Who},
};

/// Links that wait at the same time; the oldest give way.
const CAPACITY: usize = 256;

/// A browser that is signed in. The secret belongs into a cookie and nowhere else.
#[derive(Debug, Clone)]
pub struct Session {
    pub secret: Secret<String>,
    pub principal: Principal,
    pub expires_at: Timestamp,
}

/// Links that nobody has used yet. They live in memory only: after a restart a person makes a new one.
#[derive(Debug, Default)]
pub(crate) struct Logins(Mutex<HashMap<SecretHash, Pending>>);

#[derive(Debug, Clone)]
struct Pending {
    principal: Principal,
    role: Role,
    expires_at: Timestamp,
}

// === impl Handle ===

impl Handle {
    /// A link that signs one browser in, once, with the role of the person who made it.
    pub fn login_link(&self, by: &Principal) -> Result<LoginLink> {
        by.may(Action::CreateLoginLink)?;
        let role = by.role().ok_or_else(|| Error::forbidden("Only a person may sign in."))?;
        let token = Kind::Session.generate(self.env());
        let expires_at = self.now().plus(self.options().login_ttl);
        self.logins().add(token.hash(), Pending { principal: by.clone(), role, expires_at }, self.now());
        Ok(LoginLink { url: format!("{}/login?token={}", self.origin(), token.expose()), expires_at })
    }

    /// Uses a link's token up and opens a session.
    pub async fn redeem_login(&self, token: &str) -> Result<Session> {
        let pending = self.logins().take(SecretHash::of(token), self.now()).ok_or_else(expired_link)?;
        // A key that was revoked since must not open a session.
        self.recheck(&pending.principal).await.map_err(|_| expired_link())?;
        let secret = Kind::Session.generate(self.env());
        let expires_at = self.now().plus(self.options().session_ttl);
        let key = NewKey {
            id: self.env().key_id(),
            kind: KeyKind::Session,
            name: "console".to_owned(),
            role: pending.role,
            user: pending.principal.user,
            scopes: None,
            secret: secret.hash(),
            expires_at: Some(expires_at),
        };
        let context = self.context(&pending.principal);
        let key = self.store().create_key(context, key).await.map_err(|error| Error::from_store("key", error))?;
        let principal = Principal {
            tenant: pending.principal.tenant,
            who: Who::Key { key: key.id, role: pending.role },
            user: pending.principal.user,
            scopes: None,
            secret: secret.hash(),
        };
        Ok(Session { secret, principal, expires_at })
    }

    /// Ends the session behind the principal.
    pub async fn logout(&self, by: &Principal) -> Result<()> {
        let Who::Key { key, .. } = by.who else { return Err(Error::forbidden("Only a person can sign out.")) };
        self.revoke(by, key).await.map(drop)
    }
}

fn expired_link() -> Error {
    Error::unauthenticated("This login link was used before or has expired.")
        .hint("Make a new one: `attache login`, or POST /api/v1/login-links with an owner's key.")
}

// === impl Logins ===

impl Logins {
    fn add(&self, token: SecretHash, pending: Pending, now: Timestamp) {
        let mut links = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|_, link| link.expires_at > now);
        if links.len() >= CAPACITY {
            let oldest = links.iter().min_by_key(|(_, link)| link.expires_at).map(|(token, _)| *token);
            oldest.map(|token| links.remove(&token));
        }
        links.insert(token, pending);
    }

    fn take(&self, token: SecretHash, now: Timestamp) -> Option<Pending> {
        let link = self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&token)?;
        (link.expires_at > now).then_some(link)
    }
}
