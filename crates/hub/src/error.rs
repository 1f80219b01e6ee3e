//! The hub's error type: a code from the error table, a message for people and a hint for the next step.

use std::borrow::Cow;

use attache_protocol::{
    Code,
    error::{ErrorBody, ErrorDetail, Remedy},
    rules::run::RunRefusal,
    wire::{
        permission::{AlreadyDecided, PermissionRequest},
        run::{Run, RunConflict},
        runtime::RuntimeState,
    },
};

use attache_store::{InUseReason, MAX_NOTIFICATION_TARGETS, MAX_PUSH_CONFIGS, MAX_RUN_LOG_BYTES, StorageFault};

use crate::{
    disk_space::{DiskUse, disk_low},
    identity::RateLimitStatus,
    render,
};

/// How long a caller waits before it retries after a disk problem.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(5);

pub type Result<T> = std::result::Result<T, Error>;

/// An error returned to the caller. All of its content is shown to the caller, so it must not hold secrets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Error {
    pub code: Code,
    pub message: Cow<'static, str>,
    /// The member of the request that is wrong; the message says the same in a sentence.
    pub field: Option<Box<FieldProblem>>,
    /// Replaces the hint from the error table.
    pub hint: Option<Cow<'static, str>>,
    /// The hint for programs, if they have their own words for it.
    pub remedy: Option<Remedy>,
    /// The current run, for a worker whose call came too late.
    pub run: Option<Box<Run>>,
    /// The current permission request, for a decision that came too late.
    pub permission: Option<Box<PermissionRequest>>,
    /// The rate limit that was reached, for the response headers.
    pub limited: Option<Box<RateLimitStatus>>,
    /// How many seconds to wait before trying again.
    pub retry_after: Option<u64>,
}

/// A member of a request, and what is wrong with it: `must be a JSON array`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldProblem {
    pub field: String,
    pub problem: String,
}

// === impl Error ===

impl Error {
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            field: None,
            hint: None,
            remedy: None,
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

    /// A hint that other programs than the caller's can translate.
    #[must_use]
    pub(crate) fn remedy(mut self, remedy: Remedy) -> Self {
        self.remedy = Some(remedy);
        self.hint(remedy.hint())
    }

    #[must_use]
    pub(crate) fn limited(mut self, left: RateLimitStatus) -> Self {
        self.limited = Some(Box::new(left));
        self
    }

    /// Tells the caller when to try again.
    #[must_use]
    pub(crate) fn retry_after(mut self, wait: std::time::Duration) -> Self {
        self.retry_after = Some(wait.as_secs() + u64::from(wait.subsec_nanos() > 0));
        self
    }

    /// A member of the request is invalid.
    pub fn invalid(field: &str, why: &str) -> Self {
        Self::in_field(Code::InvalidRequest, field, why)
    }

    /// The same with another code.
    pub fn in_field(code: Code, field: &str, why: &str) -> Self {
        let field_problem = FieldProblem { field: field.to_owned(), problem: why.to_owned() };
        Self { field: Some(Box::new(field_problem)), ..Self::new(code, format!("`{field}` {why}.")) }
    }

