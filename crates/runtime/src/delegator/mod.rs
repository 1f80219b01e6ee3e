//! Lends folders of this machine to agents elsewhere, under leases, and takes them back.
//!
//! `Options -> Daemon::start -> Daemon::run`; [`Delegator`] is the daemon's desk for programs that embed it. What is lent and
//! to whom is decided by a [`Policy`], what happened is told to an [`AuditSink`], and whose turn it is by a [`Scheduler`];
//! the defaults are `policy.toml`, `audit.jsonl` and first come, first served.

mod api;
mod audit;
mod daemon;
mod desk;
mod end;
mod keyring;
mod lease;
mod lend;
mod notify;
mod peer;
mod policy;
mod publish;
mod queue;
mod reach;
mod records;
mod recover;
mod refused;
mod report;
mod session;
mod socket;
mod tell;
mod tunnel;
mod undo;

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use attache_protocol::{Secret, env::Env};

pub use audit::{AuditSink, Entry, FileAudit};
pub use daemon::{Daemon, SOCKET};
pub use desk::Delegator;
pub use peer::Pace;
pub use policy::{Admitted, FilePolicy, Keys, Policy, Retention};
pub use queue::{Claim, Fair, Limits, Scheduler, Verdict};
pub use refused::Refused;
pub use socket::LONGEST_SOCKET;

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
    pub policy: Arc<dyn Policy>,
    pub audit: Arc<dyn AuditSink>,
    pub scheduler: Arc<dyn Scheduler>,
    pub keys: Arc<dyn Keys>,
    /// The program that shows a notice on the desktop, where there is one.
    pub desktop: Option<PathBuf>,
    pub pace: Pace,
    pub env: Env,
}

/// A machine without keys of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKeys;

// === impl Options ===

impl Options {
    /// The defaults for a home folder; `person` is whose `~` the policy means.
    pub fn new(home: impl Into<PathBuf>, person: Option<PathBuf>) -> Self {
        let home = home.into();
        let policy = FilePolicy::new(PolicyFile::at(home.join("policy.toml"), person));
        Self {
            device_name: "this machine".to_owned(),
            ssh_listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            policy: Arc::new(policy),
            audit: Arc::new(FileAudit::at(home.clone())),
            scheduler: Arc::new(Fair),
            keys: Arc::new(NoKeys),
            desktop: None,
            pace: Pace::default(),
            env: Env::system(),
            home,
        }
    }
}

// === impl NoKeys ===

impl Keys for NoKeys {
    fn key_for(&self, _: &str) -> Option<Secret<String>> {
        None
    }
}
