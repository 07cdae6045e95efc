//! One pace for all items together.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;

use crate::{Item, RateLimiter};

/// A token bucket that lends: each call takes a token, from the future if there is none now, and is told how
/// long it is until that one drips in.
///
/// Upstream counterpart: `workqueue.BucketRateLimiter` over `rate.Limiter.Reserve`.
///
/// The `governor` crate, which this workspace uses where an event is let through or not, has no reservations:
/// it says no without taking a token, so a hundred refused items would all be told the same time to come back.
/// Here each gets its own.
pub struct BucketRateLimiter<T> {
    /// How long one token takes to drip in.
    interval: Duration,
    /// How long a full bucket takes to drip in.
    full: Duration,
    /// When the bucket, with every token lent so far returned, will be full; in the past when it has been.
    /// A number that says all: what is in it now, and what it owes.
    full_at: Mutex<Duration>,
    clock: Arc<dyn Clock>,
    item: PhantomData<fn(&T)>,
}

impl<T: Item> BucketRateLimiter<T> {
    /// A full bucket of `burst` tokens, into which `per_second` tokens drip each second.
    ///
    /// A rate that is not a positive number lets the burst through and nothing more for ages.
    pub fn new(per_second: f64, burst: u32, clock: Arc<dyn Clock>) -> Self {
        // Far enough for "never", near enough to be added up without overflow.
        const AGES: Duration = Duration::from_secs(u32::MAX as u64);
        let interval = Duration::try_from_secs_f64(per_second.recip()).unwrap_or(AGES).min(AGES);
        let full = interval.saturating_mul(burst);
        Self { interval, full, full_at: Mutex::new(Duration::ZERO), clock, item: PhantomData }
    }
}

impl<T: Item> RateLimiter<T> for BucketRateLimiter<T> {
    fn when(&self, _item: &T) -> Duration {
        let now = self.clock.monotonic();
        let mut full_at = self.full_at.lock();
        *full_at = (*full_at).max(now).saturating_add(self.interval);
        // A bucket that fills up within `full` from now on has not lent anything.
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

    fn waits(bucket: &BucketRateLimiter<&'static str>, calls: usize) -> Vec<u128> {
        (0..calls).map(|_| bucket.when(&"a").as_millis()).collect()
    }

    #[test]
    fn bucket_emptied_lends_each_caller_its_own_token() {
        let (_clock, bucket) = bucket(10.0, 100);
        assert_eq!(waits(&bucket, 100), vec![0; 100]);
        assert_eq!(waits(&bucket, 5), [100, 200, 300, 400, 500]);
    }

    #[test]
    fn bucket_in_debt_pays_back_at_its_rate() {
        let (clock, bucket) = bucket(10.0, 2);
        assert_eq!(waits(&bucket, 4), [0, 0, 100, 200]);
        clock.step(Duration::from_millis(150));
        // 1.5 of the two lent tokens have come back; the next is due 300 ms after the start.
        assert_eq!(waits(&bucket, 1), [150]);
        clock.step(Duration::from_millis(250));
        // At 400 ms the debt is paid and one token is there.
        assert_eq!(waits(&bucket, 2), [0, 100]);
    }

    #[test]
    fn bucket_left_alone_fills_up_to_its_burst_and_no_further() {
        let (clock, bucket) = bucket(10.0, 3);
        waits(&bucket, 3);
        clock.step(Duration::from_secs(3600));
        assert_eq!(waits(&bucket, 5), [0, 0, 0, 100, 200]);
    }

    #[test]
    fn bucket_never_forgets_what_it_lent() {
        let (_clock, bucket) = bucket(10.0, 1);
        waits(&bucket, 2);
        bucket.forget(&"a");
        assert_eq!(bucket.num_requeues(&"a"), 0);
        assert_eq!(waits(&bucket, 1), [200]);
    }

    #[test]
    fn rate_that_makes_no_sense_lets_the_burst_through_and_nothing_more() {
        for rate in [0.0, -1.0, f64::NAN, 1e-300] {
            let (_clock, bucket) = bucket(rate, 1);
            assert_eq!(bucket.when(&"a"), Duration::ZERO, "{rate}");
            assert!(bucket.when(&"a") > Duration::from_secs(1_000_000_000), "{rate}");
        }
        let (_clock, bucket) = bucket(f64::INFINITY, 1);
        assert_eq!(waits(&bucket, 3), [0, 0, 0]);
    }
}
