use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

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
    state: Mutex<State<T>>,
    clock: Arc<dyn Clock>,
}

struct State<T> {
    bucket: TokenBucket,
    /// Monotonic times of the last tokens of items that had to wait for one.
    reserved: HashMap<T, Duration>,
}

impl<T: Item> BucketRateLimiter<T> {
    /// Creates a full bucket of `burst` tokens, to which `per_second` tokens per second are added.
    ///
    /// If `per_second` is not a positive number, no tokens are added.
    pub fn new(per_second: f64, burst: u32, clock: Arc<dyn Clock>) -> Self {
        let bucket = TokenBucket::new(per_second, burst);
        Self { state: Mutex::new(State { bucket, reserved: HashMap::new() }), clock }
    }
}

impl<T: Item> RateLimiter<T> for BucketRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        // The lock is taken first: times that are passed to the bucket do not decrease.
        let mut state = self.state.lock();
        let now = self.clock.monotonic();
        let delay = state.bucket.reserve(now);
        if !delay.is_zero() {
            state.reserved.insert(item.clone(), now.saturating_add(delay));
        }
        delay
    }

    /// Takes no token.
    fn when_alone(&self, _item: &T) -> Duration {
        Duration::ZERO
    }

    fn remaining(&self, item: &T) -> Option<Duration> {
        let reserved = *self.state.lock().reserved.get(item)?;
        Some(reserved.saturating_sub(self.clock.monotonic())).filter(|remaining| !remaining.is_zero())
    }

    /// Returns no token.
    fn forget(&self, item: &T) {
        self.state.lock().reserved.remove(item);
    }

    fn num_requeues(&self, _item: &T) -> u32 {
        0
    }
}

impl<T> fmt::Debug for BucketRateLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketRateLimiter").field("bucket", &self.state.lock().bucket).finish_non_exhaustive()
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

    #[test]
    fn remaining_time_ends_with_the_reserved_token() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let limiter = BucketRateLimiter::new(10.0, 1, Arc::new(clock.clone()));
        limiter.when(&"a");
        limiter.when(&"b");
        let remaining = || ["a", "b"].map(|item| limiter.remaining(&item));
        assert_eq!(remaining(), [None, Some(Duration::from_millis(100))]);
        clock.step(Duration::from_millis(100));
        assert_eq!(remaining(), [None, None]);
        limiter.when(&"a");
        limiter.when(&"b");
        limiter.forget(&"b");
        assert_eq!(remaining(), [Some(Duration::from_millis(100)), None]);
    }
}
