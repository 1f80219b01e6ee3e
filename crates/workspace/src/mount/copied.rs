//! The mount point as a plain folder with a copy in it, for systems where nothing can be mounted.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use attache_os::removal;

use super::{mount_point::MountPointPath, underneath};

/// How long programs that still write there can delay its removal.
const PURGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Opens an empty mount point for a copy, and remembers that its contents are ours to remove.
pub(super) fn prepare(at: &MountPointPath) -> io::Result<()> {
    let mount_point = at.mount_point();
    if fs::read_dir(&mount_point)?.next().is_some() {
        return Err(io::Error::other("it is not empty"));
    }
    File::create(at.copy_mark())?;
    fs::set_permissions(&mount_point, Permissions::from_mode(0o700))
}

/// Removes everything in the folder, and makes it unwritable. Follows no link.
pub(super) fn purge(mount_point: &Path) {
    let until = Instant::now() + PURGE_TIMEOUT;
    loop {
        let is_empty = removal::empty(mount_point).is_ok();
        // Not earlier: a folder that can't be written can't be emptied.
        let _ = fs::set_permissions(mount_point, Permissions::from_mode(0o555));
        if is_empty || Instant::now() > until {
            return;
        }
        let _ = fs::set_permissions(mount_point, Permissions::from_mode(0o700));
    }
}

/// Removes everything in the folder, and keeps everybody out, also root.
pub(super) fn close(mount_point: &Path) {
    let until = Instant::now() + PURGE_TIMEOUT;
    loop {
        purge(mount_point);
        let is_protected = underneath::protect(mount_point).is_ok();
        // A program may have written something in between.
        let is_empty = fs::read_dir(mount_point).is_ok_and(|mut entries| entries.next().is_none());
        if !is_protected || is_empty || Instant::now() > until {
            return;
        }
        underneath::release(mount_point);
    }
}
