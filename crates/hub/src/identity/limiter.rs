//! Counts what went wrong in the last minute, per address or per agent, and says when it was too much.

use std::{
    collections::{HashMap, VecDeque},
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use attache_protocol::Code;
use tokio::time::Instant;

use crate::{Error, Result};

const WINDOW: Duration = Duration::from_secs(60);
/// An attacker with more addresses than this makes the oldest forgotten, not the memory grow.
const CAPACITY: usize = 8_192;

#[derive(Debug)]
pub(crate) struct Limiter<K> {
    per_minute: usize,
    marks: Mutex<HashMap<K, VecDeque<Instant>>>,
}

// === impl Limiter ===

impl<K: Eq + Hash + Clone> Limiter<K> {
    pub(crate) fn new(per_minute: usize) -> Self {
        Self { per_minute, marks: Mutex::default() }
    }

    /// Refuses when the key has used up its minute.
    pub(crate) fn check(&self, key: &K) -> Result<()> {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(times) = marks.get_mut(key) else { return Ok(()) };
        expire(times);
        if times.len() < self.per_minute {
            return Ok(());
        }
        Err(Error::new(Code::TooManyRequests, "Too many failed attempts in the last minute."))
    }

    pub(crate) fn mark(&self, key: K) {
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if marks.len() >= CAPACITY && !marks.contains_key(&key) {
            marks.retain(|_, times| {
                expire(times);
                !times.is_empty()
            });
            if marks.len() >= CAPACITY {
                let oldest = marks.iter().min_by_key(|(_, times)| times.back().copied()).map(|(key, _)| key.clone());
                oldest.map(|key| marks.remove(&key));
            }
        }
        let times = marks.entry(key).or_default();
        times.push_back(Instant::now());
        if times.len() > self.per_minute {
            times.pop_front();
        }
    }
}

fn expire(times: &mut VecDeque<Instant>) {
    while times.front().is_some_and(|at| at.elapsed() >= WINDOW) {
        times.pop_front();
    }
}
