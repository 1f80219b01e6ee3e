//! Requests of SFTP version 3, parsed from bytes. Nothing here does any work, or can panic on untrusted input.

use super::wire::{MAX_PACKET, SftpAttributes, attribute, kind};

/// The most content that a quick request reads or writes.
const MAX_QUICK: usize = 16 * 1024;

/// A request with its arguments, borrowed from the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SftpRequest<'a> {
    Open {
        path: &'a [u8],
        flags: u32,
        attributes: SftpAttributes,
    },
    Close {
        handle: &'a [u8],
    },
    Read {
        handle: &'a [u8],
        offset: u64,
        length: u32,
    },
    Write {
        handle: &'a [u8],
        offset: u64,
        data: &'a [u8],
    },
    LinkAttributes {
        path: &'a [u8],
    },
    HandleAttributes {
        handle: &'a [u8],
    },
    SetAttributes {
        path: &'a [u8],
        attributes: SftpAttributes,
    },
    SetHandleAttributes {
        handle: &'a [u8],
        attributes: SftpAttributes,
    },
    OpenDirectory {
        path: &'a [u8],
    },
    ReadDirectory {
        handle: &'a [u8],
    },
    Remove {
        path: &'a [u8],
    },
    MakeDirectory {
        path: &'a [u8],
        attributes: SftpAttributes,
    },
    RemoveDirectory {
        path: &'a [u8],
    },
    RealPath {
        path: &'a [u8],
    },
    Attributes {
        path: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    ReadLink {
        path: &'a [u8],
    },
    /// In OpenSSH's order, which every client follows. The draft has it the other way round.
    Symlink {
        target: &'a [u8],
        path: &'a [u8],
    },
    PosixRename {
        from: &'a [u8],
        to: &'a [u8],
    },
    HardLink {
        from: &'a [u8],
        to: &'a [u8],
    },
    Space {
        path: &'a [u8],
    },
    HandleSpace {
        handle: &'a [u8],
    },
    Sync {
        handle: &'a [u8],
    },
    Limits,
    /// An unknown request or extension.
    Unknown,
}

/// The peer doesn't speak SFTP, or exceeds its limits. The channel must be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedPacket {
    #[error("a packet is longer than {MAX_PACKET} bytes, or empty")]
    Length,
    #[error("a packet ends before its request is complete")]
    Short,
    #[error("the session does not start with the version")]
    NoVersion,
}

/// Parses a packet field by field.
struct PacketReader<'a>(&'a [u8]);

/// Bits of the `pflags` of an open.
pub(crate) mod flag {
    pub(crate) const READ: u32 = 1;
    pub(crate) const WRITE: u32 = 2;
    pub(crate) const APPEND: u32 = 4;
    pub(crate) const CREATE: u32 = 8;
    pub(crate) const TRUNCATE: u32 = 16;
    pub(crate) const EXCLUSIVE: u32 = 32;
}

/// The first packet of `buffer`, without its length, if it is complete.
pub(crate) fn first_packet(buffer: &[u8]) -> Result<Option<&[u8]>, MalformedPacket> {
    let Some((length, rest)) = buffer.split_first_chunk() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if length == 0 || length > MAX_PACKET {
        return Err(MalformedPacket::Length);
    }
    Ok(rest.get(..length))
}

/// The version that a client sends first.
pub(crate) fn read_version(packet: &[u8]) -> Result<u32, MalformedPacket> {
    match packet.split_first() {
        Some((&kind::INIT, rest)) => PacketReader(rest).u32().map_err(|_| MalformedPacket::NoVersion),
        _ => Err(MalformedPacket::NoVersion),
    }
}

/// The id and the content of a request. `None` if its fields are invalid, which is answered and not fatal.
pub(crate) fn read_request(packet: &[u8]) -> Result<(u32, Option<SftpRequest<'_>>), MalformedPacket> {
    let (&kind, rest) = packet.split_first().ok_or(MalformedPacket::Short)?;
    let mut fields = PacketReader(rest);
    let id = fields.u32()?;
    Ok((id, fields.request(kind).ok()))
}

