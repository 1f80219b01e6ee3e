//! Reads git's index as git does: whoever writes one may not lead git on the host to other files than those that are seen in
//! it here, nor hide files from it.
//!
//! Git takes the lengths in an index at their word and checks no path, so whatever git itself wouldn't have written is refused.

use std::{collections::BTreeSet, ops::Range};

use super::{
    filter::fold,
    git_guard::{is_git, trimmed},
    refusal::ExportRefusal,
};

const BAD: ExportRefusal = ExportRefusal::Denied("git on the host couldn't read this index");
const OUTSIDE: ExportRefusal = ExportRefusal::Denied("the index contains a path that git must not write to");
const HIDES: ExportRefusal = ExportRefusal::Denied(
    "the index hides files from git on the host (assume-unchanged, skip-worktree or an extension)",
);

const ASSUMED: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const NAME_LENGTH: u16 = 0x0fff;
/// Of the extended flags.
const SKIPPED: u16 = 0x4000;
const INTENDED: u16 = 0x2000;
/// Times, device, inode, mode, owners, size.
const STAT: usize = 40;
const MODE: Range<usize> = 24..28;

/// The longest path that a system call takes.
const MAX_PATH: usize = 4096;
/// Of all paths together. In version 4, a few bytes can stand for a long one.
const MAX_PATHS: usize = 256 << 20;

/// What an index says about a path, without the times and numbers by which git notices changes.
struct GitIndexEntry<'a> {
    mode: &'a [u8],
    id: &'a [u8],
    flags: (u16, u16),
    path: &'a [u8],
}

/// Whether a part of the entries is in another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexKind {
    Whole,
    Split,
}

