//! What the host sends: replies, and unrequested news about the tree.

use super::{
    FsAttributes, FsEntry, Stamp,
    codec::{FrameReader, FrameWriter, MalformedFrame},
};
use crate::export::{LockKind, LockRange};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FsEvent {
    /// The answer to the first request.
    Welcome(FsWelcome),
    /// A folder, or a part of one that is large.
    Listing(FsListing),
    /// The content of a file, sent before it was requested.
    Content {
        path: Vec<u8>,
        stamp: Stamp,
        attributes: FsAttributes,
        data: Vec<u8>,
    },
    Done(FsReply),
    Failed(FsFailure),
    /// Something changed, by whomever.
    Changed(FsTreeChange),
    /// Changes were missed: nothing that was sent before holds any more. The tree follows again.
    Reset,
    /// Every folder was listed that will be listed without being asked for.
    TreeComplete,
    /// The lease has ended. Nothing follows.
    Ended,
}

/// What became of earlier requests of a mount. If the host knows none, its connections before this one are forgotten.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsWelcome {
    pub(crate) version: u32,
    /// The greatest number of a request that was carried out.
    pub(crate) carried_out: Option<u32>,
    /// Those that failed, with their errors.
    pub(crate) failed: Vec<(u32, u32)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsListing {
    /// Zero if it wasn't requested.
    pub(crate) id: u32,
    pub(crate) path: Vec<u8>,
    pub(crate) stamp: Stamp,
    /// Whether changes in it will be reported. If not, this holds only for a moment.
    pub(crate) is_watched: bool,
    /// Whether this is the last part.
    pub(crate) is_last: bool,
    pub(crate) own: FsAttributes,
    pub(crate) entries: Vec<(Vec<u8>, FsEntry)>,
}

/// A request was carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsReply {
    pub(crate) id: u32,
    pub(crate) stamp: Stamp,
    /// The file or entry in question, after it.
    pub(crate) entry: Option<FsEntry>,
    /// The file just before it, if its content or times were changed: somebody else may have written to it, too.
    pub(crate) before: Option<FsAttributes>,
    /// Its folder, after it.
    pub(crate) folder: Option<FsAttributes>,
    /// The folder that it was moved from.
    pub(crate) from_folder: Option<FsAttributes>,
    /// A lock that is in the way.
    pub(crate) lock: Option<(LockRange, LockKind)>,
    pub(crate) data: Vec<u8>,
}

/// A request was refused or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FsFailure {
    pub(crate) id: u32,
    /// As Linux numbers them.
    pub(crate) errno: u32,
}

/// A name in a folder and what it is now: nothing, if it was removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsTreeChange {
    pub(crate) stamp: Stamp,
    pub(crate) folder: Vec<u8>,
    pub(crate) own: FsAttributes,
    pub(crate) name: Vec<u8>,
    pub(crate) entry: Option<FsEntry>,
}

mod kind {
    pub(super) const WELCOME: u8 = 1;
    pub(super) const LISTING: u8 = 2;
    pub(super) const CONTENT: u8 = 3;
    pub(super) const DONE: u8 = 4;
    pub(super) const FAILED: u8 = 5;
    pub(super) const CHANGED: u8 = 6;
    pub(super) const RESET: u8 = 7;
    pub(super) const TREE_COMPLETE: u8 = 8;
    pub(super) const ENDED: u8 = 9;
}

// === impl FsReply ===

impl FsReply {
    /// For a request that a listing answers.
    pub(crate) fn of_listing(listing: &FsListing) -> Self {
        let (id, stamp) = (listing.id, listing.stamp);
        Self { id, stamp, ..Self::EMPTY }
    }

    /// A reply that says nothing.
    pub(crate) const EMPTY: Self = Self {
        id: 0,
        stamp: 0,
        entry: None,
        before: None,
        folder: None,
        from_folder: None,
        lock: None,
        data: Vec::new(),
    };
}

// === impl FsEvent ===

