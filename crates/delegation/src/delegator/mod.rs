//! Delegates folders of this machine to remote agents under leases, and revokes access when a lease ends.
//!
//! `Options -> DelegationDaemon::start -> DelegationDaemon::run`. Programs that embed the daemon use
//! [`DelegatorService`]. A [`DelegatorPolicy`] decides which folders are delegated and to whom, a
//! [`DelegatorScheduler`] decides when, and a [`DelegatorAuditSink`] records what happened. The defaults are
//! `policy.toml`, first come, first served, and `audit.jsonl`.

mod api;
mod audit;
mod conversation;
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
mod review;
mod route;
mod service;
mod session;
mod socket;
mod staging;
mod tunnel;
mod undo;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use attache_protocol::{Secret, env::Env};
use attache_workspace::mount::GuardCommand;

pub use audit::{DelegatorAuditEntry, DelegatorAuditFiles, DelegatorAuditSink};
pub use daemon::{DelegationDaemon, SOCKET};
pub use export::refuse_private;
pub use peer::PeerTimings;
pub(crate) use peer::{FIRST_CONTACT_TIMEOUT, RemoteEvent};
pub use policy::{
    DelegationAdmission, DelegatorPolicy, DelegatorPolicyFile, HubKeys, OriginalsRetention, StagingLimits,
};
pub use queue::{ConcurrencyLimits, DelegatorScheduler, FairScheduler, FolderClaim, QueueDecision};
pub use records::{StagedFolders, originals_folder, staged_folders};
pub use refusal::DelegatorRefusal;
pub use service::DelegatorService;
pub use socket::MAX_SOCKET_PATH;

use crate::awcp_policy::PolicyFile;

/// Configuration of a daemon.
#[derive(Debug, Clone)]
pub struct Options {
    /// `$AWCP_HOME`.
    pub home: PathBuf,
    /// The name of this machine as a hub shows it.
    pub device_name: String,
    /// The address of the SSH server that serves exports.
    pub ssh_listen: SocketAddr,
    pub policy: Arc<dyn DelegatorPolicy>,
    pub audit: Arc<dyn DelegatorAuditSink>,
    pub scheduler: Arc<dyn DelegatorScheduler>,
    pub keys: Arc<dyn HubKeys>,
    /// The program that shows desktop notifications, if there is one.
    pub desktop: Option<PathBuf>,
    pub pace: PeerTimings,
    /// The program that owns a copy of a folder which goes to a peer as an archive. Without it, none does.
    pub copies: Option<GuardCommand>,
    pub env: Env,
}

/// For a machine without hub keys of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHubKeys;

// === impl Options ===

impl Options {
    /// The defaults for a home folder. `person` is the home folder that `~` stands for in the policy.
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
            copies: None,
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
