//! Random numbers of scenarios.

use std::sync::Arc;

use kcm_clock::{Random, SeededRandom};

/// Numbers drawn from a seed.
#[derive(Debug)]
pub struct ScenarioRandom(SeededRandom);

impl ScenarioRandom {
    /// Numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// A number in `0..limit`; 0 if `limit` is 0.
    pub fn below(&self, limit: u64) -> u64 {
        self.0.next_u64().checked_rem(limit).unwrap_or(0)
    }

    /// A number in `from..=to`.
    pub fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// `true` once in `times`.
    pub fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several values.
    pub fn pick<T: Copy>(&self, of: &[T]) -> Option<T> {
        of.get(self.index(of.len())).copied()
    }

    /// An index below `limit`.
    pub fn index(&self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap_or(0)
    }

    /// A small number in `from..=to`.
    pub fn small(&self, from: u32, to: u32) -> u32 {
        u32::try_from(self.between(from.into(), to.into())).unwrap_or(from)
    }
}

/// Returns a separate random source for each part, so that no part changes the numbers of another.
pub fn random(seed: u64, part: u64) -> Arc<dyn Random> {
    Arc::new(SeededRandom::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(part)))
}
