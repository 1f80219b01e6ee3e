//! Differences as text: lines added and removed, and a unified diff as `git diff` writes it.

use std::{fmt::Write as _, io::Read as _, path::Path, time::Duration};

use attache_protocol::wire::delegation::Change;
use rustix::fs::OFlags;
use similar::{ChangeTag, TextDiff};

use super::{
    Error,
    compare::{Difference, Now, differences, kept},
};
use crate::export::{Kind, Record, Was, root::Root, show};

/// How much is read to count lines, over all files; what is beyond is told without lines.
#[derive(Debug)]
pub(super) struct Budget {
    bytes: u64,
}

/// The content of one side.
enum Side {
    Nothing,
    Text(String),
    Binary,
}

/// Begins the line that names a file beyond the longest diff.
pub const NOT_SHOWN: &str = "# not shown here: ";
/// Larger files are told without lines.
const LARGEST: u64 = 4 << 20;
/// A diff that takes longer is a rougher one.
const PATIENCE: Duration = Duration::from_millis(500);

/// What changed, as a unified diff of at most about `most` bytes; the rest is named.
pub fn diff(dir: &Path, record: &Record, most: usize) -> Result<String, Error> {
    let root = Root::open(dir)?;
    let mut text = String::new();
    for difference in differences(&root, record) {
        if text.len() > most {
            let _ = writeln!(text, "{NOT_SHOWN}{}", show(difference.path));
            continue;
        }
        one(&root, record, &difference, &mut text);
    }
    Ok(text)
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
        (Side::Binary, _) | (_, Side::Binary) | (Side::Nothing, Side::Nothing) => None,
        (Side::Nothing, Side::Text(new)) => Some((lines(new), 0)),
        (Side::Text(old), Side::Nothing) => Some((0, lines(old))),
        (Side::Text(old), Side::Text(new)) => {
            let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old.as_str(), new.as_str());
            let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count() as u64;
            Some((count(ChangeTag::Insert), count(ChangeTag::Delete)))
        }
    }
}

fn one(root: &Root, record: &Record, difference: &Difference<'_>, text: &mut String) {
    let path = show(difference.path);
    let mode_before = match &difference.entry.was {
        Was::Absent => None,
        Was::Folder { mode, .. } => Some(0o40000 | mode),
        Was::Link { .. } => Some(0o120_000),
        Was::File(file) => Some(0o100_000 | file.mode),
    };
    let _ = writeln!(text, "diff --git a/{path} b/{path}");
    let mode_now = match &difference.now {
        Now::Absent => None,
        Now::Is(now) => Some(match now.kind {
            Kind::Folder => 0o40000 | now.mode,
            Kind::Link => 0o120_000,
            Kind::File | Kind::Special => 0o100_000 | now.mode,
        }),
        Now::Unseen(refusal) => {
            let _ = writeln!(text, "# it cannot be looked at: {refusal}");
            return;
        }
    };
    match (mode_before, mode_now) {
        (None, Some(mode)) => drop(writeln!(text, "new file mode {mode:o}")),
        (Some(mode), None) => drop(writeln!(text, "deleted file mode {mode:o}")),
        (Some(old), Some(new)) if old != new => drop(writeln!(text, "old mode {old:o}\nnew mode {new:o}")),
        _ => {}
    }
    if difference.change == Change::Attributes {
        return;
    }
    let (old, new) = sides(root, record, difference);
    let side = |side: &Side, letter: char| match side {
        Side::Nothing => "/dev/null".to_owned(),
        Side::Text(_) | Side::Binary => format!("{letter}/{path}"),
    };
    let (a, b) = (side(&old, 'a'), side(&new, 'b'));
    match (&old, &new) {
        (Side::Binary, _) | (_, Side::Binary) => drop(writeln!(text, "Binary files {a} and {b} differ")),
        (old, new) => {
            let diff = TextDiff::configure().timeout(PATIENCE).diff_lines(old.text(), new.text());
            let _ = write!(text, "{}", diff.unified_diff().context_radius(3).header(&a, &b));
        }
    }
}

/// What cannot be read is shown as if it were no text.
fn sides(root: &Root, record: &Record, difference: &Difference<'_>) -> (Side, Side) {
    let old = match &difference.entry.was {
        Was::Absent | Was::Folder { .. } => Side::Nothing,
        Was::Link { target, .. } => Side::Text(target.clone()),
        Was::File(file) if file.size > LARGEST => Side::Binary,
        Was::File(file) => kept(record, file).map_or(Side::Binary, Side::read),
    };
    let new = match &difference.now {
        Now::Absent => Side::Nothing,
        Now::Is(now) if now.is_folder() => Side::Nothing,
        Now::Is(now) => root.look(difference.path).map_or(Side::Binary, |found| match now.kind {
            Kind::Link => found.target().map_or(Side::Binary, |target| Side::Text(show(&target))),
            Kind::File if now.size <= LARGEST => {
                found.reopen(OFlags::RDONLY).map_or(Side::Binary, |file| Side::read(file.into()))
            }
            Kind::File | Kind::Folder | Kind::Special => Side::Binary,
        }),
        Now::Unseen(_) => Side::Binary,
    };
    (old, new)
}

// === impl Side ===

impl Side {
    fn read(file: std::fs::File) -> Self {
        let mut bytes = Vec::new();
        let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
        // As git decides it; what is no UTF-8 cannot be shown as text either.
        if read.is_err() || bytes.len() as u64 > LARGEST || bytes.iter().take(8000).any(|&byte| byte == 0) {
            return Self::Binary;
        }
        String::from_utf8(bytes).map_or(Self::Binary, Self::Text)
    }

    fn text(&self) -> &str {
        match self {
            Self::Text(text) => text,
            Self::Nothing | Self::Binary => "",
        }
    }

    fn len(&self) -> u64 {
        self.text().len() as u64
    }
}

// === impl Budget ===

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}
