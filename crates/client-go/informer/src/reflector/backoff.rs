use std::{sync::Arc, time::Duration};

use kcm_clock::{Clock, Random, jitter};

const START: Duration = Duration::from_millis(800);
const CAP: Duration = Duration::from_secs(30);
const FACTOR: u32 = 2;
const JITTER: f64 = 1.0;
const RESET: Duration = Duration::from_secs(120);

/// Exponential back-off of a reflector (US-2.1).
///
/// The delay of the `n`-th retry is random in `[base, 2 × base)`, with `base = min(0.8 s × 2^(n-1), 30 s)`: the third
/// retry waits 3.2 s to 6.4 s. It starts again at 0.8 s if more than two minutes have passed since the last delay began.
///
/// Upstream counterpart: `wait.Backoff` with `DelayWithReset`, as the reflector configures it.
pub(crate) struct Backoff {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    next: Duration,
    /// Start of the last delay.
    last: Option<Duration>,
}

impl Backoff {
    pub(crate) fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random, next: START, last: None }
    }

    /// Returns the next delay, which starts now.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.clock.monotonic();
        if self.last.is_some_and(|last| now.saturating_sub(last) > RESET) {
            self.next = START;
        }
        self.last = Some(now);
        let base = self.next;
        self.next = (base * FACTOR).min(CAP);
        // The jitter is applied after the cap, as upstream, so that clients that have reached it do not retry together.
        jitter(&*self.random, base, JITTER)
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, SeededRandom, Timestamp};

    use super::*;

    /// Draws zero: every delay is its base.
    #[derive(Debug)]
    struct NoJitter;

    impl Random for NoJitter {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    fn backoff(random: impl Random) -> (FakeClock, Backoff) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        (clock.clone(), Backoff::new(Arc::new(clock), Arc::new(random)))
    }

    fn seconds(backoff: &mut Backoff, n: usize) -> Vec<f64> {
        (0..n).map(|_| backoff.next().as_secs_f64()).collect()
    }

    #[test]
    fn doubles_up_to_the_cap() {
        let (_clock, mut backoff) = backoff(NoJitter);
        assert_eq!(seconds(&mut backoff, 8), [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]);
    }

    #[test]
    fn starts_again_after_two_minutes() {
        let (clock, mut backoff) = backoff(NoJitter);
        assert_eq!(seconds(&mut backoff, 2), [0.8, 1.6]);
        clock.step(RESET);
        assert_eq!(seconds(&mut backoff, 1), [3.2]);
        clock.step(RESET + Duration::from_nanos(1));
        assert_eq!(seconds(&mut backoff, 2), [0.8, 1.6]);
    }

    #[test]
    fn jitter_up_to_doubles_the_delay() {
        let (_clock, mut backoff) = backoff(SeededRandom::new(1));
        let delays = seconds(&mut backoff, 100);
        assert!((0.8..1.6).contains(&delays[0]));
        assert!(delays[10..].iter().all(|delay| (30.0..60.0).contains(delay)));
        assert!(delays[10..].iter().any(|delay| *delay > 45.0), "jitter is applied after the cap");
    }
}
