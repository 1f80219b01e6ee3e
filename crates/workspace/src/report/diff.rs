//! Differences as text: lines added and removed, and a patch as `git diff --binary` writes it and `git apply` takes it. What a
//! patch cannot say stands in lines that begin with `#`, which git passes over.

use std::{fmt::Write as _, io::Read as _, path::Path, time::Duration};

use attache_protocol::wire::delegation::Change;
use rustix::fs::OFlags;
use similar::{ChangeTag, TextDiff};

use super::{
    Error, binary,
    compare::{Difference, Now, differences, kept},
    planted::Planted,
};
use crate::export::{Kind, Record, Was, root::Root, show, unshow};

/// How much is read to count lines, over all files; what is beyond is told without lines.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
}

/// The content of one side.
enum Side {
    Nothing,
    Text(String),
    /// No text.
    Binary(Vec<u8>),
    /// It cannot be read, or is larger than what is shown.
    Unread,
}

/// Begins the line that names a file which is not in the patch: beyond the longest, too large, or a repository's own.
pub const NOT_SHOWN: &str = "# not shown here: ";
/// Begins the line that names a file which a program runs or obeys without being asked.
pub const LOOK_AT: &str = "# look at this first: ";
/// Larger files are told without lines.
const LARGEST: u64 = 4 << 20;
/// A diff that takes longer is a rougher one.
const PATIENCE: Duration = Duration::from_millis(500);

/// What changed, as a patch of at most about `most` bytes; the rest is named. What a program here would run without being asked
/// is named first.
pub fn diff(dir: &Path, record: &Record, most: usize) -> Result<String, Error> {
    let (root, planted) = (Root::open(dir)?, Planted::new()?);
    let (mut notes, mut text) = (String::new(), String::new());
    for difference in differences(&root, record) {
        if let Some(who) = difference.run_by(&planted) {
            let _ = writeln!(notes, "{LOOK_AT}{} (run or obeyed by {who})", show(difference.path));
        }
        if text.len() > most || is_of_git(difference.path) {
            let _ = writeln!(text, "{NOT_SHOWN}{}", show(difference.path));
            continue;
        }
        one(&root, record, &difference, &mut text);
    }
    Ok(notes + &text)
}

/// How the part of a patch begins that is about a path.
pub fn header(path: &[u8]) -> String {
    format!("diff --git {} {}", quoted("a/", path), quoted("b/", path))
}

/// As git writes names that have more than plain characters in them.
fn quoted(side: &str, path: &[u8]) -> String {
    let is_plain = |byte: u8| byte >= b' ' && byte != 127 && !b"\"\\".contains(&byte);
    match std::str::from_utf8(path) {
        Ok(text) if path.iter().copied().all(is_plain) => format!("{side}{text}"),
        _ => {
            let mut name = format!("\"{side}");
            for &byte in path {
                match byte {
                    b'"' | b'\\' => name.extend(['\\', char::from(byte)]),
                    byte if is_plain(byte) && byte.is_ascii() => name.push(char::from(byte)),
                    byte => drop(write!(name, "\\{byte:03o}")),
                }
            }
            name + "\""
        }
    }
}

/// Git writes nothing there.
fn is_of_git(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|name| name.eq_ignore_ascii_case(b".git"))
}

/// Lines added and removed, of text.
pub(super) fn count(
    root: &Root,
    record: &Record,
    difference: &Difference<'_>,
    budget: &mut Budget,
) -> Option<(u64, u64)> {
    if !difference.is_content() || budget.bytes == 0 {
        return None;
    }
    let (old, new) = sides(root, record, difference);
    budget.bytes = budget.bytes.saturating_sub(old.len() + new.len());
    let lines = |text: &str| text.split_inclusive('\n').count() as u64;
    match (&old, &new) {
        (Side::Nothing, Side::Text(new)) => Some((lines(new), 0)),
        (Side::Text(old), Side::Nothing) => Some((0, lines(old))),
        (Side::Text(old), Side::Text(new)) => {
            let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old.as_str(), new.as_str());
            let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count() as u64;
            Some((count(ChangeTag::Insert), count(ChangeTag::Delete)))
        }
        _ => None,
    }
}

