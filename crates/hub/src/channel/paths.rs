//! Checks lexically whether a path stays inside a workspace. No disk access.

/// Without a root, every valid path is allowed.
pub(crate) fn stays_inside(root: Option<&str>, path: &str) -> bool {
    if path.contains('\0') {
        return false;
    }
    let Some(root) = root else { return true };
    // A shell would expand it to a home folder.
    if path.starts_with('~') {
        return false;
    }
    let Some(root) = NormalizedPath::read(root) else { return false };
    match NormalizedPath::read(path) {
        Some(place) if place.start.is_some() => place.start == root.start && place.steps.starts_with(&root.steps),
        // A normalized relative path can't lead outside.
        Some(_) => true,
        None => false,
    }
}

/// A path in normalized form.
struct NormalizedPath<'a> {
    /// `/` or a drive such as `C:`. `None` if relative.
    start: Option<&'a str>,
    steps: Vec<&'a str>,
}

// === impl NormalizedPath ===

impl<'a> NormalizedPath<'a> {
    /// `None` if it climbs above its start.
    fn read(path: &'a str) -> Option<Self> {
        let bytes = path.as_bytes();
        let (start, rest) = match bytes {
            [b'/' | b'\\', ..] => (Some("/"), path),
            [letter, b':', ..] if letter.is_ascii_alphabetic() => (Some(&path[..2]), &path[2..]),
            _ => (None, path),
        };
        let mut steps = Vec::new();
        // Both separators count: an odd file name on one system is a way out on another.
        for step in rest.split(['/', '\\']) {
            match step {
                "" | "." => {}
                ".." => {
                    steps.pop()?;
                }
                step => steps.push(step),
            }
        }
        Some(Self { start, steps })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_root_are_inside() {
        for root in ["/srv/project", "/srv/./project/", "/srv/x/../project"] {
            for inside in [
                "",
                ".",
                "a",
                "a/b",
                "./a/../b",
                "/srv/project",
                "/srv/project/a",
                "/srv/x/../project/a",
                "..a",
                "a\\b",
            ] {
                assert!(stays_inside(Some(root), inside), "{root} {inside}");
            }
            for outside in [
                "..",
                "../a",
                "a/../..",
                "/",
                "/srv",
                "/srv/projectile",
                "/srv/project/../x",
                "/etc",
                "a\0",
                "~",
                "~/x",
                "..\\x",
                "C:\\x",
                "\\x",
            ] {
                assert!(!stays_inside(Some(root), outside), "{root} {outside}");
            }
        }
        assert!(stays_inside(Some("C:\\work"), "C:\\work\\a") && !stays_inside(Some("C:\\work"), "D:\\work\\a"));
        assert!(stays_inside(Some("project"), "a") && !stays_inside(Some("project"), "/project/a"));
        assert!(stays_inside(None, "/etc") && !stays_inside(None, "\0"));
    }
}
