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

/// Longest part of a base that a generated name keeps, in characters. With its suffix, a name fits a DNS label.
///
/// Upstream counterpart: `maxGeneratedNameLength`.
const MAX_GENERATED_NAME_LENGTH: usize = 63 - SUFFIX_LENGTH;

/// Length of the random suffix of a generated name.
const SUFFIX_LENGTH: usize = 5;

/// Alphabet of random suffixes: without vowels and without characters that look alike.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Generates the name of an object from the base in its `metadata.generateName`.
///
/// Upstream counterparts: `names.SimpleNameGenerator`, `rand.String`.
pub fn generate_name(random: &dyn Random, base: &str) -> String {
    let mut name: String = base.chars().take(MAX_GENERATED_NAME_LENGTH).collect();
    let mut number = random.next_u64();
    for _ in 0..SUFFIX_LENGTH {
        let index = usize::try_from(number % ALPHABET.len() as u64).ok();
        number /= ALPHABET.len() as u64;
        name.extend(index.and_then(|index| ALPHABET.get(index)).map(|byte| char::from(*byte)));
    }
    name
}

/// Returns `true` if [`generate_name`] can generate `name` from `base`.
pub fn is_generated_name(name: &str, base: &str) -> bool {
    let base: String = base.chars().take(MAX_GENERATED_NAME_LENGTH).collect();
    let suffix = name.strip_prefix(&*base);
    suffix.is_some_and(|suffix| {
        suffix.len() == SUFFIX_LENGTH && suffix.bytes().all(|byte| ALPHABET.contains(&byte))
    })
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
    fn generated_name_is_the_base_cut_to_58_characters_and_a_suffix_of_5() {
        let random = SeededRandom::new(1);
        for (base, kept) in
            [("web-", "web-".to_owned()), (&"p".repeat(80), "p".repeat(58)), ("", String::new())]
        {
            let name = generate_name(&random, base);
            assert!(is_generated_name(&name, base), "{name}");
            assert_eq!((&name[..kept.len()], name.len()), (&*kept, kept.len() + 5));
            assert_ne!(name, generate_name(&random, base));
        }
    }

    #[test]
    fn name_that_was_not_generated_is_recognized() {
        for name in ["web-", "web-bcdf", "web-bcdfgh", "web-bcdfa", "api-bcdfg"] {
            assert!(!is_generated_name(name, "web-"), "{name}");
        }
    }

    #[test]
    fn seeded_random_with_the_same_seed_repeats_itself() {
        let (a, b) = (SeededRandom::new(1), SeededRandom::new(1));
        assert!((0..10).all(|_| a.next_u64() == b.next_u64()));
    }
}