impl FsEvent {
    pub(crate) fn write(&self) -> Vec<u8> {
        let out = match self {
            Self::Welcome(FsWelcome { version, carried_out, failed }) => {
                let head = FrameWriter::new(kind::WELCOME).small(*version).optional(*carried_out, FrameWriter::small);
                failed.iter().fold(head, |out, (id, errno)| out.small(*id).small(*errno))
            }
            Self::Listing(listing) => {
                let head = FrameWriter::new(kind::LISTING)
                    .small(listing.id)
                    .bytes(&listing.path)
                    .number(listing.stamp)
                    .byte(u8::from(listing.is_watched))
                    .byte(u8::from(listing.is_last))
                    .attributes(&listing.own);
                listing.entries.iter().fold(head, |out, (name, entry)| out.bytes(name).entry(entry))
            }
            Self::Content { path, stamp, attributes, data } => {
                FrameWriter::new(kind::CONTENT).bytes(path).number(*stamp).attributes(attributes).bytes(data)
            }
            Self::Done(reply) => FrameWriter::new(kind::DONE)
                .small(reply.id)
                .number(reply.stamp)
                .optional(reply.entry.as_ref(), FrameWriter::entry)
                .optional(reply.before.as_ref(), FrameWriter::attributes)
                .optional(reply.folder.as_ref(), FrameWriter::attributes)
                .optional(reply.from_folder.as_ref(), FrameWriter::attributes)
                .optional(reply.lock, |out, (range, kind)| out.range(range).lock(kind))
                .bytes(&reply.data),
            Self::Failed(failure) => FrameWriter::new(kind::FAILED).small(failure.id).small(failure.errno),
            Self::Changed(change) => FrameWriter::new(kind::CHANGED)
                .number(change.stamp)
                .bytes(&change.folder)
                .attributes(&change.own)
                .bytes(&change.name)
                .optional(change.entry.as_ref(), FrameWriter::entry),
            Self::Reset => FrameWriter::new(kind::RESET),
            Self::TreeComplete => FrameWriter::new(kind::TREE_COMPLETE),
            Self::Ended => FrameWriter::new(kind::ENDED),
        };
        out.finish()
    }

    pub(crate) fn read(frame: &[u8]) -> Result<Self, MalformedFrame> {
        let (kind, mut body) = FrameReader::new(frame)?;
        let event = match kind {
            kind::WELCOME => {
                let (version, carried_out) = (body.small()?, body.optional(FrameReader::small)?);
                let mut failed = Vec::new();
                while body.remaining() > 0 {
                    failed.push((body.small()?, body.small()?));
                }
                Self::Welcome(FsWelcome { version, carried_out, failed })
            }
            kind::LISTING => {
                let mut listing = FsListing {
                    id: body.small()?,
                    path: body.owned()?,
                    stamp: body.number()?,
                    is_watched: body.flag()?,
                    is_last: body.flag()?,
                    own: body.attributes()?,
                    entries: Vec::new(),
                };
                while body.remaining() > 0 {
                    listing.entries.push((body.owned()?, body.entry()?));
                }
                Self::Listing(listing)
            }
            kind::CONTENT => Self::Content {
                path: body.owned()?,
                stamp: body.number()?,
                attributes: body.attributes()?,
                data: body.owned()?,
            },
            kind::DONE => Self::Done(FsReply {
                id: body.small()?,
                stamp: body.number()?,
                entry: body.optional(FrameReader::entry)?,
                before: body.optional(FrameReader::attributes)?,
                folder: body.optional(FrameReader::attributes)?,
                from_folder: body.optional(FrameReader::attributes)?,
                lock: body.optional(|body| Ok((body.range()?, body.lock()?)))?,
                data: body.owned()?,
            }),
            kind::FAILED => Self::Failed(FsFailure { id: body.small()?, errno: body.small()? }),
            kind::CHANGED => Self::Changed(FsTreeChange {
                stamp: body.number()?,
                folder: body.owned()?,
                own: body.attributes()?,
                name: body.owned()?,
                entry: body.optional(FrameReader::entry)?,
            }),
            kind::RESET => Self::Reset,
            kind::TREE_COMPLETE => Self::TreeComplete,
            kind::ENDED => Self::Ended,
            _ => return Err(MalformedFrame::Unknown),
        };
        body.end()?;
        Ok(event)
    }
}
