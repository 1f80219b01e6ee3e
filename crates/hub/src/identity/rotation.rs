//! Rotation of runtime tokens: a heartbeat offers the next token, its first use replaces the old one, and any later use
//! of the old one reveals that a copy exists.

use attache_protocol::{
    AgentId, RuntimeId, Secret,
    secret::{Kind, SecretHash},
};
use attache_store::{
    WriteContext,
    record::{RuntimeKind, StoredCredential, TokenChange, TokenState},
};

use crate::{
    Error, Handle, Principal, Result,
    error::about,
    identity::{CredentialLookup, PresentedCredential, PrincipalKind},
    options::OnTokenReuse,
};

// === impl Handle ===

impl Handle {
    /// The next token for a device whose current token is old enough. Revokes an earlier offer that was never used.
    pub(crate) async fn next_token(&self, by: &Principal) -> Result<Option<Secret<String>>> {
        let PrincipalKind::Runtime { runtime, kind: RuntimeKind::Device, .. } = by.who else { return Ok(None) };
        let found = self.store().runtime(by.tenant, runtime).await.map_err(about("runtime"))?;
        let since = found.token_rotated_at.unwrap_or(found.attached_at);
        if self.now().since(since) < self.options().token_rotation {
            return Ok(None);
        }
        let token = Kind::RuntimeToken.generate(self.env());
        let offer = TokenChange::Offer(token.hash());
        self.store().change_token(runtime, offer, self.now()).await.map_err(about("runtime"))?;
        Ok(Some(token))
    }

    /// Whether the token is still valid, and whether its use triggers the rotation.
    pub(super) async fn check_token(
        &self,
        proof: &PresentedCredential,
        (runtime, agent): (RuntimeId, AgentId),
        token: TokenState,
    ) -> Result<()> {
        match (token, proof) {
            (TokenState::Offered, PresentedCredential::Secret(secret)) => {
                let adopted = self.store().change_token(runtime, TokenChange::Adopt(*secret), self.now()).await;
                adopted.map_err(about("runtime"))?;
                self.credentials().forget_agent(agent);
                Ok(())
            }
            (TokenState::Current | TokenState::Offered, _) => Ok(()),
            (TokenState::Replaced(at), _) if self.now().since(at) < self.options().token_overlap => Ok(()),
            (TokenState::Replaced(_), _) => Err(Error::token_replaced()),
        }
    }

    /// Records the use of a token that its runtime has replaced.
    pub(super) async fn note_token_reuse(&self, secret: SecretHash) {
        let Ok(StoredCredential::Runtime { tenant, runtime, agent, .. }) =
            self.credential(CredentialLookup::Secret(secret)).await
        else {
            return;
        };
        tracing::warn!(runtime.id = %runtime, "a replaced runtime token was used");
        let noted = self.store().change_token(runtime, TokenChange::Reuse, self.now()).await.map(drop);
        let noted = match self.options().on_token_reuse {
            OnTokenReuse::Refuse => noted,
            OnTokenReuse::Revoke => {
                let context = WriteContext::new(tenant, WriteContext::SYSTEM, self.now());
                let revoked = self.store().revoke_runtime(context, runtime).await.map(drop);
                self.credentials().forget_agent(agent);
                noted.and(revoked)
            }
        };
        if let Err(error) = noted {
            tracing::error!(runtime.id = %runtime, %error, "the use of a replaced token could not be recorded");
        }
    }
}
