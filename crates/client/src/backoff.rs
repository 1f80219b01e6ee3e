//! Exponential backoff with jitter, so that many clients of one hub don't come back at the same instant.

use std::time::Duration;

use attache_protocol::env::Env;

#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    most: Duration,
    tries: u32,
}

// === impl Backoff ===

impl Backoff {
    pub const fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, tries: 0 }
    }

    /// The next delay: doubled every time up to the limit, then a random value between half of it and all of it.
    pub fn next(&mut self, env: &Env) -> Duration {
        let whole = self.first.saturating_mul(1_u32 << self.tries.min(16)).min(self.most);
        self.tries = self.tries.saturating_add(1);
        let mut random = [0; 2];
        env.fill(&mut random);
        let half = whole / 2;
        half + half.mul_f64(f64::from(u16::from_le_bytes(random)) / f64::from(u16::MAX))
    }

    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// After a success, the next failure starts with the shortest delay again.
    pub const fn reset(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_limit_and_start_over() {
        let env = Env::seeded(5);
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        for whole in [100, 200, 400, 800, 1000, 1000] {
            let wait = backoff.next(&env).as_millis();
            assert!((whole / 2..=whole).contains(&wait), "{wait} of {whole}");
        }
        backoff.reset();
        assert!(backoff.next(&env) <= Duration::from_millis(100));
        let mut long = Backoff { tries: u32::MAX, ..backoff };
        assert!(long.next(&env) <= Duration::from_secs(1));
    }
}
