//! Decides whether a program may be started: one that other users can change isn't trusted.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{self, Path, PathBuf},
};

use rustix::process::{getegid, geteuid};

use crate::program;

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

/// Checks the file, and every folder on the way to it, links followed: whoever owns one of them, or can write to it, decides
/// what is started.
pub fn check(program: &Path) -> Result<(), UntrustedProgram> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| UntrustedProgram::Unreadable { path, reason: error.to_string() }
    };
    let program = path::absolute(program).map_err(unreadable(program))?;
    let way = program::way(&program);
    let way = way.ok_or_else(|| unreadable(&program)(io::Error::other("there are too many links on the way")))?;
    let mut owners = Vec::with_capacity(way.len());
    let mut is_shared = false;
    for at in way {
        let found = fs::symlink_metadata(&at).map_err(unreadable(&at))?;
        if found.is_symlink() {
            // Nobody can change a link, but where others have files, its owner can replace it.
            if is_shared {
                owners.push((at, found.uid()));
            }
            continue;
        }
        let mode = found.mode() & 0o7777;
        let is_writable = mode & 0o002 != 0 || (mode & 0o020 != 0 && !is_own_group(found.gid()));
        // In a sticky folder like /tmp, users can't replace each other's files.
        is_shared = is_writable && found.is_dir() && mode & STICKY != 0;
        if is_writable && !is_shared {
            return Err(UntrustedProgram::Writable { path: at, mode: mode & 0o777 });
        }
        owners.push((at, found.uid()));
    }
    match owners.into_iter().find(|(_, owner)| !is_trusted_owner(*owner)) {
        Some((path, _)) => Err(UntrustedProgram::Owner(path)),
        None => Ok(()),
    }
}

fn is_trusted_owner(owner: u32) -> bool {
    [0, geteuid().as_raw()].contains(&owner) || (is_in_user_namespace() && owner == overflow_user())
}

/// There, everything that belongs to users outside seems to belong to one that isn't known, the system's programs included.
fn is_in_user_namespace() -> bool {
    const EVERYBODY: [&str; 3] = ["0", "0", "4294967295"];
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !map.split_whitespace().eq(EVERYBODY))
}

fn overflow_user() -> u32 {
    const USUAL: u32 = 65534;
    let set = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
    set.and_then(|set| set.trim().parse().ok()).unwrap_or(USUAL)
}

/// Whether a group has nobody else in it: root's, the private one that many systems give each user, and one without other
/// members, as `staff` usually is, to which Debian gives `/usr/local/bin`.
fn is_own_group(group: u32) -> bool {
    let user = geteuid().as_raw();
    if group == 0 || (group == user && group == getegid().as_raw()) {
        return true;
    }
    // Elsewhere, the files don't have all members.
    let files =
        cfg!(target_os = "linux").then(|| (fs::read_to_string("/etc/group"), fs::read_to_string("/etc/passwd")));
    matches!(files, Some((Ok(groups), Ok(users))) if has_no_others(group, user, &groups, &users))
}

/// By the text of `/etc/group` and `/etc/passwd`. A group that isn't listed may have any members.
fn has_no_others(group: u32, user: u32, groups: &str, users: &str) -> bool {
    let number = |field: Option<&&str>| field.and_then(|field| field.parse::<u32>().ok());
    let mut ours = Vec::new();
    for line in users.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if [Some(0), Some(user)].contains(&number(fields.get(2))) {
            ours.push(fields[0]);
        } else if number(fields.get(3)) == Some(group) {
            return false;
        }
    }
    let mut listed = groups.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let mut listed = listed.by_ref().filter(|fields| number(fields.get(2)) == Some(group)).peekable();
    listed.peek().is_some()
        && listed.all(|fields| {
            let members = fields.get(3).copied().unwrap_or_default();
            members.split(',').map(str::trim).all(|member| member.is_empty() || ours.contains(&member))
        })
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
        os::unix::fs::{PermissionsExt as _, chown, lchown, symlink},
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

    #[test]
    fn a_program_on_another_users_way_is_not_trusted() {
        const OTHER: u32 = 54_321;
        if !geteuid().is_root() {
            println!("skipped: only root can give files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (bin, shared, lib) = (root.join("bin"), root.join("shared"), root.join("lib"));
        for made in [&bin, &shared, &lib] {
            fs::create_dir(made).unwrap();
        }
        let (link, middle, file) = (bin.join("git"), shared.join("git"), lib.join("git"));
        fs::write(&file, "").unwrap();
        symlink(&middle, &link).unwrap();
        symlink("../lib/git", &middle).unwrap();
        chmod(&file, 0o755);
        assert_eq!(check(&link), Ok(()));
        for path in [&root, &bin, &shared, &lib, &file] {
            chown(path, Some(OTHER), None).unwrap();
            assert_eq!(check(&link), Err(UntrustedProgram::Owner(path.clone())));
            chown(path, Some(0), Some(OTHER)).unwrap();
            assert_eq!(check(&link), Ok(()), "{}", path.display());
            chmod(path, 0o775);
            assert_eq!(check(&link), Err(UntrustedProgram::Writable { path: path.clone(), mode: 0o775 }));
            chmod(path, 0o755);
            chown(path, Some(0), Some(0)).unwrap();
        }
        // A link in a folder where others have files, too.
        chmod(&shared, 0o1777);
        assert_eq!(check(&link), Ok(()));
        lchown(&middle, Some(OTHER), None).unwrap();
        assert_eq!(check(&link), Err(UntrustedProgram::Owner(middle)));
    }

    #[test]
    fn a_group_without_others_is_ones_own() {
        let users =
            "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/sh\nbob:x:1001:100::/home/bob:/bin/sh\n";
        let groups = "root:x:0:\nstaff:x:50:\nusers:x:100:\nann:x:1000:\ndev:x:7:ann,root\nall:x:8:ann,bob\n\
                      twice:x:9:\nagain:x:9:bob\n+::::\n";
        let own = |group| has_no_others(group, 1000, groups, users);
        assert_eq!([50, 1000, 7].map(own), [true; 3]);
        // bob's primary group, one with bob in it, one of two names, and one that isn't listed.
        assert_eq!([100, 8, 9, 4000].map(own), [false; 4]);
        assert!(!has_no_others(1000, 1001, groups, users));
    }
}
