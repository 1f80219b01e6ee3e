//! What a lease shows but never allows to change: places from which git on the host would run a program, or be led to
//! one.
//!
//! Writing `.git/hooks/post-checkout`, `core.fsmonitor` in `.git/config`, or `exec` to `.git/rebase-merge` would run
//! code as the owner at their next git command. So below a `.git`, only what a commit needs can be written
//! ([`may_change`]): objects, refs, their logs, the index, and the notes of a merge. Files that git trusts are checked
//! before they take their place (`git`). Git also treats a folder with any name as a bare repository if it contains
//! `HEAD`, `objects` and `refs`, or `HEAD` and a `commondir` that leads to the rest. Such a folder can't be created,
//! and an existing one is guarded and stays one.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{
    filter::fold,
    objects::{GitStoreFile, is_hex, is_large_file, stored},
};

/// Files that git replaces by renaming a `.lock` file over them.
const FILES: [&[u8]; 16] = [
    b"HEAD",
    b"index",
    b"packed-refs",
    b"ORIG_HEAD",
    b"FETCH_HEAD",
    b"MERGE_HEAD",
    b"MERGE_MSG",
    b"MERGE_MODE",
    b"MERGE_RR",
    b"AUTO_MERGE",
    b"SQUASH_MSG",
    b"CHERRY_PICK_HEAD",
    b"REVERT_HEAD",
    b"COMMIT_EDITMSG",
    b"TAG_EDITMSG",
    b"gc.pid",
];

/// What git on the host trusts a file's content to be. It is checked when the file gets its name, and can't be changed
/// afterwards, only replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TrustedGitFile {
    Head,
    Ref,
    PackedRefs,
    Index,
    /// A ref that git replaces together with what it refers to, if it refers to another one.
    Id,
    /// Where git records conflicts to resolve them again: it copies files by the names in there, and overwrites them.
    Conflicts,
    /// Content in a store is identified by its hash.
    Stored(GitStoreFile),
}

/// Whether a folder of this machine is part of a `.git`, or itself a place from which git would run a program: inside
/// it, nothing would be guarded. `dir` must be canonical.
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

/// Whether nothing can be written, created, moved or removed there.
pub(super) fn guarded(path: &[u8]) -> bool {
    let twin = fold(path);
    let is_inside = twin.split(|&byte| byte == b'/').map(trimmed).any(is_git);
    // Names are compared exactly: a twin of an allowed name is another file, or the same file under another name.
    is_inside && !inside(path).is_some_and(|(_, names)| may_change(&names))
}

/// The `.git` above a path, and the names from there to the path. The last one may be a lock.
pub(crate) fn inside(path: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut start = 0;
    for name in path.split(|&byte| byte == b'/') {
        let end = start + name.len();
        if name != b".git" && is_git(trimmed(&fold(name))) {
            return None;
        }
        if name == b".git" {
            let below = path[end..].split(|&byte| byte == b'/').filter(|name| !name.is_empty());
            return Some((&path[..end], below.collect()));
        }
        start = end + 1;
    }
    None
}

/// Whether git on the host, which may read everything below its `.git`, neither runs nor follows what a lease puts
/// there.
fn may_change(names: &[&[u8]]) -> bool {
    let Some((last, above)) = names.split_last() else { return true };
    let twins = names.iter().map(|name| fold(name).into_owned());
    if twins.into_iter().any(|twin| is_git(trimmed(&twin))) {
        return false;
    }
    let unlocked = last.strip_suffix(b".lock").unwrap_or(last);
    match names {
        // Where the host keeps its own snapshots, and what git shows in place of other objects.
        [b"refs", b"attache" | b"replace", ..] | [b"logs", b"refs", b"attache" | b"replace", ..] => false,
        [b"refs" | b"logs"] | [b"logs", b"HEAD" | b"refs"] => true,
        [b"refs", name @ ..] | [b"logs", b"refs", name @ ..] => {
            above.iter().skip(1).all(|name| is_ref_part(name)) && !name.is_empty() && is_ref_part(unlocked)
        }
        [b"objects", .., b"alternates" | b"http-alternates"] => false,
        // Git trusts these about objects without checking the objects.
        [b"objects", below @ ..] => !below.iter().any(|name| is_summary(name)),
        [b"lfs", b"objects" | b"tmp" | b"incomplete", ..] => true,
        [b"worktrees", _, rest @ ..] => !rest.is_empty() && may_change(rest),
        // The name of a submodule can contain slashes. A repository there is also guarded as such.
        [b"modules", rest @ ..] => (1..rest.len()).any(|at| may_change(&rest[at..])),
        [name] => {
            FILES.contains(&unlocked)
                || [&b"next-index-"[..], b"index.stash.", b"packed-refs."].iter().any(|start| name.starts_with(start))
        }
        _ => false,
    }
}

