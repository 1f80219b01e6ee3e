//! What becomes of a path that exists on both sides, given what both last agreed on. Pure: nothing is read or written here.
//!
//! The side that changed something wins, an edit beats a removal, and two different edits are merged or both kept. The
//! host's version is the one that keeps its name.

use std::collections::BTreeMap;

use crate::chunks::ContentId;

/// What a path is, as far as it is carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathState {
    Absent,
    /// Its mode isn't carried: the remote has to work in it.
    Folder,
    File {
        content: FileContent,
        mode: u32,
    },
    Link(Vec<u8>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileContent {
    Known(ContentId),
    /// The host has another version than before, which was not fetched yet.
    Unfetched,
}

/// One path, as it was agreed on and as it is on either side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PathStates {
    pub(super) base: PathState,
    pub(super) local: PathState,
    pub(super) host: PathState,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathOutcome {
    /// Both sides get this.
    Agree(PathState),
    /// Both edited the content of a file. If it can't be merged, it is a conflict.
    Merge { mode: u32 },
    /// The host's version stays, and the remote's gets another name.
    Conflict,
}

// === impl PathStates ===

impl PathStates {
    fn decide(&self) -> PathOutcome {
        use PathOutcome::{Agree, Conflict, Merge};
        let Self { base, local, host } = self;
        if host == base || (local == host && !host.is_unfetched()) {
            return Agree(local.clone());
        }
        if local == base {
            return Agree(host.clone());
        }
        match (local, host) {
            (PathState::Absent, changed) | (changed, PathState::Absent) => Agree(changed.clone()),
            (
                PathState::File { content: ours, mode: our_mode },
                PathState::File { content: theirs, mode: their_mode },
            ) => {
                let (base_content, base_mode) = match base {
                    PathState::File { content, mode } => (Some(content), Some(mode)),
                    _ => (None, None),
                };
                let mode = if Some(their_mode) == base_mode { *our_mode } else { *their_mode };
                if Some(ours) == base_content {
                    Agree(PathState::File { content: *theirs, mode })
                } else if Some(theirs) == base_content {
                    Agree(PathState::File { content: *ours, mode })
                } else {
                    Merge { mode }
                }
            }
            _ => Conflict,
        }
    }
}

// === impl PathState ===

impl PathState {
    fn is_unfetched(&self) -> bool {
        matches!(self, Self::File { content: FileContent::Unfetched, .. })
    }
}

/// Decides for every path that changed on either side. What stays in a folder keeps the folder.
pub(super) fn settle(changed: &BTreeMap<Vec<u8>, PathStates>) -> BTreeMap<Vec<u8>, PathOutcome> {
    let mut outcomes: BTreeMap<Vec<u8>, PathOutcome> =
        changed.iter().map(|(path, states)| (path.clone(), states.decide())).collect();
    let absent = PathOutcome::Agree(PathState::Absent);
    let kept: Vec<Vec<u8>> =
        outcomes.iter().filter(|(_, outcome)| **outcome != absent).map(|(path, _)| path.clone()).collect();
    for path in kept {
        for folder in folders_above(&path) {
            match outcomes.get_mut(folder) {
                None | Some(PathOutcome::Conflict | PathOutcome::Agree(PathState::Folder)) => {}
                Some(outcome) if *outcome == absent => *outcome = PathOutcome::Agree(PathState::Folder),
                // One side has something else in place of the folder, and the other side works in it.
                Some(outcome) => *outcome = PathOutcome::Conflict,
            }
        }
    }
    outcomes
}

/// The folders that a path is in, the innermost first, without the root.
pub(super) fn folders_above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
    slashes.map(|(at, _)| &path[..at])
}
