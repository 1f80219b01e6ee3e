//! Replies of SFTP version 3, appended to the bytes to send.

use super::wire::{MAX_DATA, MAX_PACKET, SftpAttributes, VERSION, kind};

/// The `SSH_FXP_EXTENDED` requests that we support, with their revisions.
pub(crate) const EXTENSIONS: [(&str, &str); 6] = [
    ("posix-rename@openssh.com", "1"),
    ("statvfs@openssh.com", "2"),
    ("fstatvfs@openssh.com", "2"),
    ("hardlink@openssh.com", "1"),
    ("fsync@openssh.com", "1"),
    ("limits@openssh.com", "1"),
];

/// One name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SftpName {
    pub(crate) name: Vec<u8>,
    /// The line that `ls -l` shows.
    pub(crate) long: Vec<u8>,
    pub(crate) attributes: SftpAttributes,
}

/// The answer to `statvfs@openssh.com`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SftpSpace {
    pub(crate) block_size: u64,
    pub(crate) fragment_size: u64,
    pub(crate) blocks: u64,
    pub(crate) blocks_free: u64,
    pub(crate) blocks_available: u64,
    pub(crate) files: u64,
    pub(crate) files_free: u64,
    pub(crate) files_available: u64,
    pub(crate) id: u64,
    pub(crate) flags: u64,
    pub(crate) name_max: u64,
}

/// The version 3 statuses that we send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SftpStatus {
    Ok = 0,
    EndOfFile = 1,
    NoSuchFile = 2,
    PermissionDenied = 3,
    Failure = 4,
    BadMessage = 5,
    Unsupported = 8,
}

/// Appends one packet, whose body `write` creates.
fn packet(out: &mut Vec<u8>, kind: u8, id: u32, write: impl FnOnce(&mut Vec<u8>)) {
    let start = begin(out, kind);
    out.extend(id.to_be_bytes());
    write(out);
    end(out, start);
}

fn begin(out: &mut Vec<u8>, kind: u8) -> usize {
    let start = out.len();
    out.extend([0, 0, 0, 0, kind]);
    start
}

fn end(out: &mut [u8], start: usize) {
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(bytes);
}

pub(crate) fn write_version(out: &mut Vec<u8>) {
    let start = begin(out, kind::VERSION);
    out.extend(VERSION.to_be_bytes());
    for (name, revision) in EXTENSIONS {
        string(out, name.as_bytes());
        string(out, revision.as_bytes());
    }
    end(out, start);
}

pub(crate) fn write_status(out: &mut Vec<u8>, id: u32, status: SftpStatus, message: &str) {
    packet(out, kind::STATUS, id, |out| {
        out.extend((status as u32).to_be_bytes());
        string(out, message.as_bytes());
        string(out, b"en");
    });
}

pub(crate) fn write_handle(out: &mut Vec<u8>, id: u32, handle: &[u8]) {
    packet(out, kind::HANDLE, id, |out| string(out, handle));
}

/// Appends up to `length` bytes of content, which `fill` writes directly into the output. At the end of the file, or if
/// `fill` fails, nothing is appended.
pub(crate) fn write_data<E>(
    out: &mut Vec<u8>,
    id: u32,
    length: usize,
    fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) -> Result<usize, E> {
    let start = begin(out, kind::DATA);
    out.extend(id.to_be_bytes());
    let head = out.len() + 4;
    out.resize(head + length.min(MAX_DATA), 0);
    let filled = fill(&mut out[head..]).map(|count| count.min(length));
    let Ok(count @ 1..) = filled else {
        out.truncate(start);
        return filled;
    };
    out.truncate(head + count);
    out[head - 4..head].copy_from_slice(&u32::try_from(count).unwrap_or(u32::MAX).to_be_bytes());
    end(out, start);
    Ok(count)
}

pub(crate) fn write_names(out: &mut Vec<u8>, id: u32, names: &[SftpName]) {
    packet(out, kind::NAME, id, |out| {
        out.extend(u32::try_from(names.len()).unwrap_or(u32::MAX).to_be_bytes());
        for name in names {
            string(out, &name.name);
            string(out, &name.long);
            name.attributes.write(out);
        }
    });
}

pub(crate) fn write_attributes(out: &mut Vec<u8>, id: u32, attributes: &SftpAttributes) {
    packet(out, kind::ATTRS, id, |out| attributes.write(out));
}

pub(crate) fn write_space(out: &mut Vec<u8>, id: u32, space: &SftpSpace) {
    let SftpSpace { block_size, fragment_size, blocks, blocks_free, blocks_available, files, files_free, .. } = *space;
    let SftpSpace { files_available, id: file_system, flags, name_max, .. } = *space;
    let sizes = [block_size, fragment_size, blocks, blocks_free, blocks_available];
    let others = [files, files_free, files_available, file_system, flags, name_max];
    write_numbers(out, id, sizes.into_iter().chain(others));
}

pub(crate) fn write_limits(out: &mut Vec<u8>, id: u32, handles: usize) {
    write_numbers(out, id, [MAX_PACKET, MAX_DATA, MAX_DATA, handles].into_iter().map(|number| number as u64));
}

fn write_numbers(out: &mut Vec<u8>, id: u32, numbers: impl Iterator<Item = u64>) {
    packet(out, kind::EXTENDED_REPLY, id, |out| {
        for number in numbers {
            out.extend(number.to_be_bytes());
        }
    });
}
