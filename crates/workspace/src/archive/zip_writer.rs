//! Writes a ZIP archive in memory: deflated, with names in UTF-8 and the modes of Unix.

use attache_protocol::crc32::crc32;
use miniz_oxide::deflate::compress_to_vec;

use super::{ArchiveError, ArchiveLimits};

#[derive(Debug)]
pub(super) struct ZipWriter {
    limits: ArchiveLimits,
    bytes: Vec<u8>,
    directory: Vec<u8>,
    count: usize,
    unpacked: u64,
}

const LEVEL: u8 = 6;
const UTF8: u16 = 1 << 11;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// Unix, and version 2.0 of the format.
const MADE_BY: u16 = 3 << 8 | 20;
const NEEDED: u16 = 20;
/// 1 January 1980: an archive says nothing about when files were changed.
const TIME: [u8; 4] = [0, 0, 0x21, 0];
/// The format has no larger count without ZIP64.
const MAX_COUNT: usize = 0xfffe;

// === impl ZipWriter ===

impl ZipWriter {
    pub(super) const fn new(limits: ArchiveLimits) -> Self {
        Self { limits, bytes: Vec::new(), directory: Vec::new(), count: 0, unpacked: 0 }
    }

    pub(super) fn folder(&mut self, path: &str) -> Result<(), ArchiveError> {
        self.entry(&format!("{path}/"), &[], 0o040_755)
    }

    pub(super) fn file(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), ArchiveError> {
        self.entry(path, content, 0o100_000 | (mode & 0o777))
    }

    pub(super) fn entry(&mut self, name: &str, content: &[u8], mode: u32) -> Result<(), ArchiveError> {
        let too_large = |what, most| Err(ArchiveError::FolderTooLarge { what, most });
        self.count += 1;
        self.unpacked += content.len() as u64;
        if self.count > self.limits.entries.min(MAX_COUNT) {
            return too_large("entries", self.limits.entries as u64);
        }
        if self.unpacked > self.limits.unpacked {
            return too_large("bytes", self.limits.unpacked);
        }
        let deflated = compress_to_vec(content, LEVEL);
        let (method, packed) =
            if deflated.len() < content.len() { (DEFLATED, &deflated[..]) } else { (STORED, content) };
        let offset = self.bytes.len();
        let end = (offset + packed.len() + self.directory.len()) as u64;
        if end > self.limits.packed.min(u64::from(u32::MAX / 2)) {
            return too_large("bytes when packed", self.limits.packed);
        }
        let number = |value: usize| u32::try_from(value).expect("the limits are below 4 GiB").to_le_bytes();
        let mut common = Vec::with_capacity(26);
        for part in [NEEDED, UTF8, method] {
            common.extend(part.to_le_bytes());
        }
        common.extend(TIME);
        common.extend(crc32(content).to_le_bytes());
        common.extend(number(packed.len()));
        common.extend(number(content.len()));
        common.extend(u16::try_from(name.len()).expect("paths were checked").to_le_bytes());
        common.extend([0; 2]);
        self.bytes.extend(b"PK\x03\x04");
        self.bytes.extend(&common);
        self.bytes.extend(name.as_bytes());
        self.bytes.extend(packed);
        self.directory.extend(b"PK\x01\x02");
        self.directory.extend(MADE_BY.to_le_bytes());
        self.directory.extend(&common);
        // No comment, the first part, no internal attributes.
        self.directory.extend([0; 6]);
        self.directory.extend((mode << 16).to_le_bytes());
        self.directory.extend(number(offset));
        self.directory.extend(name.as_bytes());
        Ok(())
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let (start, size) = (self.bytes.len(), self.directory.len());
        let number = |value: usize| u32::try_from(value).expect("the limits are below 4 GiB").to_le_bytes();
        let count = u16::try_from(self.count).expect("the limits are below 65,535 entries").to_le_bytes();
        self.bytes.append(&mut self.directory);
        self.bytes.extend(b"PK\x05\x06");
        self.bytes.extend([0; 4]);
        self.bytes.extend(count);
        self.bytes.extend(count);
        self.bytes.extend(number(size));
        self.bytes.extend(number(start));
        self.bytes.extend([0; 2]);
        self.bytes
    }
}
