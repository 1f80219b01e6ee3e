//! Removes folders that somebody else has filled: of any depth, with few open files and little stack, and without following a
//! link. The standard library's way needs both for each level.

use std::{
    collections::BTreeSet,
    ffi::{CStr, CString},
    fs, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::Path,
};

use rustix::{
    fs::{AtFlags, Dir, OFlags, renameat, unlinkat},
    io::Errno,
};

use crate::path_handle::{self, PathHandle, attributes_in};

const OPEN: u32 = 0o700;

/// Removes a folder and everything in it, or the file or link that is there instead.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path)?.is_dir() {
        true => empty(path).and_then(|()| fs::remove_dir(path)),
        false => fs::remove_file(path),
    }
}

/// Removes everything in a folder, files first. What can't be removed keeps nothing else there; the first reason is returned.
pub fn empty(folder: &Path) -> io::Result<()> {
    let root = open(&find(folder)?)?;
    let (mut result, mut kept, mut moved) = (Ok(()), BTreeSet::new(), 0);
    // As long as something was moved up, and no longer: somebody may be filling it at the same time.
    let mut has_moved = true;
    loop {
        let mut names = names(&root)?;
        names.retain(|name| !kept.contains(name));
        if names.is_empty() {
            return result;
        }
        if !has_moved {
            return result.and(Err(Errno::NOTEMPTY.into()));
        }
        let moved_before = moved;
        names.sort_by_key(|name| attributes_in(&root, &**name).is_ok_and(|found| found.is_folder()));
        for name in names {
            if let Err(error) = remove_entry(&root, &name, &mut moved) {
                kept.insert(name);
                result = result.and(Err(error.into()));
            }
        }
        has_moved = moved > moved_before;
    }
}

fn find(folder: &Path) -> io::Result<PathHandle> {
    let (Some(above), Some(name)) = (folder.parent(), folder.file_name()) else { return Err(Errno::INVAL.into()) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    Ok(PathHandle::find(path_handle::root(above)?, name.as_bytes())?)
}

/// Somebody may have closed it.
fn open(folder: &PathHandle) -> Result<OwnedFd, Errno> {
    if !folder.attributes.is_folder() {
        return Err(Errno::NOTDIR);
    }
    if folder.attributes.mode & OPEN != OPEN {
        folder.set_mode(OPEN)?;
    }
    folder.reopen(OFlags::RDONLY | OFlags::DIRECTORY)
}

fn names(folder: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let names = Dir::read_from(folder)?.map(|entry| Ok(entry?.file_name().to_owned()));
    let names = names.collect::<Result<Vec<_>, Errno>>()?;
    Ok(names.into_iter().filter(|name| !matches!(name.to_bytes(), b"." | b"..")).collect())
}

/// What is in a folder's folders is moved up, so that nothing is ever deeper than that.
fn remove_entry(root: &OwnedFd, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    if remove_shallow(root, name)? {
        return Ok(());
    }
    let folder = open(&PathHandle::find(root, name.to_bytes())?)?;
    for child in names(&folder)? {
        if remove_shallow(&folder, &child)? {
            continue;
        }
        // A folder must be writable to be moved.
        open(&PathHandle::find(&folder, child.to_bytes())?)?;
        let up = loop {
            *moved += 1;
            let up = format!("attache-removed-{moved}");
            if attributes_in(root, up.as_str()) == Err(Errno::NOENT) {
                break up;
            }
        };
        renameat(&folder, &*child, root, up.as_str())?;
    }
    if remove_shallow(root, name)? { Ok(()) } else { Err(Errno::NOTEMPTY) }
}

/// Removes a file, a link or an empty folder. `false` if it is a folder with something in it.
fn remove_shallow(folder: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    let flags = match attributes_in(folder, name) {
        Ok(found) if found.is_folder() => AtFlags::REMOVEDIR,
        _ => AtFlags::empty(),
    };
    match unlinkat(folder, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use rustix::fs::{Mode, mkdirat, openat};

    use super::*;

    /// As an agent would, who changes into each folder that it makes.
    fn nest(below: &Path, levels: usize) {
        let mut folder = path_handle::root(below).unwrap();
        for _ in 0..levels {
            mkdirat(&folder, "d", Mode::RWXU).unwrap();
            folder = openat(&folder, "d", OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn no_depth_is_too_deep() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("other")).unwrap();
        nest(&tree, 40_000);
        nest(&tree.join("other"), 40_000);
        fs::write(tree.join("attache-removed-1"), "taken").unwrap();
        remove(&tree).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir_all(at("tree/deep")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/file"), "stays").unwrap();
        for link in ["tree/link", "tree/deep/link", "alone"] {
            symlink(at("outside"), at(link)).unwrap();
        }
        remove(&at("tree")).unwrap();
        remove(&at("alone")).unwrap();
        assert!(!at("tree").exists() && at("alone").symlink_metadata().is_err());
        assert_eq!(fs::read_to_string(at("outside/file")).unwrap(), "stays");
        // Nor is a link emptied.
        symlink(at("outside"), at("alone")).unwrap();
        assert!(empty(&at("alone")).is_err());
        assert!(at("outside/file").exists());
    }

    #[test]
    fn closed_folders_are_opened() {
        let home = tempfile::tempdir().unwrap();
        let tree = home.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::write(tree.join("a/b/c/file"), "").unwrap();
        for closed in ["a/b/c", "a/b", "a", ""] {
            fs::set_permissions(tree.join(closed), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove(&tree).unwrap();
        assert!(!tree.exists());
    }
}
