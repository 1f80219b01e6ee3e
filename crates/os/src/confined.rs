//! Files below one folder: no path or link leads out of it.

use std::{
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::system::beneath::{self, BeneathFile};

/// A folder whose paths can't lead out of it.
#[derive(Debug)]
pub struct ConfinedFolder {
    root: PathBuf,
    folder: OwnedFd,
    /// Not served although they are below the folder, except for one folder in them.
    hidden: Vec<PathBuf>,
    shown: Option<PathBuf>,
}

/// What a path below a folder can lead through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Confinement {
    /// Symbolic links that stay inside.
    LinksInside,
    /// No link, not even one that stays inside.
    NoLinks,
    /// No link and no mount: what is mounted inside may be another disk, `/proc`, or the mount of another lease.
    OneFileSystem,
}

/// Opens a file beneath a folder for reading. Follows no symbolic link, not even one that stays inside.
pub fn open_beneath(folder: impl AsFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    Ok(beneath::open(folder, path, flags, Mode::empty(), Confinement::NoLinks)?.fd.into())
}

/// The largest file that a host can read at once.
const MAX_FILE: u64 = 16 * 1024 * 1024;

// === impl ConfinedFolder ===

impl ConfinedFolder {
    pub fn open(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        Ok(Self { folder: beneath::folder(&root)?, root, hidden: Vec::new(), shown: None })
    }

    /// Serves nothing from these folders below it, except for what is below `shown`.
    #[must_use]
    pub fn hiding(mut self, hidden: &[PathBuf], shown: Option<PathBuf>) -> Self {
        self.hidden = hidden.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone())).collect();
        // The folder itself may be in one of them.
        self.hidden.retain(|path| *path == self.root || !self.root.starts_with(path));
        self.shown = shown;
        self
    }

    pub fn read(&self, path: &Path) -> io::Result<String> {
        let mut file = File::from(self.resolve(&self.relative(path)?)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file"));
        }
        let mut text = String::new();
        let count = (&mut file).take(MAX_FILE + 1).read_to_string(&mut text)?;
        if count as u64 > MAX_FILE {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {MAX_FILE} bytes")));
        }
        Ok(text)
    }

    fn resolve(&self, path: &Path) -> io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let found = beneath::open(&self.folder, path, flags, Mode::empty(), Confinement::LinksInside);
        let found = found.map_err(|errno| match errno {
            // A symbolic link led out of the folder, or to one of the kernel's magic links.
            Errno::XDEV | Errno::LOOP => outside(),
            errno => errno.into(),
        })?;
        self.check_hidden(&found)?;
        Ok(found.fd)
    }

    fn check_hidden(&self, found: &BeneathFile) -> io::Result<()> {
        if self.hidden.is_empty() {
            return Ok(());
        }
        let real = found.real_path(&self.root)?;
        let is_shown = self.shown.as_ref().is_some_and(|shown| real.starts_with(shown));
        match !is_shown && self.hidden.iter().any(|folder| real.starts_with(folder)) {
            true => Err(outside()),
            false => Ok(()),
        }
    }

    /// The path relative to the root. `..` is refused rather than resolved: hosts don't need it.
    fn relative(&self, path: &Path) -> io::Result<PathBuf> {
        let below = if path.is_absolute() { path.strip_prefix(&self.root).map_err(|_| outside())? } else { path };
        if below.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(outside());
        }
        Ok(below.components().filter(|part| matches!(part, Component::Normal(_))).collect())
    }
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "it is outside the run's folder")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_path_leads_out() {
        let home = tempfile::tempdir().unwrap();
        let (inside, twin) = (home.path().join("ws"), home.path().join("ws-twin"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&twin).unwrap();
        std::fs::write(twin.join("secret"), "secret").unwrap();
        symlink(&twin, inside.join("link")).unwrap();
        symlink(twin.join("secret"), inside.join("file-link")).unwrap();
        symlink("/proc/self/root", inside.join("magic")).unwrap();
        let beneath = ConfinedFolder::open(&inside).unwrap();
        let hostile = [
            twin.join("secret"),
            "../ws-twin/secret".into(),
            inside.join("../ws-twin/secret"),
            "link/secret".into(),
            "file-link".into(),
            "magic/etc/passwd".into(),
            "/etc/passwd".into(),
            "/".into(),
        ];
        for path in hostile {
            assert!(beneath.read(&path).is_err(), "{path:?} was read");
        }
    }

    #[test]
    fn what_is_hidden_is_not_served() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path().canonicalize().unwrap();
        for folder in ["keys", "sent/mine", "sent/theirs"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
            std::fs::write(root.join(folder).join("file"), "secret").unwrap();
        }
        symlink("keys/file", root.join("link")).unwrap();
        symlink("sent", root.join("way")).unwrap();
        let hidden = [root.join("keys"), root.join("sent")];
        let beneath = ConfinedFolder::open(&root).unwrap().hiding(&hidden, Some(root.join("sent/mine")));
        for path in ["keys/file", "link", "sent/theirs/file", "way/theirs/file"] {
            assert!(beneath.read(Path::new(path)).is_err(), "{path} was read");
        }
        assert_eq!(beneath.read(Path::new("way/mine/file")).unwrap(), "secret");
        let mine = ConfinedFolder::open(&root.join("sent/mine")).unwrap().hiding(&hidden, None);
        assert_eq!(mine.read(Path::new("file")).unwrap(), "secret");
    }

    #[test]
    fn files_below_the_folder_are_read() {
        let home = tempfile::tempdir().unwrap();
        let beneath = ConfinedFolder::open(home.path()).unwrap();
        let root = home.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/c.txt"), "one").unwrap();
        assert_eq!(beneath.read(&root.join("a/b/c.txt")).unwrap(), "one");
        assert_eq!(beneath.read(Path::new("./a/b/c.txt")).unwrap(), "one");
        assert!(beneath.read(Path::new("a")).is_err());
    }
}
