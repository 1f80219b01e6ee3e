//! What the hub answers when it refuses: a code of the one table, a sentence for people, and what to do next.

use std::borrow::Cow;

use attache_protocol::{
    Code,
    error::{ErrorBody, ErrorDetail},
    rules::run::RunRefusal,
    wire::{
        permission::{AlreadyDecided, PermissionRequest},
        run::{Run, RunConflict},
        runtime::RuntimeState,
    },
};

use attache_store::{MAX_PUSH_CONFIGS, MAX_RUN_LOG_BYTES, StorageFault, Use};

use crate::{identity::RateLimitStatus, render};

/// After this long a disk may have room again.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

pub type Result<T> = std::result::Result<T, Error>;

/// A refusal. It carries nothing secret: its whole content is shown to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// Instead of the table's hint, where the place that failed knows better.
    pub hint: Option<Cow<'static, str>>,
    /// The run as it is, for a worker whose call came too late.
    pub run: Option<Box<Run>>,
    /// The permission request as it is, for a decider who came too late.
    pub permission: Option<Box<PermissionRequest>>,
    /// The limit that was reached, for the headers of the answer.
    pub limited: Option<RateLimitStatus>,
    /// How many seconds to wait before it may be different.
    pub retry_after: Option<u64>,
}

// === impl Error ===

