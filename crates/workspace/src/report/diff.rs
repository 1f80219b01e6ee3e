//! Differences as text: lines added and removed, and a patch as `git diff --binary` writes it and `git apply` accepts
//! it. What a patch can't express is in lines that start with `#`, which git ignores.

use std::{collections::BTreeSet, fmt::Write as _, io::Read as _, path::Path};

use attache_protocol::wire::delegation::FileChangeKind;
use rustix::fs::OFlags;

use super::{
    Error,
    autorun::AutorunPatterns,
    binary,
    compare::{PathDifference, PathNow, differences, open_original},
    hunks::TextHunks,
    moved::{MOVED_HERE, moved_here},
    open_root,
    rename::{self, renames},
    revert::resolve_paths,
};
use crate::export::{FileKind, LeaseRecord, PathBefore, from_shown, path::ExportPath, root::ExportRoot, show};

/// How much is read to count lines, over all files. Files beyond that are reported without line counts.
#[derive(Debug)]
pub(super) struct DiffBudget {
    pub(super) bytes: u64,
}

/// The content of one side.
pub(super) enum DiffSide {
    Nothing,
    Text(String),
    /// Not text.
    Binary(Vec<u8>),
    /// It can't be read, or is too large to show.
    Unread,
}

/// What a patch may hold, in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiffLimits {
    patch: usize,
    pub(super) file: u64,
}

/// The order of the files in a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PatchSection {
    /// Text that a program here would run without being asked.
    Planted,
    Text,
    Binary,
}

/// Starts the line that names a file whose change isn't in the patch: beyond the limit, too large, or unreadable.
pub const NOT_SHOWN: &str = "# not shown here: ";
/// Starts the line that names a file of a repository itself, which no patch can change.
pub const IN_REPOSITORY: &str = "# in the git repository: ";
/// Starts the line that names a file which a program runs or obeys without being asked.
pub const REVIEW_FIRST: &str = "# look at this first: ";
/// So many files that were moved here are named.
const MAX_MOVED: usize = 200;
/// Larger files are reported without line counts.
const MAX_DIFFED_FILE: u64 = 4 << 20;
/// For paths that were requested explicitly.
pub(super) const REQUESTED: DiffLimits = DiffLimits { patch: 256 << 20, file: 64 << 20 };

/// The changes as a patch of at most `most` bytes. What doesn't fit is only named. Text comes before binary files, and
/// the smallest files get their place first, so that no large file hides a small change. Files that a program here
/// would run without being asked are named at the top, and come first. A file that only moved is a rename.
pub fn diff(dir: &Path, record: &LeaseRecord, most: usize) -> Result<String, Error> {
    let root = open_root(dir)?;
    let limits = DiffLimits { patch: most, file: MAX_DIFFED_FILE };
    let mut text = String::new();
    for file in moved_here(&root, record).iter().take(MAX_MOVED) {
        let _ = writeln!(text, "{MOVED_HERE}{file}");
    }
    text.push_str(&render(&root, record, &differences(&root, record), limits)?);
    Ok(text)
}

/// The changes to these paths and to everything below them, up to a much higher limit.
pub fn diff_of(dir: &Path, record: &LeaseRecord, paths: &[String]) -> Result<String, Error> {
    let requested = resolve_paths(record, paths)?;
    let root = open_root(dir)?;
    let mut found = differences(&root, record);
    found.retain(|difference| {
        let is_requested = |path: ExportPath| requested.iter().any(|place| path == *place || path.is_below(place));
        ExportPath::parse(difference.path).is_ok_and(is_requested)
    });
    render(&root, record, &found, REQUESTED)
}

