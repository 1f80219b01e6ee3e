//! Login links that work once, passwords, and the console's sessions that both open.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use attache_protocol::{
    Secret, TenantId, Timestamp, UserId,
    secret::{Kind, SecretHash},
    wire::{
        key::{Role, Scope},
        system::LoginLink,
    },
};
use attache_store::{
    Context,
    record::{KeyKind, NewKey, people::UserRef},
};

use crate::{
    Error, Handle, Result,
    control::check,
    error::about,
    identity::{Action, Principal, Proof, Who},
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
        by.lasting()?;
        let role = by.role().ok_or_else(|| Error::forbidden("Only a person may sign in."))?;
        let token = Kind::Session.generate(self.env());
        let expires_at = self.now().plus(self.options().login_ttl);
        self.logins().add(token.hash(), Pending { principal: by.clone(), role, expires_at }, self.now());
        Ok(LoginLink { url: format!("{}/login?token={}", self.origin(), token.expose()), expires_at })
    }

    /// Uses a link's token up and opens a session.
    pub async fn redeem_login(&self, token: &str) -> Result<Session> {
        let Pending { principal, role, .. } =
            self.logins().take(SecretHash::of(token), self.now()).ok_or_else(expired_link)?;
        // A key that was revoked since must not open a session.
        self.recheck(&principal).await.map_err(|_| expired_link())?;
        self.open_session(principal.tenant, principal.user, role, principal.scopes).await
    }

    /// Opens a session for whoever knows the password. Unknown names, people without a password and wrong passwords are
    /// one answer, after the same work; a few failures a minute are taken, per address and per name.
    pub async fn sign_in(&self, name: &str, password: &Secret<String>, from: IpAddr) -> Result<Session> {
        let name = name.trim().to_lowercase();
        let attempts = self.attempts();
        // What cannot be a name is counted as one, so that nobody fills the memory with them.
        let counted = if check::is_name(&name) { name.as_str() } else { "" };
        attempts.by_address.check(from)?;
        attempts.by_name.check(counted)?;
        let tenant = self.tenant();
        let user = match check::is_name(&name) {
            true => self.store().user(tenant, UserRef::Name(name.clone())).await,
            false => Err(attache_store::Error::NotFound),
        };
        let user = match user {
            Ok(user) => Some(user),
            Err(attache_store::Error::NotFound) => None,
            Err(error) => return Err(Error::from_store("user", error)),
        };
        let hash = user.as_ref().and_then(|user| user.password.as_ref());
        let known = self.passwords().verify(password, hash).await?;
        let Some(user) = user.filter(|_| known) else {
            attempts.by_address.mark(from);
            attempts.by_name.mark(counted);
            return Err(Error::unauthenticated("The name or the password is wrong.")
                .hint("An admin can set a new password: `attache users set NAME --password`."));
        };
        self.open_session(tenant, Some(user.id), user.role, None).await
    }

    async fn open_session(
        &self,
        tenant: TenantId,
        user: Option<UserId>,
        role: Role,
        scopes: Option<Vec<Scope>>,
    ) -> Result<Session> {
        let secret = Kind::Session.generate(self.env());
        let expires_at = self.now().plus(self.options().session_ttl);
        let key = NewKey {
            id: self.env().key_id(),
            kind: KeyKind::Session,
            name: "console".to_owned(),
            role,
            user,
            // A link is worth no more than the key that made it.
            scopes: scopes.clone(),
            secret: secret.hash(),
            expires_at: Some(expires_at),
        };
        let context = Context::new(tenant, format!("key:{}", key.id), self.now()).for_user(user);
        let key = self.store().create_key(context, key).await.map_err(about("user"))?;
        let proof = Proof::Secret(secret.hash());
        let principal = Principal { tenant, who: Who::Key { key: key.id, role }, user, scopes, ends_at: None, proof };
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
