//! Requests, from the remote to the host. The host carries them out in the order in which they arrive, so that a client
//! can send several without waiting: a write, then a read or a rename of the same file.

use super::{
    FsVersion,
    codec::{FrameReader, FrameWriter, MalformedFrame},
};
use crate::export::{AttributeChange, LockKind, LockRange, SizeAfter};

/// Requests without an id get no reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FsRequest<'a> {
    /// The first one. Contents are pushed up to `push_bytes` in total, and only of files up to `push_file`. A mount keeps
    /// its number over all its connections: what one of them opened, the next one can use.
    Hello {
        version: u32,
        locator: &'a [u8],
        push_bytes: u64,
        push_file: u64,
        mount: u64,
    },
    List {
        id: u32,
        path: &'a [u8],
    },
    Stat {
        id: u32,
        path: &'a [u8],
    },
    /// The client chooses the handle, so that it can use it without waiting for the reply.
    Open {
        id: u32,
        handle: u64,
        path: &'a [u8],
        flags: FsOpenFlags,
        mode: u32,
    },
    Read {
        id: u32,
        handle: u64,
        offset: u64,
        length: u32,
    },
    Write {
        id: u32,
        handle: u64,
        offset: u64,
        data: &'a [u8],
    },
    Close {
        id: u32,
        handle: u64,
    },
    /// Flushes a file to the host's disk.
    Sync {
        id: u32,
        handle: u64,
    },
    HandleStat {
        id: u32,
        handle: u64,
    },
    SetAttributes {
        id: u32,
        path: &'a [u8],
        change: AttributeChange,
    },
    SetHandleAttributes {
        id: u32,
        handle: u64,
        change: AttributeChange,
    },
    RemoveFile {
        id: u32,
        path: &'a [u8],
    },
    RemoveDir {
        id: u32,
        path: &'a [u8],
    },
    MakeDir {
        id: u32,
        path: &'a [u8],
        mode: u32,
    },
    Rename {
        id: u32,
        from: &'a [u8],
        to: &'a [u8],
        replace: bool,
    },
    Symlink {
        id: u32,
        path: &'a [u8],
        target: &'a [u8],
    },
    HardLink {
        id: u32,
        from: &'a [u8],
        to: &'a [u8],
    },
    Space {
        id: u32,
    },
    /// The complete content of a small file.
    Fetch {
        id: u32,
        path: &'a [u8],
    },
    /// Reserves space for a file.
    Allocate {
        id: u32,
        handle: u64,
        offset: u64,
        length: u64,
        size: SizeAfter,
    },
    /// Locks a part of a file, or fails if somebody else has it.
    Lock {
        id: u32,
        wanted: WantedLock,
    },
    Unlock {
        id: u32,
        file: u64,
        owner: u64,
        range: LockRange,
    },
    /// Asks for a lock that is in the way of another one.
    TestLock {
        id: u32,
        wanted: WantedLock,
    },
    /// Copies a part of an open file into another one.
    Copy {
        id: u32,
        from: u64,
        offset: u64,
        length: u64,
        to: u64,
        to_offset: u64,
    },
    /// Where the content of a file is cut into chunks, and their hashes.
    Chunks {
        id: u32,
        path: &'a [u8],
    },
    /// Moves a file over another one, if that is still in this version.
    Replace {
        id: u32,
        from: &'a [u8],
        to: &'a [u8],
        version: FsVersion,
    },
    /// Removes a file or link, if it is still in this version.
    RemoveVersion {
        id: u32,
        path: &'a [u8],
        version: FsVersion,
    },
    /// The same as `SetAttributes`, if the file is still in this version.
    SetVersionAttributes {
        id: u32,
        path: &'a [u8],
        version: FsVersion,
        change: AttributeChange,
    },
    /// So many bytes of pushed content have arrived.
    Received {
        bytes: u64,
    },
}

/// A lock that a program wants. `file` and `owner` are the client's numbers for the file and for the program. The handle is
/// needed only for the first lock of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WantedLock {
    pub(crate) handle: u64,
    pub(crate) file: u64,
    pub(crate) owner: u64,
    pub(crate) range: LockRange,
    pub(crate) kind: LockKind,
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FsOpenFlags {
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
}

