//! Lends folders of this machine to agents elsewhere, under leases, and takes them back.
//!
//! `Options -> Daemon::start -> Daemon::run`; [`Delegator`] is the daemon's desk for programs that embed it. What is lent and
//! to whom is decided by a [`Policy`], what happened is told to an [`AuditSink`], and whose turn it is by a [`Scheduler`];
//! the defaults are `policy.toml`, `audit.jsonl` and first come, first served.

mod api;
mod audit;
mod daemon;
mod end;
mod end_notice;
mod export;
mod keyring;
mod lease;
mod notify;
mod peer;
mod policy;
mod publish;
mod queue;
mod records;
mod recover;
mod refusal;
mod report;
mod route;
mod service;
mod session;
mod socket;
mod tunnel;
mod undo;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use attache_protocol::{Secret, env::Env};

pub use audit::{DelegatorAuditEntry, DelegatorAuditFiles, DelegatorAuditSink};
pub use daemon::{DelegationDaemon, SOCKET};
pub use peer::PeerTimings;
pub use policy::{DelegationAdmission, DelegatorPolicy, DelegatorPolicyFile, HubKeys, OriginalsRetention};
pub use queue::{ConcurrencyLimits, DelegatorScheduler, FairScheduler, FolderClaim, QueueDecision};
pub use refusal::DelegatorRefusal;
pub use service::DelegatorService;
pub use socket::MAX_SOCKET_PATH;

use crate::awcp_policy::PolicyFile;

/// What a daemon needs to know before it starts.
#[derive(Debug, Clone)]
pub struct Options {
    /// `$AWCP_HOME`.
    pub home: PathBuf,
    /// How people at a hub know this machine.
    pub device_name: String,
    /// Where folders are lent over SSH.
    pub ssh_listen: SocketAddr,
    pub policy: Arc<dyn DelegatorPolicy>,
    pub audit: Arc<dyn DelegatorAuditSink>,
    pub scheduler: Arc<dyn DelegatorScheduler>,
    pub keys: Arc<dyn HubKeys>,
    /// The program that shows a notice on the desktop, where there is one.
    pub desktop: Option<PathBuf>,
    pub pace: PeerTimings,
    pub env: Env,
}

/// A machine without keys of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHubKeys;

// === impl Options ===

impl Options {
    /// The defaults for a home folder; `person` is whose `~` the policy means.
    pub fn new(home: impl Into<PathBuf>, person: Option<PathBuf>) -> Self {
        let home = home.into();
        let policy = DelegatorPolicyFile::new(PolicyFile::at(home.join("policy.toml"), person));
        Self {
            device_name: "this machine".to_owned(),
            ssh_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            policy: Arc::new(policy),
            audit: Arc::new(DelegatorAuditFiles::at(home.clone())),
            scheduler: Arc::new(FairScheduler),
            keys: Arc::new(NoHubKeys),
            desktop: None,
            pace: PeerTimings::default(),
            env: Env::system(),
            home,
        }
    }
}

// === impl NoHubKeys ===

impl HubKeys for NoHubKeys {
    fn key_for(&self, _: &str) -> Option<Secret<String>> {
        None
    }
}
