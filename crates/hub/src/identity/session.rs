//! One-time login links, passwords, and the console sessions that both open.

use std::net::IpAddr;

use attache_protocol::{
    Actor, Json, KeyId, PasskeyId, Secret, TenantId, Timestamp, UserId,
    digest::hex,
    secret::{Kind, SecretHash},
    wire::{
        key::{KeyScope, Role},
        session::LoginLinkRequest,
        system::LoginLink,
    },
};
use attache_store::{
    WriteContext,
    record::{
        AuditEvent, NewKey, SessionOpening,
        shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
        user::{UserRecord, UserRef},
    },
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Handle, Result, check,
    error::about,
    identity::{Action, PresentedCredential, Principal, PrincipalKind},
};

/// Unused links of one person, however many keys they have. The oldest are dropped.
const MAX_LINKS: usize = 16;

/// A signed-in browser. The secret belongs in a cookie and nowhere else.
#[derive(Debug, Clone)]
pub struct SignedInSession {
    pub secret: Secret<String>,
    pub principal: Principal,
    pub expires_at: Timestamp,
}

/// The person a login link signs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginLinkTarget {
    /// `None` if there is no user.
    pub user: Option<String>,
    pub role: Role,
}

/// An unused link, as the store keeps it under the hash of its token.
#[derive(Debug, Serialize, Deserialize)]
struct PendingLogin {
    /// The key or session that created the link.
    maker: KeyId,
    user: Option<UserId>,
    target: LoginLinkTarget,
}

/// A session about to be opened.
struct NewSession {
    tenant: TenantId,
    user: Option<UserId>,
    role: Role,
    scopes: Option<Vec<KeyScope>>,
    opener: Option<KeyId>,
    passkey: Option<PasskeyId>,
    from: IpAddr,
}

// === impl Handle ===

impl Handle {
    /// A one-time link that signs one browser in: as the caller, or as someone whose role is not above the caller's.
    /// The session has at most the rights of the key that created the link, and ends with it.
    pub async fn login_link(&self, by: &Principal, request: LoginLinkRequest) -> Result<LoginLink> {
        let permit = by.may(Action::CreateLoginLink)?;
        by.lasting("create login links")?;
        let PrincipalKind::Key { key: maker, role: own } = by.who else {
            return Err(Error::forbidden("Only people can sign in."));
        };
        let user = match (&request.user, by.user) {
            (Some(user), _) => {
                Some(self.user_acted_for(&permit, user, "create a login link", "create login links").await?)
            }
            (None, Some(user)) => Some(self.named_user(by, "user", &user.to_string()).await?),
            (None, None) => None,
        };
        let target = LoginLinkTarget {
            user: user.as_ref().map(|user| user.name.clone()),
            role: user.as_ref().map_or(own, |user| user.role.min(own)),
        };
        let user = user.map(|user| user.id);
        self.attempts().credential(by)?;
        let token = Kind::Session.generate(self.env());
        let expires_at = [Some(self.now().plus(self.options().login_ttl)), by.ends_at].into_iter().flatten().min();
        let expires_at = expires_at.unwrap_or_else(|| self.now());
        let event = AuditEvent::LoginLinkCreated { user, role: target.role, expires_at };
        self.store().record_event(self.context(by), event).await.map_err(about("user"))?;
        let link = SharedValue {
            kind: SharedValueKind::LoginLink,
            name: hex(&token.hash().0),
            tenant: by.tenant,
            holder: by.holder().to_string(),
            value: Json::of(&PendingLogin { maker, user, target: target.clone() }).get().into(),
            expires_at,
        };
        let limit = SharedValueLimit::PerHolder(MAX_LINKS);
        self.store().keep_value(link, limit, self.now()).await.map_err(about("login link"))?;
        Ok(LoginLink {
            url: format!("{}/login?token={}", self.origin(), token.expose()),
            expires_at,
            user_id: user,
            user_name: target.user,
            role: target.role,
        })
    }

    /// The person a link's token signs in. Does not use the link up.
    pub async fn login_target(&self, token: &str) -> Result<Option<LoginLinkTarget>> {
        let name = hex(&SecretHash::of(token).0);
        let link = self.store().shared_value(SharedValueKind::LoginLink, &name, self.now()).await;
        let link = link.map_err(about("login link"))?;
        Ok(link.as_ref().and_then(PendingLogin::read).map(|pending| pending.target))
    }

