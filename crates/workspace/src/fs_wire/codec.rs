//! Frames and the values in them.

use super::{FsAttributes, FsEntry, FsVersion, MAX_FRAME, WantedLock};
use crate::export::{AttributeChange, FileKind, FileTime, LockKind, LockRange};

/// Why bytes are not a frame of this protocol. The connection can't continue after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MalformedFrame {
    #[error("a frame is empty or too long")]
    Length,
    #[error("a frame ends too early, or continues after its end")]
    Short,
    #[error("a frame is of an unknown kind, or a value in it is invalid")]
    Unknown,
}

/// Received bytes that are not yet used. Frames are taken from its start.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    bytes: Vec<u8>,
    used: usize,
}

/// Writes one frame.
pub(super) struct FrameWriter(Vec<u8>);

/// Reads the body of one frame.
pub(super) struct FrameReader<'a>(&'a [u8]);

// === impl FrameBuffer ===

impl FrameBuffer {
    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        if self.used > 0 && self.used * 2 >= self.bytes.len() {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame, without its length.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, MalformedFrame> {
        let rest = &self.bytes[self.used..];
        let Some((length, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > MAX_FRAME {
            return Err(MalformedFrame::Length);
        }
        if rest.len() < 4 + length {
            return Ok(None);
        }
        let start = self.used + 4;
        self.used = start + length;
        Ok(Some(&self.bytes[start..start + length]))
    }

    /// Bytes that no complete frame was made of yet.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len() - self.used
    }
}

// === impl FrameWriter ===

impl FrameWriter {
    pub(super) fn new(kind: u8) -> Self {
        Self(vec![0, 0, 0, 0, kind])
    }

    pub(super) fn byte(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(super) fn small(mut self, value: u32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn number(mut self, value: u64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bytes(mut self, value: &[u8]) -> Self {
        self.0.extend(u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
        self.0.extend_from_slice(value);
        self
    }

    pub(super) fn time(self, time: FileTime) -> Self {
        self.number(time.seconds.cast_unsigned()).small(time.nanos)
    }

    pub(super) fn optional<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            None => self.byte(0),
            Some(value) => write(self.byte(1), value),
        }
    }

    pub(super) fn attributes(self, attributes: &FsAttributes) -> Self {
        let kind = match attributes.kind {
            FileKind::File => 0,
            FileKind::Folder => 1,
            FileKind::Link => 2,
            FileKind::Special => 3,
        };
        self.byte(kind)
            .small(attributes.mode)
            .small(attributes.links)
            .number(attributes.inode)
            .number(attributes.size)
            .time(attributes.accessed)
            .time(attributes.modified)
            .time(attributes.changed)
    }

    pub(super) fn entry(self, entry: &FsEntry) -> Self {
        self.attributes(&entry.attributes).optional(entry.target.as_deref(), Self::bytes)
    }

    pub(super) fn change(self, change: &AttributeChange) -> Self {
        self.optional(change.size, Self::number)
            .optional(change.mode, Self::small)
            .optional(change.accessed, Self::time)
            .optional(change.modified, Self::time)
    }

    pub(super) fn range(self, range: LockRange) -> Self {
        self.number(range.start).number(range.end)
    }

    pub(super) fn lock(self, kind: LockKind) -> Self {
        self.byte(u8::from(kind == LockKind::Exclusive))
    }

    pub(super) fn version(self, FsVersion { inode, size, modified, changed }: FsVersion) -> Self {
        self.number(inode).number(size).time(modified).time(changed)
    }

    pub(super) fn wanted_lock(self, WantedLock { handle, file, owner, range, kind }: WantedLock) -> Self {
        self.number(handle).number(file).number(owner).range(range).lock(kind)
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        let length = u32::try_from(self.0.len() - 4).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&length.to_be_bytes());
        self.0
    }
}

// === impl FrameReader ===

impl<'a> FrameReader<'a> {
    /// The kind of the frame, and its body.
    pub(super) fn new(frame: &'a [u8]) -> Result<(u8, Self), MalformedFrame> {
        let (kind, body) = frame.split_first().ok_or(MalformedFrame::Short)?;
        Ok((*kind, Self(body)))
    }

    pub(super) fn byte(&mut self) -> Result<u8, MalformedFrame> {
        let (value, rest) = self.0.split_first().ok_or(MalformedFrame::Short)?;
        self.0 = rest;
        Ok(*value)
    }

    pub(super) fn flag(&mut self) -> Result<bool, MalformedFrame> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(MalformedFrame::Unknown),
        }
    }

    pub(super) fn small(&mut self) -> Result<u32, MalformedFrame> {
        let (value, rest) = self.0.split_first_chunk().ok_or(MalformedFrame::Short)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*value))
    }

    pub(super) fn number(&mut self) -> Result<u64, MalformedFrame> {
        let (value, rest) = self.0.split_first_chunk().ok_or(MalformedFrame::Short)?;
        self.0 = rest;
        Ok(u64::from_be_bytes(*value))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], MalformedFrame> {
        let length = self.small()? as usize;
        let (value, rest) = self.0.split_at_checked(length).ok_or(MalformedFrame::Short)?;
        self.0 = rest;
        Ok(value)
    }

    pub(super) fn owned(&mut self) -> Result<Vec<u8>, MalformedFrame> {
        self.bytes().map(<[u8]>::to_vec)
    }

    pub(super) fn time(&mut self) -> Result<FileTime, MalformedFrame> {
        Ok(FileTime { seconds: self.number()?.cast_signed(), nanos: self.small()? })
    }

    pub(super) fn optional<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, MalformedFrame>,
    ) -> Result<Option<T>, MalformedFrame> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    pub(super) fn attributes(&mut self) -> Result<FsAttributes, MalformedFrame> {
        let kind = match self.byte()? {
            0 => FileKind::File,
            1 => FileKind::Folder,
            2 => FileKind::Link,
            3 => FileKind::Special,
            _ => return Err(MalformedFrame::Unknown),
        };
        Ok(FsAttributes {
            kind,
            mode: self.small()?,
            links: self.small()?,
            inode: self.number()?,
            size: self.number()?,
            accessed: self.time()?,
            modified: self.time()?,
            changed: self.time()?,
        })
    }

    pub(super) fn entry(&mut self) -> Result<FsEntry, MalformedFrame> {
        Ok(FsEntry { attributes: self.attributes()?, target: self.optional(Self::owned)? })
    }

    pub(super) fn change(&mut self) -> Result<AttributeChange, MalformedFrame> {
        Ok(AttributeChange {
            size: self.optional(Self::number)?,
            mode: self.optional(Self::small)?,
            accessed: self.optional(Self::time)?,
            modified: self.optional(Self::time)?,
        })
    }

    pub(super) fn range(&mut self) -> Result<LockRange, MalformedFrame> {
        Ok(LockRange { start: self.number()?, end: self.number()? })
    }

    pub(super) fn lock(&mut self) -> Result<LockKind, MalformedFrame> {
        Ok(if self.flag()? { LockKind::Exclusive } else { LockKind::Shared })
    }

    pub(super) fn version(&mut self) -> Result<FsVersion, MalformedFrame> {
        Ok(FsVersion { inode: self.number()?, size: self.number()?, modified: self.time()?, changed: self.time()? })
    }

    pub(super) fn wanted_lock(&mut self) -> Result<WantedLock, MalformedFrame> {
        Ok(WantedLock {
            handle: self.number()?,
            file: self.number()?,
            owner: self.number()?,
            range: self.range()?,
            kind: self.lock()?,
        })
    }

    pub(super) const fn remaining(&self) -> usize {
        self.0.len()
    }

    pub(super) fn end(self) -> Result<(), MalformedFrame> {
        if self.0.is_empty() { Ok(()) } else { Err(MalformedFrame::Short) }
    }
}
