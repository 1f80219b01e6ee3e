//! Reads a ZIP archive that someone else made. Everything is checked before anything is used: an archive with one bad entry is
//! refused as a whole, and so is one that two programs could read differently.

use std::collections::{BTreeMap, BTreeSet};

use attache_protocol::crc32::crc32;
use miniz_oxide::inflate::decompress_to_vec_with_limit;

use super::{ArchiveError, ArchiveLimits, IsCancelled, check_cancelled};

/// An archive whose structure, names and contents were checked.
#[derive(Debug)]
pub struct ZipArchive<'a> {
    bytes: &'a [u8],
    /// Without the slash at the end of folders.
    pub(super) entries: BTreeMap<String, ZipEntry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ZipEntry {
    pub(super) is_folder: bool,
    pub(super) is_executable: bool,
    is_deflated: bool,
    size: u64,
    checksum: u32,
    /// Where its packed data is.
    start: usize,
    end: usize,
}

/// Reads little-endian numbers.
struct ZipFields<'a>(&'a [u8]);

const END: &[u8; 4] = b"PK\x05\x06";
const CENTRAL: &[u8; 4] = b"PK\x01\x02";
const LOCAL: &[u8; 4] = b"PK\x03\x04";
const END_LENGTH: usize = 22;
const LOCAL_LENGTH: usize = 30;
const MAX_COMMENT: usize = 0xffff;
/// In these places, it stands for a number that is in a ZIP64 record.
const ZIP64: u32 = u32::MAX;
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// The sizes follow the data.
const SIZES_FOLLOW: u16 = 1 << 3;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
const UNIX: u8 = 3;
const FILE_TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const FOLDER: u32 = 0o040_000;
const LINK: u32 = 0o120_000;
const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4000;
/// How many folders a path may go down. Each is one that is made, and looked up again and again.
pub(super) const MAX_DEPTH: usize = 64;

// === impl ZipArchive ===

impl<'a> ZipArchive<'a> {
    /// Unpacks every file once, in memory, to see that it is what it claims.
    pub fn read(bytes: &'a [u8], limits: ArchiveLimits, is_cancelled: IsCancelled<'_>) -> Result<Self, ArchiveError> {
        if bytes.len() as u64 > limits.packed {
            return Err(ArchiveError::TooMuch { what: "bytes", most: limits.packed });
        }
        let archive = Self { bytes, entries: directory(bytes, limits)? };
        for name in archive.entries.keys() {
            check_cancelled(is_cancelled)?;
            archive.content(name)?;
        }
        Ok(archive)
    }

    pub(super) fn content(&self, name: &str) -> Result<Vec<u8>, ArchiveError> {
        let refuse = |reason| ArchiveError::Entry { name: name.to_owned(), reason };
        let entry = self.entries.get(name).ok_or_else(|| refuse("is not in it"))?;
        let packed = &self.bytes[entry.start..entry.end];
        let size = usize::try_from(entry.size).map_err(|_| refuse("is too large"))?;
        let content = if entry.is_deflated {
            decompress_to_vec_with_limit(packed, size).map_err(|_| refuse("has data that doesn't match its size"))?
        } else {
            packed.to_vec()
        };
        if content.len() != size {
            return Err(refuse("has data that doesn't match its size"));
        }
        if crc32(&content) != entry.checksum {
            return Err(refuse("has a wrong checksum"));
        }
        Ok(content)
    }
}