/// Whether a request takes no longer than a file system lookup and a few kilobytes. Requests that may first copy an
/// original (a file opened for writing, removed or renamed) or that wait for the disk are not quick.
pub(crate) fn is_quick(packet: &[u8]) -> bool {
    match read_request(packet) {
        Ok((_, Some(SftpRequest::Read { length, .. }))) => length as usize <= MAX_QUICK,
        Ok((_, Some(SftpRequest::Write { data, .. }))) => data.len() <= MAX_QUICK,
        Ok((_, Some(SftpRequest::Open { flags, .. }))) => flags & (flag::WRITE | flag::APPEND | flag::TRUNCATE) == 0,
        Ok((_, request)) => matches!(
            request,
            Some(
                SftpRequest::Close { .. }
                    | SftpRequest::LinkAttributes { .. }
                    | SftpRequest::HandleAttributes { .. }
                    | SftpRequest::OpenDirectory { .. }
                    | SftpRequest::ReadDirectory { .. }
                    | SftpRequest::MakeDirectory { .. }
                    | SftpRequest::RealPath { .. }
                    | SftpRequest::Attributes { .. }
                    | SftpRequest::ReadLink { .. }
            )
        ),
        Err(_) => false,
    }
}

// === impl PacketReader ===

impl<'a> PacketReader<'a> {
    fn request(&mut self, kind: u8) -> Result<SftpRequest<'a>, MalformedPacket> {
        Ok(match kind {
            kind::OPEN => {
                SftpRequest::Open { path: self.string()?, flags: self.u32()?, attributes: self.attributes()? }
            }
            kind::CLOSE => SftpRequest::Close { handle: self.string()? },
            kind::READ => SftpRequest::Read { handle: self.string()?, offset: self.u64()?, length: self.u32()? },
            kind::WRITE => SftpRequest::Write { handle: self.string()?, offset: self.u64()?, data: self.string()? },
            kind::LSTAT => SftpRequest::LinkAttributes { path: self.string()? },
            kind::FSTAT => SftpRequest::HandleAttributes { handle: self.string()? },
            kind::SETSTAT => SftpRequest::SetAttributes { path: self.string()?, attributes: self.attributes()? },
            kind::FSETSTAT => {
                SftpRequest::SetHandleAttributes { handle: self.string()?, attributes: self.attributes()? }
            }
            kind::OPENDIR => SftpRequest::OpenDirectory { path: self.string()? },
            kind::READDIR => SftpRequest::ReadDirectory { handle: self.string()? },
            kind::REMOVE => SftpRequest::Remove { path: self.string()? },
            kind::MKDIR => SftpRequest::MakeDirectory { path: self.string()?, attributes: self.attributes()? },
            kind::RMDIR => SftpRequest::RemoveDirectory { path: self.string()? },
            kind::REALPATH => SftpRequest::RealPath { path: self.string()? },
            kind::STAT => SftpRequest::Attributes { path: self.string()? },
            kind::RENAME => SftpRequest::Rename { from: self.string()?, to: self.string()? },
            kind::READLINK => SftpRequest::ReadLink { path: self.string()? },
            kind::SYMLINK => SftpRequest::Symlink { target: self.string()?, path: self.string()? },
            kind::EXTENDED => match self.string()? {
                b"posix-rename@openssh.com" => SftpRequest::PosixRename { from: self.string()?, to: self.string()? },
                b"hardlink@openssh.com" => SftpRequest::HardLink { from: self.string()?, to: self.string()? },
                b"statvfs@openssh.com" => SftpRequest::Space { path: self.string()? },
                b"fstatvfs@openssh.com" => SftpRequest::HandleSpace { handle: self.string()? },
                b"fsync@openssh.com" => SftpRequest::Sync { handle: self.string()? },
                b"limits@openssh.com" => SftpRequest::Limits,
                _ => SftpRequest::Unknown,
            },
            _ => SftpRequest::Unknown,
        })
    }

    fn attributes(&mut self) -> Result<SftpAttributes, MalformedPacket> {
        let bits = self.u32()?;
        let mut attributes = SftpAttributes::default();
        if bits & attribute::SIZE != 0 {
            attributes.size = Some(self.u64()?);
        }
        if bits & attribute::OWNER != 0 {
            attributes.owner = Some((self.u32()?, self.u32()?));
        }
        if bits & attribute::PERMISSIONS != 0 {
            attributes.permissions = Some(self.u32()?);
        }
        if bits & attribute::TIMES != 0 {
            attributes.times = Some((self.u32()?, self.u32()?));
        }
        if bits & attribute::EXTENDED != 0 {
            // Pairs of undefined names and values. Each takes space in the packet, so this terminates.
            for _ in 0..self.u32()? {
                self.string()?;
                self.string()?;
            }
        }
        Ok(attributes)
    }

    fn string(&mut self) -> Result<&'a [u8], MalformedPacket> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(MalformedPacket::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, MalformedPacket> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, MalformedPacket> {
        self.take().map(u64::from_be_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], MalformedPacket> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(MalformedPacket::Short)?;
        self.0 = rest;
        Ok(*bytes)
    }
}
