//! API keys: make, list, revoke.

use attache_protocol::{
    Code, KeyId,
    secret::Kind,
    wire::key::{CreateKeyRequest, CreatedKey, Key, KeyList, Role},
};
use attache_store::record::{KeyKind, NewKey, Page};

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    control::{PageRequest, check},
    error::{about, about_list},
    identity::{Action, Verdict, Who},
    render,
};

impl Handle {
    /// The one answer that shows the key. Nobody makes a key that may do more than their own.
    pub async fn create_key(&self, by: &Principal, request: CreateKeyRequest) -> Result<CreatedKey> {
        by.may(Action::CreateKey)?;
        check::line("name", &request.name, 1..=200)?;
        let role = request.role.unwrap_or(Role::Operator);
        if by.role().is_none_or(|own| role > own) {
            return Err(Error::forbidden("A key cannot make a key with a higher role than its own."));
        }
        if request.expires_at.is_some_and(|at| at <= self.now()) {
            return Err(Error::invalid("expires_at", "must lie in the future"));
        }
        let secret = Kind::ApiKey.generate(self.env());
        let key = NewKey {
            id: self.env().key_id(),
            kind: KeyKind::Api,
            name: request.name,
            role,
            user: by.user,
            scopes: request.scopes,
            secret: secret.hash(),
            expires_at: request.expires_at,
        };
        let key = self.store().create_key(self.context(by), key).await.map_err(about("key"))?;
        Ok(CreatedKey { api_key: secret.expose().clone(), key: render::key(key) })
    }

    pub async fn keys(&self, by: &Principal, page: PageRequest) -> Result<KeyList> {
        by.may(Action::SeeKeys)?;
        let page = page.page()?;
        let failed = about_list("key", &page);
        let listed = self.store().keys(by.tenant, None, page).await.map_err(failed)?;
        Ok(KeyList { api_keys: listed.items.into_iter().map(render::key).collect(), next_cursor: listed.next })
    }

    /// From the next request on, the key is refused. Any key may give itself up; only an owner takes one from an owner.
    pub async fn revoke_key(&self, by: &Principal, key: KeyId) -> Result<Key> {
        let own = matches!(by.who, Who::Key { key: caller, .. } if caller == key);
        match by.may(Action::RevokeKey)? {
            Verdict::Yes if own || by.role() == Some(Role::Owner) => {}
            Verdict::Yes => {
                if self.find_key(by, key).await?.role == Role::Owner {
                    return Err(Error::forbidden("Only an owner revokes an owner's key."));
                }
            }
            Verdict::Own | Verdict::No if own => {}
            Verdict::Own | Verdict::No => return Err(Error::forbidden("This key may only revoke itself.")),
        }
        self.keep_an_owner(by, key).await?;
        self.revoke(by, key).await
    }

    pub(crate) async fn revoke(&self, by: &Principal, key: KeyId) -> Result<Key> {
        let revoked = self.store().revoke_key(self.context(by), key).await.map_err(about("key"))?;
        self.credentials().forget_key(key);
        self.bus().wake([Topic::Key(key)]);
        Ok(render::key(revoked))
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

    async fn find_key(&self, by: &Principal, key: KeyId) -> Result<attache_store::record::Key> {
        let found = self.all_keys(by).await?.into_iter().find(|found| found.id == key);
        found.ok_or_else(|| Error::not_found("key"))
    }

    async fn all_keys(&self, by: &Principal) -> Result<Vec<attache_store::record::Key>> {
        let (mut keys, mut cursor) = (Vec::new(), None);
        loop {
            let listed = self.store().keys(by.tenant, None, Page { limit: check::MAX_PAGE, cursor }).await;
            let listed = listed.map_err(about("key"))?;
            keys.extend(listed.items);
            cursor = listed.next;
            if cursor.is_none() {
                return Ok(keys);
            }
        }
    }
}
