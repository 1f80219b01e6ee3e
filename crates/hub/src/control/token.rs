//! Short-lived tokens for a key, and the keys that verify them.

use std::time::Duration;

use attache_protocol::wire::{
    key::KeyScope,
    token::{IssuedToken, KeySet, TokenRequest},
};

use attache_store::record::AuditEvent;

use crate::{
    Error, Handle, Principal, PrincipalKind, Result, check,
    error::about,
    identity::{Action, token::TokenGrant},
};

const TTL: u64 = 15 * 60;
const MAX_TTL: u64 = 60 * 60;
const MAX_AUDIENCE: usize = 512;

impl Handle {
    /// The only response that contains the token. It has the key's rights or fewer, and ends with the key. Any scope
    /// may do this, because a token never adds rights.
    pub async fn create_token(&self, by: &Principal, request: TokenRequest) -> Result<IssuedToken> {
        let PrincipalKind::Key { key, role } = by.who else {
            return Err(Error::forbidden("Only a person's key can create tokens."));
        };
        by.may_in_any_scope(Action::CreateToken)?.for_unowned();
        by.lasting("create tokens")?;
        let ttl = request.ttl_seconds.unwrap_or(TTL);
        if !(1..=MAX_TTL).contains(&ttl) {
            return Err(Error::invalid("ttl_seconds", "must be between 1 and 3600"));
        }
        if let Some(audience) = &request.audience {
            check::token("audience", audience, 1..=MAX_AUDIENCE)?;
        }
        self.attempts().credential(by)?;
        let grant = TokenGrant {
            audience: request.audience,
            at: self.now(),
            // It expires no later than its key, for services that verify it themselves.
            ttl: by.ends_at.map_or(Duration::from_secs(ttl), |end| end.since(self.now()).min(Duration::from_secs(ttl))),
            jti: self.env().uuid().simple().to_string(),
            tenant: by.tenant,
            key,
            user: by.user,
            role,
            scopes: narrowed(by, request.scopes)?,
        };
        let (id, audience, scopes) = (grant.jti.clone(), grant.audience.clone(), grant.scopes.clone());
        let (token, expires_at) = self.signer().sign(grant)?;
        let event = AuditEvent::TokenCreated { key, id, audience, role, scopes, expires_at };
        self.store().record_event(self.context(by), event).await.map_err(about("key"))?;
        Ok(IssuedToken { token: token.expose().clone(), token_type: "Bearer".to_owned(), expires_at })
    }

    /// The public keys that verify tokens and agent cards.
    pub fn token_keys(&self) -> KeySet {
        KeySet { keys: vec![self.signer().public(), self.card_key().public()] }
    }
}

/// The requested scopes, sorted and without duplicates, if the caller has them all. Defaults to the caller's own.
pub(crate) fn narrowed(by: &Principal, scopes: Option<Vec<KeyScope>>) -> Result<Option<Vec<KeyScope>>> {
    let Some(mut scopes) = scopes else { return Ok(by.scopes.clone()) };
    if scopes.is_empty() {
        return Err(Error::invalid("scopes", "must name at least one scope"));
    }
    scopes.sort_unstable();
    scopes.dedup();
    match &by.scopes {
        Some(own) if scopes.iter().any(|scope| !own.contains(scope)) => {
            Err(Error::forbidden("You can't grant scopes that your key doesn't have."))
        }
        Some(_) | None => Ok(Some(scopes)),
    }
}