fn render(
    root: &ExportRoot,
    record: &LeaseRecord,
    found: &[PathDifference<'_>],
    limits: DiffLimits,
) -> Result<String, Error> {
    let planted = AutorunPatterns::new()?;
    let (mut text, mut in_repository) = (String::new(), String::new());
    let mut waiting: Vec<(bool, usize)> = Vec::new();
    let renamed = renames(root, record, found, &planted, limits.file);
    let old_names: BTreeSet<usize> = renamed.values().copied().collect();
    for (at, difference) in found.iter().enumerate().filter(|(at, _)| !old_names.contains(at)) {
        let program = difference.run_by(&planted);
        if let Some(program) = program {
            let _ = writeln!(text, "{REVIEW_FIRST}{} (run or obeyed by {program})", show(difference.path));
        }
        if is_of_git(difference.path) {
            let _ = writeln!(in_repository, "{IN_REPOSITORY}{}", show(difference.path));
        } else {
            waiting.push((program.is_some(), at));
        }
    }
    waiting.sort_by_key(|&(is_planted, at)| (!is_planted, found[at].size()));
    let mut shown: Vec<(PatchSection, usize, String)> = Vec::new();
    let (mut left, mut used) = (Vec::new(), 0);
    // Binary files wait until all text has its place. Planted files take at most half before other text.
    for is_last in [false, true] {
        let (mut later, mut budget) = (Vec::new(), DiffBudget::default());
        for (is_planted, at) in waiting {
            if budget.bytes == 0 || used >= limits.patch {
                left.push(at);
                continue;
            }
            let (section, part) = if let Some(&from) = renamed.get(&at) {
                (PatchSection::Text, Some(rename::part(&found[from], &found[at])))
            } else {
                let (old, new) = sides(root, record, &found[at], limits.file);
                budget.bytes = budget.bytes.saturating_sub(old.len() + new.len());
                let section = PatchSection::of(&old, &new, is_planted);
                if section == PatchSection::Binary && !is_last {
                    later.push((is_planted, at));
                    continue;
                }
                (section, one(&found[at], &old, &new))
            };
            let Some(part) = part else {
                left.push(at);
                continue;
            };
            let end = used + part.len();
            if section == PatchSection::Planted && !is_last && end > limits.patch / 2 {
                later.push((is_planted, at));
            } else if end > limits.patch {
                left.push(at);
            } else {
                used = end;
                shown.push((section, at, part));
            }
        }
        waiting = later;
    }
    shown.sort_by_key(|&(section, at, _)| (section, at));
    shown.iter().for_each(|(_, _, part)| text.push_str(part));
    text.push_str(&in_repository);
    left.sort_unstable();
    for at in left.into_iter().flat_map(|at| renamed.get(&at).copied().into_iter().chain([at])) {
        let _ = writeln!(text, "{NOT_SHOWN}{}", show(found[at].path));
    }
    Ok(text)
}

/// The first line of the part of a patch about a path.
pub fn header(path: &[u8]) -> String {
    format!("diff --git {} {}", quoted("a/", path), quoted("b/", path))
}

/// Quotes names as git does if they have more than plain characters.
pub(super) fn quoted(side: &str, path: &[u8]) -> String {
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

/// Git ignores patches to these paths.
pub(super) fn is_of_git(path: &[u8]) -> bool {
    path.split(|&byte| byte == b'/').any(|name| name.eq_ignore_ascii_case(b".git"))
}

/// The numbers of lines added and removed, for text.
pub(super) fn count(
    root: &ExportRoot,
    record: &LeaseRecord,
    difference: &PathDifference<'_>,
    budget: &mut DiffBudget,
) -> Option<(u64, u64)> {
    if !difference.is_content() || budget.bytes == 0 {
        return None;
    }
    let (old, new) = sides(root, record, difference, MAX_DIFFED_FILE);
    budget.bytes = budget.bytes.saturating_sub(old.len() + new.len());
    lines(&old, &new)
}

/// The numbers of lines added and removed, for text.
pub(super) fn lines(old: &DiffSide, new: &DiffSide) -> Option<(u64, u64)> {
    let lines = |text: &str| text.split_inclusive('\n').count() as u64;
    match (old, new) {
        (DiffSide::Nothing, DiffSide::Text(new)) => Some((lines(new), 0)),
        (DiffSide::Text(old), DiffSide::Nothing) => Some((0, lines(old))),
        (DiffSide::Text(old), DiffSide::Text(new)) => Some(TextHunks::of(old, new).lines()),
        _ => None,
    }
}

/// The part of a patch about one path. `None` if a side can't be shown.
pub(super) fn one(difference: &PathDifference<'_>, old: &DiffSide, new: &DiffSide) -> Option<String> {
    let (path, mut text) = (show(difference.path), String::new());
    let before = match &difference.entry.was {
        PathBefore::Absent => None,
        PathBefore::Folder { .. } => Some(FOLDER),
        PathBefore::Link { .. } => Some(LINK),
        PathBefore::File(file) => Some(file_mode(file.mode)),
    };
    let now = match &difference.now {
        PathNow::Absent => None,
        PathNow::Is(now) => Some(match now.kind {
            FileKind::Folder => FOLDER,
            FileKind::Link => LINK,
            FileKind::File | FileKind::Special => file_mode(now.mode),
        }),
        PathNow::Unseen(refusal) => {
            let _ = writeln!(text, "# {path}: can't be read: {refusal}");
            return Some(text);
        }
    };
    // Git doesn't track folders.
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
        return Some(text);
    }
    if difference.change == FileChangeKind::Attributes && old_mode == new_mode {
        let _ = writeln!(text, "# only its time or mode: {path}");
        return Some(text);
    }
    if matches!(old, DiffSide::Unread) || matches!(new, DiffSide::Unread) {
        return None;
    }
    match (old_mode, new_mode) {
        (Some(old_mode), Some(new_mode)) if (old_mode == LINK) != (new_mode == LINK) => {
            // A change of type is a removal and an addition.
            patch(difference.path, Some(old_mode), None, old, &DiffSide::Nothing, &mut text);
            patch(difference.path, None, Some(new_mode), &DiffSide::Nothing, new, &mut text);
        }
        _ => patch(difference.path, old_mode, new_mode, old, new, &mut text),
    }
    Some(text)
}

const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

/// The two modes that git knows.
pub(super) const fn file_mode(mode: u32) -> u32 {
    if mode & 0o100 == 0 { 0o100_644 } else { 0o100_755 }
}

pub(super) fn patch(
    path: &[u8],
    old_mode: Option<u32>,
    new_mode: Option<u32>,
    old: &DiffSide,
    new: &DiffSide,
    text: &mut String,
) {
    let (a, b) = (quoted("a/", path), quoted("b/", path));
    let _ = writeln!(text, "{}", header(path));
    match (old_mode, new_mode) {
        (None, Some(mode)) => drop(writeln!(text, "new file mode {mode:o}")),
        (Some(mode), None) => drop(writeln!(text, "deleted file mode {mode:o}")),
        (Some(old), Some(new)) if old != new => drop(writeln!(text, "old mode {old:o}\nnew mode {new:o}")),
        _ => {}
    }
    if let (DiffSide::Binary(_), _) | (_, DiffSide::Binary(_)) = (old, new) {
        binary::write(old.bytes(), new.bytes(), old_mode.is_some(), new_mode.is_some(), text);
        return;
    }
    // A name with a space ends with a tab here.
    let with_tab = |name: String| if name.contains(' ') && !name.starts_with('"') { name + "\t" } else { name };
    let a = if old_mode.is_none() { "/dev/null".to_owned() } else { with_tab(a) };
    let b = if new_mode.is_none() { "/dev/null".to_owned() } else { with_tab(b) };
    let hunks = TextHunks::of(old.text(), new.text());
    if hunks.len() > 0 {
        let _ = writeln!(text, "--- {a}\n+++ {b}");
        hunks.write(text);
    }
}

pub(super) fn sides(
    root: &ExportRoot,
    record: &LeaseRecord,
    difference: &PathDifference<'_>,
    max_file: u64,
) -> (DiffSide, DiffSide) {
    let old = match &difference.entry.was {
        PathBefore::Absent | PathBefore::Folder { .. } => DiffSide::Nothing,
        PathBefore::Link { target, .. } => DiffSide::of(from_shown(target)),
        PathBefore::File(file) if file.size > max_file => DiffSide::Unread,
        PathBefore::File(file) => {
            open_original(record, file).map_or(DiffSide::Unread, |file| DiffSide::read(file, max_file))
        }
    };
    let new = match &difference.now {
        PathNow::Absent => DiffSide::Nothing,
        PathNow::Is(now) if now.is_folder() => DiffSide::Nothing,
        PathNow::Is(now) => root.find(difference.path).map_or(DiffSide::Unread, |found| match now.kind {
            FileKind::Link => found.target().map_or(DiffSide::Unread, DiffSide::of),
            FileKind::File if now.size <= max_file => {
                found.reopen(OFlags::RDONLY).map_or(DiffSide::Unread, |file| DiffSide::read(file.into(), max_file))
            }
            FileKind::File | FileKind::Folder | FileKind::Special => DiffSide::Unread,
        }),
        PathNow::Unseen(_) => DiffSide::Unread,
    };
    (old, new)
}

// === impl PatchSection ===

impl PatchSection {
    pub(super) const fn of(old: &DiffSide, new: &DiffSide, is_planted: bool) -> Self {
        match (old.is_binary() || new.is_binary(), is_planted) {
            (true, _) => Self::Binary,
            (false, true) => Self::Planted,
            (false, false) => Self::Text,
        }
    }
}

// === impl DiffSide ===

impl DiffSide {
    pub(super) fn read(file: std::fs::File, max: u64) -> Self {
        let mut bytes = Vec::new();
        let read = file.take(max + 1).read_to_end(&mut bytes);
        if read.is_err() || bytes.len() as u64 > max { Self::Unread } else { Self::of(bytes) }
    }

    /// As git decides. Invalid UTF-8 can't be shown as text either.
    fn of(bytes: Vec<u8>) -> Self {
        if bytes.iter().take(8000).any(|&byte| byte == 0) {
            return Self::Binary(bytes);
        }
        String::from_utf8(bytes).map_or_else(|error| Self::Binary(error.into_bytes()), Self::Text)
    }

    pub(super) fn bytes(&self) -> &[u8] {
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

    const fn is_binary(&self) -> bool {
        matches!(self, Self::Binary(_))
    }

    pub(super) fn len(&self) -> u64 {
        self.bytes().len() as u64
    }
}

// === impl DiffBudget ===

impl Default for DiffBudget {
    fn default() -> Self {
        Self { bytes: 256 << 20 }
    }
}