impl Error {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            run: None,
            permission: None,
            limited: None,
            retry_after: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<Cow<'static, str>>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn limited(mut self, left: RateLimitStatus) -> Self {
        self.limited = Some(left);
        self
    }

    /// After this time the answer may be another.
    #[must_use]
    pub(crate) fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.retry_after = Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        self
    }

    /// A member of the request is wrong.
    pub fn invalid(field: &str, why: &str) -> Self {
        Self::new(Code::InvalidRequest, format!("`{field}` {why}."))
    }

    /// Unknown and not yours are the same answer.
    pub fn not_found(what: &str) -> Self {
        let error = Self::new(Code::NotFound, format!("There is no such {what}."));
        match what {
            "run" => error.hint(
                "Check the id. Runs that have ended are removed after \
                 a time (`attache hub --keep`), or by people; the log says so: `attache audit`.",
            ),
            _ => error,
        }
    }

    pub fn forbidden(what: &'static str) -> Self {
        Self::new(Code::Forbidden, what)
    }

    pub fn unauthenticated(message: &'static str) -> Self {
        Self::new(Code::Unauthenticated, message)
    }

    /// Something that must not happen. The details go to the log, not to the caller.
    pub fn internal(details: &dyn std::fmt::Display) -> Self {
        tracing::error!(%details, "internal error");
        Self::new(Code::Internal, "The hub failed to do this.")
    }

    pub fn runtime_ended(state: RuntimeState) -> Self {
        match state {
            RuntimeState::Superseded => Self::new(
                Code::RuntimeSuperseded,
                "Another device was paired to this agent, so this one does not work for it any more.",
            ),
            RuntimeState::Revoked | RuntimeState::Active => {
                Self::new(Code::RuntimeRevoked, "This device was disconnected from its agent by a person.")
            }
        }
    }

    /// The runtime has adopted another token since.
    pub fn token_replaced() -> Self {
        Self::new(Code::TokenReplaced, "This runtime token was replaced by a newer one.")
    }

    /// The agent was registered again, or its key was taken from it.
    pub fn agent_key_ended(state: RuntimeState) -> Self {
        let message = match state {
            RuntimeState::Superseded => "This agent was registered or paired again, so this key is void.",
            RuntimeState::Revoked | RuntimeState::Active => "This agent's key was revoked.",
        };
        Self::runtime_ended(state).say(message).hint("Register the agent again: POST /api/a2a/register.")
    }

    fn already_decided(permission: PermissionRequest) -> Self {
        let who = permission.decided_by.as_deref().unwrap_or("somebody else");
        let message = format!("The request is {} already, by {who}.", permission.state.as_str());
        Self { permission: Some(Box::new(permission)), ..Self::new(Code::AlreadyDecided, message) }
    }

    /// Another sentence for the same refusal.
    #[must_use]
    pub(crate) fn say(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// The disk, not the caller, is the matter. It is logged when it begins and when it is over.
    pub(crate) fn unwritable(fault: StorageFault) -> Self {
        let (code, message) = match fault {
            StorageFault::DiskFull => (Code::DiskFull, "The hub's disk is full, so nothing was stored."),
            StorageFault::ReadOnly => (Code::ReadOnly, "The hub's file system is read-only, so nothing was stored."),
            StorageFault::Io => (Code::StorageFailed, "The hub's disk reports errors, so nothing was stored."),
            StorageFault::Damaged => (Code::StorageFailed, "A part of the hub's database is damaged."),
        };
        Self::new(code, message).retry_after(RETRY_AFTER)
    }

    /// The answer's body as JSON.
    pub fn body(&self) -> Vec<u8> {
        let error = ErrorDetail {
            code: self.code.as_str().to_owned(),
            message: self.message.to_string(),
            hint: self.hint.as_deref().unwrap_or(self.code.hint()).to_owned(),
        };
        let json = match (&self.run, &self.permission) {
            (Some(run), _) => serde_json::to_vec(&RunConflict { error, task_run: (**run).clone() }),
            (None, Some(permission)) => serde_json::to_vec(&AlreadyDecided {
                error,
                decided_by: permission.decided_by.clone(),
                decided_at: permission.decided_at,
                permission_request: (**permission).clone(),
            }),
            (None, None) => serde_json::to_vec(&ErrorBody { error }),
        };
        json.expect("our own types serialise to JSON")
    }

    /// A store's error about a thing that people call `what`.
    pub(crate) fn from_store(what: &'static str, error: attache_store::Error) -> Self {
        use attache_store::Error as E;
        match error {
            E::NotFound => Self::not_found(what),
            E::NameTaken if what == "user" => {
                Self::new(Code::NameTaken, "A user with this name exists already.").hint("Choose another name.")
            }
            E::NameTaken => Self::new(Code::NameTaken, "An agent with this name exists already."),
            E::AgentArchived => Self::new(Code::AgentArchived, "The agent is archived."),
            E::Refused { refusal, run } => {
                let (code, message) = match refusal {
                    RunRefusal::StaleEpoch => (Code::StaleEpoch, "This claim of the run is not the current one."),
                    RunRefusal::Ended => (Code::RunEnded, "The run has ended."),
                    RunRefusal::NotRunning | RunRefusal::NotPending => (Code::NotRunning, "The run is not claimed."),
                    RunRefusal::Begun => (Code::AlreadyBegun, "The work on this run has begun."),
                };
                Self { run: Some(Box::new(render::run(*run))), ..Self::new(code, message) }
            }
            E::KeyReused => {
                Self::new(Code::KeyReused, "This idempotency key was used before, for a different request.")
            }
            E::RunDeleted => Self::new(Code::KeyReused, "The run that this idempotency key made was deleted.")
                .hint("To have the work done again, use a new idempotency key."),
            E::InUse(used) => {
                let (message, hint) = match used {
                    Use::Live => {
                        ("It has not ended.", "Wait until it has ended, or cancel it: `attache runs cancel RUN`.")
                    }
                    Use::LiveChild => (
                        "A run that it started has not ended.",
                        "Wait until that has ended, or cancel it: `attache runs cancel RUN`.",
                    ),
                    Use::Grant => (
                        "A decision that was made in it stands for later requests too.",
                        "Revoke it first: `attache approvals grants` shows it, `attache approvals revoke GRANT` revokes it.",
                    ),
                };
                Self::new(Code::InUse, message).hint(hint)
            }
            E::ForeignArtifact(id) => Self::invalid(
                "output.artifact_refs",
                &format!("names {id}, which is not an artifact of this run's workspace"),
            ),
            E::PairingInvalid { .. } => Self::new(Code::PairingFailed, "The pairing code is unknown, used or expired."),
            E::PairingPending => Self::new(Code::PairingPending, "Nobody has confirmed this device yet."),
            E::PairingRejected => Self::new(Code::PairingRejected, "A person rejected this device."),
            E::RuntimeEnded(state) => Self::runtime_ended(state),
            E::AlreadyDecided(permission) => Self::already_decided(render::permission(*permission)),
            E::NotAsked => Self::new(Code::NotWaiting, "This question is not open any more; nothing was given.")
                .hint("Look at the run: `waits_for` has the question that it waits with now."),
            E::ResumeRefused => Self::new(Code::ResumeRefused, "The channel cannot be resumed with this token."),
            E::NoEngine => Self::new(
                Code::ToolRefused,
                "The run's caller is not connected by a channel, so it has no tools to call.",
            ),
            E::QuotaExceeded { exceeded, .. } => Self::new(Code::QuotaExceeded, exceeded.to_string()),
            E::VersionChanged => Self::new(Code::VersionChanged, "It was changed since you read it."),
            E::LastOwner => Self::new(Code::LastOwner, "Without an owner nobody could manage this hub."),
            E::IsPeer => {
                Self::new(Code::IsPeer, "This is an outside agent, reached by its URL: no device can work for it.")
            }
            E::IsPaired => Self::new(
                Code::IsPaired,
                "A device or a key of its own works for this agent, so it cannot become an outside one.",
            ),
            E::NothingOffered => Self::new(Code::NothingToTrust, "No card of this agent waits to be trusted."),
            E::CardPinned => Self::new(Code::VersionChanged, "Another card of this agent is trusted."),
            E::PeerTaskDiffers => {
                Self::new(Code::VersionChanged, "The outside agent names another task than it did before.")
            }
            E::TooManyPushConfigs => Self::new(
                Code::InvalidRequest,
                format!("A run has at most {MAX_PUSH_CONFIGS} push notification configs."),
            )
            .hint("Remove one of them first, or replace it by giving its id."),
            E::LogFull => Self::new(
                Code::LogFull,
                format!("The log of this run is full: its events weigh {} MiB.", MAX_RUN_LOG_BYTES >> 20),
            ),
            E::Overloaded => Self::new(Code::Overloaded, "Too many writes are waiting."),
            E::Unwritable(fault) => Self::unwritable(fault),
            E::Unknown => Self::new(Code::Unknown, "The store could not confirm the change."),
            E::Unusable { what, .. } => Self::internal(&what),
            E::Internal(details) => Self::internal(&details),
        }
    }
}

/// Turns a store's error into the hub's, for `map_err`.
pub(crate) fn about(what: &'static str) -> impl FnOnce(attache_store::Error) -> Error {
    move |error| Error::from_store(what, error)
}

/// The same for a list: what a store cannot find there is the cursor.
pub(crate) fn about_list(
    what: &'static str,
    page: &attache_store::record::Pagination,
) -> impl FnOnce(attache_store::Error) -> Error + use<> {
    let continued = page.cursor.is_some();
    move |error| match error {
        attache_store::Error::NotFound if continued => Error::invalid("cursor", "is not one that this list gave out"),
        other => Error::from_store(what, other),
    }
}
