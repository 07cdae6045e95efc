//! Back-off of each item on its own.

use std::{collections::HashMap, time::Duration};

use parking_lot::Mutex;

use crate::{Item, RateLimiter};

/// An item waits `base × 2^failures`, up to `max`.
///
/// Upstream counterpart: `workqueue.ItemExponentialFailureRateLimiter`.
#[derive(Debug)]
pub struct ItemExponentialFailureRateLimiter<T> {
    /// How often each item has failed; items that have not are absent.
    failures: Mutex<HashMap<T, u32>>,
    base: Duration,
    max: Duration,
}

impl<T: Item> ItemExponentialFailureRateLimiter<T> {
    /// A limiter that waits `base` after the first failure of an item and never longer than `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { failures: Mutex::new(HashMap::new()), base, max }
    }
}

impl<T: Item> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        let earlier = {
            let mut failures = self.failures.lock();
            let count = failures.entry(item.clone()).or_insert(0);
            let earlier = *count;
            *count = count.saturating_add(1);
            earlier
        };
        let max = self.max.as_nanos();
        let doubled = 1_u128.checked_shl(earlier).and_then(|factor| self.base.as_nanos().checked_mul(factor));
        Duration::from_nanos_u128(doubled.unwrap_or(max).min(max))
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

    fn limiter() -> ItemExponentialFailureRateLimiter<&'static str> {
        ItemExponentialFailureRateLimiter::new(Duration::from_millis(5), Duration::from_secs(1000))
    }

    #[test]
    fn item_that_keeps_failing_waits_twice_as_long_each_time_up_to_the_maximum() {
        let limiter = limiter();
        let waits: Vec<_> = (0..20).map(|_| limiter.when(&"a").as_millis()).collect();
        let mut expected: Vec<_> = (0..18).map(|n| 5 << n).collect();
        // 5 ms × 2^17 is 655.36 s; the next would be 1310.72 s.
        expected.extend([1_000_000, 1_000_000]);
        assert_eq!(waits, expected);
    }

    #[test]
    fn fifteenth_retry_waits_as_long_as_the_deployment_controller_expects() {
        let limiter = limiter();
        let last = (0..15).map(|_| limiter.when(&"a")).last();
        assert_eq!(last, Some(Duration::from_millis(81_920)));
        assert_eq!(limiter.num_requeues(&"a"), 15);
    }

    #[test]
    fn items_are_counted_apart_and_forgotten_apart() {
        let limiter = limiter();
        limiter.when(&"a");
        limiter.when(&"a");
        limiter.when(&"b");
        assert_eq!((limiter.num_requeues(&"a"), limiter.num_requeues(&"b")), (2, 1));
        limiter.forget(&"a");
        assert_eq!((limiter.num_requeues(&"a"), limiter.num_requeues(&"b")), (0, 1));
        assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
        limiter.forget(&"never seen");
    }

    #[test]
    fn item_failing_forever_waits_the_maximum_and_no_more() {
        let limiter = limiter();
        let last = (0..200).map(|_| limiter.when(&"a")).last();
        assert_eq!(last, Some(Duration::from_secs(1000)));
        assert_eq!(limiter.num_requeues(&"a"), 200);
    }

    #[test]
    fn base_above_the_maximum_waits_the_maximum() {
        let limiter = ItemExponentialFailureRateLimiter::new(Duration::from_secs(2), Duration::from_secs(1));
        assert_eq!(limiter.when(&"a"), Duration::from_secs(1));
    }
}
