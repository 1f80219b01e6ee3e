//! API keys: make, list, revoke.

use attache_protocol::{
    Code, KeyId,
    secret::{Kind, SecretHash},
    wire::key::{CreateKeyRequest, CreatedKey, Key, KeyList, Role},
};
use attache_store::record::{self, KeyKind, NewKey, Pagination};

use crate::{
    ClientCertificates, Error, Handle, Principal, Result, Tls,
    bus::Topic,
    control::{PageRequest, check, token::narrowed},
    error::{about, about_list},
    identity::{AccessVerdict, Action, PrincipalKind},
    render,
    tls::Fingerprint,
};

const MAX_CERTIFICATE: usize = 64 * 1024;

impl Handle {
    /// The one answer that shows the key. Nobody makes a key that may do more than their own, or than its user.
    pub async fn create_key(&self, by: &Principal, request: CreateKeyRequest) -> Result<CreatedKey> {
        let allowed = by.may(Action::CreateKey)?;
        by.lasting()?;
        check::line("name", &request.name, 1..=200)?;
        let own_role = by.role().ok_or_else(|| Error::forbidden("Only a person makes keys."))?;
        let (user, most) = match &request.user {
            Some(user) => {
                let user = self.key_user(by, allowed, user).await?;
                (Some(user.id), own_role.min(user.role))
            }
            None => (by.user, own_role),
        };
        let role = request.role.unwrap_or_else(|| most.min(Role::Operator));
        if role > own_role {
            return Err(Error::forbidden("A key cannot make a key with a higher role than its own."));
        }
        if role > most {
            return Err(Error::invalid("role", "is above the role of the user that the key would act for"));
        }
        if request.expires_at.is_some_and(|at| at <= self.now()) {
            return Err(Error::invalid("expires_at", "must lie in the future"));
        }
        if let (Some(ends_at), Some(at)) = (by.ends_at, request.expires_at)
            && at > ends_at
        {
            return Err(Error::invalid("expires_at", "lies after the end of the key or session that makes it"));
        }
        let (api_key, credential) = match &request.certificate {
            Some(certificate) => (None, self.certificate_hash(certificate).await?),
            None => {
                let secret = Kind::ApiKey.generate(self.env());
                (Some(secret.expose().clone()), secret.hash())
            }
        };
        let key = NewKey {
            id: self.env().key_id(),
            opening: None,
            agent: None,
            name: request.name,
            role,
            user,
            scopes: narrowed(by, request.scopes)?,
            secret: credential,
            expires_at: request.expires_at.or(by.ends_at),
        };
        let key = self.store().create_key(self.context(by), key).await.map_err(about("user"))?;
        Ok(CreatedKey { api_key, key: render::key(key) })
    }

    /// Under which the store knows a certificate that no key was made for yet. One of a key that was revoked stays void.
    async fn certificate_hash(&self, pem: &str) -> Result<SecretHash> {
        let asked = self.options().tls.as_ref().map(Tls::client_certificates);
        if asked != Some(ClientCertificates::Asked) {
            return Err(Error::invalid("certificate", "is of no use: this hub asks for no certificates")
                .hint("Start the hub with --tls-client-certs, or make a key without a certificate."));
        }
        check::text("certificate", pem, 1..=MAX_CERTIFICATE)?;
        let client =
            Fingerprint::of_pem(pem).ok_or_else(|| Error::invalid("certificate", "is no certificate in PEM"))?;
        match self.store().credential(client.hash()).await.map_err(about("key"))? {
            Some(_) => Err(Error::invalid("certificate", "belongs to another key, or did once")),
            None => Ok(client.hash()),
        }
    }

    /// Whom the key is for: the caller, or, for admins, anybody whose role is not above theirs.
    async fn key_user(&self, by: &Principal, allowed: AccessVerdict, user: &str) -> Result<record::user::UserRecord> {
        let found = self.named_user(by, "user", user).await;
        let found = match allowed {
            AccessVerdict::Yes => found?,
            AccessVerdict::Own | AccessVerdict::No => found
                .ok()
                .filter(|found| by.user == Some(found.id))
                .ok_or_else(|| Error::forbidden("Only an admin makes keys for others."))?,
        };
        if by.is_below(&found) {
            return Err(Error::forbidden("Nobody makes a key for a person whose role is above their own."));
        }
        Ok(found)
    }