mod kind {
    pub(super) const HELLO: u8 = 1;
    pub(super) const LIST: u8 = 2;
    pub(super) const STAT: u8 = 3;
    pub(super) const OPEN: u8 = 4;
    pub(super) const READ: u8 = 5;
    pub(super) const WRITE: u8 = 6;
    pub(super) const CLOSE: u8 = 7;
    pub(super) const SYNC: u8 = 8;
    pub(super) const HANDLE_STAT: u8 = 9;
    pub(super) const SET_ATTRIBUTES: u8 = 10;
    pub(super) const SET_HANDLE_ATTRIBUTES: u8 = 11;
    pub(super) const REMOVE_FILE: u8 = 12;
    pub(super) const REMOVE_DIR: u8 = 13;
    pub(super) const MAKE_DIR: u8 = 14;
    pub(super) const RENAME: u8 = 15;
    pub(super) const SYMLINK: u8 = 16;
    pub(super) const HARD_LINK: u8 = 17;
    pub(super) const SPACE: u8 = 18;
    pub(super) const FETCH: u8 = 19;
    pub(super) const RECEIVED: u8 = 20;
    pub(super) const ALLOCATE: u8 = 21;
    pub(super) const LOCK: u8 = 22;
    pub(super) const UNLOCK: u8 = 23;
    pub(super) const TEST_LOCK: u8 = 24;
    pub(super) const COPY: u8 = 25;
    pub(super) const CHUNKS: u8 = 26;
    pub(super) const REPLACE: u8 = 27;
    pub(super) const REMOVE_VERSION: u8 = 28;
    pub(super) const SET_VERSION_ATTRIBUTES: u8 = 29;
}

// === impl FsRequest ===

impl<'a> FsRequest<'a> {
    pub(crate) fn write(&self) -> Vec<u8> {
        let with_id = |kind: u8, id: u32| FrameWriter::new(kind).small(id);
        let out = match *self {
            Self::Hello { version, locator, push_bytes, push_file, mount } => FrameWriter::new(kind::HELLO)
                .small(version)
                .bytes(locator)
                .number(push_bytes)
                .number(push_file)
                .number(mount),
            Self::List { id, path } => with_id(kind::LIST, id).bytes(path),
            Self::Stat { id, path } => with_id(kind::STAT, id).bytes(path),
            Self::Open { id, handle, path, flags, mode } => {
                with_id(kind::OPEN, id).number(handle).bytes(path).byte(flags.bits()).small(mode)
            }
            Self::Read { id, handle, offset, length } => {
                with_id(kind::READ, id).number(handle).number(offset).small(length)
            }
            Self::Write { id, handle, offset, data } => {
                with_id(kind::WRITE, id).number(handle).number(offset).bytes(data)
            }
            Self::Close { id, handle } => with_id(kind::CLOSE, id).number(handle),
            Self::Sync { id, handle } => with_id(kind::SYNC, id).number(handle),
            Self::HandleStat { id, handle } => with_id(kind::HANDLE_STAT, id).number(handle),
            Self::SetAttributes { id, path, ref change } => {
                with_id(kind::SET_ATTRIBUTES, id).bytes(path).change(change)
            }
            Self::SetHandleAttributes { id, handle, ref change } => {
                with_id(kind::SET_HANDLE_ATTRIBUTES, id).number(handle).change(change)
            }
            Self::RemoveFile { id, path } => with_id(kind::REMOVE_FILE, id).bytes(path),
            Self::RemoveDir { id, path } => with_id(kind::REMOVE_DIR, id).bytes(path),
            Self::MakeDir { id, path, mode } => with_id(kind::MAKE_DIR, id).bytes(path).small(mode),
            Self::Rename { id, from, to, replace } => {
                with_id(kind::RENAME, id).bytes(from).bytes(to).byte(u8::from(replace))
            }
            Self::Symlink { id, path, target } => with_id(kind::SYMLINK, id).bytes(path).bytes(target),
            Self::HardLink { id, from, to } => with_id(kind::HARD_LINK, id).bytes(from).bytes(to),
            Self::Space { id } => with_id(kind::SPACE, id),
            Self::Fetch { id, path } => with_id(kind::FETCH, id).bytes(path),
            Self::Allocate { id, handle, offset, length, size } => with_id(kind::ALLOCATE, id)
                .number(handle)
                .number(offset)
                .number(length)
                .byte(u8::from(size == SizeAfter::Extended)),
            Self::Lock { id, wanted } => with_id(kind::LOCK, id).wanted_lock(wanted),
            Self::Unlock { id, file, owner, range } => {
                with_id(kind::UNLOCK, id).number(file).number(owner).range(range)
            }
            Self::TestLock { id, wanted } => with_id(kind::TEST_LOCK, id).wanted_lock(wanted),
            Self::Copy { id, from, offset, length, to, to_offset } => {
                with_id(kind::COPY, id).number(from).number(offset).number(length).number(to).number(to_offset)
            }
            Self::Chunks { id, path } => with_id(kind::CHUNKS, id).bytes(path),
            Self::Replace { id, from, to, version } => {
                with_id(kind::REPLACE, id).bytes(from).bytes(to).version(version)
            }
            Self::RemoveVersion { id, path, version } => with_id(kind::REMOVE_VERSION, id).bytes(path).version(version),
            Self::SetVersionAttributes { id, path, version, ref change } => {
                with_id(kind::SET_VERSION_ATTRIBUTES, id).bytes(path).version(version).change(change)
            }
            Self::Received { bytes } => FrameWriter::new(kind::RECEIVED).number(bytes),
        };
        out.finish()
    }