/// Files that git reads in place of objects, and recreates when they are missing.
fn is_summary(name: &[u8]) -> bool {
    name.starts_with(b"commit-graph") || name.starts_with(b"multi-pack-index") || name.ends_with(b".bitmap")
}

/// Like `git check-ref-format`, and no name that a program could mistake for an option.
pub(super) fn is_ref_part(name: &[u8]) -> bool {
    let is_bad = |byte: &u8| *byte <= b' ' || *byte == 127 || b"~^:?*[\\".contains(byte);
    let has = |pair: &[u8]| name.windows(2).any(|window| window == pair);
    !(name.is_empty()
        || name.starts_with(b".")
        || name.starts_with(b"-")
        || name.ends_with(b".")
        || name.ends_with(b".lock")
        || name == b"@"
        || has(b"..")
        || has(b"@{")
        || name.iter().any(is_bad))
}

/// What git trusts the content of this file to be, if anything.
pub(super) fn trusted_git_file(path: &[u8]) -> Option<TrustedGitFile> {
    fn of(names: &[&[u8]]) -> Option<TrustedGitFile> {
        if names.last()?.ends_with(b".lock") {
            return None;
        }
        match names {
            [b"HEAD"] => Some(TrustedGitFile::Head),
            [b"index"] => Some(TrustedGitFile::Index),
            [b"packed-refs"] => Some(TrustedGitFile::PackedRefs),
            [b"ORIG_HEAD"] => Some(TrustedGitFile::Id),
            [b"MERGE_RR"] => Some(TrustedGitFile::Conflicts),
            [b"refs", ..] => Some(TrustedGitFile::Ref),
            [b"worktrees", _, rest @ ..] => of(rest),
            [b"modules", rest @ ..] => (1..rest.len()).find_map(|at| of(&rest[at..])),
            _ => stored(names).map(TrustedGitFile::Stored),
        }
    }
    of(&inside(path)?.1)
}

/// Whether this is what git on the host knows of the files in its folder.
pub(crate) fn is_index(path: &[u8]) -> bool {
    trusted_git_file(path) == Some(TrustedGitFile::Index)
}

/// Whether without this, a new index could leave out what the old one says of files that the remote doesn't see. Another
/// working tree can be removed as a whole.
pub(super) fn is_own_index(path: &[u8]) -> bool {
    is_index(path) && inside(path).is_some_and(|(_, names)| names.first() != Some(&&b"worktrees"[..]))
}

/// Whether this is in the store of a repository, which is append-only.
pub(super) fn is_stored(path: &[u8]) -> bool {
    below_objects(path).is_some_and(|names| names.len() > 1)
}

/// Whether this is an object of a repository, or a folder for some. Others may refer to it, and git removes what nobody
/// refers to.
pub(crate) fn is_object(path: &[u8]) -> bool {
    let Some(names) = below_objects(path) else { return false };
    let is_fan = |name: &[u8]| name.len() == 2 && is_hex(name);
    match names[..] {
        [folder] => folder == b"pack" || is_fan(folder),
        // Folders of large files have two levels.
        [above, folder] if is_fan(above) && is_fan(folder) => true,
        [above, folder, file] if is_fan(above) && is_fan(folder) => is_large_file(file),
        _ => stored(&[&[&b"objects"[..]], &names[..]].concat()).is_some(),
    }
}

/// The names from the folder of a repository's objects to the path.
fn below_objects(path: &[u8]) -> Option<Vec<&[u8]>> {
    let mut names = inside(path)?.1;
    // What a submodule is called says nothing.
    let start = if matches!(names.first(), Some(&b"modules" | &b"worktrees")) { 2 } else { 0 };
    let is_part = |name: &&[u8]| matches!(*name, b"objects" | b"refs" | b"logs");
    let at = names.iter().skip(start).position(is_part)? + start;
    (names[at] == b"objects").then(|| names.split_off(at + 1))
}

/// Which part of a repository a path belongs to. A folder can't move between parts.
pub(super) fn area(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let (git, names) = inside(path)?;
    Some((git, names.first().copied().unwrap_or_default()))
}