fn directory(bytes: &[u8], limits: ArchiveLimits) -> Result<BTreeMap<String, ZipEntry>, ArchiveError> {
    let invalid = ArchiveError::Invalid;
    let end = end_record(bytes).ok_or(invalid("it has no end, or something follows it"))?;
    let mut fields = ZipFields(&bytes[end + 4..]);
    let disks = (fields.u16()?, fields.u16()?);
    let (here, count, size, start) = (fields.u16()?, fields.u16()?, fields.u32()?, fields.u32()?);
    if size == ZIP64 || start == ZIP64 || count == u16::MAX {
        return Err(invalid("ZIP64 is not supported"));
    }
    if disks != (0, 0) || here != count {
        return Err(invalid("it has several parts"));
    }
    if usize::from(count) > limits.entries {
        return Err(ArchiveError::TooMuch { what: "entries", most: limits.entries as u64 });
    }
    let start = start as usize;
    if start.checked_add(size as usize) != Some(end) {
        return Err(invalid("its directory isn't where its end says"));
    }
    let mut rest = ZipFields(&bytes[start..end]);
    let mut entries = BTreeMap::new();
    let mut ranges = Vec::with_capacity(usize::from(count));
    let mut unpacked = 0_u64;
    for _ in 0..count {
        let (name, entry, range) = central_entry(&mut rest, &bytes[..start], limits)?;
        unpacked += entry.size;
        if unpacked > limits.unpacked {
            return Err(ArchiveError::TooMuch { what: "bytes when unpacked", most: limits.unpacked });
        }
        ranges.push(range);
        if entries.contains_key(&name) {
            return Err(ArchiveError::Entry { name, reason: "is in it twice" });
        }
        entries.insert(name, entry);
    }
    if !rest.0.is_empty() {
        return Err(invalid("it has more entries than it says"));
    }
    ranges.sort_unstable();
    // The same data behind many names would unpack to much more than was sent.
    if ranges.windows(2).any(|pair| pair[0].1 > pair[1].0) {
        return Err(invalid("its entries overlap"));
    }
    check_folders(&entries)?;
    check_count(&entries, limits)?;
    Ok(entries)
}

/// Where the last record is. Exactly its comment follows.
fn end_record(bytes: &[u8]) -> Option<usize> {
    let last = bytes.len().checked_sub(END_LENGTH)?;
    (last.saturating_sub(MAX_COMMENT)..=last).rev().find(|at| {
        let record = &bytes[*at..];
        record.starts_with(END)
            && usize::from(u16::from_le_bytes([record[20], record[21]])) == record.len() - END_LENGTH
    })
}

/// One entry of the directory, checked against its own header, and the range of bytes that it takes.
fn central_entry(
    fields: &mut ZipFields<'_>,
    bodies: &[u8],
    limits: ArchiveLimits,
) -> Result<(String, ZipEntry, (usize, usize)), ArchiveError> {
    if fields.take(CENTRAL.len())? != CENTRAL {
        return Err(ArchiveError::Invalid("its directory is damaged"));
    }
    let (made_by, _needed, flags, method) = (fields.u16()?, fields.u16()?, fields.u16()?, fields.u16()?);
    fields.take(4)?;
    let (checksum, packed, size) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let (name_length, extra, comment) = (fields.u16()?, fields.u16()?, fields.u16()?);
    let (disk, _internal, external, offset) = (fields.u16()?, fields.u16()?, fields.u32()?, fields.u32()?);
    let raw_name = fields.take(usize::from(name_length))?;
    fields.take(usize::from(extra) + usize::from(comment))?;
    let shown = String::from_utf8_lossy(raw_name).into_owned();
    let refuse = |reason| ArchiveError::Entry { name: shown.clone(), reason };
    let name = std::str::from_utf8(raw_name).map_err(|_| refuse("has a name that isn't UTF-8"))?;
    if flags & ENCRYPTED != 0 {
        return Err(refuse("is encrypted"));
    }
    if disk != 0 {
        return Err(refuse("is in another part"));
    }
    if [packed, size, offset].contains(&ZIP64) {
        return Err(refuse("needs ZIP64"));
    }
    let is_deflated = match method {
        DEFLATED => true,
        STORED if packed == size => false,
        STORED => return Err(refuse("has data that doesn't match its size")),
        _ => return Err(refuse("is packed in an unknown way")),
    };
    let (path, is_folder) = name.strip_suffix('/').map_or((name, false), |folder| (folder, true));
    check_path(path).map_err(&refuse)?;
    let mode = if (made_by >> 8) as u8 == UNIX { external >> 16 } else { 0 };
    match (mode & FILE_TYPE, is_folder) {
        (0, _) | (REGULAR, false) | (FOLDER, true) => {}
        (LINK, _) => return Err(refuse("is a link")),
        _ => return Err(refuse("is neither a file nor a folder")),
    }
    if is_folder && size != 0 {
        return Err(refuse("is a folder with data"));
    }
    if u64::from(size) > limits.file {
        return Err(refuse("is too large"));
    }
    let offset = offset as usize;
    let header = bodies.get(offset..).ok_or_else(|| refuse("has no data"))?;
    let mut local = ZipFields(header);
    if local.take(LOCAL.len()).ok() != Some(LOCAL) {
        return Err(refuse("has no data"));
    }
    let (_needed, local_flags, local_method) = (local.u16()?, local.u16()?, local.u16()?);
    local.take(4)?;
    let own = (local.u32()?, local.u32()?, local.u32()?);
    let (local_name, local_extra) = (usize::from(local.u16()?), usize::from(local.u16()?));
    let is_known_later = local_flags & SIZES_FOLLOW != 0 && own == (0, 0, 0);
    let is_same = local.take(local_name)? == raw_name && (local_flags, local_method) == (flags, method);
    if !is_same || !(is_known_later || own == (checksum, packed, size)) {
        return Err(refuse("has a header that contradicts the directory"));
    }
    let start = offset + LOCAL_LENGTH + local_name + local_extra;
    let end = start.checked_add(packed as usize).filter(|end| *end <= bodies.len());
    let end = end.ok_or_else(|| refuse("has no data"))?;
    let is_executable = !is_folder && mode & 0o100 != 0;
    let entry = ZipEntry { is_folder, is_executable, is_deflated, size: u64::from(size), checksum, start, end };
    Ok((path.to_owned(), entry, (offset, end)))
}

