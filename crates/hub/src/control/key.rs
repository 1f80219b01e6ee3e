//! API keys: create, list, revoke.

use attache_protocol::{
    Code, KeyId,
    secret::{Kind, SecretHash},
    wire::key::{CreateKeyRequest, CreatedKey, Key, KeyList, Role},
};
use attache_store::record::{self, KeyKind, NewKey};

use crate::{
    ClientCertificates, Error, Handle, Principal, Result, Tls,
    bus::Topic,
    check,
    control::{PageRequest, token::narrowed},
    error::{about, about_list},
    identity::{Action, Permit},
    nodes::ClusterLock,
    render,
    tls::Fingerprint,
};

const MAX_CERTIFICATE: usize = 64 * 1024;

impl Handle {
    /// The only response that contains the key. A key can't have more rights than its creator or its user.
    pub async fn create_key(&self, by: &Principal, request: CreateKeyRequest) -> Result<CreatedKey> {
        let permit = by.may(Action::CreateKey)?;
        by.lasting("create keys")?;
        check::line("name", &request.name, 1..=200)?;
        let own_role = by.role().ok_or_else(|| Error::forbidden("Only people can create keys."))?;
        let (user, most) = match &request.user {
            Some(user) => {
                let user = self.user_acted_for(&permit, user, "create a key", "create keys").await?;
                (Some(user.id), own_role.min(user.role))
            }
            None => (by.user, own_role),
        };
        let role = request.role.unwrap_or_else(|| most.min(Role::Operator));
        if role > own_role {
            return Err(Error::forbidden("You can't create a key with a higher role than your own."));
        }
        if role > most {
            return Err(Error::invalid("role", "is higher than the role of the key's user"));
        }
        if request.expires_at.is_some_and(|at| at <= self.now()) {
            return Err(Error::invalid("expires_at", "must be in the future"));
        }
        if let (Some(ends_at), Some(at)) = (by.ends_at, request.expires_at)
            && at > ends_at
        {
            return Err(Error::invalid("expires_at", "is later than the expiry of the key or session that creates it"));
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
            // What a person makes for themselves is theirs. What is made for another ends with its maker.
            issuer: by.key().filter(|_| user != by.user || by.is_issued),
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

    /// The hash under which a certificate is stored. Fails if a key already uses it, even a revoked one.
    async fn certificate_hash(&self, pem: &str) -> Result<SecretHash> {
        let asked = self.options().tls.as_ref().map(Tls::client_certificates);
        if asked != Some(ClientCertificates::Asked) {
            return Err(Error::invalid("certificate", "has no effect: this hub does not request client certificates")
                .hint("Start the hub with --tls-client-certs, or create a key without a certificate."));
        }
        check::text("certificate", pem, 1..=MAX_CERTIFICATE)?;
        let client =
            Fingerprint::of_pem(pem).ok_or_else(|| Error::invalid("certificate", "is not a PEM certificate"))?;
        match self.store().credential(client.hash()).await.map_err(about("key"))? {
            Some(_) => Err(Error::invalid("certificate", "is or was used by another key")),
            None => Ok(client.hash()),
        }
    }

    /// Newest first: all keys for admins, their own for others.
    pub async fn keys(&self, by: &Principal, page: PageRequest) -> Result<KeyList> {
        let permit = by.may(Action::SeeKeys)?;
        let page = page.page()?;
        // A key without a user sees only itself.
        if !permit.covers_others() && by.user.is_none() {
            let mut own = self.all_keys(by).await?;
            own.retain(|found| by.key() == Some(found.id));
            return Ok(KeyList { api_keys: own.into_iter().map(render::key).collect(), next_cursor: None });
        }
        let user = by.user.filter(|_| !permit.covers_others());
        let failed = about_list("key", &page);
        let listed = self.store().keys(by.tenant, KeyKind::Api, user, page).await.map_err(failed)?;
        Ok(KeyList { api_keys: listed.items.into_iter().map(render::key).collect(), next_cursor: listed.next })
    }

    /// The key is rejected from the next request on. A key may revoke itself. Only an owner may revoke an owner's key.
    pub async fn revoke_key(&self, by: &Principal, key: KeyId) -> Result<Key> {
        // A token is not the key: a read-only copy for minutes must not end what it was made with.
        if by.key() != Some(key) || by.lasting("end its key").is_err() {
            self.check_revocable(&by.may(Action::RevokeKey)?, key).await?;
        }
        let _lock = self.cluster_lock(ClusterLock::Revoking).await?;
        // While waiting for the lock, the caller's own key may have been revoked.
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

    /// The hub must keep at least one owner key.
    async fn keep_an_owner(&self, by: &Principal, key: KeyId) -> Result<()> {
        let mut owners = self.all_keys(by).await?;
        owners.retain(|found| {
            found.role == Role::Owner && found.revoked_at.is_none() && found.expires_at.is_none_or(|at| at > self.now())
        });
        match owners.as_slice() {
            [only] if only.id == key => {
                Err(Error::new(Code::Forbidden, "This is the last owner key. The hub can't be managed without one.")
                    .hint("Create another one first: `attache keys add NAME --role owner`."))
            }
            _ => Ok(()),
        }
    }

    async fn check_revocable(&self, permit: &Permit<'_>, key: KeyId) -> Result<()> {
        let by = permit.by();
        let found = self.all_keys(by).await?.into_iter().find(|found| found.id == key);
        let found = found.ok_or_else(|| Error::not_found("key"))?;
        let own = by.user.is_some() && by.owns(found.user);
        match permit.covers_others() {
            _ if own && by.role() < Some(found.role) => {
                Err(Error::forbidden("This key can't revoke a key with a higher role.")
                    .hint("Use a key with the other key's role, or revoke it in the console."))
            }
            _ if own => Ok(()),
            true if by.role() == Some(Role::Owner) || found.role != Role::Owner => Ok(()),
            true => Err(Error::forbidden("Only an owner can revoke an owner's key.")),
            // Other people's keys do not exist for this caller.
            false => Err(Error::not_found("key")),
        }
    }

    async fn all_keys(&self, by: &Principal) -> Result<Vec<record::KeyRecord>> {
        self.every_key(by, KeyKind::Api).await
    }

    pub(crate) async fn every_key(&self, by: &Principal, kind: KeyKind) -> Result<Vec<record::KeyRecord>> {
        check::all_pages("key", |page| self.store().keys(by.tenant, kind, None, page)).collect().await
    }
}