    /// The same answer for unknown ids and for ids that belong to someone else.
    pub fn not_found(what: &str) -> Self {
        let error = Self::new(Code::NotFound, format!("No such {what}."));
        match what {
            "run" => error.hint(
                "Check the id. Finished runs are deleted \
                 after the retention period (`attache hub --keep`) or by a person. See the log: `attache audit`.",
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

    /// The same answer everywhere: it must not tell which agents exist.
    pub fn no_credential() -> Self {
        Self::unauthenticated("The request has no credential.")
    }

    /// A bug. The details go to the log, not to the caller.
    pub fn internal(details: &dyn std::fmt::Display) -> Self {
        tracing::error!(%details, "internal error");
        Self::new(Code::Internal, "The hub failed unexpectedly.")
    }

    pub fn runtime_ended(state: RuntimeState) -> Self {
        match state {
            RuntimeState::Superseded => Self::new(
                Code::RuntimeSuperseded,
                "Another device was paired with this agent, so this one no longer works for it.",
            ),
            RuntimeState::Revoked | RuntimeState::Active => {
                Self::new(Code::RuntimeRevoked, "A person disconnected this device from its agent.")
            }
        }
    }

    /// The runtime has switched to a newer token.
    pub fn token_replaced() -> Self {
        Self::new(Code::TokenReplaced, "This runtime token was replaced by a newer one.")
    }

    /// The agent was registered again, or its key was revoked.
    pub fn agent_key_ended(state: RuntimeState) -> Self {
        let message = match state {
            RuntimeState::Superseded => "This agent was registered or paired again, so this key is no longer valid.",
            RuntimeState::Revoked | RuntimeState::Active => "This agent's key was revoked.",
        };
        Self::runtime_ended(state).say(message).remedy(Remedy::RegisterAgain)
    }

    fn already_decided(permission: PermissionRequest) -> Self {
        let who = permission.decided_by.as_deref().unwrap_or("someone else");
        let message = format!("The request was already {} by {who}.", permission.state.as_str());
        Self { permission: Some(Box::new(permission)), ..Self::new(Code::AlreadyDecided, message) }
    }

    /// Replaces the message.
    #[must_use]
    pub(crate) fn say(mut self, message: impl Into<Cow<'static, str>>) -> Self {
        self.message = message.into();
        self
    }

    /// The database is the problem, not the caller. The log notes when it starts and when it is over.
    pub(crate) fn unwritable(fault: StorageFault) -> Self {
        let (code, message) = match fault {
            StorageFault::DiskFull => (Code::DiskFull, "The hub's disk is full, so nothing was stored."),
            StorageFault::ReadOnly => (Code::ReadOnly, "The hub's file system is read-only, so nothing was stored."),
            StorageFault::Io => (Code::StorageFailed, "The hub's disk reports errors, so nothing was stored."),
            StorageFault::Damaged => (Code::StorageFailed, "Part of the hub's database is damaged."),
            StorageFault::Unreachable => {
                (Code::DatabaseUnreachable, "The hub can't reach its database server, so nothing was stored.")
            }
            StorageFault::ServedElsewhere => {
                (Code::ServedElsewhere, "Another hub serves the database now, so this one stored nothing.")
            }
        };
        Self::new(code, message).retry_after(RETRY_AFTER)
    }

    /// The response body as JSON.
    pub fn body(&self) -> Vec<u8> {
        let error = ErrorDetail {
            code: self.code.as_str().to_owned(),
            message: self.message.to_string(),
            hint: self.hint.as_deref().unwrap_or(self.code.hint()).to_owned(),
            remedy: self.remedy.map(|remedy| remedy.as_str().to_owned()),
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

    /// Converts a store error. `what` is the user-facing name of the thing the call was about.
    pub(crate) fn from_store(what: &'static str, error: attache_store::Error) -> Self {
        use attache_store::Error as E;
        match error {
            E::NotFound => Self::not_found(what),
            E::NameTaken if what == "user" => {
                Self::new(Code::NameTaken, "A user with this name already exists.").hint("Choose another name.")
            }
            E::NameTaken => Self::new(Code::NameTaken, "An agent with this name already exists."),
            E::NameReserved => {
                let message = "Someone else's agent had this name, and its callers may still use it.";
                Self::new(Code::NameTaken, message).hint(
                    "Choose another name, or ask an owner or admin of the hub to create the agent and give it to you.",
                )
            }
            E::AgentArchived => Self::new(Code::AgentArchived, "The agent is archived."),
            E::Refused { refusal, run } => {
                let (code, message) = match refusal {
                    RunRefusal::StaleEpoch => {
                        (Code::StaleEpoch, "This claim is no longer the current one for the run.")
                    }
                    RunRefusal::Ended => (Code::RunEnded, "The run has ended."),
                    RunRefusal::NotRunning | RunRefusal::NotPending => (Code::NotRunning, "The run is not claimed."),
                    RunRefusal::Begun => (Code::AlreadyBegun, "Work on this run has already started."),
                };
                Self { run: Some(Box::new(render::run(*run))), ..Self::new(code, message) }
            }
            E::KeyReused => {
                Self::new(Code::KeyReused, "This idempotency key was already used for a different request.")
            }
            E::RunDeleted => Self::new(Code::KeyReused, "The run created with this idempotency key was deleted.")
                .hint("To run the task again, use a new idempotency key."),
            E::ApprovalUsed => Self::new(Code::KeyReused, "This approval has already started a run.")
                .hint("Each approval covers one run. Send the task again without it to request another."),
            E::InUse(used) => {
                let (message, hint) = match used {
                    InUseReason::Live => {
                        ("The run has not ended.", "Wait until it ends, or cancel it: `attache runs cancel RUN`.")
                    }
                    InUseReason::LiveChild => (
                        "A run that this run started has not ended.",
                        "Wait until that run ends, or cancel it: `attache runs cancel RUN`.",
                    ),
                    InUseReason::Grant => (
                        "A standing grant depends on it.",
                        "Find it with `attache approvals grants`, then revoke it: `attache approvals revoke GRANT`.",
                    ),
                };
                Self::new(Code::InUse, message).hint(hint)
            }
            E::ForeignArtifact(id) => Self::invalid(
                "output.artifact_refs",
                &format!("contains {id}, which is not an artifact in this run's workspace"),
            ),
            E::PairingInvalid { .. } => Self::new(Code::PairingFailed, "The pairing code is unknown, used or expired."),
            E::PairingPending => Self::new(Code::PairingPending, "This device has not been confirmed yet."),
            E::PairingRejected => Self::new(Code::PairingRejected, "A person rejected this device."),
            E::RuntimeEnded(state) => Self::runtime_ended(state),
            E::AlreadyDecided(permission) => Self::already_decided(render::permission(*permission)),
            E::NotAsked => {
                Self::new(Code::NotWaiting, "This question is no longer open, so the answer was not delivered.")
                    .hint("Check the run: `waits_for` has its current question.")
            }
            E::ResumeRefused => Self::new(Code::ResumeRefused, "The channel cannot be resumed with this token."),
            E::NoEngine => {
                Self::new(Code::ToolRefused, "The run's caller has no open channel, so there are no tools to call.")
            }
            E::QuotaExceeded { exceeded, .. } => Self::new(Code::QuotaExceeded, exceeded.to_string()),
            E::VersionChanged => Self::new(Code::VersionChanged, "It has changed since you read it."),
            E::LastOwner => Self::new(Code::LastOwner, "The hub needs at least one owner."),
            E::IsPeer => {
                Self::new(Code::IsPeer, "This is an outside agent, reached by its URL, so no device can work for it.")
            }
            E::IsPaired => Self::new(
                Code::IsPaired,
                "This agent has a device or its own key, so it can't become an outside agent.",
            ),
            E::NothingOffered => Self::new(Code::NothingToTrust, "This agent has no card waiting to be trusted."),
            E::CardPinned => Self::new(Code::VersionChanged, "A different card of this agent is already trusted."),
            E::PeerTaskDiffers => {
                Self::new(Code::VersionChanged, "The outside agent reported a different task than before.")
            }
            E::TooManyPushConfigs => Self::new(
                Code::InvalidRequest,
                format!("A run can have at most {MAX_PUSH_CONFIGS} push notification configs."),
            )
            .hint("Remove one first, or replace one by giving its id."),
            E::TooManyNotificationTargets => Self::new(
                Code::InvalidRequest,
                format!("A person can have at most {MAX_NOTIFICATION_TARGETS} notification targets."),
            )
            .hint("Remove one first."),
            E::LogFull => Self::new(
                Code::LogFull,
                format!("This run's log is full: its events take {} MiB.", MAX_RUN_LOG_BYTES >> 20),
            ),
            E::Overloaded => Self::new(Code::Overloaded, "Too many writes are queued."),
            E::Unwritable(fault) => Self::unwritable(fault),
            E::DiskLow { free } => disk_low(free, DiskUse::Record),
            E::Unknown => Self::new(Code::Unknown, "The store could not confirm the change."),
            E::Unusable { what, .. } => Self::internal(&what),
            E::NodeEnded => Self::new(Code::Overloaded, "This node of the hub is restarting."),
            E::DatabaseUnreachable(_) => Self::unwritable(StorageFault::Unreachable),
            E::Internal(details) => Self::internal(&details),
        }
    }
}

/// Converts a store error, for `map_err`.
pub(crate) fn about(what: &'static str) -> impl FnOnce(attache_store::Error) -> Error {
    move |error| Error::from_store(what, error)
}

/// The same for lists, where "not found" means the cursor.
pub(crate) fn about_list(
    what: &'static str,
    page: &attache_store::record::Pagination,
) -> impl FnOnce(attache_store::Error) -> Error + use<> {
    let continued = page.cursor.is_some();
    move |error| match error {
        attache_store::Error::NotFound if continued => Error::invalid("cursor", "was not issued for this list"),
        other => Error::from_store(what, other),
    }
}
