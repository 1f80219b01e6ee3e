//! The mount point as a plain folder with a copy in it, for systems where nothing can be mounted.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

use super::mount_point::MountPointPath;

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
        let is_empty = remove_contents(mount_point).is_ok();
        // Not earlier: a folder that can't be written can't be emptied.
        let _ = fs::set_permissions(mount_point, Permissions::from_mode(0o555));
        if is_empty || Instant::now() > until {
            return;
        }
        let _ = fs::set_permissions(mount_point, Permissions::from_mode(0o700));
    }
}

fn remove_contents(folder: &Path) -> io::Result<()> {
    let found = fs::symlink_metadata(folder)?;
    if found.permissions().mode() & 0o700 != 0o700 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let (folders, files): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    // What can't be removed keeps nothing else there, and files go first: what was lent is in them.
    let files = files.iter().map(|file| fs::remove_file(file.path()));
    let folders = folders.iter().map(|folder| remove_folder(&folder.path()));
    let mut result = Ok(());
    for removed in files.chain(folders) {
        result = result.and(removed);
    }
    result
}

/// The system's own way is safe against folders that become links meanwhile. Folders that can't be read are rare.
fn remove_folder(path: &Path) -> io::Result<()> {
    fs::remove_dir_all(path).or_else(|_| {
        open_folders(path)?;
        fs::remove_dir_all(path)
    })
}

/// Lets us into folders that the agent closed.
fn open_folders(folder: &Path) -> io::Result<()> {
    if !fs::symlink_metadata(folder)?.is_dir() {
        return Ok(());
    }
    fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_folders(&entry.path())?;
        }
    }
    Ok(())
}
