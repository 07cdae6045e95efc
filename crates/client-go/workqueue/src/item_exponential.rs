use std::{collections::HashMap, sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::{item::Item, rate_limiter::RateLimiter};

/// Exponential back-off per item: the delay after the `n`-th failure is `min(base × 2^(n-1), max)`.
///
/// Example: with a base of 5 ms and a maximum of 1000 s, the delays are 5 ms, 10 ms, 20 ms, …; the 15th is 81.92 s, and
/// from the 19th on it is 1000 s.
///
/// Upstream counterpart: `workqueue.ItemExponentialFailureRateLimiter`.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use kcm_clock::{FakeClock, Timestamp};
/// use kcm_workqueue::{ItemExponentialFailureRateLimiter, RateLimiter};
///
/// let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
/// let (base, max) = (Duration::from_millis(5), Duration::from_millis(12));
/// let limiter = ItemExponentialFailureRateLimiter::new(base, max, clock);
/// let delays = [(); 3].map(|()| limiter.when(&"default/web").as_millis());
/// assert_eq!(delays, [5, 10, 12]);
/// ```
#[derive(Debug)]
pub struct ItemExponentialFailureRateLimiter<T> {
    /// Items with failures.
    items: Mutex<HashMap<T, Failures>>,
    base: Duration,
    max: Duration,
    clock: Arc<dyn Clock>,
}

/// Failures of an item, and the monotonic time at which the last delay ends.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    due: Duration,
}

impl<T: Item> ItemExponentialFailureRateLimiter<T> {
    /// Creates a limiter whose delays start at `base` and end at `max`.
    pub fn new(base: Duration, max: Duration, clock: Arc<dyn Clock>) -> Self {
        Self { items: Mutex::new(HashMap::new()), base, max, clock }
    }
}

impl<T: Item> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        let now = self.clock.monotonic();
        let mut items = self.items.lock();
        let failures = items.entry(item.clone()).or_default();
        let max = self.max.as_nanos();
        let factor = 1_u128.checked_shl(failures.count);
        let delay = factor.and_then(|factor| self.base.as_nanos().checked_mul(factor));
        let delay = Duration::from_nanos_u128(delay.unwrap_or(max).min(max));
        failures.count = failures.count.saturating_add(1);
        failures.due = now.saturating_add(delay);
        delay
    }

    fn remaining(&self, item: &T) -> Option<Duration> {
        let due = self.items.lock().get(item)?.due;
        Some(due.saturating_sub(self.clock.monotonic())).filter(|remaining| !remaining.is_zero())
    }

    fn forget(&self, item: &T) {
        self.items.lock().remove(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.items.lock().get(item).map_or(0, |failures| failures.count)
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    fn limiter(
        base: Duration,
        max: Duration,
    ) -> (ItemExponentialFailureRateLimiter<&'static str>, FakeClock) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        (ItemExponentialFailureRateLimiter::new(base, max, Arc::new(clock.clone())), clock)
    }

    fn default() -> ItemExponentialFailureRateLimiter<&'static str> {
        limiter(Duration::from_millis(5), Duration::from_secs(1000)).0
    }

    #[test]
    fn delay_doubles_up_to_the_maximum() {
        let limiter = default();
        let delays: Vec<_> = (0..20).map(|_| limiter.when(&"a").as_millis()).collect();
        let mut expected: Vec<_> = (0..18).map(|n| 5 << n).collect();
        // 5 ms × 2^17 is 655.36 s; the next would be 1310.72 s.
        expected.extend([1_000_000, 1_000_000]);
        assert_eq!(delays, expected);
    }

    #[test]
    fn fifteenth_delay_is_82_seconds() {
        let limiter = default();
        let last = (0..15).map(|_| limiter.when(&"a")).last();
        assert_eq!(last, Some(Duration::from_millis(81_920)));
        assert_eq!(limiter.num_requeues(&"a"), 15);
    }

    #[test]
    fn remaining_time_ends_with_the_last_delay() {
        let (limiter, clock) = limiter(Duration::from_secs(1), Duration::from_secs(9));
        assert_eq!(limiter.remaining(&"a"), None);
        limiter.when(&"a");
        limiter.when(&"a");
        clock.step(Duration::from_millis(500));
        assert_eq!(
            (limiter.remaining(&"a"), limiter.remaining(&"b")),
            (Some(Duration::from_millis(1500)), None)
        );
        clock.step(Duration::from_millis(1500));
        assert_eq!(limiter.remaining(&"a"), None);
    }

    #[test]
    fn items_have_separate_failures() {
        let limiter = default();
        limiter.when(&"a");
        limiter.when(&"a");
        limiter.when(&"b");
        assert_eq!((limiter.num_requeues(&"a"), limiter.num_requeues(&"b")), (2, 1));
        limiter.forget(&"a");
        assert_eq!((limiter.num_requeues(&"a"), limiter.num_requeues(&"b")), (0, 1));
        assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
        limiter.forget(&"unknown");
    }

    #[test]
    fn many_failures_do_not_overflow() {
        let limiter = default();
        let last = (0..200).map(|_| limiter.when(&"a")).last();
        assert_eq!(last, Some(Duration::from_secs(1000)));
        assert_eq!(limiter.num_requeues(&"a"), 200);
    }

    #[test]
    fn base_above_the_maximum_is_limited() {
        let (limiter, _) = limiter(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(limiter.when(&"a"), Duration::from_secs(1));
    }
}
