//! The empty folder under a mount: nobody writes into it, not even root, so that a mount that vanished swallows nothing.

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
    /// Its mode, 0555. That is enough for everybody but root.
    Mode,
    /// The file system's immutable flag.
    Immutable,
    /// An empty file system that is mounted read-only, where there is no such flag.
    ReadOnlyMount,
}

/// Makes an empty folder unwritable, and proves it.
pub(super) fn protect(folder: &Path) -> Result<MountPointProtection, String> {
    fs::set_permissions(folder, Permissions::from_mode(0o555)).map_err(|error| error.to_string())?;
    let done = if geteuid().is_root() { protect_from_root(folder)? } else { MountPointProtection::Mode };
    match File::create_new(folder.join(".probe")) {
        Ok(_) => Err("a file could still be made in it".to_owned()),
        Err(_) => Ok(done),
    }
}

fn protect_from_root(folder: &Path) -> Result<MountPointProtection, String> {
    match set_immutable(folder, IFlags::union) {
        Ok(()) => Ok(MountPointProtection::Immutable),
        Err(no_flag) => match mount("none", folder, "tmpfs", MountFlags::RDONLY, Some(c"size=4k,mode=555")) {
            Ok(()) => Ok(MountPointProtection::ReadOnlyMount),
            Err(no_mount) => Err(format!(
                "root writes into any folder; the immutable flag is refused ({no_flag}), and so is a read-only mount ({no_mount})"
            )),
        },
    }
}

/// Takes all of it away again. The folder must not be mounted over any more.
pub(super) fn release(folder: &Path) {
    if !geteuid().is_root() {
        return;
    }
    if super::table::mounted_at(folder).ok().flatten().as_deref() == Some("tmpfs") {
        let _ = unmount(folder, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
    // A file system without the flag has nothing to take away.
    let _ = set_immutable(folder, IFlags::difference);
}

fn set_immutable(folder: &Path, change: impl FnOnce(IFlags, IFlags) -> IFlags) -> io::Result<()> {
    let folder = File::open(folder)?;
    let flags = ioctl_getflags(&folder)?;
    Ok(ioctl_setflags(&folder, change(flags, IFlags::IMMUTABLE))?)
}
