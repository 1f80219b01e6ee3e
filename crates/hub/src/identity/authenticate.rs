//! From a bearer secret to a principal, at every request and, for what stays open, again and again.

use std::time::Duration;

use attache_protocol::{
    secret::{Kind, SecretHash},
    wire::runtime::RuntimeState,
};
use attache_store::record::{Credential, RuntimeKind};
use tokio::time::Instant;

use crate::{
    Error, Handle, Result,
    bus::{Topic, Watch},
    identity::{Principal, Who},
};

/// How often an open stream asks whether its caller is still welcome.
const RECHECK: Duration = Duration::from_millis(500);

/// Watches over the credential behind something that stays open.
#[derive(Debug)]
pub(crate) struct Guard {
    hub: Handle,
    principal: Principal,
    watch: Watch,
    /// When to ask next.
    due: Instant,
}

// === impl Handle ===

impl Handle {
    /// The person, program or registered agent behind `Authorization: Bearer ak_…`.
    pub async fn authenticate_key(&self, secret: &str) -> Result<Principal> {
        self.authenticate(Kind::ApiKey, secret).await
    }

    /// The device behind `X-Runtime-Token: rt_…`.
    pub async fn authenticate_runtime(&self, token: &str) -> Result<Principal> {
        self.authenticate(Kind::RuntimeToken, token).await
    }

    /// The person behind a console's session.
    pub async fn authenticate_session(&self, secret: &str) -> Result<Principal> {
        self.authenticate(Kind::Session, secret).await
    }

    /// Whether the credential behind the principal is still good.
    pub async fn recheck(&self, principal: &Principal) -> Result<()> {
        self.check_secret(principal.secret).await.map(drop)
    }

    async fn authenticate(&self, kind: Kind, secret: &str) -> Result<Principal> {
        if !secret.starts_with(kind.prefix()) {
            return Err(unknown());
        }
        let principal = self.check_secret(SecretHash::of(secret)).await?;
        match (kind, principal.who) {
            (Kind::RuntimeToken, Who::Runtime { kind: RuntimeKind::Device, .. })
            | (Kind::ApiKey, Who::Runtime { kind: RuntimeKind::AgentKey, .. })
            | (Kind::ApiKey | Kind::Session, Who::Key { .. }) => Ok(principal),
            _ => Err(unknown()),
        }
    }

    async fn check_secret(&self, secret: SecretHash) -> Result<Principal> {
        let credential = match self.credentials().get(secret) {
            Some(credential) => credential,
            None => {
                let asked_at = Instant::now();
                let found = self.store().credential(secret).await;
                let credential = found.map_err(|error| Error::from_store("credential", error))?.ok_or_else(unknown)?;
                self.credentials().put(secret, credential.clone(), asked_at);
                credential
            }
        };
        match credential {
            Credential::Runtime { tenant, runtime, agent, user, kind, state: RuntimeState::Active } => {
                Ok(Principal { tenant, who: Who::Runtime { runtime, agent, kind }, user, scopes: None, secret })
            }
            Credential::Runtime { kind: RuntimeKind::Device, state, .. } => Err(Error::runtime_ended(state)),
            Credential::Runtime { kind: RuntimeKind::AgentKey, state, .. } => Err(Error::agent_key_ended(state)),
            Credential::Key { revoked: true, .. } => Err(Error::unauthenticated("This key was revoked.")),
            Credential::Key { expires_at: Some(at), .. } if at <= self.now() => {
                Err(Error::unauthenticated("This key has expired."))
            }
            Credential::Key { tenant, key, user, role, scopes, .. } => {
                Ok(Principal { tenant, who: Who::Key { key, role }, user, scopes, secret })
            }
        }
    }
}

fn unknown() -> Error {
    Error::unauthenticated("The credential is not known here.")
}

// === impl Guard ===

impl Guard {
    pub(crate) fn new(hub: &Handle, principal: &Principal) -> Self {
        let topic = match principal.who {
            Who::Key { key, .. } => Topic::Key(key),
            Who::Runtime { agent, .. } => Topic::Runtime(agent),
        };
        let watch = hub.bus().watch(topic);
        Self { hub: hub.clone(), principal: principal.clone(), watch, due: Instant::now() + RECHECK }
    }

    /// Resolves when the caller is not welcome any more, and says why. Safe to drop and call again.
    pub(crate) async fn broken(&mut self) -> Error {
        loop {
            if tokio::time::timeout_at(self.due, self.watch.moved()).await.is_ok() {
                self.due = Instant::now();
            }
            if let Err(error) = self.welcome().await {
                return error;
            }
        }
    }

    /// Asks when it is time to. A stream that is never idle calls it between pages.
    pub(crate) async fn welcome(&mut self) -> Result<()> {
        if Instant::now() < self.due && !self.watch.has_moved() {
            return Ok(());
        }
        match self.hub.recheck(&self.principal).await {
            // A store that is busy for a moment is no reason to cut a stream.
            Err(error) if error.code.http_status() < 500 => Err(error),
            Ok(()) | Err(_) => {
                self.due = Instant::now() + RECHECK;
                Ok(())
            }
        }
    }
}
