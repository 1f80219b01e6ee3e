//! Where the programs are that we start ourselves, such as git. `PATH` doesn't decide it: folders in it may be ones in which
//! somebody else works (a Python environment, `node_modules/.bin`), and what they put there would run as this user.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::program_trust;

/// The only folders searched for programs of the system, and what such a program gets as its `PATH`.
pub const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin:/run/wrappers/bin:\
                               /run/current-system/sw/bin:/nix/var/nix/profiles/default/bin";

/// As many links as the kernel follows on the way to a file.
const MAX_LINKS: usize = 40;
/// Where nothing is.
const NOWHERE: &str = "/nonexistent";

/// A program of the system, unless others can change it.
pub fn find(name: &str) -> Option<PathBuf> {
    let is_sound = |program: &PathBuf| is_program(program) && is_trusted(program);
    SYSTEM_PATH.split(':').map(|folder| Path::new(folder).join(name)).find(is_sound)
}

/// The same for a command. Starting one that isn't installed fails as with a name.
pub fn path(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| Path::new(NOWHERE).join(name))
}

/// A program that a person named, from their search path: not from its relative folders, from those in which runs work, or
/// if others can change it. Otherwise as a shell would find it.
pub fn find_in(search_path: &OsStr, name: &OsStr, worked_in: &[PathBuf]) -> Option<PathBuf> {
    let found = sound_folders(search_path, worked_in).map(|folder| folder.join(name));
    let usable = found.filter(|program| program.is_file() && !leads_into(program, worked_in));
    let usable: Vec<PathBuf> = usable.filter(|program| is_trusted(program)).collect();
    // The reason why the first one can't be started is the better answer than that there is none.
    usable.iter().find(|program| is_program(program)).or(usable.first()).cloned()
}

/// The absolute folders of a search path that aren't in one of these.
pub fn sound_folders(search_path: &OsStr, worked_in: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
    env::split_paths(search_path).filter(|folder| folder.is_absolute() && !leads_into(folder, worked_in))
}

/// Whether a path is in one of these folders, as it is written or anywhere on its way: whoever can write there decides where
/// it leads, and may change that once it was looked at.
pub fn leads_into(path: &Path, folders: &[PathBuf]) -> bool {
    folders.iter().any(|folder| {
        let real = folder.canonicalize().unwrap_or_else(|_| folder.clone());
        path.starts_with(folder) || passes_through(path, &real)
    })
}

fn passes_through(path: &Path, folder: &Path) -> bool {
    way(path).is_none_or(|way| way.iter().any(|at| at.starts_with(folder)))
}

/// Every folder, link and file on the way to an absolute path, as the kernel walks it, link by link. `None` if it gives up.
pub fn way(path: &Path) -> Option<Vec<PathBuf>> {
    let mut pending: Vec<OsString> = path.iter().rev().map(OsString::from).collect();
    let (mut at, mut links, mut way) = (PathBuf::from("/"), 0, vec![PathBuf::from("/")]);
    while let Some(name) = pending.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        at.push(name);
        way.push(at.clone());
        if let Ok(target) = at.read_link() {
            links += 1;
            if links > MAX_LINKS {
                return None;
            }
            at.pop();
            pending.extend(target.iter().rev().map(OsString::from));
        }
    }
    Some(way)
}

fn is_trusted(program: &Path) -> bool {
    program_trust::check(program).is_ok()
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn program(path: &Path, mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_program_is_not_found_where_runs_work() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let work = root.join("work");
        for place in ["work/.venv/bin/tool", "work/only", "open/tool", "own/tool"] {
            program(&root.join(place), 0o755);
        }
        program(&root.join("open/tool"), 0o777);
        program(&root.join("late/only"), 0o644);
        fs::create_dir(root.join("linked")).unwrap();
        // A link to a folder in it, a link in it to elsewhere, and a program that is a link into it.
        symlink(work.join(".venv/bin"), root.join("way-in")).unwrap();
        symlink(root.join("own"), work.join("way-out")).unwrap();
        symlink(work.join(".venv/bin/tool"), root.join("linked/tool")).unwrap();
        let folders =
            ["", ".", "./own", "work/.venv/bin", "work/absent/../way-out", "way-in", "work/way-out", "linked"];
        let absolute = folders.iter().map(|folder| match folder.starts_with(['w', 'l']) {
            true => root.join(folder),
            false => PathBuf::from(folder),
        });
        let search = env::join_paths(absolute.chain([root.join("open"), root.join("own"), root.join("late")])).unwrap();
        let find = |name: &str| find_in(&search, name.as_ref(), std::slice::from_ref(&work));
        assert_eq!(find("tool"), Some(root.join("own/tool")));
        assert_eq!(find("only"), Some(root.join("late/only")));
        assert_eq!(find("absent"), None);
        let sound: Vec<PathBuf> = sound_folders(&search, &[work]).collect();
        assert_eq!(sound, ["linked", "open", "own", "late"].map(|folder| root.join(folder)));
    }

    #[test]
    fn programs_of_the_system_are_in_its_folders() {
        let found = find("sh").unwrap();
        assert!(SYSTEM_PATH.split(':').any(|folder| found.parent() == Some(Path::new(folder))), "{found:?}");
        assert_eq!(path("sh"), found);
        assert_eq!(find("../bin/no-such-program"), None);
        assert_eq!(path("no-such-program"), Path::new("/nonexistent/no-such-program"));
    }
}
