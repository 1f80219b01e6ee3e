//! Where there is no client of attache-fs: nothing is mounted. [`crate::mount::missing`] says so before anyone tries.

use std::{io::Read, path::Path};

use crate::mount::{MountError, MountRequest, attache_fs::MountRecovery, missing};

pub(crate) fn run(
    _at: &Path,
    _request: &MountRequest,
    recovery: &MountRecovery,
    _input: impl Read + Send + 'static,
    _unmount: impl FnOnce(),
) -> Result<(), MountError> {
    refuse(recovery)
}

pub(crate) fn replay(_request: &MountRequest, recovery: &MountRecovery) -> Result<(), MountError> {
    refuse(recovery)
}

fn refuse(MountRecovery { number, journal }: &MountRecovery) -> Result<(), MountError> {
    tracing::debug!(number, journal = %journal.display(), "no client of attache-fs");
    missing().into_iter().next().map_or(Ok(()), |missing| Err(MountError::Missing(missing)))
}
