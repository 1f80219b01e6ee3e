//! Folders that the host lists in several parts, until the last one is there.

use std::{collections::HashMap, fmt};

use crate::fs_wire::FsListing;

#[derive(Debug, Default)]
pub(super) struct ListingParts {
    begun: HashMap<(u32, Vec<u8>), FsListing>,
    /// About what they take in memory.
    bytes: usize,
}

/// The host began more than it finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManyParts;

/// Enough for a folder with a million entries. A host that sends more without finishing wants our memory.
const MAX_BYTES: usize = 256 << 20;
/// What an entry takes besides its name and target.
const PER_ENTRY: usize = 128;

// === impl ListingParts ===

impl ListingParts {
    /// Returns the whole listing with its last part.
    pub(super) fn add(&mut self, part: FsListing) -> Result<Option<FsListing>, TooManyParts> {
        let key = (part.id, part.path.clone());
        let is_last = part.is_last;
        let earlier = self.begun.remove(&key);
        self.bytes -= earlier.as_ref().map_or(0, weight);
        let whole = match earlier {
            Some(mut earlier) if earlier.stamp == part.stamp => {
                earlier.entries.extend(part.entries);
                earlier
            }
            // Or one that began anew, because the first one was never finished.
            _ => part,
        };
        if is_last {
            return Ok(Some(whole));
        }
        self.bytes += weight(&whole);
        self.begun.insert(key, whole);
        if self.bytes > MAX_BYTES { Err(TooManyParts) } else { Ok(None) }
    }
}

fn weight(listing: &FsListing) -> usize {
    let entry = |(name, entry): &(Vec<u8>, crate::fs_wire::FsEntry)| {
        PER_ENTRY + name.len() + entry.target.as_ref().map_or(0, Vec::len)
    };
    PER_ENTRY + 2 * listing.path.len() + listing.entries.iter().map(entry).sum::<usize>()
}

impl fmt::Display for TooManyParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it lists folders without end")
    }
}
