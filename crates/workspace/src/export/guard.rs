//! What a lease shows and never lets change: the places from which git on the host would run a program.
//!
//! Whoever writes `.git/hooks/post-checkout` or `core.fsmonitor` in `.git/config` runs code as the owner at their next git
//! command. Everything else of a repository can be written, so a remote can commit.

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
    // A branch may be called what it likes.
    if matches!(inside.first(), Some(&(b"refs" | b"logs" | b"objects"))) {
        return false;
    }
    inside.iter().any(|name| {
        matches!(*name, b"hooks" | b"config" | b"config.worktree" | b"commondir" | b"gitdir") || is_git(name)
    })
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
    use super::*;

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
        ] {
            assert!(guarded(path.as_bytes()), "{path}");
        }
        for path in
            [".git", ".git/index", ".git/refs/heads/config", ".git/objects/ab/cd", "hooks/x", "config", ".gitignore"]
        {
            assert!(!guarded(path.as_bytes()), "{path}");
        }
        assert!(is_repository(b"a/.Git") && is_repository(b".git ") && !is_repository(b"a/git"));
    }
}
