//! The remote's side: where a lent folder appears on this machine, how it is mounted there, and that it goes away again.
//!
//! A [`Place`] is chosen here and nowhere else. [`mount`] hands it to a small guard process of its own, which owns sshfs: when
//! its pipe closes, whatever became of this process, the folder is unmounted. See [`run_guard`].

mod forward;
mod guard;
mod held;
mod identity;
mod need;
mod order;
mod place;
mod sshfs;
mod table;
mod underneath;

use std::time::Duration;

use attache_protocol::{
    Secret,
    wire::awcp::{AccessMode, ErrorCode},
};

pub use forward::{Dial, Forward, Stream};
pub use guard::run_guard;
pub use held::{GuardCommand, Mounted, Unmounted, mount};
pub use need::{Missing, missing, missing_git};
pub use order::Ended;
pub use place::{Place, Unplaced, sweep};
pub use underneath::Underneath;

/// What is mounted, and how its server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounting {
    /// A name or an address.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// Names the export to its server.
    pub locator: String,
    /// The server's public key as OpenSSH writes it. No other server is spoken to.
    pub host_key: String,
    /// The lease's private key in OpenSSH's form. It stays in the memory of this process and of the guard.
    pub private_key: Secret<String>,
    pub access_mode: AccessMode,
    /// It is unmounted after that, whatever else happens. A length of time holds by any clock.
    pub lasts: Duration,
    /// More options of sshfs, as [`harmless_options`] let them pass.
    pub options: Vec<String>,
}

/// What of a host's wishes for a mount can be followed, and what cannot.
pub fn harmless_options(wishes: Vec<String>) -> (Vec<String>, Vec<String>) {
    sshfs::harmless(wishes)
}

/// Why a folder is not mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("{0}")]
    Missing(Missing),
    #[error("the host did not accept the lease's key ({0})")]
    KeyRefused(String),
    #[error("the host's key is not the one that START promised; nothing was sent to it ({0})")]
    OtherHost(String),
    #[error("the mount point cannot be made unwritable underneath: {0}")]
    Unprotected(String),
    #[error("{0}")]
    Terms(String),
    #[error("sshfs did not mount the folder: {0}")]
    Sshfs(String),
    #[error("the process that guards the mount failed: {0}")]
    Guard(String),
}

// === impl MountError ===

impl MountError {
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Missing(_) => ErrorCode::DepMissing,
            Self::KeyRefused(_) => ErrorCode::AuthFailed,
            Self::Unprotected(_) => ErrorCode::MountpointDenied,
            Self::OtherHost(_) | Self::Terms(_) | Self::Sshfs(_) | Self::Guard(_) => ErrorCode::MountFailed,
        }
    }

    /// What to do next, where more is known than the code says.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing(missing) => missing.fix(),
            Self::Unprotected(_) => {
                "The remote's owner must name another folder in `mount_roots` of its policy.toml.".to_owned()
            }
            other => other.code().hint().to_owned(),
        }
    }
}
