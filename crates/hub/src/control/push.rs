//! A2A push notification configs of a run. Only the caller who created a run can subscribe to it and read its configs.
//! The subscriber's secrets are encrypted before they reach the store.

use attache_protocol::{RunId, Secret};
use attache_store::record::{
    RunRecord,
    push::{NewPushConfig, PushConfigRecord},
};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Handle, Principal, PrincipalKind, Result, check,
    error::about,
    identity::{AccessVerdict, Action, Permit},
};

pub use attache_store::record::push::PushVersion;

/// Where notifications go, and how the receiver authenticates the hub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushSubscription {
    /// `None` for a new config, which the hub names.
    pub id: Option<String>,
    pub url: String,
    /// The subscriber's token, sent back with every notification.
    pub token: Option<Secret<String>>,
    /// The scheme and credentials for `Authorization`.
    pub authentication: Option<(String, Option<Secret<String>>)>,
    pub version: PushVersion,
}

/// The encrypted part.
#[derive(Default, Serialize, Deserialize)]
struct PushSecrets {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scheme: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    credentials: Option<String>,
}

const WHAT: &str = "push notification config";
/// Tokens and credentials are sent in headers.
const MAX_SECRET: usize = 4096;

// === impl Handle ===

impl Handle {
    /// Subscribes to the run's changes. A config with the same id is replaced.
    pub async fn set_push(&self, by: &Principal, run: RunId, push: PushSubscription) -> Result<PushSubscription> {
        self.asked_run(&by.may(Action::CancelRun)?, run).await?;
        let config = self.checked_push(run, push).await?;
        let kept = self.store().set_push_config(self.context(by), run, config).await.map_err(about(WHAT))?;
        self.opened_push(run, kept)
    }

    pub async fn push(&self, by: &Principal, run: RunId, id: &str) -> Result<PushSubscription> {
        self.asked_run(&by.may(Action::SeeRuns)?, run).await?;
        let kept = self.store().push_config(by.tenant, run, id).await.map_err(about(WHAT))?;
        Ok(self.opened_push(run, kept)?.seen_by(by))
    }

    /// In order of creation. A run has only a few.
    pub async fn pushes(&self, by: &Principal, run: RunId) -> Result<Vec<PushSubscription>> {
        self.asked_run(&by.may(Action::SeeRuns)?, run).await?;
        let kept = self.store().push_configs(by.tenant, run).await.map_err(about(WHAT))?;
        kept.into_iter().map(|kept| Ok(self.opened_push(run, kept)?.seen_by(by))).collect()
    }

    pub async fn remove_push(&self, by: &Principal, run: RunId, id: &str) -> Result<()> {
        self.asked_run(&by.may(Action::CancelRun)?, run).await?;
        self.store().remove_push_config(self.context(by), run, id).await.map_err(about(WHAT))
    }

    /// The run, if the caller sees it and created it. Seeing someone else's run does not reveal who is notified about
    /// it.
    async fn asked_run(&self, permit: &Permit<'_>, run: RunId) -> Result<RunRecord> {
        permit.by().may_subscribe()?;
        let record = self.visible_run(permit.by(), run).await?;
        if permit.own_runs().matches(&record) { Ok(record) } else { Err(Error::not_found("run")) }
    }

    /// What the store keeps of it, after its URL has been checked.
    pub(crate) async fn checked_push(&self, run: RunId, push: PushSubscription) -> Result<NewPushConfig> {
        let PushSubscription { id, url, token, authentication, version } = push;
        let id = id.unwrap_or_else(|| self.env().uuid().to_string());
        check::line("id", &id, 1..=200)?;
        let (scheme, credentials) = authentication.unzip();
        if let Some(scheme) = &scheme {
            check::token("authentication.scheme", scheme, 1..=64)?;
        }
        let secrets = PushSecrets {
            token: header("token", token)?,
            scheme,
            credentials: header("authentication.credentials", credentials.flatten())?,
        };
        self.check_later_egress("url", &url).await?;
        let sealed = secrets.any().then(|| self.seal(&sealed_for(run, &id), &secrets.bytes()));
        Ok(NewPushConfig { id, url, sealed, version })
    }

    /// With decrypted secrets, for the subscriber and for the notification itself.
    pub(crate) fn opened_push(&self, run: RunId, config: PushConfigRecord) -> Result<PushSubscription> {
        let PushConfigRecord { id, url, sealed, version, .. } = config;
        let secrets = match sealed {
            None => PushSecrets::default(),
            Some(sealed) => {
                let opened = self.unseal(&sealed_for(run, &id), &sealed).map_err(|broken| Error::internal(&broken))?;
                serde_json::from_slice(opened.expose()).map_err(|error| Error::internal(&error))?
            }
        };
        let PushSecrets { token, scheme, credentials } = secrets;
        let authentication = scheme.map(|scheme| (scheme, credentials.map(Secret::new)));
        Ok(PushSubscription { id: Some(id), url, token: token.map(Secret::new), authentication, version })
    }
}

/// The encryption context: one config's secrets can't be decrypted for another.
fn sealed_for(run: RunId, id: &str) -> String {
    format!("push {run} {id}")
}

/// A secret that fits into a header.
fn header(field: &str, secret: Option<Secret<String>>) -> Result<Option<String>> {
    let Some(secret) = secret else { return Ok(None) };
    let text = secret.expose();
    if !text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(Error::invalid(field, "must be printable ASCII: it is sent in a header"));
    }
    check::text(field, text, 0..=MAX_SECRET)?;
    Ok(Some(text.clone()))
}

// === impl PushSubscription ===

impl PushSubscription {
    /// Callers who could not have created the config don't see its secrets: read-only keys are shared more easily.
    fn seen_by(mut self, by: &Principal) -> Self {
        if by.verdict(Action::CancelRun) == AccessVerdict::No {
            self.token = None;
            self.authentication = self.authentication.map(|(scheme, _)| (scheme, None));
        }
        self
    }
}

// === impl PushSecrets ===

impl PushSecrets {
    const fn any(&self) -> bool {
        self.token.is_some() || self.scheme.is_some()
    }

    fn bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts serialise to JSON")
    }
}

// === impl Principal ===

impl Principal {
    /// All callers without a credential count as one: they would see each other's configs, and no one is accountable
    /// for what is sent to the URL.
    pub(crate) fn may_subscribe(&self) -> Result<()> {
        match self.who {
            PrincipalKind::Anonymous { .. } => Err(Error::unauthenticated("Push notifications require a credential.")),
            PrincipalKind::Key { .. }
            | PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. } => Ok(()),
        }
    }
}
