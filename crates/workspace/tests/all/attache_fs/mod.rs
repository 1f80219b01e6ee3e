//! attache-fs: a mounted lease against a local folder as the model, edits on the host, outages, kills, and real programs.

mod coherence;
mod kills;
mod locks;
mod model;
mod programs;
mod write_back;

use attache_workspace::mount::MountTransport;

pub(crate) use self::kills::server_of;

use crate::ssh::{LeaseFixture, SshTestHost, TestMount};

/// A host, a lease and its mount.
pub(crate) struct MountedLease {
    pub(crate) mount: TestMount,
    pub(crate) lease: LeaseFixture,
    _host: SshTestHost,
}

/// Prints why a test is skipped here.
#[allow(clippy::print_stdout, reason = "a skip says why")]
pub(crate) fn cannot_mount() -> bool {
    let missing = MountTransport::AttacheFs.missing();
    if let Some(missing) = missing.first() {
        println!("skipped: {missing}");
    }
    !missing.is_empty()
}

impl MountedLease {
    pub(crate) async fn start() -> Self {
        Self::prepared(|_| {}).await
    }

    /// With a folder that is prepared before it is mounted.
    pub(crate) async fn prepared(prepare: impl FnOnce(&std::path::Path)) -> Self {
        let host = SshTestHost::start().await;
        let lease = host.lend("loc");
        prepare(&lease.folder);
        let mount = lease.mount_as(MountTransport::AttacheFs).await;
        Self { mount, lease, _host: host }
    }
}
