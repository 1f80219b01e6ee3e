//! Who speaks: the credential behind a connection, looked at again with every frame.

use std::time::Duration;

use attache_protocol::{Code, secret::Kind, wire::envelope::Envelope};
use tokio::time::Instant;

use super::{
    response::FrameRefusal,
    session::{ChannelSession, SessionEnd},
};
use crate::{Principal, bus::Topic, identity::PrincipalKind};

/// How long a peer whose credential was revoked may still hear why.
const REVOKED_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a connection without a credential may try one.
const MAX_ATTEMPTS: u8 = 5;

// === impl ChannelSession ===

impl ChannelSession {
    /// Everything that is said from now on is said by this principal.
    pub(super) fn bind(&mut self, principal: Principal) {
        self.bell.add_topic(match principal.who {
            PrincipalKind::Key { key, .. } | PrincipalKind::Outside { key, .. } => Topic::Key(key),
            PrincipalKind::Runtime { agent, .. } | PrincipalKind::Anonymous { agent } => Topic::Runtime(agent),
            PrincipalKind::Run { run, .. } => Topic::Run(run),
        });
        self.principal = Some(principal);
    }

    /// Who says this frame. The credential behind the connection is looked at every time.
    pub(crate) async fn authenticate_frame(&mut self, envelope: &Envelope) -> Result<Principal, FrameRefusal> {
        if let Some((refusal, _)) = &self.unwelcome {
            let refusal = refusal.clone();
            self.end(SessionEnd::Unauthenticated);
            return Err(refusal);
        }
        let token = envelope.auth_token();
        let Some(by) = self.principal.clone() else {
            self.attempts += 1;
            if self.attempts >= MAX_ATTEMPTS {
                self.end(SessionEnd::Unauthenticated);
            }
            let token = token.ok_or_else(|| {
                FrameRefusal::new(Code::Unauthenticated, "The first frame must carry `metadata.auth_token`.")
                    .field("metadata.auth_token")
            })?;
            let by = self.authenticate(token.expose()).await?;
            self.bind(by.clone());
            return Ok(by);
        };
        let by = self.recheck(&by).await?;
        if let Some(token) = token {
            let own = self.authenticate(token.expose()).await?;
            if own.who != by.who {
                let message = "The frame's token belongs to somebody else than the connection.";
                return Err(FrameRefusal::new(Code::Forbidden, message).field("metadata.auth_token"));
            }
        }
        Ok(by)
    }

    async fn authenticate(&self, token: &str) -> Result<Principal, FrameRefusal> {
        let found = if token.starts_with(Kind::RuntimeToken.prefix()) {
            self.hub.authenticate_runtime(token).await
        } else {
            self.hub.authenticate_key(token).await
        };
        let refused = |error| FrameRefusal::from(error).field("metadata.auth_token");
        if let (Err(error), Some(from)) = (&found, self.origin.address)
            && error.code.http_status() == 401
        {
            // Somebody who guesses is told so only a few times a minute, however they ask.
            self.hub.attempts().failed(from).map_err(refused)?;
        }
        found.map_err(refused)
    }

    /// A credential that is void ends the conversation, with this refusal as the last word.
    /// What it is worth now is what counts, not what it was worth when the connection began.
    pub(super) async fn recheck(&mut self, by: &Principal) -> Result<Principal, FrameRefusal> {
        match self.hub.recheck(by).await {
            Ok(now) => {
                self.principal = Some(now.clone());
                Ok(now)
            }
            Err(error) => {
                let is_void = error.code.http_status() < 500;
                if is_void {
                    self.end(SessionEnd::Unauthenticated);
                }
                Err(error.into())
            }
        }
    }

    /// A peer whose credential is void hears nothing any more; it may ask once, to be told why.
    pub(super) async fn check_credential(&mut self) {
        let Some(by) = &self.principal else { return };
        let Err(error) = self.hub.recheck(by).await else { return };
        if error.code.http_status() < 500 && self.unwelcome.is_none() {
            self.unwelcome = Some((error.into(), Instant::now() + REVOKED_CLOSE_TIMEOUT));
        }
    }
}
