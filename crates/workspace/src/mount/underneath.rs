//! The empty folder under a mount: nothing can write to it, not even root, so that writes don't vanish when the mount
//! does.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use rustix::{
    fs::{IFlags, ioctl_getflags, ioctl_setflags},
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::geteuid,
};
use serde::{Deserialize, Serialize};

/// What keeps writers out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MountPointProtection {
    /// Its mode, 0555, which is enough for everyone but root.
    Mode,
    /// The file system's immutable flag.
    Immutable,
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
    match set_immutable(folder, IFlags::union) {
        Ok(()) => Ok(MountPointProtection::Immutable),
        Err(no_flag) => match mount("none", folder, "tmpfs", MountFlags::RDONLY, Some(c"size=4k,mode=555")) {
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
    if super::table::mounted_at(folder).ok().flatten().as_deref() == Some("tmpfs") {
        let _ = unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    // A file system without the flag has nothing to clear.
    let _ = set_immutable(folder, IFlags::difference);
}

fn set_immutable(folder: &Path, change: impl FnOnce(IFlags, IFlags) -> IFlags) -> io::Result<()> {
    let folder = File::open(folder)?;
    let flags = ioctl_getflags(&folder)?;
    Ok(ioctl_setflags(&folder, change(flags, IFlags::IMMUTABLE))?)
}
