//! What a store refuses, and what goes wrong inside it.

use attache_protocol::rules::run::RunRefusal;

use crate::record::RunRecord;

pub type Result<T> = std::result::Result<T, Error>;

/// Why something cannot be deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Use {
    #[error("the run has not ended")]
    Live,
    #[error("a run that it started has not ended")]
    LiveChild,
    #[error("a standing decision that was made in it is in force")]
    Grant,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Unknown, or of another tenant: the same answer.
    #[error("not found")]
    NotFound,
    #[error("the name is taken")]
    NameTaken,
    #[error("the agent is archived")]
    AgentArchived,
    /// The rules refuse; the run is as it was before and is shown as it is.
    #[error("{refusal}")]
    Refused { refusal: RunRefusal, run: Box<RunRecord> },
    /// The same idempotency key came with a different request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The run that the idempotency key made was deleted.
    #[error("the run that the idempotency key made was deleted")]
    RunDeleted,
    /// It cannot be deleted yet.
    #[error("{0}")]
    InUse(Use),
    /// The artifact does not belong to the run's workspace.
    #[error("{0} is not an artifact of this run's workspace")]
    ForeignArtifact(String),
    /// The pairing code is unknown, used or expired. `agent` is known when the code once existed.
    #[error("the pairing code is not valid")]
    PairingInvalid { agent: Option<attache_protocol::AgentId> },
    /// Nobody has confirmed the device yet.
    #[error("the pairing is not confirmed yet")]
    PairingPending,
    #[error("the pairing was rejected")]
    PairingRejected,
    /// The runtime was superseded or revoked.
    #[error("the runtime is not active")]
    RuntimeEnded(attache_protocol::wire::runtime::RuntimeState),
    /// The permission request was settled before, as it is shown here.
    #[error("the permission was decided before")]
    AlreadyDecided(Box<crate::record::worker_request::PermissionRecord>),
    /// The question that an input names is not open, or not of its run.
    #[error("the question is not open any more")]
    NotAsked,
    /// The channel cannot be resumed with this token by this principal.
    #[error("the channel cannot be resumed")]
    ResumeRefused,
    /// No engine follows the run, so nobody can call a tool for it.
    #[error("nobody who could call a tool follows the run")]
    NoEngine,
    /// A quota leaves no room for the run.
    #[error("{exceeded}")]
    QuotaExceeded { target: crate::record::quota::QuotaTarget, exceeded: attache_protocol::rules::quota::ExceededLimit },
    /// It was changed since the caller read it.
    #[error("it was changed in the meantime")]
    VersionChanged,
    /// Without an owner nobody could manage the tenant.
    #[error("this is the last owner")]
    LastOwner,
    /// The agent is an outside one: no device can work for it.
    #[error("the agent is an outside agent")]
    IsPeer,
    /// A device works for the agent: it cannot become an outside one.
    #[error("the agent has a device or a key of its own")]
    IsPaired,
    /// Another card of the peer is trusted.
    #[error("another card is trusted")]
    CardPinned,
    /// No card waits for trust.
    #[error("no card waits to be trusted")]
    NothingOffered,
    /// The peer names another task or context than before.
    #[error("the peer names another task than before")]
    PeerTaskDiffers,
    /// The run has as many push configs as one may have.
    #[error("the run has {} push configs already", crate::MAX_PUSH_CONFIGS)]
    TooManyPushConfigs,
    /// The run's events weigh as much as those of one run may.
    #[error("the log of the run is full")]
    LogFull,
    /// The queue of writes is full.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The disk or the database file does not let anything be stored now. Nothing was changed.
    #[error("{0}")]
    Unwritable(crate::StorageFault),
    /// The commit failed: the change may or may not be there after a restart.
    #[error("it is unknown whether the change was stored")]
    Unknown,
    /// The file cannot be used as it is, and a person has to do something about it.
    #[error("{what}")]
    Unusable { what: String, hint: &'static str },
    #[error("the store failed: {0}")]
    Internal(String),
}
