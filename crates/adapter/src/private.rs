//! Files that are this user's alone, below a folder that is: written under a name that nobody can guess and that must not
//! exist, flushed, and put in the place of the old one as a whole; read only if they are plain files of this user.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use attache_protocol::env::Env;
use rustix::{fs::OFlags, process::geteuid};

/// Makes the folder if need be; one of another user is refused.
pub(crate) fn write(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    if fs::metadata(folder)?.uid() != geteuid().as_raw() {
        let what = format!("the folder {} belongs to another user", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    let draft = folder.join(format!(".{name}.{}", Env::system().uuid().simple()));
    let fill = || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(name))
    };
    fill().inspect_err(|_| _ = fs::remove_file(&draft))?;
    File::open(folder)?.sync_all()
}

/// None when it is a link, no plain file, somebody else's, or longer than `most`.
pub(crate) fn read(path: &Path, most: u64) -> Option<String> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(i32::try_from(flags.bits()).ok()?).open(path).ok()?;
    let found = file.metadata().ok()?;
    if !found.is_file() || found.uid() != geteuid().as_raw() || found.len() > most {
        return None;
    }
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    #[test]
    fn nothing_is_written_or_read_through_a_planted_link() {
        let home = tempfile::tempdir().unwrap();
        let (folder, victim) = (home.path().join("own"), home.path().join("victim"));
        fs::create_dir(&folder).unwrap();
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, folder.join("a")).unwrap();
        assert_eq!(read(&folder.join("a"), 100), None);
        write(&folder, "a", b"mine").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert_eq!(read(&folder.join("a"), 100).as_deref(), Some("mine"));
        assert_eq!(read(&folder.join("a"), 3), None);
        assert_eq!(fs::symlink_metadata(folder.join("a")).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "nothing is left behind");
        // Only the system's owner can give files away.
        if chown(folder.join("a"), Some(12_345), None).is_ok() {
            assert_eq!(read(&folder.join("a"), 100), None);
            chown(&folder, Some(12_345), None).unwrap();
            assert_eq!(write(&folder, "b", b"x").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
    }
}
