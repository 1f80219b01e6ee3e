//! Errors of a store: refusals and internal failures.

use attache_protocol::rules::run::RunRefusal;

use crate::record::RunRecord;

pub type Result<T> = std::result::Result<T, Error>;

/// Why something can't be deleted yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InUseReason {
    #[error("the run has not ended")]
    Live,
    #[error("a run that it started has not ended")]
    LiveChild,
    #[error("a standing decision that was made in it is in force")]
    Grant,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Unknown, or in another tenant. Both get the same answer.
    #[error("not found")]
    NotFound,
    #[error("the name is taken")]
    NameTaken,
    /// An archived account of another person had it.
    #[error("the name is reserved")]
    NameReserved,
    #[error("the agent is archived")]
    AgentArchived,
    /// The rules refuse. The run is unchanged and included.
    #[error("{refusal}")]
    Refused { refusal: RunRefusal, run: Box<RunRecord> },
    /// The same idempotency key was used with a different request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// The run created with the idempotency key was deleted.
    #[error("the run that the idempotency key made was deleted")]
    RunDeleted,
    /// The approval started another run before.
    #[error("the approval has already started a run")]
    ApprovalUsed,
    /// It can't be deleted yet.
    #[error("{0}")]
    InUse(InUseReason),
    /// The artifact doesn't belong to the run's workspace.
    #[error("{0} is not an artifact of this run's workspace")]
    ForeignArtifact(String),
    /// The pairing code is unknown, used or expired. `agent` is set if the code once existed.
    #[error("the pairing code is not valid")]
    PairingInvalid { agent: Option<attache_protocol::AgentId> },
    /// No one has confirmed the device yet.
    #[error("the pairing is not confirmed yet")]
    PairingPending,
    #[error("the pairing was rejected")]
    PairingRejected,
    /// The runtime was superseded or revoked.
    #[error("the runtime is not active")]
    RuntimeEnded(attache_protocol::wire::runtime::RuntimeState),
    /// The permission request was already settled, as shown here.
    #[error("the permission was decided before")]
    AlreadyDecided(Box<crate::record::worker_request::PermissionRecord>),
    /// The question that an input names isn't open, or belongs to another run.
    #[error("the question is no longer open")]
    NotAsked,
    /// The channel can't be resumed with this token by this principal.
    #[error("the channel cannot be resumed")]
    ResumeRefused,
    /// No engine follows the run, so no tool can be called for it.
    #[error("nobody who could call a tool follows the run")]
    NoEngine,
    /// A quota has no room for the run.
    #[error("{exceeded}")]
    QuotaExceeded { target: crate::record::quota::QuotaTarget, exceeded: attache_protocol::rules::quota::ExceededLimit },
    /// It was changed since the caller read it.
    #[error("it was changed in the meantime")]
    VersionChanged,
    /// Without an owner the tenant couldn't be managed.
    #[error("this is the last owner")]
    LastOwner,
    /// It is an outside agent, which can't have a device.
    #[error("the agent is an outside agent")]
    IsPeer,
    /// The agent has a device, so it can't become an outside agent.
    #[error("the agent has a device or its own key")]
    IsPaired,
    /// Another card of the peer is trusted.
    #[error("another card is trusted")]
    CardPinned,
    /// No card is waiting to be trusted.
    #[error("no card waits to be trusted")]
    NothingOffered,
    /// The peer names a different task or context than before.
    #[error("the peer names a different task than before")]
    PeerTaskDiffers,
    /// The run already has the maximum number of push configs.
    #[error("the run has {} push configs already", crate::MAX_PUSH_CONFIGS)]
    TooManyPushConfigs,
    #[error("there are too many notification targets")]
    TooManyNotificationTargets,
    /// The run's events have reached the size limit of one run.
    #[error("the log of the run is full")]
    LogFull,
    /// The queue of writes is full.
    #[error("too many writes are waiting")]
    Overloaded,
    /// The disk or the database file can't be written at the moment. Nothing was changed.
    #[error("{0}")]
    Unwritable(crate::StorageFault),
    /// A layer keeps the rest of the disk, of which this much is free, for what must not fail.
    #[error("the disk is almost full: {free} bytes are left")]
    DiskLow { free: u64 },
    /// The commit failed: after a restart the change may or may not be there.
    #[error("it is unknown whether the change was stored")]
    Unknown,
    /// The file can't be used as it is, and a person has to fix it.
    #[error("{what}")]
    Unusable { what: String, hint: &'static str },
    /// The node was ended because the others received no heartbeat from it for too long.
    #[error("this node was taken for dead")]
    NodeEnded,
    /// The database server can't be reached: why not.
    #[error("can't connect to the database: {0}")]
    DatabaseUnreachable(String),
    #[error("the store failed: {0}")]
    Internal(String),
}