/// Whether git looks here, in a repository, for something to run or follow.
fn runs(names: &[&[u8]]) -> bool {
    const FOLDERS: [&[u8]; 8] = [
        b"hooks",
        b"config",
        b"config.worktree",
        b"commondir",
        b"gitdir",
        b"rebase-merge",
        b"rebase-apply",
        b"sequencer",
    ];
    match names {
        [.., b"info", name] => matches!(*name, b"attributes" | b"grafts" | b"alternates" | b"http-alternates"),
        [.., name] => FOLDERS.contains(name),
        [] => false,
    }
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
            folders.push(above(&path[..start + name.len()], 3));
        }
        (start, is_in_info) = (start + name.len() + 1, twin == b"info");
    }
    folders
}

/// The entries that make git treat a folder as a repository: all of one of these sets.
pub const REPOSITORIES: [&[&[u8]]; 2] = [&[b"HEAD", b"objects", b"refs"], &[b"HEAD", b"commondir"]];

/// The folder that the last name of the path could turn into a repository, and the other entries that each set
/// requires.
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

/// Whether the target of a link names a part of a repository: a program on the host that writes to the link would write there.
/// Only git-annex has such links, to what is in its store.
pub(super) fn leads_into_repository(target: &[u8]) -> bool {
    let twin = fold(target);
    let names: Vec<&[u8]> =
        twin.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).map(trimmed_name).collect();
    let at = names.iter().position(|name| is_git(name));
    at.is_some_and(|at| names.get(at + 1) != Some(&&b"annex"[..]) || names[at..].contains(&&b".."[..]))
}

/// A name that git treats as a repository. A folder with that name can be created. A file or link with that name
/// redirects git, and anything moved there could bring a configuration along.
pub(super) fn is_repository(path: &[u8]) -> bool {
    let twin = fold(path);
    is_git(trimmed(twin.rsplit(|&byte| byte == b'/').next().unwrap_or(&twin)))
}

pub(super) fn is_git(name: &[u8]) -> bool {
    matches!(name, b".git" | b"git~1")
}

/// A step up stays one.
fn trimmed_name(name: &[u8]) -> &[u8] {
    if name == b".." { name } else { trimmed(name) }
}

