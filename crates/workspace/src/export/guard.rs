//! What a lease shows and never lets change: the places from which git on the host would run a program.
//!
//! Whoever writes `.git/hooks/post-checkout` or `core.fsmonitor` in `.git/config` runs code as the owner at their next git
//! command. Everything else of a repository can be written, so a remote can commit. Git also takes a folder of any name for
//! a repository, a bare one, when it holds `HEAD`, `objects` and `refs`, or `HEAD` and a `commondir` that leads to the rest:
//! none can be made, and one that is there is guarded and stays one.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::filter::fold;

/// Whether a folder of this machine is itself where git would run a program from, or a part of a `.git`: inside of it
/// nothing would be guarded. It is named by its real path.
pub fn is_of_repository(dir: &Path) -> bool {
    let path = dir.as_os_str().as_bytes();
    let is_one = |folder: &[u8]| {
        let folder = PathBuf::from("/").join(OsStr::from_bytes(folder));
        REPOSITORIES
            .iter()
            .any(|parts| parts.iter().all(|name| folder.join(OsStr::from_bytes(name)).symlink_metadata().is_ok()))
    };
    path.split(|&byte| byte == b'/').any(is_repository) || run_from(path).into_iter().any(is_one)
}

/// Whether nothing may be written, made, moved or removed there.
pub(super) fn guarded(path: &[u8]) -> bool {
    let twin = fold(path);
    let names: Vec<&[u8]> = twin.split(|&byte| byte == b'/').map(trimmed).collect();
    let Some(git) = names.iter().position(|name| is_git(name)) else { return false };
    let inside = &names[git + 1..];
    // Where the host keeps its own commits of what was there before; and no part of a repository has the name of one.
    if inside.starts_with(&[b"refs", b"attache"]) || inside.iter().any(|name| is_git(name)) {
        return true;
    }
    // A branch may be called what it likes; objects come from here and from nowhere else.
    if matches!(inside.first(), Some(&(b"refs" | b"logs" | b"objects"))) {
        return inside.starts_with(&[b"objects", b"info", b"alternates"]);
    }
    (0..inside.len()).any(|at| runs(&inside[..=at]))
}

/// Whether git looks here, in a repository, for what it would run.
fn runs(names: &[&[u8]]) -> bool {
    matches!(
        names,
        [.., b"hooks" | b"config" | b"config.worktree" | b"commondir" | b"gitdir"] | [.., b"info", b"attributes"]
    )
}

/// The folders above the path from which git would run something at the path, if they were repositories.
pub(super) fn run_from(path: &[u8]) -> Vec<&[u8]> {
    let mut folders = Vec::new();
    let (mut start, mut is_in_info) = (0, false);
    for name in path.split(|&byte| byte == b'/') {
        let twin = fold(name);
        let twin = trimmed(&twin);
        if runs(&[twin]) {
            folders.push(above(&path[..start + name.len()], 1));
        } else if is_in_info && runs(&[b"info", twin]) {
            folders.push(above(&path[..start + name.len()], 2));
        }
        (start, is_in_info) = (start + name.len() + 1, twin == b"info");
    }
    folders
}

/// What a folder must hold for git to take it for a repository: all of one of these.
pub(super) const REPOSITORIES: [&[&[u8]]; 2] = [&[b"HEAD", b"objects", b"refs"], &[b"HEAD", b"commondir"]];

/// The folder that the name at the end of the path makes, perhaps, a repository, and what else each way to be one takes.
pub(super) fn part_of(path: &[u8]) -> (&[u8], impl Iterator<Item = impl Iterator<Item = &'static [u8]>>) {
    let twin = fold(path);
    let name = trimmed(twin.rsplit(|&byte| byte == b'/').next().unwrap_or(&twin)).to_owned();
    let others = REPOSITORIES.into_iter().filter_map(move |parts| {
        let part = parts.iter().position(|part| part.eq_ignore_ascii_case(&name))?;
        Some(parts.iter().enumerate().filter(move |(at, _)| *at != part).map(|(_, name)| *name))
    });
    (above(path, 1), others)
}

fn above(path: &[u8], levels: usize) -> &[u8] {
    (0..levels).fold(path, |path, _| &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)])
}

/// A name that git takes for a repository. A folder of that name can be made; a file or link of that name leads git to
/// wherever it says, and something else moved there could bring a configuration along.
pub(super) fn is_repository(path: &[u8]) -> bool {
    let twin = fold(path);
    is_git(trimmed(twin.rsplit(|&byte| byte == b'/').next().unwrap_or(&twin)))
}

fn is_git(name: &[u8]) -> bool {
    matches!(name, b".git" | b"git~1")
}

/// Some file systems leave trailing dots and spaces out.
fn trimmed(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::{super::path::show, *};

    #[test]
    fn where_git_would_run_a_program() {
        for path in [
            ".git/config",
            ".git/hooks",
            ".git/hooks/pre-commit",
            "sub/.git/config",
            ".GIT/Hooks/x",
            ".g\u{200c}it/config",
            ".git./config",
            "GIT~1/config",
            ".git/modules/lib/config",
            ".git/modules/lib/hooks/x",
            ".git/worktrees/w/gitdir",
            ".git/config.worktree",
            ".git/refs/attache/dlg_x",
            ".git/info/attributes",
            ".git/objects/info/alternates",
            ".git/modules/lib/info/attributes",
            ".git/refs/.git",
            ".git/objects/x/.Git/config",
        ] {
            assert!(guarded(path.as_bytes()), "{path}");
        }
        for path in [
            ".git",
            ".git/index",
            ".git/HEAD",
            ".git/refs/heads/config",
            ".git/objects/ab/cd",
            ".git/info/exclude",
            "hooks/x",
            "config",
            ".gitignore",
        ] {
            assert!(!guarded(path.as_bytes()), "{path}");
        }
        assert!(is_repository(b"a/.Git") && is_repository(b".git ") && !is_repository(b"a/git"));
    }

    #[test]
    fn a_repository_without_its_name() {
        let from = |path: &'static str| -> Vec<_> { run_from(path.as_bytes()).iter().map(|it| show(it)).collect() };
        assert_eq!(from("a/b.git/config"), ["a/b.git"]);
        assert_eq!(from("a/HOOKS/config/x"), ["a", "a/HOOKS"]);
        assert_eq!(from("config"), [""]);
        assert_eq!(from("a/info/attributes"), ["a"]);
        assert_eq!(from("src/main.rs"), [""; 0]);
        let part_of = |path: &'static str| {
            let (folder, others) = part_of(path.as_bytes());
            (show(folder), others.map(|rest| rest.map(show).collect()).collect::<Vec<Vec<_>>>())
        };
        let lists = |lists: &[&[&str]]| -> Vec<Vec<String>> {
            lists.iter().map(|list| list.iter().map(|name| (*name).to_owned()).collect()).collect()
        };
        assert_eq!(part_of("x/head"), ("x".to_owned(), lists(&[&["objects", "refs"], &["commondir"]])));
        assert_eq!(part_of("refs"), (String::new(), lists(&[&["HEAD", "objects"]])));
        assert_eq!(part_of("x/.git/CommonDir."), ("x/.git".to_owned(), lists(&[&["HEAD"]])));
        assert_eq!(part_of("x/HEAD.lock"), ("x".to_owned(), lists(&[])));
    }
}
