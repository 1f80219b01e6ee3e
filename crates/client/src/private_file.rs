//! Private files and folders: nobody else reads them, and nobody else decides what is written where.
//!
//! A file is written under a name that nobody can guess, which must not exist (`O_CREAT | O_EXCL` follows no link either), is
//! flushed, and takes the place of the old one as a whole. A folder of another user is refused: its owner could put a link, or
//! another file, where ours should be.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

use attache_protocol::env::Env;

const PRIVATE: u32 = 0o600;

/// Makes a folder with mode 0700, or tightens a looser one. One of another user is refused.
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

/// Writes a file of mode 0600, in place of what was there. Readers and a crash see the old content or the new one.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    write_with(path, content, &Env::system())
}

/// The same with the caller's own source of names.
pub fn write_with(path: &Path, content: &[u8], env: &Env) -> io::Result<()> {
    put(path, content, PRIVATE, env, |draft| fs::rename(draft, path))
}

/// The same with another mode.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    put(path, content, mode, &Env::system(), |draft| fs::rename(draft, path))
}

/// Writes a file of mode 0600 that must not be there yet.
pub fn create(path: &Path, content: &[u8]) -> io::Result<()> {
    put(path, content, PRIVATE, &Env::system(), |draft| {
        fs::hard_link(draft, path)?;
        fs::remove_file(draft)
    })
}

fn put(
    path: &Path,
    content: &[u8],
    mode: u32,
    env: &Env,
    place: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    // Root, who can do everything anyway, also owns folders that all may use, such as /tmp.
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
    // Whatever the umask is.
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
    fn files_are_private_and_replaced_as_a_whole() {
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
        assert_eq!(fs::read_dir(&own).unwrap().count(), 2, "nothing is left behind");
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
        assert_eq!(fs::read_to_string(&link).unwrap(), "mine");
    }

    /// Only root can make a folder somebody else's.
    #[test]
    fn a_folder_of_somebody_else_is_refused() {
        let home = tempfile::tempdir().unwrap();
        if user() != 0 || std::os::unix::fs::chown(home.path(), Some(12_345), None).is_err() {
            return;
        }
        assert_eq!(write(&home.path().join("key"), b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(folder(home.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }
}
