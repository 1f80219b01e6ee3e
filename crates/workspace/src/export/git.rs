//! Checks files that git on the host would trust before they get the name under which git looks for them: `HEAD`, refs,
//! packed refs and the index. A remote can commit through them, but can't redirect git or hide anything from it.

use std::collections::BTreeSet;

use super::{
    filter::fold,
    git_guard::{TrustedGitFile, is_git, is_ref_part, trimmed},
    refusal::ExportRefusal,
};

/// The size limit of each kind of file.
pub(super) const fn longest(kind: TrustedGitFile) -> u64 {
    match kind {
        TrustedGitFile::Head | TrustedGitFile::Ref => 4 << 10,
        TrustedGitFile::PackedRefs => 64 << 20,
        TrustedGitFile::Index => 256 << 20,
        TrustedGitFile::Stored(_) => u64::MAX,
    }
}

const BAD_REF: ExportRefusal =
    ExportRefusal::Denied("git on the host couldn't read it: a ref is an object id or `ref: refs/…`");
const BAD_HEAD: ExportRefusal =
    ExportRefusal::Denied("git on the host couldn't read it: HEAD is an object id or `ref: refs/heads/…`");
const BAD_PACKED: ExportRefusal =
    ExportRefusal::Denied("git on the host couldn't read it: each line of packed-refs is an id and a ref");
const OURS: ExportRefusal = ExportRefusal::Denied("refs/attache is reserved for the host's snapshots");
const BAD_INDEX: ExportRefusal = ExportRefusal::Denied("git on the host couldn't read this index");
const OUTSIDE: ExportRefusal = ExportRefusal::Denied("the index contains a path that git must not write to");
const HIDES: ExportRefusal = ExportRefusal::Denied(
    "the index hides files from git on the host (assume-unchanged, skip-worktree or an extension)",
);

/// Whether `new` can replace `old`. `id` is the length of an object id in bytes.
pub(super) fn check(kind: TrustedGitFile, new: &[u8], old: Option<&[u8]>, id: usize) -> Result<(), ExportRefusal> {
    match kind {
        TrustedGitFile::Head if is_head(new) => Ok(()),
        TrustedGitFile::Head => Err(BAD_HEAD),
        TrustedGitFile::Ref if is_ref(new) => Ok(()),
        TrustedGitFile::Ref => Err(BAD_REF),
        TrustedGitFile::PackedRefs => {
            let kept = |text: &[u8]| {
                Ok::<_, ExportRefusal>(packed(text)?.into_iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>())
            };
            if kept(new)? == old.map_or_else(|| Ok(BTreeSet::new()), kept)? { Ok(()) } else { Err(OURS) }
        }
        TrustedGitFile::Index => {
            let new = GitIndex::read(new, id)?;
            if new.hides.is_empty() {
                return Ok(());
            }
            let old = old.and_then(|old| GitIndex::read(old, id).ok()).unwrap_or_default();
            if new.hides.is_subset(&old.hides) { Ok(()) } else { Err(HIDES) }
        }
        // Checked piece by piece, in `objects`.
        TrustedGitFile::Stored(_) => Ok(()),
    }
}

fn is_id(text: &[u8]) -> bool {
    matches!(text.len(), 40 | 64) && text.iter().all(u8::is_ascii_hexdigit)
}

fn is_ref_name(name: &[u8]) -> bool {
    name.starts_with(b"refs/") && name.split(|&byte| byte == b'/').all(is_ref_part)
}

fn is_ref(text: &[u8]) -> bool {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    is_id(line) || line.strip_prefix(b"ref: ").is_some_and(is_ref_name)
}

fn is_head(text: &[u8]) -> bool {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    is_id(line) || line.strip_prefix(b"ref: ").is_some_and(|name| name.starts_with(b"refs/heads/") && is_ref_name(name))
}

