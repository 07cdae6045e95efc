use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_flowcontrol::TokenBucket;
use parking_lot::Mutex;

use crate::{item::Item, rate_limiter::RateLimiter};

/// Rate limiter with one token bucket for all items: a call without a token reserves the next one that becomes
/// available, and returns the time until then.
///
/// Upstream counterpart: `workqueue.BucketRateLimiter`, with `rate.Limiter.Reserve`.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_clock::{FakeClock, Timestamp};
/// use kcm_workqueue::{BucketRateLimiter, RateLimiter};
///
/// let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
/// let limiter = BucketRateLimiter::new(10.0, 2, clock);
/// let delays = ["a", "b", "c"].map(|item| limiter.when(&item).as_millis());
/// assert_eq!(delays, [0, 0, 100]);
/// ```
pub struct BucketRateLimiter<T> {
    bucket: Mutex<TokenBucket>,
    clock: Arc<dyn Clock>,
    item: PhantomData<fn(&T)>,
}

impl<T: Item> BucketRateLimiter<T> {
    /// Creates a full bucket of `burst` tokens, to which `per_second` tokens per second are added.
    ///
    /// If `per_second` is not a positive number, no tokens are added.
    pub fn new(per_second: f64, burst: u32, clock: Arc<dyn Clock>) -> Self {
        Self { bucket: Mutex::new(TokenBucket::new(per_second, burst)), clock, item: PhantomData }
    }
}

impl<T: Item> RateLimiter<T> for BucketRateLimiter<T> {
    fn when(&self, _item: &T) -> Duration {
        // The lock is taken first: times that are passed to the bucket do not decrease.
        let mut bucket = self.bucket.lock();
        bucket.reserve(self.clock.monotonic())
    }

    /// Takes no token.
    fn when_alone(&self, _item: &T) -> Duration {
        Duration::ZERO
    }

    fn forget(&self, _item: &T) {}

    fn num_requeues(&self, _item: &T) -> u32 {
        0
    }
}

impl<T> fmt::Debug for BucketRateLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketRateLimiter").field("bucket", &self.bucket).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    #[test]
    fn items_share_the_bucket_and_forget_returns_no_tokens() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let limiter = BucketRateLimiter::new(10.0, 1, Arc::new(clock.clone()));
        assert_eq!(limiter.when(&"a"), Duration::ZERO);
        assert_eq!(limiter.when(&"b"), Duration::from_millis(100));
        limiter.forget(&"a");
        assert_eq!(limiter.num_requeues(&"a"), 0);
        assert_eq!(limiter.when_alone(&"a"), Duration::ZERO);
        clock.step(Duration::from_millis(50));
        assert_eq!(limiter.when(&"a"), Duration::from_millis(150));
    }
}
