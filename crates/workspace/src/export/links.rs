//! Where a symbolic link leads, judging by its text: inside the folder, or possibly out of it.

use super::{ExportShared, path::join};

impl ExportShared {
    /// The target of a link that the remote creates, as stored here. An absolute path below the remote's mount point,
    /// and a path with detours through real folders, become the plain path to the same place.
    pub(super) fn plain_target(&self, target: &[u8], folder: &[u8]) -> Vec<u8> {
        if let Some(inside) = self.seen_at.as_ref().and_then(|seen_at| below(target, seen_at, folder)) {
            return inside;
        }
        if target.starts_with(b"/") || !leaves(target, folder) {
            return target.to_vec();
        }
        self.without_detours(target, folder).unwrap_or_else(|| target.to_vec())
    }

    /// `a/../b` is `b` if `a` is a folder. Through a link, it could be anything.
    fn without_detours(&self, target: &[u8], folder: &[u8]) -> Option<Vec<u8>> {
        let mut names: Vec<&[u8]> = names(folder).collect();
        for name in names_of(target) {
            if name != b".." {
                names.push(name);
                continue;
            }
            let so_far = names.iter().fold(Vec::new(), |path, name| join(&path, name));
            let is_folder = self.root.find_optional(&so_far).ok()?.is_some_and(|found| found.attributes.is_folder());
            if !is_folder || names.pop().is_none() {
                return None;
            }
        }
        Some(relative(folder, &names))
    }
}

/// The relative path from `folder` to an absolute path that is `root` or below it.
pub(super) fn below(target: &[u8], root: &[u8], folder: &[u8]) -> Option<Vec<u8>> {
    let rest = target.strip_prefix(root)?;
    let is_below = rest.is_empty() || rest.starts_with(b"/");
    let names: Vec<&[u8]> = names_of(rest).collect();
    // A detour could lead out of it.
    (is_below && target.starts_with(b"/") && !names.contains(&&b".."[..])).then(|| relative(folder, &names))
}

/// Whether a link in `folder` could lead out of the root. `..` counts only at the start, where it climbs real folders.
/// After a name, it could climb from wherever another link leads.
pub(super) fn leaves(target: &[u8], folder: &[u8]) -> bool {
    if target.starts_with(b"/") {
        return true;
    }
    let mut depth = names(folder).count();
    let mut descended = false;
    for name in names_of(target) {
        if name != b".." {
            descended = true;
        } else if descended || depth == 0 {
            return true;
        } else {
            depth -= 1;
        }
    }
    false
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty())
}

fn names_of(target: &[u8]) -> impl Iterator<Item = &[u8]> {
    names(target).filter(|name| *name != b".")
}

/// The path from one folder of the root to another.
fn relative(folder: &[u8], to: &[&[u8]]) -> Vec<u8> {
    let from: Vec<&[u8]> = names(folder).collect();
    let common = from.iter().zip(to).take_while(|(one, other)| one == other).count();
    let up = std::iter::repeat_n(&b".."[..], from.len() - common);
    let path = up.chain(to[common..].iter().copied()).fold(Vec::new(), |path, name| join(&path, name));
    if path.is_empty() { b".".to_vec() } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_could_lead_out_are_recognised() {
        for (target, folder, expected) in [
            ("a", "", false),
            ("./a/b", "x", false),
            ("../a", "x", false),
            ("../../a", "x/y", false),
            ("..", "x", false),
            ("..", "", true),
            ("../../a", "x", true),
            ("/etc/passwd", "x", true),
            ("a/../b", "x/y", true),
            ("/", "", true),
        ] {
            assert_eq!(leaves(target.as_bytes(), folder.as_bytes()), expected, "{target} in {folder:?}");
        }
    }

    #[test]
    fn absolute_paths_that_stay_inside_become_relative() {
        let relative_to = |target: &str, folder: &str| {
            below(target.as_bytes(), b"/mnt/w", folder.as_bytes()).map(|path| String::from_utf8(path).unwrap())
        };
        assert_eq!(relative_to("/mnt/w/a/b", "a/c").as_deref(), Some("../b"));
        assert_eq!(relative_to("/mnt/w/a", "").as_deref(), Some("a"));
        assert_eq!(relative_to("/mnt/w", "a").as_deref(), Some(".."));
        assert_eq!(relative_to("/mnt/w/", "").as_deref(), Some("."));
        for out in ["/mnt/wx/a", "/mnt", "/etc/passwd", "/mnt/w/../x", "mnt/w/a"] {
            assert_eq!(relative_to(out, "a"), None, "{out}");
        }
    }
}
