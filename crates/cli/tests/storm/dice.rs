//! Random choices that are reproducible from a seed.

use std::time::Duration;

use attache_protocol::env::Env;

#[derive(Debug)]
pub struct SeededDice(Env);

// === impl SeededDice ===

impl SeededDice {
    /// Each part of a test has its own dice, so that one part's pace doesn't change another's choices.
    pub fn new(seed: u64, part: u64) -> Self {
        Self(Env::seeded(seed.wrapping_mul(1_000_003).wrapping_add(part)))
    }

    /// A number from 0 up to but not including `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        usize::try_from(u64::from_le_bytes(bytes) % u64::try_from(end).unwrap()).unwrap()
    }

    /// True once in this many throws on average.
    pub fn once_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub fn millis(&mut self, from: usize, to: usize) -> Duration {
        Duration::from_millis(u64::try_from(from + self.below(to - from)).unwrap())
    }
}
