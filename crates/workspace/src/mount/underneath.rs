//! The empty folder under a mount: nothing can write to it, not even root, so that writes don't vanish when the mount
//! does.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use attache_os::mounts;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

/// What keeps writers out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPointProtection {
    /// Its mode, 0555, which is enough for everyone but root.
    Mode,
    /// The file system's immutable flag.
    Immutable,
    /// Nothing: the mount point itself has a copy of the folder.
    Copy,
    /// An empty file system mounted read-only, where the flag isn't supported.
    ReadOnlyMount,
}

/// Makes an empty folder unwritable, and verifies it.
pub(super) fn protect(folder: &Path) -> Result<MountPointProtection, String> {
    fs::set_permissions(folder, Permissions::from_mode(0o555)).map_err(|error| error.to_string())?;
    let done = if geteuid().is_root() { protect_from_root(folder)? } else { MountPointProtection::Mode };
    match File::create_new(folder.join(".probe")) {
        Ok(_) => Err("a file could still be created in it".to_owned()),
        Err(_) => Ok(done),
    }
}

fn protect_from_root(folder: &Path) -> Result<MountPointProtection, String> {
    match mounts::set_immutable(folder) {
        Ok(()) => Ok(MountPointProtection::Immutable),
        Err(no_flag) => match mounts::cover(folder) {
            Ok(()) => Ok(MountPointProtection::ReadOnlyMount),
            Err(no_mount) => Err(format!(
                "root can write to any folder; the immutable flag was refused ({no_flag}), and so was a read-only mount ({no_mount})"
            )),
        },
    }
}

/// Removes the protection. The folder must not be mounted over any more.
pub(super) fn release(folder: &Path) {
    if !geteuid().is_root() {
        return;
    }
    mounts::uncover(folder);
    // A file system without the flag has nothing to clear.
    let _ = mounts::clear_immutable(folder);
}
