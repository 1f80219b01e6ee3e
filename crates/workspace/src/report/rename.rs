//! Files that a lease moved without changing a byte: the patch shows them as renames, as git does.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::File,
    io::{self, Read as _},
};

use attache_protocol::wire::delegation::FileChangeKind;
use aws_lc_rs::digest::{Context, SHA256};
use rustix::fs::OFlags;

use super::{
    autorun::AutorunPatterns,
    compare::{PathDifference, PathNow, is_spoiled, open_original},
    diff::{self, DiffSide, NOT_SHOWN},
};
use crate::export::{FileKind, LeaseRecord, OriginalFile, PathBefore, root::ExportRoot, show};

const FROM: &str = "rename from ";
const TO: &str = "rename to ";

/// The added files that are removed ones under another name: the position of each, and of its old name. Files that a
/// program would run keep their content in the patch.
pub(super) fn renames(
    root: &ExportRoot,
    record: &LeaseRecord,
    found: &[PathDifference<'_>],
    planted: &AutorunPatterns,
    max_file: u64,
) -> BTreeMap<usize, usize> {
    let mut removed: BTreeMap<u64, Vec<(usize, &OriginalFile)>> = BTreeMap::new();
    for (at, difference) in found.iter().enumerate() {
        if let (FileChangeKind::Removed, PathBefore::File(file)) = (difference.change, &difference.entry.was)
            && (1..=max_file).contains(&file.size)
            && !diff::is_of_git(difference.path)
            && !is_spoiled(record, file)
        {
            removed.entry(file.size).or_default().push((at, file));
        }
    }
    let mut digests: BTreeMap<usize, Option<Vec<u8>>> = BTreeMap::new();
    let mut renames = BTreeMap::new();
    for (at, difference) in found.iter().enumerate() {
        let PathNow::Is(now) = &difference.now else { continue };
        let is_plain = now.kind == FileKind::File && !diff::is_of_git(difference.path);
        if difference.change != FileChangeKind::Added || !is_plain || difference.run_by(planted).is_some() {
            continue;
        }
        let Some(candidates) = removed.get_mut(&now.size).filter(|candidates| !candidates.is_empty()) else { continue };
        let reopened = root.find(difference.path).and_then(|found| Ok(found.reopen(OFlags::RDONLY)?));
        let Some(digest) = reopened.ok().and_then(|file| digest(File::from(file)).ok()) else { continue };
        let mut is_same = |from: usize, file: &OriginalFile| {
            let original = || open_original(record, file).and_then(self::digest).ok();
            let is_apart = !is_below(found[from].path, difference.path) && !is_below(difference.path, found[from].path);
            is_apart && digests.entry(from).or_insert_with(original).as_ref() == Some(&digest)
        };
        let mut same: Vec<usize> =
            (0..candidates.len()).filter(|&one| is_same(candidates[one].0, candidates[one].1)).collect();
        // Of several, the one with the same name in another folder.
        same.sort_by_key(|&one| name(found[candidates[one].0].path) != name(difference.path));
        if let Some(&one) = same.first() {
            renames.insert(at, candidates.remove(one).0);
        }
    }
    renames
}

/// The part of a patch about a renamed file.
pub(super) fn part(from: &PathDifference<'_>, to: &PathDifference<'_>) -> String {
    let mut text = format!("diff --git {} {}\n", diff::quoted("a/", from.path), diff::quoted("b/", to.path));
    if let (PathBefore::File(was), PathNow::Is(now)) = (&from.entry.was, &to.now) {
        let (old, new) = (diff::file_mode(was.mode), diff::file_mode(now.mode));
        if old != new {
            let _ = writeln!(text, "old mode {old:o}\nnew mode {new:o}");
        }
    }
    let (from, to) = (diff::quoted("", from.path), diff::quoted("", to.path));
    let _ = writeln!(text, "similarity index 100%\n{FROM}{from}\n{TO}{to}");
    text
}

/// A saved diff in which renames of these paths are a removal and an addition, so that one of them can be taken out.
pub fn split_renames(diff: &str, record: &LeaseRecord, paths: &[String]) -> String {
    let mut split = String::new();
    for part in parts(diff) {
        let line = |start: &str| part.lines().find_map(|line| line.strip_prefix(start));
        let path = |name: &str| record.paths().find(|path| diff::quoted("", path) == name);
        let both = line(FROM).and_then(path).zip(line(TO).and_then(path));
        match both.filter(|(from, to)| paths.iter().any(|path| *path == show(from) || *path == show(to))) {
            Some((from, to)) => split.push_str(&removal_and_addition(record, part, from, to)),
            None => split.push_str(part),
        }
    }
    split
}

fn removal_and_addition(record: &LeaseRecord, part: &str, from: &[u8], to: &[u8]) -> String {
    let original = record.entries.get(from).and_then(|entry| match &entry.was {
        PathBefore::File(file) => Some((file, open_original(record, file).ok()?)),
        PathBefore::Absent | PathBefore::Folder { .. } | PathBefore::Link { .. } => None,
    });
    let Some((was, file)) = original else {
        return format!("{NOT_SHOWN}{}\n{NOT_SHOWN}{}\n", show(from), show(to));
    };
    let content = DiffSide::read(file, was.size);
    let old_mode = diff::file_mode(was.mode);
    let new_mode = part.lines().find_map(|line| u32::from_str_radix(line.strip_prefix("new mode ")?, 8).ok());
    let mut text = String::new();
    diff::patch(from, Some(old_mode), None, &content, &DiffSide::Nothing, &mut text);
    diff::patch(to, None, Some(new_mode.unwrap_or(old_mode)), &DiffSide::Nothing, &content, &mut text);
    text
}

/// A diff in its parts, each from its header on. No content line starts like a header: each has a sign in front.
fn parts(diff: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut at) = (Vec::new(), 0, 0);
    for line in diff.split_inclusive('\n') {
        if line.starts_with("diff --git ") || line.starts_with("# ") {
            parts.push(&diff[begin..at]);
            begin = at;
        }
        at += line.len();
    }
    parts.push(&diff[begin..]);
    parts
}

fn digest(mut file: File) -> io::Result<Vec<u8>> {
    let mut digest = Context::new(&SHA256);
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finish().as_ref().to_vec()),
            read => digest.update(&buffer[..read]),
        }
    }
}

fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"))
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|&byte| byte == b'/').next().unwrap_or(path)
}
