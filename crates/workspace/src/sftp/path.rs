//! Paths in SFTP: everything in a lease is below `/<locator>`, which is also the start of relative paths.

use crate::export::ExportRefusal;

/// The names from the export's root to `path`, joined by `/`. `.` is dropped, and `..` is left for the export to
/// refuse. Anything not below the locator doesn't exist.
pub(super) fn below(locator: &[u8], path: &[u8]) -> Result<Vec<u8>, ExportRefusal> {
    let mut names = names(path);
    if path.starts_with(b"/") && names.next() != Some(locator) {
        return Err(ExportRefusal::NotFound);
    }
    Ok(joined(names))
}

/// `path` without detours, as a client shows it. Purely textual: links are not followed.
pub(super) fn real(locator: &[u8], path: &[u8]) -> Result<Vec<u8>, ExportRefusal> {
    let mut real: Vec<&[u8]> = if path.starts_with(b"/") { vec![] } else { vec![locator] };
    for name in names(path) {
        if name == b".." {
            real.pop();
        } else {
            real.push(name);
        }
    }
    if real.first() != Some(&locator) {
        return Err(ExportRefusal::NotFound);
    }
    Ok([b"/", joined(real.into_iter()).as_slice()].concat())
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

fn joined<'a>(names: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut path = Vec::new();
    for name in names {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend(name);
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_below_the_locator_exist() {
        let found = |path: &[u8]| below(b"loc", path).ok();
        for (path, inside) in [
            (&b"/loc"[..], &b""[..]),
            (b"/loc/", b""),
            (b"/loc/.", b""),
            (b".", b""),
            (b"", b""),
            (b"a/b", b"a/b"),
            (b"//loc//a/./\xff/", b"a/\xff"),
            (b"/loc/../x", b"../x"),
            (b"../x", b"../x"),
        ] {
            assert_eq!(found(path), Some(inside.to_vec()), "{}", path.escape_ascii());
        }
        for path in [&b"/"[..], b"/.", b"/lo", b"/loc2", b"/loc2/a", b"/../loc", b"/etc/passwd", b"/a/loc"] {
            assert_eq!(found(path), None, "{}", path.escape_ascii());
        }
    }

    #[test]
    fn a_real_path_has_no_detours_and_stays_below_the_locator() {
        let shown = |path: &[u8]| real(b"loc", path).ok();
        for (path, real) in [
            (&b"."[..], &b"/loc"[..]),
            (b"", b"/loc"),
            (b"a/../b", b"/loc/b"),
            (b"/loc/a/./b//", b"/loc/a/b"),
            (b"/x/../loc/a", b"/loc/a"),
        ] {
            assert_eq!(shown(path), Some(real.to_vec()), "{}", path.escape_ascii());
        }
        for path in [&b"/"[..], b"..", b"/loc/..", b"/loc/../../etc", b"/etc"] {
            assert_eq!(shown(path), None, "{}", path.escape_ascii());
        }
    }
}