    /// Uses up a link's token and opens a session. Of several callers, at whatever nodes, one gets it.
    pub async fn redeem_login(&self, token: &str, from: IpAddr) -> Result<SignedInSession> {
        let (name, at) = (hex(&SecretHash::of(token).0), self.now());
        let link = self.store().take_value(SharedValueKind::LoginLink, &name, at, at).await;
        let link = link.map_err(about("login link"))?;
        let Some(PendingLogin { maker, user, target }) = link.as_ref().and_then(PendingLogin::read) else {
            // Limits how often an address can guess.
            self.attempts().failed(from)?;
            return Err(expired_link());
        };
        // If the key was revoked or narrowed since, no session or a narrower one is opened.
        let now = self.check_proof(&PresentedCredential::Maker(maker)).await.map_err(|_| expired_link())?;
        let PrincipalKind::Key { key, role } = now.who else { return Err(expired_link()) };
        let role = role.min(target.role);
        let new =
            NewSession { tenant: now.tenant, user, role, scopes: now.scopes, opener: Some(key), passkey: None, from };
        self.open_session(new)
            .await
            .map_err(|error| if error.code.http_status() == 404 { expired_link() } else { error })
    }

    /// Opens a session for a correct password. Unknown names, people without a password and wrong passwords get the
    /// same answer after the same work. Failures are limited per address, and more strictly per name and address, so
    /// that no one can lock a person out from elsewhere.
    pub async fn sign_in(&self, name: &str, password: &Secret<String>, from: IpAddr) -> Result<SignedInSession> {
        let name = name.trim().to_lowercase();
        let attempts = self.attempts();
        // All invalid names count as one, so that they can't fill the memory.
        let counted = if check::is_name(&name) { name.as_str() } else { "" };
        let by_address = attempts.by_address.reserve(from)?;
        let by_name = match attempts.by_name.reserve((counted, from)) {
            Ok(slot) => slot,
            Err(too_many) => {
                by_address.give_back();
                return Err(too_many);
            }
        };
        let judged = self.judge_password(&name, password).await;
        if !matches!(judged, Ok(None)) {
            by_address.give_back();
            by_name.give_back();
        }
        let user = judged?.ok_or_else(|| {
            Error::unauthenticated("The name or password is wrong.")
                .hint("An admin can set a new password: `attache users set NAME --password`.")
        })?;
        self.open_session(NewSession::of_person(&user, None, from)).await
    }

    /// Opens a session for somebody who has shown this passkey of theirs.
    pub(crate) async fn open_passkey_session(
        &self,
        user: &UserRecord,
        passkey: PasskeyId,
        from: IpAddr,
    ) -> Result<SignedInSession> {
        self.open_session(NewSession::of_person(user, Some(passkey), from)).await
    }

    /// The person with this name, if the password is correct.
    async fn judge_password(&self, name: &str, password: &Secret<String>) -> Result<Option<UserRecord>> {
        let user = match check::is_name(name) {
            true => self.store().user(self.tenant(), UserRef::Name(name.to_owned())).await,
            false => Err(attache_store::Error::NotFound),
        };
        let user = match user {
            Ok(user) => Some(user),
            Err(attache_store::Error::NotFound) => None,
            Err(error) => return Err(Error::from_store("user", error)),
        };
        let hash = user.as_ref().and_then(|user| user.password.as_ref());
        let known = self.passwords().verify(password, hash).await?;
        Ok(user.filter(|_| known))
    }

    async fn open_session(&self, new: NewSession) -> Result<SignedInSession> {
        let NewSession { tenant, user, role, scopes, opener, passkey, from } = new;
        // A link was counted when it was created.
        if let (Some(user), None) = (user, opener) {
            self.attempts().session(user)?;
        }
        let secret = Kind::Session.generate(self.env());
        let key = NewKey {
            id: self.env().key_id(),
            opening: Some(SessionOpening { opener, address: Some(from.to_string()), passkey }),
            issuer: None,
            agent: None,
            name: "console".to_owned(),
            role,
            user,
            scopes,
            secret: secret.hash(),
            expires_at: Some(self.now().plus(self.options().session_lifetime())),
        };
        let context = WriteContext::new(tenant, Actor::Key(key.id), self.now()).for_user(user);
        let key = self.store().create_key(context, key).await.map_err(about("user"))?;
        let principal = self.check_proof(&PresentedCredential::Secret(secret.hash())).await?;
        Ok(SignedInSession { secret, principal, expires_at: key.expires_at.unwrap_or_else(|| self.now()) })
    }

    /// Ends the session behind the principal.
    pub async fn logout(&self, by: &Principal) -> Result<()> {
        let PrincipalKind::Key { key, .. } = by.who else {
            return Err(Error::forbidden("Only a person can sign out."));
        };
        self.revoke(by, key).await.map(drop)
    }
}

fn expired_link() -> Error {
    Error::unauthenticated("This login link has already been used or has expired.")
        .remedy(attache_protocol::error::Remedy::CreateLoginLink)
}

// === impl NewSession ===

impl NewSession {
    /// Of somebody who has shown that it is them, with everything they may do.
    const fn of_person(user: &UserRecord, passkey: Option<PasskeyId>, from: IpAddr) -> Self {
        let (tenant, role) = (user.tenant, user.role);
        Self { tenant, user: Some(user.id), role, scopes: None, opener: None, passkey, from }
    }
}

// === impl PendingLogin ===

impl PendingLogin {
    fn read(link: &SharedValue) -> Option<Self> {
        serde_json::from_slice(&link.value).ok()
    }
}