fn one(root: &Root, record: &Record, difference: &Difference<'_>, text: &mut String) {
    let path = show(difference.path);
    let before = match &difference.entry.was {
        Was::Absent => None,
        Was::Folder { .. } => Some(FOLDER),
        Was::Link { .. } => Some(LINK),
        Was::File(file) => Some(file_mode(file.mode)),
    };
    let now = match &difference.now {
        Now::Absent => None,
        Now::Is(now) => Some(match now.kind {
            Kind::Folder => FOLDER,
            Kind::Link => LINK,
            Kind::File | Kind::Special => file_mode(now.mode),
        }),
        Now::Unseen(refusal) => {
            let _ = writeln!(text, "# {path}: it cannot be looked at: {refusal}");
            return;
        }
    };
    // Git knows no folders.
    let (old_mode, new_mode) = (before.filter(|mode| *mode != FOLDER), now.filter(|mode| *mode != FOLDER));
    if before == Some(FOLDER) || now == Some(FOLDER) {
        let word = match (before, now) {
            (Some(FOLDER), Some(FOLDER)) => "folder changed",
            (_, Some(FOLDER)) => "folder added",
            _ => "folder removed",
        };
        let _ = writeln!(text, "# {word}: {path}");
    }
    if old_mode.is_none() && new_mode.is_none() {
        return;
    }
    let (old, new) = sides(root, record, difference);
    match (old_mode, new_mode) {
        (Some(old_mode), Some(new_mode)) if (old_mode == LINK) != (new_mode == LINK) => {
            // What becomes something else goes, and the other comes.
            patch(difference.path, Some(old_mode), None, &old, &Side::Nothing, text);
            patch(difference.path, None, Some(new_mode), &Side::Nothing, &new, text);
        }
        _ if difference.change == Change::Attributes && old_mode == new_mode => {
            let _ = writeln!(text, "# only its time or mode: {path}");
        }
        _ => patch(difference.path, old_mode, new_mode, &old, &new, text),
    }
}

const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// The two that git knows.
const fn file_mode(mode: u32) -> u32 {
    if mode & 0o100 == 0 { 0o100_644 } else { 0o100_755 }
}

fn patch(path: &[u8], old_mode: Option<u32>, new_mode: Option<u32>, old: &Side, new: &Side, text: &mut String) {
    let (a, b) = (quoted("a/", path), quoted("b/", path));
    if matches!(old, Side::Unread) || matches!(new, Side::Unread) {
        let _ = writeln!(text, "{NOT_SHOWN}{}", show(path));
        return;
    }
    let _ = writeln!(text, "{}", header(path));
    match (old_mode, new_mode) {
        (None, Some(mode)) => drop(writeln!(text, "new file mode {mode:o}")),
        (Some(mode), None) => drop(writeln!(text, "deleted file mode {mode:o}")),
        (Some(old), Some(new)) if old != new => drop(writeln!(text, "old mode {old:o}\nnew mode {new:o}")),
        _ => {}
    }
    if let (Side::Binary(_), _) | (_, Side::Binary(_)) = (old, new) {
        binary::write(old.bytes(), new.bytes(), old_mode.is_some(), new_mode.is_some(), text);
        return;
    }
    // A name with a space in it ends with a tab here.
    let ended = |name: String| if name.contains(' ') && !name.starts_with('"') { name + "\t" } else { name };
    let a = if old_mode.is_none() { "/dev/null".to_owned() } else { ended(a) };
    let b = if new_mode.is_none() { "/dev/null".to_owned() } else { ended(b) };
    let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old.text(), new.text());
    let _ = write!(text, "{}", diff.unified_diff().context_radius(3).header(&a, &b));
}

fn sides(root: &Root, record: &Record, difference: &Difference<'_>) -> (Side, Side) {
    let old = match &difference.entry.was {
        Was::Absent | Was::Folder { .. } => Side::Nothing,
        Was::Link { target, .. } => Side::of(unshow(target)),
        Was::File(file) if file.size > LARGEST => Side::Unread,
        Was::File(file) => kept(record, file).map_or(Side::Unread, Side::read),
    };
    let new = match &difference.now {
        Now::Absent => Side::Nothing,
        Now::Is(now) if now.is_folder() => Side::Nothing,
        Now::Is(now) => root.look(difference.path).map_or(Side::Unread, |found| match now.kind {
            Kind::Link => found.target().map_or(Side::Unread, Side::of),
            Kind::File if now.size <= LARGEST => {
                found.reopen(OFlags::RDONLY).map_or(Side::Unread, |file| Side::read(file.into()))
            }
            Kind::File | Kind::Folder | Kind::Special => Side::Unread,
        }),
        Now::Unseen(_) => Side::Unread,
    };
    (old, new)
}

// === impl Side ===

impl Side {
    fn read(file: std::fs::File) -> Self {
        let mut bytes = Vec::new();
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        if read.is_err() || bytes.len() as u64 > LARGEST { Self::Unread } else { Self::of(bytes) }
    }

    /// As git decides it; what is no UTF-8 cannot be shown as text either.
    fn of(bytes: Vec<u8>) -> Self {
        if bytes.iter().take(8000).any(|&byte| byte == 0) {
            return Self::Binary(bytes);
        }
        String::from_utf8(bytes).map_or_else(|error| Self::Binary(error.into_bytes()), Self::Text)
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
            Self::Nothing | Self::Unread => &[],
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Nothing | Self::Binary(_) | Self::Unread => "",
        }
    }

    fn len(&self) -> u64 {
        self.bytes().len() as u64
    }
}

// === impl Budget ===

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}
