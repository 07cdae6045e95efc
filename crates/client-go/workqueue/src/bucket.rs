use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::{item::Item, rate_limiter::RateLimiter};

/// Token bucket with reservations: a call without a token reserves the next one that becomes available, and returns the
/// time until then.
///
/// With `interval` the time in which one token is added, the delay of a call is
///
/// ```text
/// full_at = max(full_at, now) + interval
/// delay   = max(full_at - now - burst × interval, 0)
/// ```
///
/// where `full_at` is the time at which the bucket is full again. Example: 10 tokens per second, burst 2. Four calls at
/// 0 ms move `full_at` to 100, 200, 300 and 400 ms, so their delays are 0, 0, 100 and 200 ms.
///
/// The `governor` crate has no reservations: it would give all rejected items the same delay.
///
/// Upstream counterpart: `workqueue.BucketRateLimiter`, with `rate.Limiter.Reserve`.
pub struct BucketRateLimiter<T> {
    /// Time in which one token is added.
    interval: Duration,
    /// Time in which an empty bucket becomes full.
    full: Duration,
    /// Time at which the bucket is full if no more tokens are taken. Past if it is full.
    full_at: Mutex<Duration>,
    clock: Arc<dyn Clock>,
    item: PhantomData<fn(&T)>,
}

impl<T: Item> BucketRateLimiter<T> {
    /// Creates a full bucket of `burst` tokens, to which `per_second` tokens per second are added.
    ///
    /// If `per_second` is not a positive number, no tokens are added.
    pub fn new(per_second: f64, burst: u32, clock: Arc<dyn Clock>) -> Self {
        // 136 years. Sums of it do not overflow.
        const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
        let interval = Duration::try_from_secs_f64(per_second.recip()).unwrap_or(NEVER).min(NEVER);
        let full = interval.saturating_mul(burst);
        Self { interval, full, full_at: Mutex::new(Duration::ZERO), clock, item: PhantomData }
    }
}

impl<T: Item> RateLimiter<T> for BucketRateLimiter<T> {
    fn when(&self, _item: &T) -> Duration {
        let now = self.clock.monotonic();
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(now).saturating_add(self.interval);
        full_at.saturating_sub(now.saturating_add(self.full))
    }

    fn forget(&self, _item: &T) {}

    fn num_requeues(&self, _item: &T) -> u32 {
        0
    }
}

impl<T> fmt::Debug for BucketRateLimiter<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketRateLimiter")
            .field("interval", &self.interval)
            .field("full", &self.full)
            .field("full_at", &self.full_at)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    fn bucket(per_second: f64, burst: u32) -> (FakeClock, BucketRateLimiter<&'static str>) {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let bucket = BucketRateLimiter::new(per_second, burst, Arc::new(clock.clone()));
        (clock, bucket)
    }

    /// Returns the delays of `calls` calls in milliseconds.
    fn delays(bucket: &BucketRateLimiter<&'static str>, calls: usize) -> Vec<u128> {
        (0..calls).map(|_| bucket.when(&"a").as_millis()).collect()
    }

    #[test]
    fn empty_bucket_reserves_a_token_per_call() {
        let (_clock, bucket) = bucket(10.0, 100);
        assert_eq!(delays(&bucket, 100), vec![0; 100]);
        assert_eq!(delays(&bucket, 5), [100, 200, 300, 400, 500]);
    }

    #[test]
    fn added_tokens_first_serve_reservations() {
        let (clock, bucket) = bucket(10.0, 2);
        assert_eq!(delays(&bucket, 4), [0, 0, 100, 200]);
        clock.step(Duration::from_millis(150));
        // The next token that is not reserved is added at 300 ms.
        assert_eq!(delays(&bucket, 1), [150]);
        clock.step(Duration::from_millis(250));
        // At 400 ms there is one token.
        assert_eq!(delays(&bucket, 2), [0, 100]);
    }

    #[test]
    fn idle_bucket_fills_up_to_its_burst() {
        let (clock, bucket) = bucket(10.0, 3);
        delays(&bucket, 3);
        clock.step(Duration::from_secs(3600));
        assert_eq!(delays(&bucket, 5), [0, 0, 0, 100, 200]);
    }

    #[test]
    fn forget_returns_no_tokens() {
        let (_clock, bucket) = bucket(10.0, 1);
        delays(&bucket, 2);
        bucket.forget(&"a");
        assert_eq!(bucket.num_requeues(&"a"), 0);
        assert_eq!(delays(&bucket, 1), [200]);
    }

    #[test]
    fn rate_that_is_not_positive_adds_no_tokens() {
        for rate in [0.0, -1.0, f64::NAN, 1e-300] {
            let (_clock, bucket) = bucket(rate, 1);
            assert_eq!(bucket.when(&"a"), Duration::ZERO, "{rate}");
            assert!(bucket.when(&"a") > Duration::from_secs(1_000_000_000), "{rate}");
        }
    }

    #[test]
    fn infinite_rate_does_not_limit() {
        let (_clock, bucket) = bucket(f64::INFINITY, 1);
        assert_eq!(delays(&bucket, 3), [0, 0, 0]);
    }
}
