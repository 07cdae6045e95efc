use std::{sync::Arc, time::Duration};

use kcm_clock::{Clock, Random, jitter};

/// How long to wait before the next try: 0.8 s, twice that each time, at most 30 s, each stretched at random by up
/// to twice; and from the start again once two minutes have passed since the last wait began (US-2.1).
///
/// Upstream counterpart: `wait.Backoff` with `DelayWithReset`, as the reflector sets it up.
pub(crate) struct Backoff {
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    next: Duration,
    last: Option<Duration>,
}

const START: Duration = Duration::from_millis(800);
const CAP: Duration = Duration::from_secs(30);
const FACTOR: u32 = 2;
const JITTER: f64 = 1.0;
const RESET: Duration = Duration::from_secs(120);

impl Backoff {
    pub(crate) fn new(clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> Self {
        Self { clock, random, next: START, last: None }
    }

    /// The next wait, which is taken to begin now.
    pub(crate) fn next(&mut self) -> Duration {
        let now = self.clock.monotonic();
        if self.last.is_some_and(|last| now.saturating_sub(last) > RESET) {
            self.next = START;
        }
        self.last = Some(now);
        let wait = self.next;
        self.next = (wait * FACTOR).min(CAP);
        // After the cap, as upstream: clients that all reached it must not come back together.
        jitter(&*self.random, wait, JITTER)
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, SeededRandom, Timestamp};

    use super::*;

    /// Draws nothing: every wait is its base.
    #[derive(Debug)]
    struct Zero;

    impl Random for Zero {
        fn next_u64(&self) -> u64 {
            0
        }
    }

    fn seconds(backoff: &mut Backoff, n: usize) -> Vec<f64> {
        (0..n).map(|_| backoff.next().as_secs_f64()).collect()
    }

    #[test]
    fn backoff_asked_again_and_again_doubles_up_to_its_cap() {
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let mut backoff = Backoff::new(clock, Arc::new(Zero));
        assert_eq!(seconds(&mut backoff, 8), [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0]);
    }

    #[test]
    fn backoff_left_alone_for_more_than_two_minutes_starts_again() {
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let mut backoff = Backoff::new(clock.clone(), Arc::new(Zero));
        assert_eq!(seconds(&mut backoff, 2), [0.8, 1.6]);
        clock.step(RESET);
        assert_eq!(seconds(&mut backoff, 1), [3.2]);
        clock.step(RESET + Duration::from_nanos(1));
        assert_eq!(seconds(&mut backoff, 2), [0.8, 1.6]);
    }

    #[test]
    fn backoff_with_chance_stays_below_twice_its_base() {
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let mut backoff = Backoff::new(clock, Arc::new(SeededRandom::new(1)));
        let drawn = seconds(&mut backoff, 100);
        assert!((0.8..1.6).contains(&drawn[0]));
        assert!(drawn[10..].iter().all(|wait| (30.0..60.0).contains(wait)));
        assert!(drawn[10..].iter().any(|wait| *wait > 45.0), "jitter reaches beyond the cap");
    }
}
