use std::{fmt, time::Duration};

use parking_lot::Mutex;

/// Where a component gets chance from: jitter, generated names.
pub trait Random: fmt::Debug + Send + Sync + 'static {
    /// A number drawn evenly from the whole range of `u64`.
    fn next_u64(&self) -> u64;

    /// A number drawn evenly from `[0, 1)`.
    fn unit(&self) -> f64 {
        // 53 bits are what an f64 holds exactly.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// A reproducible source: the same seed gives the same numbers.
#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    /// A source that always yields the same sequence for `seed`.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }

    /// A source seeded by the operating system, for binaries.
    pub fn from_entropy() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }
}

/// `duration` stretched by a random share of up to `factor`: in `[duration, duration × (1 + factor))`.
///
/// Upstream counterpart: `wait.Jitter`.
pub fn jitter(random: &dyn Random, duration: Duration, factor: f64) -> Duration {
    let stretched = duration.as_secs_f64() * random.unit().mul_add(factor, 1.0);
    Duration::try_from_secs_f64(stretched).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_between_the_duration_and_its_stretched_form() {
        let random = SeededRandom::new(7);
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            let drawn = jitter(&random, second, 1.0);
            assert!((second..second * 2).contains(&drawn), "{drawn:?}");
        }
    }

    #[test]
    fn seeded_random_with_the_same_seed_repeats_itself() {
        let (a, b) = (SeededRandom::new(1), SeededRandom::new(1));
        assert!((0..10).all(|_| a.next_u64() == b.next_u64()));
    }
}
