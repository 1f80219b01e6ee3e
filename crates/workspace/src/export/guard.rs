//! What a lease shows and never lets change: the places from which git on the host would run a program.
//!
//! Whoever writes `.git/hooks/post-checkout` or `core.fsmonitor` in `.git/config` runs code as the owner at their next git
//! command. Everything else of a repository can be written, so a remote can commit. Git also takes a folder of any name for
//! a repository, a bare one, when it holds `HEAD`, `objects` and `refs`: none can be made, and one that is there is guarded.

use super::filter::fold;

/// Whether nothing may be written, made, moved or removed there.
pub(super) fn guarded(path: &[u8]) -> bool {
    let twin = fold(path);
    let names: Vec<&[u8]> = twin.split(|&byte| byte == b'/').map(trimmed).collect();
    let Some(git) = names.iter().position(|name| is_git(name)) else { return false };
    let inside = &names[git + 1..];
    // Where the host keeps its own commits of what was there before.
    if inside.starts_with(&[b"refs", b"attache"]) {
        return true;
    }
    // A branch may be called what it likes; objects come from here and from nowhere else.
    if matches!(inside.first(), Some(&(b"refs" | b"logs" | b"objects"))) {
        return inside.starts_with(&[b"objects", b"info", b"alternates"]);
    }
    (0..inside.len()).any(|at| runs(&inside[..=at]) || is_git(inside[at]))
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

/// What a folder must hold for git to take it for a repository.
pub(super) const REPOSITORY: [&[u8]; 3] = [b"HEAD", b"objects", b"refs"];

/// The folder that the name at the end of the path could complete to a repository, and what else that takes.
pub(super) fn completes(path: &[u8]) -> Option<(&[u8], impl Iterator<Item = &'static [u8]>)> {
    let folder = above(path, 1);
    // In `.git` it is one already, and guarded.
    if folder.split(|&byte| byte == b'/').any(is_repository) {
        return None;
    }
    let twin = fold(path);
    let name = trimmed(twin.rsplit(|&byte| byte == b'/').next().unwrap_or(&twin)).to_owned();
    let part = REPOSITORY.iter().position(|part| part.eq_ignore_ascii_case(&name))?;
    Some((folder, REPOSITORY.into_iter().enumerate().filter(move |(at, _)| *at != part).map(|(_, name)| name)))
}

fn above(path: &[u8], levels: usize) -> &[u8] {
    (0..levels).fold(path, |path, _| &path[..path.iter().rposition(|&byte| byte == b'/').unwrap_or(0)])
}

/// A name that git takes for a repository. A folder of that name can be made; a file or link of that name, or something
/// else moved there, could bring a configuration along.
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
        let completes = |path: &'static str| {
            completes(path.as_bytes()).map(|(folder, rest)| (show(folder), rest.map(show).collect::<Vec<_>>()))
        };
        assert_eq!(completes("x/head"), Some(("x".to_owned(), vec!["objects".to_owned(), "refs".to_owned()])));
        assert_eq!(completes("refs"), Some((String::new(), vec!["HEAD".to_owned(), "objects".to_owned()])));
        assert_eq!(completes("x/.git/HEAD"), None);
        assert_eq!(completes("x/HEAD.lock"), None);
    }
}
