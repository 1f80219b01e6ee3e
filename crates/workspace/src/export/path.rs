//! A path from a remote, validated before use: plain names below the root, nothing else.

use rustix::io::Errno;

use super::refusal::ExportRefusal;

/// `PATH_MAX` of Linux, with the zero at the end.
const MAX_PATH: usize = 4096;

/// A validated path relative to the root: no empty, `.` or `..` name, no NUL. Empty for the root itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ExportPath {
    whole: Vec<u8>,
    /// The start of the last name.
    name: usize,
}

// === impl ExportPath ===

impl ExportPath {
    pub(crate) fn parse(path: &[u8]) -> Result<Self, ExportRefusal> {
        check_length(path)?;
        if path.contains(&0) {
            return Err(ExportRefusal::Invalid);
        }
        let mut whole = Vec::with_capacity(path.len());
        let mut name = 0;
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
            if part == b"." || part == b".." {
                return Err(ExportRefusal::Invalid);
            }
            if !whole.is_empty() {
                whole.push(b'/');
            }
            name = whole.len();
            whole.extend_from_slice(part);
        }
        Ok(Self { whole, name })
    }

    pub(crate) fn is_root(&self) -> bool {
        self.whole.is_empty()
    }

    pub(crate) fn whole(&self) -> &[u8] {
        &self.whole
    }

    pub(crate) fn name(&self) -> &[u8] {
        &self.whole[self.name..]
    }

    /// Empty if that is the root.
    pub(crate) fn parent(&self) -> &[u8] {
        &self.whole[..self.name.saturating_sub(1)]
    }

    pub(crate) fn is_below(&self, other: &Self) -> bool {
        other.is_root()
            || (self.whole.len() > other.whole.len()
                && self.whole.starts_with(&other.whole)
                && self.whole[other.whole.len()] == b'/')
    }
}

/// Refuses what no system takes for a path. It isn't worth keeping either: a remote chooses it.
pub(super) fn check_length(path: &[u8]) -> Result<(), ExportRefusal> {
    if path.len() < MAX_PATH { Ok(()) } else { Err(Errno::NAMETOOLONG.into()) }
}

/// `folder/name`, or `name` at the root.
pub(crate) fn join(folder: &[u8], name: &[u8]) -> Vec<u8> {
    let mut whole = Vec::with_capacity(folder.len() + 1 + name.len());
    whole.extend_from_slice(folder);
    if !folder.is_empty() {
        whole.push(b'/');
    }
    whole.extend_from_slice(name);
    whole
}

/// For people and JSON: invalid UTF-8, control characters and backslashes are escaped, so that it can be read back.
pub fn show(path: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut shown = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '\\' => shown.push_str("\\\\"),
                char if char.is_control() => {
                    let mut buffer = [0; 4];
                    for byte in char.encode_utf8(&mut buffer).bytes() {
                        let _ = write!(shown, "\\x{byte:02x}");
                    }
                }
                char => shown.push(char),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// The bytes that [`show`] was given. Text that it can't have produced is taken verbatim.
pub fn from_shown(shown: &str) -> Vec<u8> {
    let mut rest = shown.as_bytes();
    let mut path = Vec::with_capacity(rest.len());
    while let Some((&first, after)) = rest.split_first() {
        rest = match after {
            [b'\\', tail @ ..] if first == b'\\' => {
                path.push(b'\\');
                tail
            }
            [b'x', high, low, tail @ ..] if first == b'\\' => {
                match (char::from(*high).to_digit(16), char::from(*low).to_digit(16)) {
                    (Some(high), Some(low)) => {
                        path.push(u8::try_from(high * 16 + low).unwrap_or(b'?'));
                        tail
                    }
                    _ => {
                        path.push(first);
                        after
                    }
                }
            }
            _ => {
                path.push(first);
                after
            }
        };
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_below_the_root_are_valid() {
        let whole = |path: &[u8]| ExportPath::parse(path).map(|place| place.whole().to_vec()).ok();
        for (path, expected) in [
            (&b""[..], Some(&b""[..])),
            (b"/", Some(b"")),
            (b"//a///b/", Some(b"a/b")),
            (b"a/\xff\xfe", Some(b"a/\xff\xfe")),
            (b"...", Some(b"...")),
            (b"..a/b..", Some(b"..a/b..")),
            (b".", None),
            (b"..", None),
            (b"/../a", None),
            (b"a/../b", None),
            (b"a/./b", None),
            (b"a/..", None),
            (b"a\0b", None),
        ] {
            assert_eq!(whole(path), expected.map(<[u8]>::to_vec), "{}", show(path));
        }
        let place = ExportPath::parse(b"a/b/c").unwrap();
        assert_eq!((place.parent(), place.name()), (&b"a/b"[..], &b"c"[..]));
        let top = ExportPath::parse(b"a").unwrap();
        assert_eq!((top.parent(), top.name()), (&b""[..], &b"a"[..]));
        assert!(place.is_below(&top) && !top.is_below(&top));
        assert!(!ExportPath::parse(b"ab/c").unwrap().is_below(&top));
    }

    #[test]
    fn shown_paths_can_be_read_back() {
        for path in [&b"a/b"[..], b"a\\xff", b"\xff\xc3\xa9\n\\", "ü/日本".as_bytes(), b"\xc3"] {
            assert_eq!(from_shown(&show(path)), path);
        }
        assert_eq!(show(b"a\xff\x1b[0m"), "a\\xff\\x1b[0m");
    }
}
