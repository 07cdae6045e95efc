//! Token bucket, without clock, locks and waiting. Clients and work queues build their rate limits on it.
//!
//! *Upstream counterparts:* `k8s.io/client-go/util/flowcontrol` and `golang.org/x/time/rate`.
//!
//! Times are those of a monotonic clock, passed in by the caller.
//!
//! *Not part of this crate:* clocks, waiting, anything that needs a dependency.

#![warn(missing_debug_implementations)]

use std::time::Duration;

/// Token bucket with reservations.
///
/// With `interval` the time in which one token is added, the delay of a reservation is
///
/// ```text
/// full_at = max(full_at, now) + interval
/// delay   = max(full_at - now - burst × interval, 0)
/// ```
///
/// where `full_at` is the time at which the bucket is full again. Example: 10 tokens per second, burst 2. Four
/// reservations at 0 ms move `full_at` to 100, 200, 300 and 400 ms, so their delays are 0, 0, 100 and 200 ms.
///
/// ```
/// use std::time::Duration;
///
/// use kcm_flowcontrol::TokenBucket;
///
/// let mut bucket = TokenBucket::new(10.0, 1);
/// assert_eq!(bucket.reserve(Duration::ZERO), Duration::ZERO);
/// assert_eq!(bucket.reserve(Duration::from_millis(50)), Duration::from_millis(50));
/// ```
#[derive(Debug, Clone)]
pub struct TokenBucket {
    /// Time in which one token is added.
    interval: Duration,
    /// Time in which an empty bucket becomes full.
    full: Duration,
    /// Time at which the bucket is full if no more tokens are taken. Past if it is full.
    full_at: Duration,
}

impl TokenBucket {
    /// Creates a full bucket of `burst` tokens, to which `per_second` tokens per second are added.
    ///
    /// If `per_second` is not a positive number, no tokens are added.
    #[must_use]
    pub fn new(per_second: f64, burst: u32) -> Self {
        // 136 years. Sums of it do not overflow.
        const NEVER: Duration = Duration::from_secs(u32::MAX as u64);
        let interval = Duration::try_from_secs_f64(per_second.recip()).unwrap_or(NEVER).min(NEVER);
        Self { interval, full: interval.saturating_mul(burst), full_at: Duration::ZERO }
    }

    /// Takes a token at `now`, or reserves the next one that is added. Returns the time until it is available.
    pub fn reserve(&mut self, now: Duration) -> Duration {
        self.full_at = self.full_at.max(now).saturating_add(self.interval);
        self.full_at.saturating_sub(now.saturating_add(self.full))
    }

    /// Returns the number of tokens at `now`.
    #[must_use]
    pub fn available(&self, now: Duration) -> u32 {
        let tokens = self.full.saturating_sub(self.full_at.saturating_sub(now)).as_nanos();
        let tokens = tokens.checked_div(self.interval.as_nanos()).unwrap_or(u128::MAX);
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    /// Returns the time at `now` until all tokens but `missing` are available, if no more are taken.
    #[must_use]
    pub fn until_full_but(&self, missing: u32, now: Duration) -> Duration {
        self.full_at.saturating_sub(now).saturating_sub(self.interval.saturating_mul(missing))
    }

    /// Returns the token that was reserved for `due`, if that is after `now` and no later token is reserved. Other
    /// reservations do not change.
    pub fn cancel(&mut self, due: Duration, now: Duration) {
        let latest = self.full_at.saturating_sub(self.full);
        if due > now && latest <= due {
            self.give_back();
        }
    }

    /// Returns a token that was taken and is not used. No later token may be reserved.
    pub fn give_back(&mut self) {
        self.full_at = self.full_at.saturating_sub(self.interval);
    }
}

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Delays of `count` reservations at `now`, in milliseconds.
    fn delays(bucket: &mut TokenBucket, count: usize, now: u64) -> Vec<u128> {
        (0..count).map(|_| bucket.reserve(millis(now)).as_millis()).collect()
    }

    #[test]
    fn empty_bucket_reserves_a_token_per_call() {
        let mut bucket = TokenBucket::new(10.0, 100);
        assert_eq!(delays(&mut bucket, 100, 0), vec![0; 100]);
        assert_eq!(delays(&mut bucket, 5, 0), [100, 200, 300, 400, 500]);
    }

