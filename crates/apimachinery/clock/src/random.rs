use std::{fmt, time::Duration};

use parking_lot::Mutex;

/// Source of random numbers, for jitter and generated names.
pub trait Random: fmt::Debug + Send + Sync + 'static {
    /// Returns a number that is uniformly distributed over all values.
    fn next_u64(&self) -> u64;

    /// Returns a number that is uniformly distributed over `[0, 1)`.
    fn unit(&self) -> f64 {
        // An f64 has 53 bits of precision.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Pseudo-random number generator: the same seed gives the same numbers.
///
/// ```
/// use kcm_clock::{Random, SeededRandom};
///
/// assert_eq!(SeededRandom::new(7).next_u64(), SeededRandom::new(7).next_u64());
/// ```
#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    /// Creates a generator with a fixed seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }

    /// Creates a generator with a seed of the operating system, for programs.
    pub fn from_entropy() -> Self {
        Self(Mutex::new(fastrand::Rng::new()))
    }
}

impl Random for SeededRandom {
    fn next_u64(&self) -> u64 {
        self.0.lock().u64(..)
    }
}

/// Returns a random duration in `[duration, duration × (1 + factor))`.
///
/// Example: 10 s with a factor of 0.5 is at least 10 s and less than 15 s.
///
/// Upstream counterpart: `wait.Jitter`.
///
/// ```
/// use std::time::Duration;
///
/// use kcm_clock::{SeededRandom, jitter};
///
/// let delay = jitter(&SeededRandom::new(1), Duration::from_secs(10), 0.5);
/// assert!((10..15).contains(&delay.as_secs()));
/// ```
pub fn jitter(random: &dyn Random, duration: Duration, factor: f64) -> Duration {
    let seconds = duration.as_secs_f64() * random.unit().mul_add(factor, 1.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_is_less_than_its_factor() {
        let random = SeededRandom::new(7);
        let second = Duration::from_secs(1);
        for _ in 0..1000 {
            let duration = jitter(&random, second, 1.0);
            assert!((second..second * 2).contains(&duration), "{duration:?}");
        }
    }

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let (a, b) = (SeededRandom::new(1), SeededRandom::new(1));
        assert!((0..10).all(|_| a.next_u64() == b.next_u64()));
    }
}