    /// Newest first: every key for admins, their user's own for others.
    pub async fn keys(&self, by: &Principal, page: PageRequest) -> Result<KeyList> {
        let allowed = by.may(Action::SeeKeys)?;
        let page = page.page()?;
        let user = match (allowed, by.user) {
            (AccessVerdict::Yes, _) => None,
            (AccessVerdict::Own | AccessVerdict::No, Some(user)) => Some(user),
            // Nobody else is known to be the same person: the key sees itself.
            (AccessVerdict::Own | AccessVerdict::No, None) => {
                let own = match by.who {
                    PrincipalKind::Key { key, .. } => vec![render::key(self.find_key(by, key).await?)],
                    PrincipalKind::Runtime { .. }
                    | PrincipalKind::Outside { .. }
                    | PrincipalKind::Run { .. }
                    | PrincipalKind::Anonymous { .. } => Vec::new(),
                };
                return Ok(KeyList { api_keys: own, next_cursor: None });
            }
        };
        let failed = about_list("key", &page);
        let listed = self.store().keys(by.tenant, KeyKind::Api, user, page).await.map_err(failed)?;
        Ok(KeyList { api_keys: listed.items.into_iter().map(render::key).collect(), next_cursor: listed.next })
    }

    /// From the next request on, the key is refused. Any key may give itself up; only an owner takes one from an owner.
    pub async fn revoke_key(&self, by: &Principal, key: KeyId) -> Result<Key> {
        let itself = matches!(by.who, PrincipalKind::Key { key: caller, .. } if caller == key);
        let allowed = if itself { AccessVerdict::Own } else { by.may(Action::RevokeKey)? };
        if !itself {
            let found = self.find_key(by, key).await?;
            let own = by.user.is_some() && by.owns(found.user);
            match allowed {
                AccessVerdict::Yes if own || by.role() == Some(Role::Owner) || found.role != Role::Owner => {}
                AccessVerdict::Yes => return Err(Error::forbidden("Only an owner revokes an owner's key.")),
                AccessVerdict::Own | AccessVerdict::No if own && by.role().is_some_and(|role| found.role <= role) => {}
                AccessVerdict::Own | AccessVerdict::No if own => {
                    return Err(Error::forbidden("This key may not revoke one with a higher role."));
                }
                // Keys of others are not there.
                AccessVerdict::Own | AccessVerdict::No => return Err(Error::not_found("key")),
            }
        }
        let _turn = self.revoking().lock().await;
        // Whoever waited may have been the other of two.
        self.recheck(by).await?;
        self.keep_an_owner(by, key).await?;
        self.revoke(by, key).await
    }

    pub(crate) async fn revoke(&self, by: &Principal, key: KeyId) -> Result<Key> {
        self.end_key(by, key).await.map(render::key)
    }

    pub(crate) async fn end_key(&self, by: &Principal, key: KeyId) -> Result<record::KeyRecord> {
        let revoked = self.store().revoke_key(self.context(by), key).await.map_err(about("key"))?;
        self.credentials().forget_key(key);
        self.bus().wake([Topic::Key(key)]);
        Ok(revoked)
    }

    /// Without any owner key nobody could manage the hub again.
    async fn keep_an_owner(&self, by: &Principal, key: KeyId) -> Result<()> {
        let mut owners = self.all_keys(by).await?;
        owners.retain(|found| {
            found.role == Role::Owner && found.revoked_at.is_none() && found.expires_at.is_none_or(|at| at > self.now())
        });
        match owners.as_slice() {
            [only] if only.id == key => Err(Error::new(
                Code::Forbidden,
                "This is the last owner key; without one nobody could manage this hub.",
            )
            .hint("Make another first: `attache keys add NAME --role owner`.")),
            _ => Ok(()),
        }
    }

    async fn find_key(&self, by: &Principal, key: KeyId) -> Result<record::KeyRecord> {
        let found = self.all_keys(by).await?.into_iter().find(|found| found.id == key);
        found.ok_or_else(|| Error::not_found("key"))
    }

    async fn all_keys(&self, by: &Principal) -> Result<Vec<record::KeyRecord>> {
        self.every_key(by, KeyKind::Api).await
    }

    pub(crate) async fn every_key(&self, by: &Principal, kind: KeyKind) -> Result<Vec<record::KeyRecord>> {
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let page = Pagination { limit: check::MAX_PAGE, cursor };
            let listed = self.store().keys(by.tenant, kind, None, page).await.map_err(about("key"))?;
            keys.extend(listed.items);
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(keys);
            }
        }
    }
}
