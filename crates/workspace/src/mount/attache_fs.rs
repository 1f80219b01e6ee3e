//! What the guard and the process that serves attache-fs agree on.

use std::{path::PathBuf, time::Duration};

/// The kernel's name for these mounts.
pub(crate) const KIND: &str = "fuse.attache-fs";
/// A line on standard error for each connection that was lost and restored.
pub(crate) const OUTAGE: &str = "attache-fs: connected again";
/// Before each change that was acknowledged and didn't reach the host, at the end.
pub(crate) const LOST: &str = "attache-fs: lost ";
/// The mount option with which nothing is acknowledged that the host doesn't have.
pub(crate) const SYNC: &str = "sync";
/// How long the end of a mount waits for what was acknowledged.
pub(crate) const FLUSH_TIMEOUT: Duration = Duration::from_secs(20);

/// What stays of a mount if its process is killed.
#[derive(Debug, Clone)]
pub(crate) struct MountRecovery {
    /// The host knows the mount by it.
    pub(crate) number: u64,
    /// The file with what isn't confirmed.
    pub(crate) journal: PathBuf,
}
