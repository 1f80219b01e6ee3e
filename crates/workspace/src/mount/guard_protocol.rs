//! The messages between a runtime and the guard of a mount, one line of JSON each. The order comes over the guard's
//! standard input, so that a private key is never an argument.

use std::{path::PathBuf, time::Duration};

use attache_protocol::{Secret, wire::awcp::AccessMode};
use serde::{Deserialize, Serialize};

use super::{
    MountError, MountPointProtection, MountRequest, MountTransport, mount_point::MountPointPath, requirements,
};

/// The first line that a guard receives. After it, any line and the end of the input mean: unmount.
#[derive(Serialize, Deserialize)]
pub(super) struct GuardInstructions {
    root: PathBuf,
    name: String,
    host: String,
    port: u16,
    user: String,
    locator: String,
    host_key: String,
    private_key: String,
    access_mode: AccessMode,
    /// A duration: the guard's clock need not agree with the runtime's.
    lasts: Duration,
    #[serde(default)]
    options: Vec<String>,
    /// Absent means sshfs.
    #[serde(default)]
    transport: Option<String>,
    /// What the process that receives it does.
    #[serde(default)]
    pub(super) role: GuardRole,
}

/// What a process does with an order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum GuardRole {
    /// Starts the process that serves the mount, and watches it.
    #[default]
    Guard,
    /// Serves an attache-fs mount.
    Serve,
    /// Sends what a killed process that served it had acknowledged.
    Replay,
}

/// What a guard reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum GuardReport {
    /// The folder is mounted.
    Mounted { underneath: MountPointProtection },
    /// It was never mounted.
    Failed { failure: MountFailureKind, message: String },
    /// It is unmounted. The mount point stays, empty and unwritable, until the input ends.
    Unmounted {
        why: UnmountReason,
        /// How often the connection to the host broke and was restored.
        #[serde(default)]
        outages: u32,
        #[serde(default)]
        lost: Vec<LostChange>,
    },
    /// Nothing is left.
    Removed,
}

/// A change that was acknowledged at the remote and didn't reach the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostChange {
    /// Below the shared folder.
    pub path: String,
    pub reason: String,
}

impl LostChange {
    /// Unknown, because the process that knew was killed.
    pub(super) fn unknown() -> Self {
        let reason = "the process that sends changes was ended, so it isn't known what is missing";
        Self { path: ".".to_owned(), reason: reason.to_owned() }
    }
}

/// [`MountError`] on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum MountFailureKind {
    Missing,
    KeyRefused,
    OtherHost,
    Unreachable,
    Unprotected,
    Terms,
    Sshfs,
    Guard,
}

/// Why a mount ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnmountReason {
    Asked,
    /// The lease expired.
    Expired,
    /// The process that served it died or was killed.
    Died,
    /// The guard itself is gone.
    Unguarded,
}

// === impl GuardInstructions ===

impl GuardInstructions {
    pub(super) fn new(at: &MountPointPath, mounting: MountRequest) -> Self {
        let MountRequest { host, port, user, locator, host_key, private_key, access_mode, lasts, options, transport } =
            mounting;
        Self {
            root: at.root.clone(),
            name: at.name.clone(),
            host,
            port,
            user,
            locator,
            host_key,
            private_key: private_key.expose().clone(),
            access_mode,
            lasts,
            options,
            transport: Some(transport.name().to_owned()),
            role: GuardRole::Guard,
        }
    }

    /// For another process than the guard.
    pub(super) fn for_role(role: GuardRole, at: &MountPointPath, mounting: MountRequest) -> Self {
        Self { role, ..Self::new(at, mounting) }
    }

    pub(super) fn write(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    pub(super) fn read(line: &str) -> serde_json::Result<Self> {
        serde_json::from_str(line)
    }

    pub(super) fn parts(self) -> (MountPointPath, MountRequest) {
        let Self { root, name, host, port, user, locator, host_key, private_key, access_mode, lasts, options, .. } =
            self;
        let private_key = Secret::new(private_key);
        let transport = self.transport.as_deref().and_then(MountTransport::named).unwrap_or_default();
        let mounting =
            MountRequest { host, port, user, locator, host_key, private_key, access_mode, lasts, options, transport };
        (MountPointPath { root, name }, mounting)
    }
}

// === impl GuardReport ===

impl GuardReport {
    pub(super) fn failed(error: &MountError) -> Self {
        let (failure, message) = match error {
            MountError::Missing(missing) => (MountFailureKind::Missing, missing.what.to_owned()),
            MountError::KeyRefused(message) => (MountFailureKind::KeyRefused, message.clone()),
            MountError::OtherHost(message) => (MountFailureKind::OtherHost, message.clone()),
            MountError::Unreachable(message) => (MountFailureKind::Unreachable, message.clone()),
            MountError::Unprotected(message) => (MountFailureKind::Unprotected, message.clone()),
            MountError::Terms(message) => (MountFailureKind::Terms, message.clone()),
            MountError::Sshfs(message) => (MountFailureKind::Sshfs, message.clone()),
            MountError::Guard(message) => (MountFailureKind::Guard, message.clone()),
        };
        Self::Failed { failure, message }
    }
}

// === impl MountFailureKind ===

impl MountFailureKind {
    pub(super) fn error(self, message: String) -> MountError {
        match self {
            Self::Missing => match requirements::missing().into_iter().find(|missing| missing.what == message) {
                Some(missing) => MountError::Missing(missing),
                None => MountError::Sshfs(format!("`{message}` is missing")),
            },
            Self::KeyRefused => MountError::KeyRefused(message),
            Self::OtherHost => MountError::OtherHost(message),
            Self::Unreachable => MountError::Unreachable(message),
            Self::Unprotected => MountError::Unprotected(message),
            Self::Terms => MountError::Terms(message),
            Self::Sshfs => MountError::Sshfs(message),
            Self::Guard => MountError::Guard(message),
        }
    }
}
