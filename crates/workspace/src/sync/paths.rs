//! Which paths are carried, and under which names something is written before it is complete.

use crate::export::path;

/// Names that only this program gives, to files that are not complete yet.
const STAGED: &[u8] = b".attache-sync-";
/// What the remote's version of a file is called if the host's version keeps the name.
const CONFLICT: &str = ".remote-conflict";
/// The longest name that file systems take.
const MAX_NAME: usize = 255;

/// How a file at the host is replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StagedWrite {
    /// Written under this name, then moved.
    Under(Vec<u8>),
    /// Git never replaces its logs, and the host doesn't allow other files to be created there.
    InPlace,
}

pub(super) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    path::join(folder, name)
}

pub(crate) fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// What a host can call an entry. Anything else would be another place.
pub(super) fn is_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Not what exists only while a program writes something else: git's locks and our own files.
pub(super) fn is_carried(path: &[u8]) -> bool {
    let (_, name) = parent_and_name(path);
    let is_transient = in_git(path).is_some() && (name.ends_with(b".lock") || name.starts_with(b"tmp_"));
    !is_transient && !is_staged(path)
}

/// Whether it is one of our own files that are not complete yet.
pub(super) fn is_staged(path: &[u8]) -> bool {
    parent_and_name(path).1.starts_with(STAGED)
}

/// The names below the `.git` that a path is in.
pub(super) fn in_git(path: &[u8]) -> Option<Vec<&[u8]>> {
    let mut names = path.split(|byte| *byte == b'/');
    names.find(|name| *name == b".git")?;
    let below: Vec<&[u8]> = names.collect();
    (!below.is_empty()).then_some(below)
}

/// Under which name a file can be completed beside its place. In a repository, the host takes only git's own names.
pub(super) fn staged_write(path: &[u8], number: u64) -> StagedWrite {
    let (folder, name) = parent_and_name(path);
    match in_git(path) {
        Some(names) if names.contains(&&b"objects"[..]) => {
            StagedWrite::Under(join(folder, format!("tmp_obj_sync{number}").as_bytes()))
        }
        Some(names) if names.contains(&&b"logs"[..]) => StagedWrite::InPlace,
        Some(_) => StagedWrite::Under([path, b".lock"].concat()),
        None => {
            // With the end of the name, because a lease may show only some.
            let start = [STAGED, format!("{number}-").as_bytes()].concat();
            let kept = name.len().min(MAX_NAME - start.len());
            StagedWrite::Under(join(folder, &[&start, &name[name.len() - kept..]].concat()))
        }
    }
}

/// In which order files reach the host: what git refers to before what refers to it.
pub(super) fn rank(path: &[u8]) -> u8 {
    match in_git(path) {
        Some(names) if names.contains(&&b"objects"[..]) => u8::from(path.ends_with(b".idx")),
        None => 2,
        Some(names) if names.first() == Some(&&b"refs"[..]) => 3,
        Some(_) => 4,
    }
}

pub(crate) fn conflict_name(path: &[u8], is_taken: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (folder, name) = parent_and_name(path);
    let numbered = (1_u32..).map(|number| {
        let end = if number == 1 { CONFLICT.to_owned() } else { format!("{CONFLICT}-{number}") };
        let kept = name.len().min(MAX_NAME - end.len());
        join(folder, &[&name[..kept], end.as_bytes()].concat())
    });
    numbered.into_iter().find(|candidate| !is_taken(candidate)).expect("there are more numbers than files")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_a_name_to_write_under() {
        let under = |path: &str| match staged_write(path.as_bytes(), 7) {
            StagedWrite::Under(name) => String::from_utf8(name).unwrap(),
            StagedWrite::InPlace => "in place".to_owned(),
        };
        assert_eq!(
            ["a/b.rs", "b.rs", ".git/index", ".git/refs/heads/x", "m/.git/objects/ab/cd", ".git/logs/HEAD"].map(under),
            [
                "a/.attache-sync-7-b.rs",
                ".attache-sync-7-b.rs",
                ".git/index.lock",
                ".git/refs/heads/x.lock",
                "m/.git/objects/ab/tmp_obj_sync7",
                "in place"
            ]
        );
        let long = "x".repeat(255);
        assert_eq!(under(&long).len(), 255);
        assert_eq!(conflict_name(long.as_bytes(), |_| false).len(), 255);
    }

    #[test]
    fn what_is_being_written_is_not_carried() {
        let carried = ["a.lock", ".git/index", ".git", "tmp_x", ".gitignore", "Cargo.lock"];
        assert!(carried.iter().all(|path| is_carried(path.as_bytes())));
        let transient = [".git/index.lock", ".git/objects/ab/tmp_obj_x", "d/.attache-sync-1-x"];
        assert!(!transient.iter().any(|path| is_carried(path.as_bytes())));
        let taken = |name: &[u8]| name == b"d/a.txt.remote-conflict";
        assert_eq!(conflict_name(b"d/a.txt", taken), b"d/a.txt.remote-conflict-2");
        assert!(is_name(b"a") && !is_name(b"..") && !is_name(b"a/b") && !is_name(b"a\0"));
    }
}