/// Some file systems ignore trailing dots and spaces.
pub(super) fn trimmed(name: &[u8]) -> &[u8] {
    let end = name.iter().rposition(|byte| !matches!(byte, b'.' | b' ')).map_or(0, |last| last + 1);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::{super::path::show, *};

    #[test]
    fn below_git_only_what_a_commit_needs_can_be_written() {
        for path in [
            ".git/config",
            ".git/hooks",
            ".git/hooks/pre-commit",
            "sub/.git/config",
            ".GIT/Hooks/x",
            ".GIT/index",
            ".GIT/x/.git/index",
            ".g\u{200c}it/config",
            ".git./config",
            "GIT~1/config",
            ".git/Index",
            ".git/modules/lib/config",
            ".git/modules/lib/hooks/x",
            ".git/worktrees/w/gitdir",
            ".git/worktrees/w",
            ".git/config.worktree",
            ".git/config.lock",
            ".git/refs/attache/dlg_x",
            ".git/logs/refs/attache/dlg_x",
            ".git/info/attributes",
            ".git/info/exclude",
            ".git/info/grafts",
            ".git/objects/info/alternates",
            ".git/objects/info/http-alternates",
            ".git/objects/info/commit-graph.lock",
            ".git/objects/info/commit-graphs/tmp_graph_x",
            ".git/objects/pack/multi-pack-index.lock",
            ".git/objects/pack/pack-x.bitmap",
            ".git/modules/lib/info/attributes",
            ".git/refs/.git",
            ".git/objects/x/.Git/config",
            ".git/rebase-merge",
            ".git/rebase-merge/git-rebase-todo",
            ".git/rebase-apply/patch",
            ".git/sequencer/todo",
            ".git/BISECT_RUN",
            ".git/MERGE_AUTOSTASH",
            ".git/rr-cache/x/postimage",
            ".git/sharedindex.abc",
            ".git/shallow",
            ".git/description",
            ".git/refs/heads/-x",
            ".git/refs/heads/a..b",
            ".git/refs/heads/x.lock/y",
        ] {
            assert!(guarded(path.as_bytes()), "{path}");
        }
        for path in [
            ".git",
            ".git/index",
            ".git/index.lock",
            ".git/HEAD",
            ".git/HEAD.lock",
            ".git/refs/heads/config",
            ".git/refs/heads/topic/x.lock",
            ".git/logs/HEAD",
            ".git/logs/refs/heads/hooks",
            ".git/objects/ab/cd",
            ".git/objects/pack/tmp_pack_x",
            ".git/objects/info/packs",
            ".git/COMMIT_EDITMSG",
            ".git/MERGE_HEAD",
            ".git/packed-refs.new",
            ".git/worktrees/w/index.lock",
            ".git/modules/a/b/index.lock",
            "hooks/x",
            "config",
            ".gitignore",
        ] {
            assert!(!guarded(path.as_bytes()), "{path}");
        }
        assert!(is_repository(b"a/.Git") && is_repository(b".git ") && !is_repository(b"a/git"));
    }

    #[test]
    fn links_into_a_repository_are_recognised() {
        for target in [".git/config", "../.GIT/index", "a/.git", ".git./HEAD", ".git/annex/../config", ".git//hooks/x"]
        {
            assert!(leads_into_repository(target.as_bytes()), "{target}");
        }
        for target in ["a/git/config", "../.gitignore", ".git/annex/objects/ab/cd", "..", ""] {
            assert!(!leads_into_repository(target.as_bytes()), "{target}");
        }
    }

    #[test]
    fn objects_are_recognised_with_their_folders() {
        for path in [
            ".git/objects/ab".to_owned(),
            format!(".git/objects/ab/{}", "c".repeat(38)),
            "sub/.git/objects/pack".to_owned(),
            "sub/.git/objects/pack/pack-1.idx".to_owned(),
            ".git/modules/lib/objects/ab".to_owned(),
            ".git/modules/refs/objects/ab".to_owned(),
            ".git/lfs/objects/ab/cd".to_owned(),
            format!(".git/lfs/objects/ab/cd/{}", "e".repeat(64)),
        ] {
            assert!(is_object(path.as_bytes()), "{path}");
        }
        for path in [
            ".git/objects",
            ".git/objects/info/alternates",
            ".git/objects/evil.sh",
            ".git/objects/bin/git",
            ".git/objects/ab/cd.sh",
            ".git/objects/ab/tmp_obj_x",
            ".git/refs/heads/objects/ab",
            ".git/modules/objects/refs/heads/evil",
            ".git/modules/objects/refs",
            "objects/ab",
            ".git/index",
        ] {
            assert!(!is_object(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn trusted_git_files_are_recognised() {
        for (path, expected) in [
            (".git/HEAD", Some(TrustedGitFile::Head)),
            ("a/.git/worktrees/w/HEAD", Some(TrustedGitFile::Head)),
            (".git/HEAD.lock", None),
            (".git/ORIG_HEAD", Some(TrustedGitFile::Id)),
            (".git/modules/a/MERGE_RR", Some(TrustedGitFile::Conflicts)),
            (".git/worktrees/w/MERGE_RR", Some(TrustedGitFile::Conflicts)),
            (".git/MERGE_RR.lock", None),
            (".git/index", Some(TrustedGitFile::Index)),
            (".git/modules/a/b/index", Some(TrustedGitFile::Index)),
            (".git/refs/heads/x", Some(TrustedGitFile::Ref)),
            (".git/packed-refs", Some(TrustedGitFile::PackedRefs)),
            (".git/logs/HEAD", None),
            (".git/objects/ab/tmp_obj_x", None),
            (".git/objects/pack/pack-x.pack", Some(TrustedGitFile::Stored(GitStoreFile::Pack))),
            (".git/objects/pack/x.idx", Some(TrustedGitFile::Stored(GitStoreFile::PackIndex))),
            (
                ".git/modules/a/b/objects/01/23456789012345678901234567890123456789",
                Some(TrustedGitFile::Stored(GitStoreFile::Object)),
            ),
            ("HEAD", None),
        ] {
            assert_eq!(trusted_git_file(path.as_bytes()), expected, "{path}");
        }
        assert!(is_stored(b".git/objects/ab/cd") && is_stored(b".git/modules/x/objects/pack/p"));
        assert!(is_stored(b".git/modules/logs/objects/pack/p") && !is_stored(b".git/modules/objects/refs/heads/x"));
        assert!(!is_stored(b".git/objects/ab") && !is_stored(b"objects/ab/cd"));
    }

    #[test]
    fn a_bare_repository_is_recognised_by_its_content() {
        let from = |path: &'static str| -> Vec<_> { run_from(path.as_bytes()).iter().map(|it| show(it)).collect() };
        assert_eq!(from("a/b.git/config"), ["a/b.git"]);
        assert_eq!(from("a/HOOKS/config/x"), ["a", "a/HOOKS"]);
        assert_eq!(from("config"), [""]);
        assert_eq!(from("a/info/attributes"), ["a", ""]);
        assert_eq!(from("a/sequencer/todo"), ["a"]);
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