/// Something of an index that is looked at.
enum GitIndexPart<'a> {
    Entry(GitIndexEntry<'a>),
    /// One of those that say what needn't be checked.
    Extension(&'a [u8]),
}

/// A path, and its mode, object and stage.
type GitPathState = (Vec<u8>, Vec<u8>);

/// Whether an index can be written: it names only files of the working tree, and hides only those that `may_hide` knows. `id` is
/// the length in bytes of an object id.
pub(super) fn check(bytes: &[u8], id: usize, may_hide: impl Fn(&[u8]) -> bool) -> Result<(), ExportRefusal> {
    read(bytes, id, IndexKind::Whole, |part| match part.hides() {
        Some(hidden) if !may_hide(&hidden) => Err(HIDES),
        _ => Ok(()),
    })
}

/// The paths that git doesn't check, and extensions that make it skip checks.
pub(super) fn hidden(bytes: &[u8], id: usize) -> Result<BTreeSet<Vec<u8>>, ExportRefusal> {
    let mut hidden = BTreeSet::new();
    read(bytes, id, IndexKind::Whole, |part| {
        hidden.extend(part.hides());
        Ok(())
    })?;
    Ok(hidden)
}

/// Whether git, reading this index, gets to files of its working tree only. One that is split has the rest elsewhere.
pub(crate) fn stays_inside(bytes: &[u8], id: usize) -> bool {
    [IndexKind::Whole, IndexKind::Split].into_iter().any(|kind| read(bytes, id, kind, |_| Ok(())).is_ok())
}

/// What an index says about all paths. Two with the same content differ only in what git found out about the files. `None` if
/// git couldn't read it either.
pub(crate) fn index_content(bytes: &[u8]) -> Option<Vec<u8>> {
    [20, 32].into_iter().find_map(|id| {
        let (mut content, mut hides) = (Vec::new(), BTreeSet::new());
        let read = read(bytes, id, IndexKind::Whole, |part| {
            hides.extend(part.hides());
            if let GitIndexPart::Entry(entry) = part {
                content.extend_from_slice(entry.mode);
                content.extend_from_slice(entry.id);
                content.extend(entry.flags.0.to_be_bytes());
                content.extend(entry.flags.1.to_be_bytes());
                content.extend_from_slice(entry.path);
                content.push(0);
            }
            Ok(())
        });
        read.ok()?;
        hides.iter().for_each(|path| content.extend_from_slice(path));
        Some(content)
    })
}

/// What an index says about some paths.
pub(super) fn index_entries(
    bytes: &[u8],
    id: usize,
    are_wanted: impl Fn(&[u8]) -> bool,
) -> Result<BTreeSet<GitPathState>, ExportRefusal> {
    let mut entries = BTreeSet::new();
    read(bytes, id, IndexKind::Whole, |part| {
        if let GitIndexPart::Entry(entry) = part
            && are_wanted(entry.path)
        {
            let stage = (entry.flags.0 & STAGE).to_be_bytes();
            entries.insert((entry.path.to_vec(), [entry.mode, entry.id, &stage].concat()));
        }
        Ok(())
    })?;
    Ok(entries)
}

/// Reads versions 2 to 4, as described in `gitformat-index`.
fn read(
    bytes: &[u8],
    id: usize,
    kind: IndexKind,
    mut each: impl FnMut(GitIndexPart<'_>) -> Result<(), ExportRefusal>,
) -> Result<(), ExportRefusal> {
    let mut reader = GitIndexReader { bytes, at: 0 };
    if reader.take(4)? != b"DIRC" {
        return Err(BAD);
    }
    let (version, count) = (reader.number()?, reader.number()?);
    if !(2..=4).contains(&version) {
        return Err(BAD);
    }
    let (mut before, mut paths) = (None::<(Vec<u8>, u16)>, 0);
    // Where entries start at which git could begin, as it does in several threads.
    let mut starts = Vec::new();
    for _ in 0..count {
        let start = reader.at;
        let stat = reader.take(STAT + id)?;
        let flags = reader.short()?;
        let more = if flags & EXTENDED == 0 { 0 } else { reader.short()? };
        if (version == 2 && flags & EXTENDED != 0) || more & !(SKIPPED | INTENDED) != 0 {
            return Err(BAD);
        }
        let mut path = Vec::new();
        if version == 4 {
            let (last, cut) = (before.as_ref().map_or(&[][..], |(path, _)| path.as_slice()), reader.varint()?);
            path.extend_from_slice(&last[..last.len().checked_sub(cut).ok_or(BAD)?]);
        }
        if path.is_empty() {
            starts.push(start);
        }
        path.extend_from_slice(reader.until_nul()?);
        paths += path.len();
        // Git goes by this length, unless it is the longest.
        if path.len() > MAX_PATH
            || paths > MAX_PATHS
            || usize::from(flags & NAME_LENGTH) != path.len().min(NAME_LENGTH.into())
        {
            return Err(BAD);
        }
        if version < 4 {
            // One to eight NULs, padding to a multiple of eight.
            let length = reader.at - 1 - start;
            if reader.take((length / 8 + 1) * 8 - length - 1)?.iter().any(|&byte| byte != 0) {
                return Err(BAD);
            }
        }
        let stage = flags & STAGE;
        let follows = |(last, last_stage): &(Vec<u8>, u16)| (last, *last_stage) < (&path, stage);
        let is_elsewhere = kind == IndexKind::Split && path.is_empty();
        if !is_elsewhere && !before.as_ref().is_none_or(|last| kind == IndexKind::Split || follows(last)) {
            return Err(BAD);
        }
        if !is_elsewhere && is_outside(&path) {
            return Err(OUTSIDE);
        }
        let flags = (flags & !NAME_LENGTH, more);
        each(GitIndexPart::Entry(GitIndexEntry { mode: &stat[MODE], id: &stat[STAT..], flags, path: &path }))?;
        before = Some((path, stage));
    }
    let (end, mut is_split) = (reader.at, false);
    while reader.left() > id {
        let name = reader.take(4)?;
        let length = usize::try_from(reader.number()?).map_err(|_| BAD)?;
        let mut content = GitIndexReader { bytes: reader.take(length)?, at: 0 };
        match name {
            b"TREE" | b"REUC" | b"sdir" => {}
            b"UNTR" | b"FSMN" => each(GitIndexPart::Extension(name))?,
            b"link" => is_split = true,
            // Git would look there for more of them.
            b"EOIE" if usize::try_from(content.number()?) == Ok(end) => {}
            b"IEOT" => check_blocks(&mut content, &starts, count)?,
            // Git passes over it, and so may others over what is in it.
            _ => return Err(BAD),
        }
    }
    if reader.left() == id && is_split == (kind == IndexKind::Split) { Ok(()) } else { Err(BAD) }
}

/// Git can begin with each block of entries by itself.
fn check_blocks(content: &mut GitIndexReader<'_>, starts: &[usize], count: u32) -> Result<(), ExportRefusal> {
    let (mut listed, version) = (0_u32, content.number()?);
    while content.left() > 0 {
        let (start, entries) = (content.number()?, content.number()?);
        let is_known = usize::try_from(start).is_ok_and(|start| starts.binary_search(&start).is_ok());
        if version != 1 || !is_known {
            return Err(BAD);
        }
        listed = listed.checked_add(entries).ok_or(BAD)?;
    }
    if listed == count { Ok(()) } else { Err(BAD) }
}

/// Git checks paths when they are added to an index, but not when an index is read.
fn is_outside(path: &[u8]) -> bool {
    // A folder of a sparse index ends with a slash.
    let path = fold(path.strip_suffix(b"/").unwrap_or(path));
    path.split(|&byte| byte == b'/').any(|name| matches!(name, b"" | b"." | b"..") || is_git(trimmed(name)))
}

// === impl GitIndexPart ===

impl GitIndexPart<'_> {
    fn hides(&self) -> Option<Vec<u8>> {
        match self {
            Self::Entry(GitIndexEntry { flags: (flags, more), path, .. }) => {
                (flags & ASSUMED != 0 || more & SKIPPED != 0).then(|| path.to_vec())
            }
            Self::Extension(name) => Some([b"/", *name].concat()),
        }
    }
}

struct GitIndexReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

// === impl GitIndexReader ===

impl<'a> GitIndexReader<'a> {
    const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ExportRefusal> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(BAD)?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, ExportRefusal> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn short(&mut self) -> Result<u16, ExportRefusal> {
        let bytes = self.take(2)?;
        Ok(u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn until_nul(&mut self) -> Result<&'a [u8], ExportRefusal> {
        let length = self.bytes[self.at..].iter().position(|&byte| byte == 0).ok_or(BAD)?;
        let taken = self.take(length)?;
        self.take(1)?;
        Ok(taken)
    }

    /// Encoded like offsets in a pack.
    fn varint(&mut self) -> Result<usize, ExportRefusal> {
        let mut value = 0_usize;
        loop {
            let byte = self.take(1)?[0];
            value = value.checked_shl(7).and_then(|value| value.checked_add(usize::from(byte & 0x7f))).ok_or(BAD)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            value = value.checked_add(1).ok_or(BAD)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: usize = 20;

    /// As git writes an entry of version 2, but for what the arguments say.
    fn entry(path: &str, length: usize, padding: u8) -> Vec<u8> {
        let mut entry = vec![0; STAT];
        entry[MODE].copy_from_slice(&0o100_644_u32.to_be_bytes());
        entry.extend([7; ID]);
        entry.extend(u16::try_from(length).unwrap().to_be_bytes());
        entry.extend(path.as_bytes());
        let end = (entry.len() / 8 + 1) * 8;
        entry.push(0);
        entry.resize(end, padding);
        entry
    }

    fn index(version: u32, entries: &[Vec<u8>], extensions: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(version.to_be_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        entries.iter().for_each(|entry| bytes.extend(entry));
        for (name, content) in extensions {
            bytes.extend(*name);
            bytes.extend(u32::try_from(content.len()).unwrap().to_be_bytes());
            bytes.extend(content);
        }
        bytes.extend([0; ID]);
        bytes
    }

    fn refusal(bytes: &[u8]) -> Option<String> {
        check(bytes, ID, |_| false).err().map(|refusal| refusal.to_string())
    }

    fn said(refusal: &ExportRefusal) -> Option<String> {
        Some(refusal.to_string())
    }

    #[test]
    fn git_finds_no_other_entries_than_those_that_were_checked() {
        let plain = |path: &str| entry(path, path.len(), 0);
        assert_eq!(refusal(&index(2, &[plain("a"), plain("b/c")], &[(b"TREE", vec![1, 2])])), None);
        // Git would go on behind the next entries, wherever that is.
        assert_eq!(refusal(&index(2, &[entry("a", 100, 0), plain("b")], &[])), said(&BAD));
        assert_eq!(refusal(&index(2, &[entry("aaa", 1, 0)], &[])), said(&BAD));
        assert_eq!(refusal(&index(2, &[entry("ab", 2, 1)], &[])), said(&BAD));
        assert_eq!(refusal(&index(2, &[plain("b"), plain("a")], &[])), said(&BAD));
        assert_eq!(refusal(&index(2, &[plain("a"), plain("a")], &[])), said(&BAD));
        assert_eq!(refusal(&index(2, &[plain("a")], &[(b"XTRA", vec![0; 8])])), said(&BAD));
        for path in ["../a", "a/../../b", "/etc/x", ".git/config", "a//b", "a/.GIT /x", "", "a/."] {
            assert_eq!(refusal(&index(2, &[plain(path)], &[])), said(&OUTSIDE), "{path}");
        }
        // Where entries end, and where git may begin.
        let end = |at: u32| (b"EOIE", [at.to_be_bytes().to_vec(), vec![0; ID]].concat());
        assert_eq!(refusal(&index(2, &[plain("a")], &[end(12 + 64 + 8)])), said(&BAD));
        assert_eq!(refusal(&index(2, &[plain("a")], &[end(12 + 64)])), None);
        let blocks = |blocks: &[[u32; 2]]| {
            (b"IEOT", [&[1][..], blocks.as_flattened()].concat().into_iter().flat_map(u32::to_be_bytes).collect())
        };
        let two = [plain("a"), plain("b")];
        assert_eq!(refusal(&index(2, &two, &[blocks(&[[12, 1], [76, 1]])])), None);
        assert_eq!(refusal(&index(2, &two, &[blocks(&[[12, 1], [84, 1]])])), said(&BAD));
        assert_eq!(refusal(&index(2, &two, &[blocks(&[[12, 2], [76, 1]])])), said(&BAD));
    }

    #[test]
    fn paths_that_grow_without_end_are_refused() {
        let grown = |path: &[u8], cut: u8| {
            let mut entry = vec![0; STAT + ID];
            entry.extend(u16::try_from(path.len()).unwrap().to_be_bytes());
            entry.push(cut);
            entry
        };
        let mut first = grown(b"a", 0);
        first.extend(b"a\0");
        let mut second = grown(b"aa", 0);
        second.extend(b"a\0");
        assert_eq!(refusal(&index(4, &[first.clone(), second.clone()], &[])), None);
        let blocks = |at: u32| (b"IEOT", [1, 12, 1, at, 1].into_iter().flat_map(u32::to_be_bytes).collect::<Vec<u8>>());
        // Alone, the second one would be another path.
        assert_eq!(refusal(&index(4, &[first.clone(), second], &[blocks(77)])), said(&BAD));
        let mut long = vec![0; STAT + ID];
        long.extend(NAME_LENGTH.to_be_bytes());
        long.push(0);
        long.extend([b'a'; MAX_PATH]);
        long.push(0);
        assert_eq!(refusal(&index(4, &[first, long], &[])), said(&BAD));
    }

    #[test]
    fn what_hides_files_is_known() {
        let mut assumed = entry("a", 1, 0);
        assumed[STAT + ID] |= 0x80;
        let bytes = index(2, &[assumed, entry("b", 1, 0)], &[(b"FSMN", vec![0; 4])]);
        let expected: BTreeSet<Vec<u8>> = [b"a".to_vec(), b"/FSMN".to_vec()].into();
        assert_eq!(hidden(&bytes, ID).unwrap(), expected);
        assert_eq!(refusal(&bytes), said(&HIDES));
        check(&bytes, ID, |hidden| expected.contains(hidden)).unwrap();
        assert!(stays_inside(&bytes, ID));
        // The shared part of a split one has the names.
        let split = index(2, &[entry("", 0, 0), entry("b", 1, 0)], &[(b"link", vec![0; ID])]);
        assert!(stays_inside(&split, ID) && check(&split, ID, |_| true).is_err());
        assert!(!stays_inside(&index(2, &[entry("../b", 4, 0)], &[(b"link", vec![0; ID])]), ID));
    }
}