/// The lines that belong to the host.
fn packed(text: &[u8]) -> Result<Vec<&[u8]>, ExportRefusal> {
    let mut ours = Vec::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#")) {
        if line.strip_prefix(b"^").is_some_and(is_id) {
            continue;
        }
        let at = line.iter().position(|&byte| byte == b' ').ok_or(BAD_PACKED)?;
        let name = &line[at + 1..];
        if !is_id(&line[..at]) || !is_ref_name(name) {
            return Err(BAD_PACKED);
        }
        if name.starts_with(b"refs/attache/") || name.starts_with(b"refs/replace/") {
            ours.push(line);
        }
    }
    Ok(ours)
}

/// The relevant parts of an index.
#[derive(Debug, Default)]
struct GitIndex {
    /// Paths that git doesn't check, and extensions that make it skip checks.
    hides: BTreeSet<Vec<u8>>,
}

const ASSUMED: u16 = 0x8000;
const EXTENDED: u16 = 0x4000;
const SKIPPED: u16 = 0x4000;
const STAGE: u16 = 0x3000;
const NAME_LENGTH: u16 = 0x0fff;
/// Times, device, inode, mode, owners, size.
const STAT: usize = 40;
const MODE: std::ops::Range<usize> = 24..28;

/// What an index says about a path, without the times and numbers by which git notices changes.
struct GitIndexEntry<'a> {
    mode: &'a [u8],
    id: &'a [u8],
    flags: (u16, u16),
    path: &'a [u8],
}

/// What an index says about all paths. Two with the same content differ only in what git found out about the files. `None` if
/// git couldn't read it either.
pub(crate) fn index_content(bytes: &[u8]) -> Option<Vec<u8>> {
    [20, 32].into_iter().find_map(|id| {
        let mut content = Vec::new();
        let read = GitIndex::read_entries(bytes, id, |entry| {
            content.extend_from_slice(entry.mode);
            content.extend_from_slice(entry.id);
            content.extend(entry.flags.0.to_be_bytes());
            content.extend(entry.flags.1.to_be_bytes());
            content.extend_from_slice(entry.path);
            content.push(0);
        });
        let hides = read.ok()?.hides;
        hides.iter().for_each(|path| content.extend_from_slice(path));
        Some(content)
    })
}

/// A path, and its mode, object and stage.
type GitPathState = (Vec<u8>, Vec<u8>);

/// What an index says about some paths.
pub(super) fn index_entries(
    bytes: &[u8],
    id: usize,
    are_wanted: impl Fn(&[u8]) -> bool,
) -> Result<BTreeSet<GitPathState>, ExportRefusal> {
    let mut entries = BTreeSet::new();
    GitIndex::read_entries(bytes, id, |entry| {
        if are_wanted(entry.path) {
            let stage = (entry.flags.0 & STAGE).to_be_bytes();
            entries.insert((entry.path.to_vec(), [entry.mode, entry.id, &stage].concat()));
        }
    })?;
    Ok(entries)
}

impl GitIndex {
    fn read(bytes: &[u8], id: usize) -> Result<Self, ExportRefusal> {
        Self::read_entries(bytes, id, |_| {})
    }