/// Whether every program understands a path the same way, as one below the folder.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.len() > MAX_PATH {
        return Err("has a name that is too long");
    }
    if path.starts_with('/') || path.as_bytes().get(1) == Some(&b':') {
        return Err("is an absolute path");
    }
    if path.contains(['\\', '\0']) {
        return Err("has a name with a backslash or NUL");
    }
    if path.matches('/').count() >= MAX_DEPTH {
        return Err("is in too many folders");
    }
    for name in path.split('/') {
        match name {
            "" => return Err("has an empty name"),
            "." | ".." => return Err("leads out of the folder"),
            name if name.len() > MAX_NAME => return Err("has a name that is too long"),
            _ => {}
        }
    }
    Ok(())
}

/// Nothing is below a file.
fn check_folders(entries: &BTreeMap<String, ZipEntry>) -> Result<(), ArchiveError> {
    for name in entries.keys() {
        let mut above = name.match_indices('/').map(|(at, _)| &name[..at]);
        if above.any(|folder| entries.get(folder).is_some_and(|entry| !entry.is_folder)) {
            return Err(ArchiveError::Entry { name: name.clone(), reason: "is below a file" });
        }
    }
    Ok(())
}

/// Folders that only the paths of others name are made as well, so they count like entries.
fn check_count(entries: &BTreeMap<String, ZipEntry>, limits: ArchiveLimits) -> Result<(), ArchiveError> {
    let mut implied = BTreeSet::new();
    for name in entries.keys() {
        // The innermost first: what is above a known folder is known, too.
        let mut above = &name[..];
        while let Some((folder, _)) = above.rsplit_once('/') {
            above = folder;
            if entries.contains_key(folder) || !implied.insert(folder) {
                break;
            }
        }
        if entries.len() + implied.len() > limits.entries {
            return Err(ArchiveError::TooMuch { what: "entries", most: limits.entries as u64 });
        }
    }
    Ok(())
}

// === impl ZipFields ===

impl<'a> ZipFields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], ArchiveError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(ArchiveError::Invalid("it is cut off"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, ArchiveError> {
        self.take(2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, ArchiveError> {
        self.take(4).map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}