    /// The number of the request, if it gets a reply.
    pub(crate) const fn id(&self) -> Option<u32> {
        match *self {
            Self::Hello { .. } | Self::Received { .. } => None,
            Self::List { id, .. }
            | Self::Stat { id, .. }
            | Self::Open { id, .. }
            | Self::Read { id, .. }
            | Self::Write { id, .. }
            | Self::Close { id, .. }
            | Self::Sync { id, .. }
            | Self::HandleStat { id, .. }
            | Self::SetAttributes { id, .. }
            | Self::SetHandleAttributes { id, .. }
            | Self::RemoveFile { id, .. }
            | Self::RemoveDir { id, .. }
            | Self::MakeDir { id, .. }
            | Self::Rename { id, .. }
            | Self::Symlink { id, .. }
            | Self::HardLink { id, .. }
            | Self::Space { id }
            | Self::Fetch { id, .. }
            | Self::Allocate { id, .. }
            | Self::Lock { id, .. }
            | Self::Unlock { id, .. }
            | Self::TestLock { id, .. }
            | Self::Copy { id, .. }
            | Self::Chunks { id, .. }
            | Self::Replace { id, .. }
            | Self::RemoveVersion { id, .. }
            | Self::SetVersionAttributes { id, .. } => Some(id),
        }
    }

    /// Whether it changes nothing, not even which files are open.
    pub(crate) const fn only_looks(&self) -> bool {
        matches!(
            self,
            Self::List { .. }
                | Self::Stat { .. }
                | Self::Read { .. }
                | Self::HandleStat { .. }
                | Self::Space { .. }
                | Self::Fetch { .. }
                | Self::TestLock { .. }
                | Self::Chunks { .. }
        )
    }

