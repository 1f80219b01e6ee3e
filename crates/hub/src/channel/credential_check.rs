//! Authenticates the peer of a connection, and rechecks its credential with every frame.

use std::time::Duration;

use attache_protocol::{Code, secret::Kind, wire::envelope::Envelope};
use tokio::time::Instant;

use super::{
    response::FrameRefusal,
    session::{ChannelSession, SessionEnd},
};
use crate::{Principal, bus::Topic, identity::PrincipalKind};

/// How long a connection with a revoked credential stays open to report why.
const REVOKED_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many credentials a connection may try.
const MAX_ATTEMPTS: u8 = 5;

// === impl ChannelSession ===

impl ChannelSession {
    /// All further frames are from this principal.
    pub(super) fn bind(&mut self, principal: Principal) {
        self.bell.add_topic(match principal.who {
            PrincipalKind::Key { key, .. } | PrincipalKind::Outside { key, .. } => Topic::Key(key),
            PrincipalKind::Runtime { agent, .. } | PrincipalKind::Anonymous { agent } => Topic::Runtime(agent),
            PrincipalKind::Run { run, .. } => Topic::Run(run),
        });
        self.principal = Some(principal);
    }

    /// The principal of this frame. Rechecks the connection's credential every time.
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
                let message = "The frame's token belongs to a different principal than the connection.";
                return Err(FrameRefusal::new(Code::Forbidden, message).field("metadata.auth_token"));
            }
            // A token may have fewer rights than the key it belongs to.
            return Ok(own);
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
            // Limits how often an address can guess, by whatever means.
            self.hub.attempts().failed(from).map_err(refused)?;
        }
        found.map_err(refused)
    }

    /// An invalid credential ends the session, with this refusal as the last frame. The credential's current rights
    /// count, not those at the start of the connection.
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

    /// A peer with an invalid credential gets no more frames. It may send one request, which is answered with the
    /// reason.
    pub(super) async fn check_credential(&mut self) {
        let Some(by) = &self.principal else { return };
        let Err(error) = self.hub.recheck(by).await else { return };
        if error.code.http_status() < 500 && self.unwelcome.is_none() {
            self.unwelcome = Some((error.into(), Instant::now() + REVOKED_CLOSE_TIMEOUT));
        }
    }
}
