//! Client-side rate limit.
//!
//! Upstream counterpart: the token bucket of `client-go/util/flowcontrol`.
//!
//! Each caller reserves a token and sleeps until it is available.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_flowcontrol::TokenBucket;
use parking_lot::Mutex;

/// Rate limit: `burst` requests at once, then `qps` per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Requests per second. Zero or less means no limit.
    pub qps: f64,
    /// Maximum number of requests at once after a pause.
    pub burst: u32,
}

impl RateLimit {
    /// No limit.
    pub const UNLIMITED: Self = Self { qps: 0.0, burst: 0 };
    /// Default limit of a controller, as upstream's manager (US-1.5).
    pub const DEFAULT: Self = Self { qps: 20.0, burst: 30 };
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Rate limiter of a client. Each request takes a token; tokens are added at a constant rate.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use kcm_client::{RateLimit, RateLimiter};
/// use kcm_clock::FakeClock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let clock = FakeClock::new(kcm_clock::Timestamp::UNIX_EPOCH);
/// let limiter = RateLimiter::new(RateLimit { qps: 10.0, burst: 2 }, Arc::new(clock.clone()));
/// assert_eq!(limiter.acquire().await, Duration::ZERO);
/// assert_eq!(limiter.acquire().await, Duration::ZERO);
/// // The third request waits for a new token.
/// let later = async { clock.step(Duration::from_millis(100)) };
/// let (waited, ()) = tokio::join!(limiter.acquire(), later);
/// assert_eq!(waited, Duration::from_millis(100));
/// # }
/// ```
///
/// Upstream counterpart: `flowcontrol.NewTokenBucketRateLimiter`.
#[derive(Debug)]
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    /// `None` if there is no limit.
    bucket: Option<Mutex<TokenBucket>>,
}

impl RateLimiter {
    /// Creates a rate limiter with a full bucket.
    pub fn new(limit: RateLimit, clock: Arc<dyn Clock>) -> Self {
        // A bucket without capacity would block forever.
        let bucket = (limit.qps > 0.0).then(|| Mutex::new(TokenBucket::new(limit.qps, limit.burst.max(1))));
        Self { clock, bucket }
    }

    /// Returns the number of tokens; `u32::MAX` without a limit.
    pub fn available(&self) -> u32 {
        self.bucket.as_ref().map_or(u32::MAX, |bucket| bucket.lock().available(self.clock.monotonic()))
    }

    /// Waits for a token and takes it. Returns the time that it waited.
    ///
    /// Callers are served in the order of their calls.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future returns the token, unless a later one is reserved already: reserved times do not change.
    pub async fn acquire(&self) -> Duration {
        let Some(bucket) = &self.bucket else { return Duration::ZERO };
        let mut reservation = Reservation::new(bucket, &*self.clock);
        if !reservation.delay.is_zero() {
            self.clock.sleep(reservation.delay).await;
        }
        reservation.used = true;
        reservation.delay
    }
}

/// Reserved token of a caller. It is returned if it is dropped unused.
struct Reservation<'a> {
    bucket: &'a Mutex<TokenBucket>,
    clock: &'a dyn Clock,
    /// Time at which the token is available.
    due: Duration,
    delay: Duration,
    used: bool,
}

impl<'a> Reservation<'a> {
    fn new(bucket: &'a Mutex<TokenBucket>, clock: &'a dyn Clock) -> Self {
        let (now, delay) = {
            let mut bucket = bucket.lock();
            let now = clock.monotonic();
            (now, bucket.reserve(now))
        };
        Self { bucket, clock, due: now.saturating_add(delay), delay, used: false }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.used {
            let mut bucket = self.bucket.lock();
            bucket.cancel(self.due, self.clock.monotonic());
        }
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{SimulatedClock, Timestamp};
    use tokio::sync::mpsc;

    use super::*;

    fn limiter(qps: f64, burst: u32) -> (Arc<RateLimiter>, SimulatedClock) {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        (Arc::new(RateLimiter::new(RateLimit { qps, burst }, Arc::new(clock.clone()))), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn burst_then_one_per_interval() {
        let (limiter, clock) = limiter(10.0, 2);
        let mut times = Vec::new();
        for _ in 0..5 {
            limiter.acquire().await;
            times.push(clock.monotonic().as_millis());
        }
        assert_eq!(times, [0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_served_in_order() {
        let (limiter, clock) = limiter(1000.0, 1);
        let (served, mut order) = mpsc::unbounded_channel();
        for waiter in 0..500 {
            let (limiter, served) = (Arc::clone(&limiter), served.clone());
            tokio::spawn(async move {
                limiter.acquire().await;
                served.send(waiter).unwrap();
            });
        }
        drop(served);
        let mut waiters = Vec::new();
        while let Some(waiter) = order.recv().await {
            waiters.push(waiter);
        }
        assert_eq!(waiters, (0..500).collect::<Vec<_>>());
        assert_eq!(clock.monotonic(), Duration::from_millis(499));
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_waiter_returns_its_token() {
        let (limiter, _clock) = limiter(1.0, 1);
        limiter.acquire().await;
        let half = Duration::from_millis(500);
        tokio::time::timeout(half, limiter.acquire()).await.unwrap_err();
        assert_eq!(limiter.acquire().await, half);
    }

    #[tokio::test(start_paused = true)]
    async fn unlimited() {
        let (limiter, clock) = limiter(0.0, 0);
        assert_eq!(limiter.available(), u32::MAX);
        for _ in 0..1000 {
            assert_eq!(limiter.acquire().await, Duration::ZERO);
        }
        assert_eq!(clock.monotonic(), Duration::ZERO);
    }
}
