//! Attributes in SFTP version 3, and the line that `ls -l` shows.

use attache_protocol::Timestamp;

use super::{reply::SftpName, wire};
use crate::export::{AttributeChange, DirectoryEntry, FileAttributes, FileKind, FileTime};

/// The file type bits above the permissions.
const fn kind_bits(kind: FileKind) -> u32 {
    match kind {
        FileKind::File => 0o100_000,
        FileKind::Folder => 0o040_000,
        FileKind::Link => 0o120_000,
        // A character device: version 3 needs some type, and nothing opens one.
        FileKind::Special => 0o020_000,
    }
}

pub(super) fn on_the_wire(attributes: &FileAttributes) -> wire::SftpAttributes {
    // Version 3 has seconds in 32 bits. Values that don't fit are clamped.
    let seconds = |moment: FileTime| u32::try_from(moment.seconds.max(0)).unwrap_or(u32::MAX);
    wire::SftpAttributes {
        size: Some(attributes.size),
        owner: Some((attributes.uid, attributes.gid)),
        permissions: Some(kind_bits(attributes.kind) | attributes.mode),
        times: Some((seconds(attributes.accessed), seconds(attributes.modified))),
    }
}

/// The attributes that a client wants to change. The owner isn't included: files of a lease belong to the delegating
/// user.
pub(super) fn change(attributes: &wire::SftpAttributes) -> AttributeChange {
    let moment = |seconds: u32| FileTime { seconds: seconds.into(), nanos: 0 };
    AttributeChange {
        size: attributes.size,
        mode: attributes.permissions.map(|mode| mode & 0o7777),
        accessed: attributes.times.map(|(accessed, _)| moment(accessed)),
        modified: attributes.times.map(|(_, modified)| moment(modified)),
    }
}

pub(super) fn line(entry: DirectoryEntry) -> SftpName {
    let DirectoryEntry { name, attributes } = entry;
    let kind = match attributes.kind {
        FileKind::File => '-',
        FileKind::Folder => 'd',
        FileKind::Link => 'l',
        FileKind::Special => 'c',
    };
    let mut long = String::from(kind);
    for (bit, letter) in (0..9).rev().zip("rwxrwxrwx".chars()) {
        long.push(if attributes.mode >> bit & 1 == 1 { letter } else { '-' });
    }
    let FileAttributes { links, uid, gid, size, modified, .. } = attributes;
    let time = Timestamp::from_millis(modified.seconds.saturating_mul(1000)).to_string();
    let (day, minute) = (time.get(..10).unwrap_or_default(), time.get(11..16).unwrap_or_default());
    let long = format!("{long} {links:>4} {uid:<8} {gid:<8} {size:>8} {day} {minute} ");
    let long = [long.as_bytes(), &name].concat();
    SftpName { name, long, attributes: on_the_wire(&attributes) }
}
