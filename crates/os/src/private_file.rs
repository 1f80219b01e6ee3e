//! Private files and folders: no other user can read them or redirect a write.
//!
//! A file is written under a random name that must not exist (`O_CREAT | O_EXCL` doesn't follow links either), is
//! flushed, and atomically replaces the old one. A folder of another user is refused: its owner could put a link or
//! another file in place of ours.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use attache_protocol::env::Env;
use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::small_file;

const PRIVATE: u32 = 0o600;

/// Creates a folder with mode 0700, or restricts the permissions of an existing one. A folder of another user is
/// refused.
pub fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let metadata = fs::metadata(path)?;
    if metadata.uid() != user() {
        return Err(foreign(path));
    }
    if metadata.mode() & 0o077 != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Writes a file with mode 0600, replacing the old one. Readers and a crash see the old or the new content.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, content, &Env::system())
}

/// Like [`write`], with the caller's own source of random names.
pub fn write_with(path: &Path, content: &[u8], env: &Env) -> io::Result<()> {
    put(path, content, PRIVATE, env, |draft| fs::rename(draft, path))
}

/// Like [`write`], with another mode.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    put(path, content, mode, &Env::system(), |draft| fs::rename(draft, path))
}

/// Writes a file with mode 0600 that must not exist yet.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, content, PRIVATE, &Env::system(), |draft| move_new(draft, path))
}

/// Moves a finished file to a path that must not exist yet, on the same file system.
pub fn move_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Some file systems have no hard links.
        Err(_) => Ok(renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?),
    }
}

/// Opens a file for writing without truncating it. A missing file is created with mode 0600.
pub fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(PRIVATE).open(path)
}

/// Reads a private file. `None` if it is a link, isn't a regular file, belongs to another user, or is longer than
/// `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> Option<String> {
    let file = small_file::open(path, max_bytes).ok()?;
    if file.metadata().ok()?.uid() != user() {
        return None;
    }
    let mut text = String::new();
    file.take(max_bytes).read_to_string(&mut text).ok()?;
    Some(text)
}

fn put(
    path: &Path,
    content: &[u8],
    mode: u32,
    env: &Env,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // Root also owns folders that everyone can use, such as /tmp, and can do anything anyway.
    if ![user(), 0].contains(&fs::metadata(parent)?.uid()) {
        return Err(foreign(parent));
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = parent.join(format!(".{name}.{}", env.uuid().simple()));
    let written = fill(&draft, content, mode).and_then(|()| place(&draft));
    if let Err(error) = written {
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    File::open(parent)?.sync_all()
}

fn fill(draft: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(draft)?;
    // Regardless of the umask.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    file.sync_all()
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn foreign(path: &Path) -> io::Error {
    let what = format!("the folder {} belongs to another user", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn files_are_private_and_replaced_atomically() {
        let home = tempfile::tempdir().unwrap();
        let own = home.path().join("a/b");
        folder(&own).unwrap();
        fs::set_permissions(&own, Permissions::from_mode(0o755)).unwrap();
        folder(&own).unwrap();
        assert_eq!(mode(&own), 0o700);
        let file = own.join("secret");
        for content in ["one", "two"] {
            write(&file, content.as_bytes()).unwrap();
            assert_eq!((fs::read_to_string(&file).unwrap().as_str(), mode(&file)), (content, 0o600));
        }
        assert_eq!(create(&file, b"three").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        create(&own.join("new"), b"three").unwrap();
        assert_eq!(fs::read_dir(&own).unwrap().count(), 2, "no temporary file remains");
        assert_eq!(move_new(&own.join("new"), &file).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        move_new(&own.join("new"), &own.join("moved")).unwrap();
        assert_eq!((own.join("new").exists(), mode(&own.join("moved"))), (false, 0o600));
    }

    #[test]
    fn a_link_is_replaced_and_never_followed() {
        let home = tempfile::tempdir().unwrap();
        let (victim, link) = (home.path().join("victim"), home.path().join("ready"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &link).unwrap();
        assert_eq!(create(&link, b"x").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        write(&link, b"mine").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(read(&link, 100).as_deref(), Some("mine"));
        assert_eq!(read(&link, 3), None);
        symlink(&victim, home.path().join("planted")).unwrap();
        assert_eq!(read(&home.path().join("planted"), 100), None);
    }

    /// Only root can give a folder to another user.
    #[test]
    fn a_folder_of_another_user_is_refused() {
        let home = tempfile::tempdir().unwrap();
        if user() != 0 || std::os::unix::fs::chown(home.path(), Some(12_345), None).is_err() {
            return;
        }
        assert_eq!(write(&home.path().join("key"), b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(folder(home.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