    /// Reads versions 2 to 4, as described in `gitformat-index`.
    fn read_entries(bytes: &[u8], id: usize, mut each: impl FnMut(&GitIndexEntry<'_>)) -> Result<Self, ExportRefusal> {
        let mut reader = GitIndexReader { bytes, at: 0 };
        if reader.take(4)? != b"DIRC" {
            return Err(BAD_INDEX);
        }
        let (version, count) = (reader.number()?, reader.number()?);
        if !(2..=4).contains(&version) {
            return Err(BAD_INDEX);
        }
        let mut index = Self::default();
        let mut path = Vec::new();
        for _ in 0..count {
            let start = reader.at;
            let stat = reader.take(STAT + id)?;
            let flags = reader.short()?;
            let more = if flags & EXTENDED == 0 { 0 } else { reader.short()? };
            if version == 4 {
                let cut = reader.varint()?;
                path.truncate(path.len().checked_sub(cut).ok_or(BAD_INDEX)?);
            } else {
                path.clear();
            }
            path.extend_from_slice(reader.until_nul()?);
            if version < 4 {
                // One to eight NULs, padding to a multiple of eight.
                let length = reader.at - 1 - start;
                reader.take((length / 8 + 1) * 8 - length - 1)?;
            }
            // A folder of a sparse index ends with a slash.
            let names = path.strip_suffix(b"/").unwrap_or(&path);
            if names.split(|&byte| byte == b'/').any(is_outside) {
                return Err(OUTSIDE);
            }
            let flags_and_stage = (flags & !NAME_LENGTH, more);
            each(&GitIndexEntry { mode: &stat[MODE], id: &stat[STAT..], flags: flags_and_stage, path: &path });
            if flags & ASSUMED != 0 || more & SKIPPED != 0 {
                index.hides.insert(path.clone());
            }
        }
        while reader.left() > id {
            let name = reader.take(4)?.to_vec();
            let length = usize::try_from(reader.number()?).map_err(|_| BAD_INDEX)?;
            reader.take(length)?;
            match &name[..] {
                // The entries are in another file.
                b"link" => return Err(BAD_INDEX),
                b"UNTR" | b"FSMN" => {
                    index.hides.insert([b"/", &name[..]].concat());
                }
                _ => {}
            }
        }
        if reader.left() == id { Ok(index) } else { Err(BAD_INDEX) }
    }
}

/// Git checks paths when they are added to an index, but not when an index is read.
fn is_outside(name: &[u8]) -> bool {
    matches!(name, b"" | b"." | b"..") || is_git(trimmed(&fold(name)))
}

struct GitIndexReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> GitIndexReader<'a> {
    const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ExportRefusal> {
        let end = self.at.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(BAD_INDEX)?;
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
        let length = self.bytes[self.at..].iter().position(|&byte| byte == 0).ok_or(BAD_INDEX)?;
        let taken = self.take(length)?;
        self.take(1)?;
        Ok(taken)
    }

    /// Encoded like offsets in a pack.
    fn varint(&mut self) -> Result<usize, ExportRefusal> {
        let mut value = 0_usize;
        loop {
            let byte = self.take(1)?[0];
            value =
                value.checked_shl(7).and_then(|value| value.checked_add(usize::from(byte & 0x7f))).ok_or(BAD_INDEX)?;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            value = value.checked_add(1).ok_or(BAD_INDEX)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";

    #[test]
    fn heads_and_refs_are_validated() {
        let ok = |kind, text: &str| check(kind, text.as_bytes(), None, 20).is_ok();
        for (text, head, reference) in [
            ("ref: refs/heads/main\n", true, true),
            ("ref: refs/heads/topic/x", true, true),
            (ID, true, true),
            ("ref: refs/remotes/origin/main\n", false, true),
            ("nonsense\n", false, false),
            ("", false, false),
            ("ref: ../../etc/passwd\n", false, false),
            ("ref: refs/heads/../../x\n", false, false),
            ("ref: refs/heads/a b\n", false, false),
            ("ref: refs/heads/main\nmore\n", false, false),
        ] {
            assert_eq!((ok(TrustedGitFile::Head, text), ok(TrustedGitFile::Ref, text)), (head, reference), "{text:?}");
        }
    }

    #[test]
    fn packed_refs_keep_the_refs_of_the_host() {
        let ok =
            |new: &str, old: &str| check(TrustedGitFile::PackedRefs, new.as_bytes(), Some(old.as_bytes()), 20).is_ok();
        let ours = format!("# pack-refs with: peeled\n{ID} refs/attache/dlg_1\n{ID} refs/heads/main\n^{ID}\n");
        assert!(ok(&ours, &ours) && ok(&format!("{ID} refs/attache/dlg_1\n"), &ours));
        assert!(!ok(&format!("{ID} refs/heads/main\n"), &ours) && !ok(&ours, ""));
        assert!(!ok(&format!("{ID} refs/replace/{ID}\n"), ""));
        assert!(!ok("nonsense", "") && !ok(&format!("{ID} ../x\n"), "") && !ok("zz refs/heads/x\n", ""));
    }
}
