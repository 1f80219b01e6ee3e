//! Remembers a limited number of things under their names, and forgets first what was not used for longest.

use std::collections::HashMap;

#[derive(Debug)]
pub(super) struct RecentlyUsed<V> {
    values: HashMap<String, (u64, V)>,
    limit: usize,
    /// Counts uses.
    clock: u64,
}

// === impl RecentlyUsed ===

impl<V: Clone> RecentlyUsed<V> {
    pub(super) fn new(limit: usize) -> Self {
        Self { values: HashMap::new(), limit, clock: 0 }
    }

    pub(super) fn get(&mut self, name: &str) -> Option<V> {
        self.clock += 1;
        let (used, value) = self.values.get_mut(name)?;
        *used = self.clock;
        Some(value.clone())
    }

    pub(super) fn put(&mut self, name: &str, value: V) {
        self.clock += 1;
        if self.values.len() >= self.limit && !self.values.contains_key(name) {
            let oldest = self.values.iter().min_by_key(|(_, (used, _))| *used).map(|(name, _)| name.clone());
            oldest.and_then(|oldest| self.values.remove(&oldest));
        }
        self.values.insert(name.to_owned(), (self.clock, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_longest_is_forgotten() {
        let mut cache = RecentlyUsed::new(2);
        for name in ["a", "b"] {
            cache.put(name, name.to_owned());
        }
        assert_eq!(cache.get("a").as_deref(), Some("a"));
        cache.put("c", "c".to_owned());
        assert_eq!(["a", "b", "c"].map(|name| cache.get(name).is_some()), [true, false, true]);
        cache.put("c", "another".to_owned());
        assert_eq!((cache.values.len(), cache.get("c").as_deref()), (2, Some("another")));
        for number in 0..100 {
            cache.put(&number.to_string(), String::new());
        }
        assert_eq!(cache.values.len(), 2);
    }
}
