//! What a driver remembers of a host's work, by the ids that the host chose. Within a budget, because a host that says more
//! than anyone can remember must not fill the adapter's memory, which no limit of the run counts.

use std::collections::{BTreeMap, HashMap};

/// The latest entries that fit. The oldest make room.
#[derive(Debug)]
pub(crate) struct RecentEntries<V> {
    max: usize,
    used: usize,
    by_id: HashMap<String, RecentEntry<V>>,
    /// Ids in the order in which they were last set.
    order: BTreeMap<u64, String>,
    next: u64,
    has_forgotten: bool,
}

#[derive(Debug)]
struct RecentEntry<V> {
    value: V,
    at: u64,
    bytes: usize,
}

/// For ids, names and numbers.
pub(crate) const NOTES: usize = 8 << 20;
/// For contents of files and inputs of tools.
pub(crate) const CONTENTS: usize = 32 << 20;
/// What an entry takes besides its id, which is kept twice, and its value.
const ENTRY: usize = 160;

// === impl RecentEntries ===

impl<V> RecentEntries<V> {
    /// Keeps at most this many bytes.
    pub(crate) fn within(max: usize) -> Self {
        Self { max, used: 0, by_id: HashMap::new(), order: BTreeMap::new(), next: 0, has_forgotten: false }
    }

    /// Remembers a value of about this many bytes. Returns what is forgotten for it, or the value itself if it never fits.
    pub(crate) fn insert(&mut self, id: &str, value: V, bytes: usize) -> Vec<V> {
        self.remove(id);
        let bytes = bytes.saturating_add(2 * id.len()).saturating_add(ENTRY);
        let mut forgotten = Vec::new();
        if bytes > self.max {
            forgotten.push(value);
        } else {
            while self.used + bytes > self.max
                && let Some((_, oldest)) = self.order.first_key_value()
            {
                let oldest = oldest.clone();
                forgotten.extend(self.remove(&oldest));
            }
            let at = self.next;
            self.next += 1;
            self.used += bytes;
            self.order.insert(at, id.to_owned());
            self.by_id.insert(id.to_owned(), RecentEntry { value, at, bytes });
        }
        self.has_forgotten |= !forgotten.is_empty();
        forgotten
    }

    pub(crate) fn get(&self, id: &str) -> Option<&V> {
        self.by_id.get(id).map(|entry| &entry.value)
    }

    pub(crate) fn contains(&self, id: &str) -> bool {
        self.by_id.contains_key(id)
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<V> {
        let entry = self.by_id.remove(id)?;
        self.order.remove(&entry.at);
        self.used -= entry.bytes;
        Some(entry.value)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.by_id.values().map(|entry| &entry.value)
    }

    /// Whether an id that isn't here may have been.
    pub(crate) const fn has_forgotten(&self) -> bool {
        self.has_forgotten
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_latest_that_fit_are_kept(steps in prop::collection::vec((0..12_u8, 0..4000_usize), 0..60)) {
            const MAX: usize = 6000;
            let weight = |id: u8, bytes: usize| bytes + 2 * id.to_string().len() + ENTRY;
            let mut recent = RecentEntries::within(MAX);
            let mut kept: Vec<(u8, usize)> = Vec::new();
            for (id, bytes) in steps {
                let forgotten = recent.insert(&id.to_string(), bytes, bytes);
                kept.retain(|(known, _)| *known != id);
                kept.push((id, bytes));
                let mut expected = Vec::new();
                while kept.iter().map(|(id, bytes)| weight(*id, *bytes)).sum::<usize>() > MAX {
                    expected.push(kept.remove(0).1);
                }
                prop_assert_eq!(forgotten, expected);
                prop_assert_eq!(recent.used, kept.iter().map(|(id, bytes)| weight(*id, *bytes)).sum::<usize>());
                prop_assert_eq!(recent.by_id.len(), kept.len());
                for (id, bytes) in &kept {
                    prop_assert_eq!(recent.get(&id.to_string()), Some(bytes));
                }
            }
            for (id, bytes) in kept {
                prop_assert_eq!(recent.remove(&id.to_string()), Some(bytes));
            }
            prop_assert_eq!((recent.used, recent.order.len()), (0, 0));
        }
    }

    #[test]
    fn what_never_fits_displaces_nothing() {
        let mut recent = RecentEntries::within(1000);
        assert!(recent.insert("a", 1, 10).is_empty() && !recent.has_forgotten());
        assert_eq!(recent.insert("b", 2, 1000), [2]);
        assert!(recent.contains("a") && !recent.contains("b") && recent.has_forgotten());
    }
}
