//! The remote's side: where a lent folder appears on this machine, how it is mounted there, and that it goes away again.
//!
//! A [`Place`] is chosen here and nowhere else. [`mount`] hands it to a small guard process of its own, which owns sshfs: when
//! its pipe closes, whatever became of this process, the folder is unmounted. See [`run_guard`].

mod forward;
mod guard;
mod guard_protocol;
mod mount_handle;
mod mount_point;
mod requirements;
mod ssh_agent;
mod sshfs;
mod table;
mod underneath;

use std::time::Duration;

use attache_protocol::{
    Secret,
    wire::awcp::{AccessMode, AwcpErrorCode},
};

pub use forward::{ByteStream, PortForward, TunnelDial};
pub use guard::run_guard;
pub use guard_protocol::UnmountReason;
pub use mount_handle::{GuardCommand, MountHandle, MountSummary, mount};
pub use mount_point::{MountPoint, MountPointError, sweep};
pub use requirements::{MissingProgram, missing, missing_git};
pub use underneath::MountPointProtection;

/// What is mounted, and how its server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
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
    /// More options of sshfs, as [`safe_mount_options`] let them pass.
    pub options: Vec<String>,
}

/// What of a host's wishes for a mount can be followed, and what cannot.
pub fn safe_mount_options(wishes: Vec<String>) -> (Vec<String>, Vec<String>) {
    sshfs::safe_options(wishes)
}

/// Why a folder is not mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("{0}")]
    Missing(MissingProgram),
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
    pub const fn code(&self) -> AwcpErrorCode {
        match self {
            Self::Missing(_) => AwcpErrorCode::DepMissing,
            Self::KeyRefused(_) => AwcpErrorCode::AuthFailed,
            Self::Unprotected(_) => AwcpErrorCode::MountpointDenied,
            Self::OtherHost(_) | Self::Terms(_) | Self::Sshfs(_) | Self::Guard(_) => AwcpErrorCode::MountFailed,
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
