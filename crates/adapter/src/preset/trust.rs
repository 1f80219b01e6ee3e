//! Decides whether detection may start a program: one that other users can write to isn't trusted.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use rustix::process::{getegid, geteuid};

/// Why a program isn't started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UntrustedProgram {
    #[error("{} belongs to another user", .0.display())]
    Owner(PathBuf),
    #[error("other users can write to {} (mode {mode:03o})", path.display())]
    Writable { path: PathBuf, mode: u32 },
    #[error("can't inspect {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
}

const STICKY: u32 = 0o1000;

/// Checks the file behind all symlinks, the folders above it, and the folder of the first symlink.
pub(super) fn check(program: &Path) -> Result<(), UntrustedProgram> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| UntrustedProgram::Unreadable { path, reason: error.to_string() }
    };
    let file = std::fs::canonicalize(program).map_err(unreadable(program))?;
    let metadata = std::fs::metadata(&file).map_err(unreadable(&file))?;
    if ![0, geteuid().as_raw()].contains(&metadata.uid()) {
        return Err(UntrustedProgram::Owner(file));
    }
    let mode = metadata.mode() & 0o7777;
    // Many systems give each user a private group, which isn't anyone else.
    let of_others = mode & 0o002 != 0 || (mode & 0o020 != 0 && ![0, getegid().as_raw()].contains(&metadata.gid()));
    if of_others {
        return Err(UntrustedProgram::Writable { path: file, mode: mode & 0o777 });
    }
    for folder in file.ancestors().skip(1).chain(program.parent()) {
        let mode = std::fs::metadata(folder).map_err(unreadable(folder))?.mode() & 0o7777;
        // In a sticky folder like /tmp, users can't replace each other's files.
        if mode & 0o002 != 0 && mode & STICKY == 0 {
            return Err(UntrustedProgram::Writable { path: folder.to_owned(), mode: mode & 0o777 });
        }
    }
    Ok(())
}

// === impl UntrustedProgram ===

impl UntrustedProgram {
    /// How to fix it.
    pub fn fix(&self) -> String {
        match self {
            Self::Owner(path) => format!("Install it for yourself, or have an administrator own {}.", path.display()),
            Self::Writable { path, .. } => format!("chmod go-w {}", path.display()),
            Self::Unreadable { path, .. } => format!("Check the owner and mode of {}.", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
    };

    use super::*;

    fn chmod(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_that_other_users_can_change_is_not_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (bin, lib) = (root.join("bin"), root.join("lib"));
        fs::create_dir(&bin).unwrap();
        fs::create_dir(&lib).unwrap();
        let (link, file) = (bin.join("agent"), lib.join("agent.js"));
        fs::write(&file, "").unwrap();
        symlink(&file, &link).unwrap();
        chmod(&file, 0o755);
        assert_eq!(check(&link), Ok(()));

        chmod(&file, 0o777);
        let writable = UntrustedProgram::Writable { path: file.clone(), mode: 0o777 };
        assert_eq!(check(&link), Err(writable.clone()));
        assert_eq!(writable.fix(), format!("chmod go-w {}", file.display()));
        chmod(&file, 0o755);

        chmod(&lib, 0o777);
        assert_eq!(check(&link), Err(UntrustedProgram::Writable { path: lib.clone(), mode: 0o777 }));
        chmod(&lib, 0o1777);
        assert_eq!(check(&link), Ok(()));

        chmod(&bin, 0o777);
        assert_eq!(check(&link), Err(UntrustedProgram::Writable { path: bin, mode: 0o777 }));
        assert!(matches!(check(&root.join("nothing")), Err(UntrustedProgram::Unreadable { .. })));
    }
}