    pub(crate) fn read(frame: &'a [u8]) -> Result<Self, MalformedFrame> {
        let (kind, mut body) = FrameReader::new(frame)?;
        let body = &mut body;
        let request = match kind {
            kind::HELLO => Self::Hello {
                version: body.small()?,
                locator: body.bytes()?,
                push_bytes: body.number()?,
                push_file: body.number()?,
                mount: body.number()?,
            },
            kind::LIST => Self::List { id: body.small()?, path: body.bytes()? },
            kind::STAT => Self::Stat { id: body.small()?, path: body.bytes()? },
            kind::OPEN => Self::Open {
                id: body.small()?,
                handle: body.number()?,
                path: body.bytes()?,
                flags: FsOpenFlags::of(body.byte()?)?,
                mode: body.small()?,
            },
            kind::READ => {
                Self::Read { id: body.small()?, handle: body.number()?, offset: body.number()?, length: body.small()? }
            }
            kind::WRITE => {
                Self::Write { id: body.small()?, handle: body.number()?, offset: body.number()?, data: body.bytes()? }
            }
            kind::CLOSE => Self::Close { id: body.small()?, handle: body.number()? },
            kind::SYNC => Self::Sync { id: body.small()?, handle: body.number()? },
            kind::HANDLE_STAT => Self::HandleStat { id: body.small()?, handle: body.number()? },
            kind::SET_ATTRIBUTES => {
                Self::SetAttributes { id: body.small()?, path: body.bytes()?, change: body.change()? }
            }
            kind::SET_HANDLE_ATTRIBUTES => {
                Self::SetHandleAttributes { id: body.small()?, handle: body.number()?, change: body.change()? }
            }
            kind::REMOVE_FILE => Self::RemoveFile { id: body.small()?, path: body.bytes()? },
            kind::REMOVE_DIR => Self::RemoveDir { id: body.small()?, path: body.bytes()? },
            kind::MAKE_DIR => Self::MakeDir { id: body.small()?, path: body.bytes()?, mode: body.small()? },
            kind::RENAME => {
                Self::Rename { id: body.small()?, from: body.bytes()?, to: body.bytes()?, replace: body.flag()? }
            }
            kind::SYMLINK => Self::Symlink { id: body.small()?, path: body.bytes()?, target: body.bytes()? },
            kind::HARD_LINK => Self::HardLink { id: body.small()?, from: body.bytes()?, to: body.bytes()? },
            kind::SPACE => Self::Space { id: body.small()? },
            kind::FETCH => Self::Fetch { id: body.small()?, path: body.bytes()? },
            kind::ALLOCATE => Self::Allocate {
                id: body.small()?,
                handle: body.number()?,
                offset: body.number()?,
                length: body.number()?,
                size: if body.flag()? { SizeAfter::Extended } else { SizeAfter::Unchanged },
            },
            kind::LOCK => Self::Lock { id: body.small()?, wanted: body.wanted_lock()? },
            kind::UNLOCK => {
                Self::Unlock { id: body.small()?, file: body.number()?, owner: body.number()?, range: body.range()? }
            }
            kind::TEST_LOCK => Self::TestLock { id: body.small()?, wanted: body.wanted_lock()? },
            kind::COPY => Self::Copy {
                id: body.small()?,
                from: body.number()?,
                offset: body.number()?,
                length: body.number()?,
                to: body.number()?,
                to_offset: body.number()?,
            },
            kind::CHUNKS => Self::Chunks { id: body.small()?, path: body.bytes()? },
            kind::REPLACE => {
                Self::Replace { id: body.small()?, from: body.bytes()?, to: body.bytes()?, version: body.version()? }
            }
            kind::REMOVE_VERSION => {
                Self::RemoveVersion { id: body.small()?, path: body.bytes()?, version: body.version()? }
            }
            kind::SET_VERSION_ATTRIBUTES => {
                let (id, path) = (body.small()?, body.bytes()?);
                Self::SetVersionAttributes { id, path, version: body.version()?, change: body.change()? }
            }
            kind::RECEIVED => Self::Received { bytes: body.number()? },
            _ => return Err(MalformedFrame::Unknown),
        };
        if body.remaining() > 0 {
            return Err(MalformedFrame::Short);
        }
        Ok(request)
    }
}

// === impl FsOpenFlags ===

impl FsOpenFlags {
    const fn bits(self) -> u8 {
        (self.read as u8)
            | (self.write as u8) << 1
            | (self.append as u8) << 2
            | (self.truncate as u8) << 3
            | (self.create as u8) << 4
            | (self.exclusive as u8) << 5
    }

    const fn of(bits: u8) -> Result<Self, MalformedFrame> {
        if bits & 0xc0 != 0 {
            return Err(MalformedFrame::Unknown);
        }
        Ok(Self {
            read: bits & 1 != 0,
            write: bits & 2 != 0,
            append: bits & 4 != 0,
            truncate: bits & 8 != 0,
            create: bits & 16 != 0,
            exclusive: bits & 32 != 0,
        })
    }
}
