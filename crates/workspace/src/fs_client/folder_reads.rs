//! Folders that programs read, in several steps each. What they get is what was there at the first step: names that are
//! created or removed meanwhile don't shift the rest.

use std::{collections::VecDeque, ffi::OsStr, os::unix::ffi::OsStrExt as _, time::Instant};

use fuser::{Errno, FileType, Generation, INodeNo, ReplyDirectory, ReplyDirectoryPlus};

use super::{
    filesystem::MountedFs,
    shared::{FsShared, FsState, or_lost},
    tree::{Name, UNWATCHED},
};

/// The folders that were read last.
#[derive(Debug, Default)]
pub(super) struct FolderReads {
    reads: VecDeque<FolderRead>,
    next_number: u32,
    /// How many names they have.
    names: usize,
}

#[derive(Debug)]
struct FolderRead {
    number: u32,
    entries: Vec<(Name, u64)>,
}

/// Where a program continues. The kernel opens folders without asking, so it has to say what it was reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ReadPosition {
    number: u32,
    index: usize,
}

/// What the kernel asks for.
pub(super) enum FolderReply {
    Names(ReplyDirectory),
    /// With attributes, which saves a request for each.
    Entries(ReplyDirectoryPlus),
}

const MAX_READS: usize = 1024;
const MAX_NAMES: usize = 500_000;

// === impl MountedFs ===

impl MountedFs {
    pub(super) fn read_folder(&self, ino: u64, offset: u64, reply: FolderReply) {
        or_lost!(self, reply);
        let mut state = self.0.lock();
        if offset > 0 || (self.0.link.is_up() && state.tree.is_listed(ino, Instant::now())) {
            return self.0.reply_folder(&mut state, ino, offset, reply);
        }
        self.0.list(
            state,
            &self.0,
            ino,
            Box::new(move |shared, done| match done {
                Ok(()) => shared.reply_folder(&mut shared.lock(), ino, offset, reply),
                Err(errno) => reply.error(errno),
            }),
        );
    }
}

// === impl FsShared ===

impl FsShared {
    fn reply_folder(&self, state: &mut FsState, ino: u64, offset: u64, mut reply: FolderReply) {
        let mut position = ReadPosition::of(offset);
        if offset == 0 || !state.folder_reads.has(position.number) {
            let entries = state.tree.entries(ino);
            position.number = state.folder_reads.begin(entries);
            if !state.tree.note_all(ino) {
                state.unwatched.insert(ino, Instant::now() + UNWATCHED);
            }
        }
        let above = [(Name::from(&b"."[..]), ino), (Name::from(&b".."[..]), state.tree.above(ino))];
        let entries = above.iter().chain(state.folder_reads.entries(position.number));
        let mut shown = Vec::new();
        for (index, (name, ino)) in entries.enumerate().skip(position.index) {
            let next = ReadPosition { index: index + 1, ..position };
            match reply.add(self, state, (name, *ino), next) {
                AddOutcome::Shown if index >= above.len() => shown.push(*ino),
                AddOutcome::Shown | AddOutcome::LeftOut => {}
                AddOutcome::NoRoom => break,
            }
        }
        let is_known_now = matches!(reply, FolderReply::Entries(_));
        for ino in shown.into_iter().filter(|_| is_known_now) {
            if let Some(node) = state.tree.node_mut(ino) {
                node.lookups += 1;
            }
        }
        reply.ok();
    }
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AddOutcome {
    Shown,
    /// It was removed meanwhile.
    LeftOut,
    NoRoom,
}

// === impl FolderReply ===

impl FolderReply {
    fn add(&mut self, shared: &FsShared, state: &FsState, (name, ino): (&Name, u64), next: ReadPosition) -> AddOutcome {
        let (node, shown_name) = (state.tree.node(ino), OsStr::from_bytes(name));
        let is_full = match (self, node) {
            (Self::Names(reply), node) => {
                let kind = node.map_or(FileType::RegularFile, |node| shared.attr(&node.attributes).kind);
                reply.add(INodeNo(ino), next.offset(), kind, shown_name)
            }
            (Self::Entries(_), None) => return AddOutcome::LeftOut,
            (Self::Entries(reply), Some(node)) => {
                let (ttl, generation) = (state.ttls(ino).1, Generation(node.generation));
                let attr = shared.attr_of(ino, node);
                reply.add(INodeNo(ino), next.offset(), shown_name, &ttl, &attr, generation)
            }
        };
        if is_full { AddOutcome::NoRoom } else { AddOutcome::Shown }
    }

    fn error(self, errno: Errno) {
        match self {
            Self::Names(reply) => reply.error(errno),
            Self::Entries(reply) => reply.error(errno),
        }
    }

    fn ok(self) {
        match self {
            Self::Names(reply) => reply.ok(),
            Self::Entries(reply) => reply.ok(),
        }
    }
}

// === impl FolderReads ===

impl FolderReads {
    /// Returns its number.
    fn begin(&mut self, entries: Vec<(Name, u64)>) -> u32 {
        // As a position, it has to be positive and not zero.
        self.next_number = self.next_number % (u32::MAX >> 1) + 1;
        self.names += entries.len();
        self.reads.push_back(FolderRead { number: self.next_number, entries });
        while self.reads.len() > MAX_READS || (self.names > MAX_NAMES && self.reads.len() > 1) {
            let Some(oldest) = self.reads.pop_front() else { break };
            self.names -= oldest.entries.len();
        }
        self.next_number
    }

    fn has(&self, number: u32) -> bool {
        self.reads.iter().any(|read| read.number == number)
    }

    fn entries(&self, number: u32) -> &[(Name, u64)] {
        // The newest is usually the one.
        self.reads.iter().rev().find(|read| read.number == number).map_or(&[], |read| &read.entries)
    }
}

// === impl ReadPosition ===

impl ReadPosition {
    fn of(offset: u64) -> Self {
        let number = u32::try_from(offset >> 32).unwrap_or(0);
        Self { number, index: usize::try_from(offset & u64::from(u32::MAX)).unwrap_or(usize::MAX) }
    }

    fn offset(self) -> u64 {
        u64::from(self.number) << 32 | (self.index as u64 & u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_continues_where_it_was() {
        let mut reads = FolderReads::default();
        let entries = |name: &[u8]| vec![(Name::from(name), 7)];
        let (one, other) = (reads.begin(entries(b"a")), reads.begin(entries(b"b")));
        let position = ReadPosition { number: one, index: 3 };
        assert_eq!(ReadPosition::of(position.offset()), position);
        assert_eq!((reads.entries(one), reads.entries(other)), (&entries(b"a")[..], &entries(b"b")[..]));
        for _ in 0..MAX_READS {
            reads.begin(entries(b"c"));
        }
        assert!(!reads.has(one) && !reads.has(other));
        reads.begin(vec![(Name::from(&b"d"[..]), 7); MAX_NAMES]);
        assert_eq!((reads.reads.len(), reads.names), (1, MAX_NAMES));
    }
}
