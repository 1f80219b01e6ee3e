//! The remote's side: where a delegated folder appears on this machine, how it is mounted there, and how it is removed
//! again.
//!
//! A [`MountPoint`] is chosen only here. [`mount`] hands it to a small separate guard process, which owns the process
//! that serves the mount (see [`MountTransport`]): when its pipe closes, whatever happened to this process, the folder is
//! unmounted. See [`run_guard`].

pub(crate) mod attache_fs;
mod copied;
mod forward;
mod guard;
mod guard_protocol;
mod mount_handle;
mod mount_point;
mod requirements;
mod ssh_agent;
mod sshfs;
mod transport;
mod underneath;

use std::time::Duration;

use attache_protocol::{
    Secret,
    wire::awcp::{AccessMode, AwcpErrorCode},
};

pub use forward::{ByteStream, PortForward, TunnelDial};
pub use guard::run_guard;
pub use guard_protocol::{LostChange, UnmountReason};
pub use mount_handle::{GuardCommand, MountHandle, MountSummary, mount};
pub use mount_point::{MountPoint, MountPointError, sweep};
pub use requirements::{MissingProgram, missing, missing_git};
pub use transport::MountTransport;
pub use underneath::MountPointProtection;

/// What to mount, and how to reach its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountRequest {
    /// A host name or address.
    pub host: String,
    pub port: u16,
    pub user: String,
    /// The server's name for the export.
    pub locator: String,
    /// The server's public key in OpenSSH format. No other server is trusted.
    pub host_key: String,
    /// The lease's private key in OpenSSH format. It stays in the memory of this process and of the guard.
    pub private_key: Secret<String>,
    pub access_mode: AccessMode,
    /// It is unmounted after this time, whatever else happens. A duration doesn't depend on any wall clock.
    pub lasts: Duration,
    /// Additional sshfs options that passed [`safe_mount_options`].
    pub options: Vec<String>,
    pub transport: MountTransport,
}

/// A mount option of attache-fs: nothing is acknowledged that the host doesn't have.
pub const SYNC_OPTION: &str = attache_fs::SYNC;

/// Splits a host's requested mount options into safe ones and the rest.
pub fn safe_mount_options(requested: Vec<String>) -> (Vec<String>, Vec<String>) {
    sshfs::safe_options(requested)
}

/// Why a folder isn't mounted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MountError {
    #[error("{0}")]
    Missing(MissingProgram),
    #[error("the host did not accept the lease's key ({0})")]
    KeyRefused(String),
    #[error("the host's key doesn't match the one in START; nothing was sent to it ({0})")]
    OtherHost(String),
    /// Nothing there speaks SSH as a host does.
    #[error("the folder could not be mounted: {0}")]
    Unreachable(String),
    #[error("can't write-protect the mount point: {0}")]
    Unprotected(String),
    #[error("{0}")]
    Terms(String),
    #[error("the folder could not be mounted: {0}")]
    Sshfs(String),
    #[error("the mount's guard process failed: {0}")]
    Guard(String),
}

// === impl MountError ===

impl MountError {
    pub const fn code(&self) -> AwcpErrorCode {
        match self {
            Self::Missing(_) => AwcpErrorCode::DepMissing,
            Self::KeyRefused(_) => AwcpErrorCode::AuthFailed,
            Self::Unprotected(_) => AwcpErrorCode::MountpointDenied,
            Self::OtherHost(_) | Self::Unreachable(_) | Self::Terms(_) | Self::Sshfs(_) | Self::Guard(_) => {
                AwcpErrorCode::MountFailed
            }
        }
    }

    /// The next step, if more is known than the code says.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing(missing) => missing.fix(),
            Self::Unprotected(_) => {
                "Ask the remote's owner to set another folder in `mount_roots` of its policy.toml.".to_owned()
            }
            other => other.code().hint().to_owned(),
        }
    }
}
