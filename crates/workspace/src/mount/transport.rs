//! The ways to show a folder: stock sshfs, our own attache-fs, and a copy where nothing can be mounted. Each is a child
//! process of the guard, and ends with it.

use std::{
    hash::{Hash as _, Hasher as _},
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use attache_os::{machine, mounts};
use attache_protocol::wire::awcp::{ATTACHE_FS, SSHFS, SYNC};

use super::{
    LostChange, MissingProgram, MountError, MountRequest,
    attache_fs::{self, MountRecovery},
    copied,
    guard_protocol::{GuardInstructions, GuardReport, GuardRole},
    mount_point::MountPointPath,
    requirements,
    ssh_agent::SshAgent,
    sshfs,
};
use crate::{fs_client, sync};

/// How a folder is mounted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MountTransport {
    /// What every host understands.
    #[default]
    Sshfs,
    AttacheFs,
    /// Nothing is mounted: a copy, for systems without FUSE.
    Sync,
}

/// The process that serves a mount.
pub(super) struct MountProcess {
    pub(super) child: Child,
    transport: MountTransport,
    /// sshfs gets its key from here.
    identity: Option<SshAgent>,
}

/// How long a process can take to exit.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_millis(500);

// === impl MountTransport ===

impl MountTransport {
    /// In the order in which they are preferred.
    pub const ALL: [Self; 3] = [Self::AttacheFs, Self::Sshfs, Self::Sync];

    /// The name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sshfs => SSHFS,
            Self::AttacheFs => ATTACHE_FS,
            Self::Sync => SYNC,
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|transport| transport.name() == name)
    }

    /// What is missing on this machine to use it.
    pub fn missing(self) -> Vec<MissingProgram> {
        match self {
            Self::Sshfs => requirements::missing(),
            Self::AttacheFs => requirements::missing_for_fuse(),
            Self::Sync => Vec::new(),
        }
    }

    /// The kernel's name for its mounts, if it has any.
    const fn kind(self) -> Option<&'static str> {
        match self {
            Self::Sshfs => Some(sshfs::KIND),
            Self::AttacheFs => Some(attache_fs::KIND),
            Self::Sync => None,
        }
    }

    /// How long the folder can take to appear.
    pub(super) fn mount_timeout(self) -> Duration {
        match self {
            Self::Sshfs | Self::AttacheFs => Duration::from_secs(20),
            // Everything is copied first.
            Self::Sync => Duration::from_secs(1800),
        }
    }

    pub(super) fn start(self, at: &MountPointPath, request: &MountRequest) -> Result<MountProcess, MountError> {
        sshfs::check(request)?;
        let (child, identity) = match self {
            Self::Sshfs => {
                let identity = SshAgent::offer(&at.private(), &request.private_key)
                    .map_err(|error| MountError::Guard(format!("can't offer the lease's key: {error}")))?;
                (sshfs::start(at, request, identity.socket())?, Some(identity))
            }
            Self::AttacheFs | Self::Sync => (start_client(GuardRole::Serve, at, request)?, None),
        };
        Ok(MountProcess { child, transport: self, identity })
    }

    /// After the process that served a mount was killed: starts one that sends what it had acknowledged, if there is any.
    pub(super) fn replay(
        self,
        at: &MountPointPath,
        request: &MountRequest,
    ) -> Option<Result<MountProcess, MountError>> {
        let is_needed = self == Self::AttacheFs && at.journal().metadata().is_ok_and(|found| found.len() > 0);
        is_needed.then(|| {
            let child = start_client(GuardRole::Replay, at, request)?;
            Ok(MountProcess { child, transport: self, identity: None })
        })
    }
}

/// Whether one of our mounts is there.
pub(super) fn is_mounted(mount_point: &Path) -> bool {
    let kind = mounts::mounted_at(mount_point).ok().flatten();
    kind.is_some_and(|kind| MountTransport::ALL.into_iter().any(|transport| transport.kind() == Some(&kind)))
}

