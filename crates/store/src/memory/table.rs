//! A table whose rows keep their order of creation.

use std::{collections::BTreeMap, ops::Index};

#[derive(Debug)]
pub(super) struct ModelTable<K, V> {
    /// `None` where a row was removed: the others keep their positions.
    rows: Vec<Option<V>>,
    places: BTreeMap<K, usize>,
}

// === impl ModelTable ===

impl<K: Ord, V> ModelTable<K, V> {
    pub(super) fn insert(&mut self, key: K, row: V) {
        self.places.insert(key, self.rows.len());
        self.rows.push(Some(row));
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.places.get(key).and_then(|place| self.rows[*place].as_ref())
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.places.get(key).and_then(|place| self.rows[*place].as_mut())
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some(place) = self.places.remove(key) {
            self.rows[place] = None;
        }
    }

    pub(super) fn retain(&mut self, wanted: impl Fn(&V) -> bool) {
        for row in self.rows.iter_mut().filter(|row| row.as_ref().is_some_and(|row| !wanted(row))) {
            *row = None;
        }
        let rows = &self.rows;
        self.places.retain(|_, place| rows[*place].is_some());
    }

    /// Oldest first.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.rows.iter().flatten()
    }

    /// Oldest first.
    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.rows.iter_mut().flatten()
    }

    /// Oldest first, each with its place.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &V)> {
        (0..self.rows.len()).filter_map(|place| self.rows[place].as_ref().map(|row| (place, row)))
    }
}

impl<K, V> Default for ModelTable<K, V> {
    fn default() -> Self {
        Self { rows: Vec::new(), places: BTreeMap::new() }
    }
}

impl<K: Ord, V> Index<&K> for ModelTable<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.rows[self.places[key]].as_ref().expect("what was removed has no place")
    }
}
