use std::{collections::HashMap, time::Duration};

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
/// use std::time::Duration;
///
/// use kcm_workqueue::{ItemExponentialFailureRateLimiter, RateLimiter};
///
/// let limiter = ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_millis(12));
/// let delays = [(); 3].map(|()| limiter.when(&"default/web").as_millis());
/// assert_eq!(delays, [5, 10, 12]);
/// ```
#[derive(Debug)]
pub struct ItemExponentialFailureRateLimiter<T> {
    /// Number of failures per item; only items with failures.
    failures: Mutex<HashMap<T, u32>>,
    base: Duration,
    max: Duration,
}

impl<T: Item> ItemExponentialFailureRateLimiter<T> {
    /// Creates a limiter whose delays start at `base` and end at `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: Mutex::new(HashMap::new()), base, max }
    }
}

impl<T: Item> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        let mut failures = self.failures.lock();
        let count = failures.entry(item.clone()).or_default();
        let max = self.max.as_nanos();
        let delay = 1_u128.checked_shl(*count).and_then(|factor| self.base.as_nanos().checked_mul(factor));
        *count = count.saturating_add(1);
        Duration::from_nanos_u128(delay.unwrap_or(max).min(max))
    }

    fn forget(&self, item: &T) {
        self.failures.lock().remove(item);
    }

    fn num_requeues(&self, item: &T) -> u32 {
        self.failures.lock().get(item).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default() -> ItemExponentialFailureRateLimiter<&'static str> {
        ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000))
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
        let limiter = ItemExponentialFailureRateLimiter::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(limiter.when(&"a"), Duration::from_secs(1));
    }
}