    #[test]
    fn added_tokens_first_serve_reservations() {
        let mut bucket = TokenBucket::new(10.0, 2);
        assert_eq!(delays(&mut bucket, 4, 0), [0, 0, 100, 200]);
        // The next token that is not reserved is added at 300 ms.
        assert_eq!(delays(&mut bucket, 1, 150), [150]);
        // At 400 ms there is one token.
        assert_eq!(delays(&mut bucket, 2, 400), [0, 100]);
    }

    #[test]
    fn idle_bucket_fills_up_to_its_burst() {
        let mut bucket = TokenBucket::new(10.0, 3);
        delays(&mut bucket, 3, 0);
        assert_eq!(delays(&mut bucket, 5, 3_600_000), [0, 0, 0, 100, 200]);
    }

    #[test]
    fn available_tokens() {
        let mut bucket = TokenBucket::new(10.0, 3);
        assert_eq!(bucket.available(millis(0)), 3);
        delays(&mut bucket, 5, 0);
        let available = [0, 299, 300, 399, 400, 500, 9000].map(|now| bucket.available(millis(now)));
        assert_eq!(available, [0, 0, 1, 1, 2, 3, 3], "two tokens are reserved");
    }

    #[test]
    fn until_full_but_some() {
        let mut bucket = TokenBucket::new(10.0, 3);
        assert_eq!(bucket.until_full_but(0, millis(0)), Duration::ZERO);
        delays(&mut bucket, 5, 0);
        let until = |missing| [0, 200, 600].map(|now| bucket.until_full_but(missing, millis(now)));
        assert_eq!(until(0), [500, 300, 0].map(millis));
        assert_eq!(until(1), [400, 200, 0].map(millis));
        assert_eq!(until(9), [Duration::ZERO; 3]);
    }

    mod cancel {
        use super::*;

        #[test]
        fn returns_the_latest_token() {
            let mut bucket = TokenBucket::new(10.0, 1);
            assert_eq!(delays(&mut bucket, 2, 0), [0, 100]);
            bucket.cancel(millis(100), millis(50));
            assert_eq!(delays(&mut bucket, 1, 50), [50]);
        }

        #[test]
        fn keeps_later_reservations() {
            let mut bucket = TokenBucket::new(10.0, 1);
            assert_eq!(delays(&mut bucket, 3, 0), [0, 100, 200]);
            bucket.cancel(millis(100), millis(0));
            assert_eq!(delays(&mut bucket, 1, 0), [300]);
        }

        #[test]
        fn keeps_due_tokens() {
            let mut bucket = TokenBucket::new(10.0, 1);
            assert_eq!(delays(&mut bucket, 2, 0), [0, 100]);
            bucket.cancel(millis(100), millis(100));
            assert_eq!(delays(&mut bucket, 1, 100), [100]);
        }
    }

    #[test]
    fn token_that_is_given_back_is_available() {
        let mut bucket = TokenBucket::new(10.0, 2);
        delays(&mut bucket, 2, 0);
        bucket.give_back();
        assert_eq!(delays(&mut bucket, 2, 0), [0, 100]);
        bucket.give_back();
        assert_eq!(delays(&mut bucket, 3, 3_600_000), [0, 0, 100], "a full bucket does not overflow");
    }

    #[test]
    fn rate_that_is_not_positive_adds_no_tokens() {
        for rate in [0.0, -1.0, f64::NAN, 1e-300] {
            let mut bucket = TokenBucket::new(rate, 1);
            assert_eq!(bucket.reserve(Duration::ZERO), Duration::ZERO, "{rate}");
            assert!(bucket.reserve(Duration::ZERO) > Duration::from_secs(1_000_000_000), "{rate}");
        }
    }

    #[test]
    fn infinite_rate_does_not_limit() {
        let mut bucket = TokenBucket::new(f64::INFINITY, 1);
        assert_eq!(delays(&mut bucket, 3, 0), [0, 0, 0]);
        assert_eq!(bucket.available(Duration::ZERO), u32::MAX);
    }
}