/// Starts this program once more, with the same arguments and another order. The order, with the key in it, goes through
/// its input, which stays open as long as we live.
fn start_client(role: GuardRole, at: &MountPointPath, request: &MountRequest) -> Result<Child, MountError> {
    // Prevents other processes from reading the memory of the process that has the key.
    machine::protect_memory();
    if let Some(missing) = request.transport.missing().into_iter().next() {
        return Err(MountError::Missing(missing));
    }
    let failed = |error: std::io::Error| MountError::Guard(format!("can't start the file system: {error}"));
    let order = GuardInstructions::for_role(role, at, request.clone())
        .write()
        .map_err(|error| MountError::Guard(error.to_string()))?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    // Only known folders are searched for the program that mounts.
    command
        .args(std::env::args_os().skip(1))
        .env("PATH", attache_os::program::SYSTEM_PATH)
        .env_remove("FUSERMOUNT_PATH");
    command.current_dir("/").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    if let Some(input) = &mut child.stdin {
        input.write_all(format!("{order}\n").as_bytes()).map_err(failed)?;
    }
    Ok(child)
}

/// The child's whole life: mounts, serves, and ends with its mount or its input. Returns the exit code.
pub(super) fn serve(
    role: GuardRole,
    at: &MountPointPath,
    request: &MountRequest,
    input: impl std::io::Read + Send + 'static,
) -> u8 {
    machine::protect_memory();
    let mount_point = at.mount_point();
    let mut name = std::hash::DefaultHasher::new();
    at.hash(&mut name);
    let recovery = MountRecovery { number: name.finish(), journal: at.journal() };
    let served = match role {
        GuardRole::Replay => fs_client::replay(request, &recovery),
        GuardRole::Guard | GuardRole::Serve if request.transport == MountTransport::Sync => {
            let served = sync::run(&mount_point, &at.private(), request, recovery.number, input);
            // If the guard is gone, nothing else does it.
            copied::purge(&mount_point);
            served
        }
        GuardRole::Guard | GuardRole::Serve => {
            fs_client::run(&mount_point, request, &recovery, input, || sshfs::detach_mount(&mount_point))
        }
    };
    let Err(error) = served else { return 0 };
    if let Ok(line) = serde_json::to_string(&GuardReport::failed(&error)) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    1
}

// === impl MountProcess ===

impl MountProcess {
    /// Why it exited on its own, from what it wrote.
    pub(super) fn explain(&self, output: &str) -> MountError {
        match self.transport {
            MountTransport::Sshfs => sshfs::explain(output),
            MountTransport::AttacheFs | MountTransport::Sync => {
                let report = output.lines().rev().find_map(|line| serde_json::from_str(line).ok());
                match report {
                    Some(GuardReport::Failed { failure, message }) => failure.error(message),
                    _ => MountError::Sshfs("its process exited without a message".to_owned()),
                }
            }
        }
    }

    /// How often the connection to the host broke and was restored.
    pub(super) fn outages(&self, output: &str) -> u32 {
        let count = match &self.identity {
            Some(identity) => identity.connections().saturating_sub(1),
            None => output.lines().filter(|line| *line == attache_fs::OUTAGE).count(),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// What it acknowledged to programs and didn't get to the host.
    pub(super) fn lost(&self, output: &str) -> Vec<LostChange> {
        let named = output.lines().filter_map(|line| line.strip_prefix(attache_fs::LOST));
        named.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Whether it said that the host has everything, or named what it hasn't. Only a copy can end otherwise unnoticed.
    pub(super) fn is_settled(&self, output: &str) -> bool {
        !self.is_copy() || output.lines().any(|line| line == sync::SETTLED)
    }

    /// How long it may take to exit once nothing is mounted: it may still have something to send.
    pub(super) const fn exit_timeout(&self) -> Duration {
        match self.transport {
            MountTransport::Sshfs => EXIT_TIMEOUT,
            MountTransport::AttacheFs | MountTransport::Sync => attache_fs::FLUSH_TIMEOUT.saturating_add(EXIT_TIMEOUT),
        }
    }

    /// How long the folder can take to appear.
    pub(super) fn mount_timeout(&self) -> Duration {
        self.transport.mount_timeout()
    }

    /// Whether the folder is there.
    pub(super) fn is_ready(&self, mount_point: &Path, output: &str) -> bool {
        match self.transport {
            MountTransport::Sync => output.lines().any(|line| line == sync::READY),
            MountTransport::Sshfs | MountTransport::AttacheFs => is_mounted(mount_point),
        }
    }

    /// Whether the folder is a copy: a part of the mount point's own file system.
    pub(super) fn is_copy(&self) -> bool {
        self.transport == MountTransport::Sync
    }

    pub(super) fn reap(&self) {
        if let Some(identity) = &self.identity {
            identity.reap();
        }
    }
}
