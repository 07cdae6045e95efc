//! How often a client may ask.
//!
//! Upstream counterpart: `client-go/util/flowcontrol`, the token bucket.
//!
//! Why not `governor`: its waits run on real time whatever clock it counts with, so they ignore simulated
//! time, and it wakes all waiters at once, which serves them out of order and costs O(n²) wake-ups. Here each
//! caller *reserves* the next free moment and sleeps until then: first come, first served, one timer each.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;
use parking_lot::Mutex;

/// How often a client may ask: `burst` requests at once, then `qps` a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RateLimit {
    /// Requests a second, in the long run. Zero or less: no limit.
    pub qps: f64,
    /// Requests that may go out at once after a quiet time.
    pub burst: u32,
}

impl RateLimit {
    /// Any number of requests.
    pub const UNLIMITED: Self = Self { qps: 0.0, burst: 0 };
    /// What upstream's manager gives each controller (US-1.5).
    pub const DEFAULT: Self = Self { qps: 20.0, burst: 30 };
}

impl Default for RateLimit {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A bucket of tokens that fills at a steady rate. Each request takes one.
///
/// Upstream counterpart: `flowcontrol.NewTokenBucketRateLimiter`.
#[derive(Debug)]
pub struct TokenBucket {
    clock: Arc<dyn Clock>,
    /// Tokens a second; zero or less means that there is no limit.
    rate: f64,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Tokens at `at`. Negative when moments to come are reserved already.
    tokens: f64,
    at: Duration,
    /// The latest moment that is reserved.
    latest: Duration,
}

impl TokenBucket {
    /// A full bucket.
    pub fn new(limit: RateLimit, clock: Arc<dyn Clock>) -> Self {
        // A bucket that holds nothing would never let anybody through.
        let burst = f64::from(limit.burst.max(1));
        let now = clock.monotonic();
        Self {
            clock,
            rate: limit.qps,
            burst,
            state: Mutex::new(State { tokens: burst, at: now, latest: now }),
        }
    }

    /// Waits for a token and takes it; answers with how long that took.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the token back, unless somebody has reserved a later one meanwhile: the
    /// moments of those behind are not moved.
    pub async fn acquire(&self) -> Duration {
        if self.rate <= 0.0 {
            return Duration::ZERO;
        }
        let mut reservation = self.reserve();
        if !reservation.wait.is_zero() {
            self.clock.sleep(reservation.wait).await;
        }
        reservation.used = true;
        reservation.wait
    }

    fn reserve(&self) -> Reservation<'_> {
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        self.fill(&mut state, now);
        state.tokens -= 1.0;
        let wait = if state.tokens < 0.0 { self.time_for(-state.tokens) } else { Duration::ZERO };
        let due = now.saturating_add(wait);
        state.latest = due;
        Reservation { bucket: self, due, wait, used: false }
    }

    fn give_back(&self, due: Duration) {
        let now = self.clock.monotonic();
        if due <= now {
            // Its moment has come and gone, and the bucket has filled since.
            return;
        }
        let mut state = self.state.lock();
        if state.latest > due {
            return;
        }
        self.fill(&mut state, now);
        state.tokens = (state.tokens + 1.0).min(self.burst);
        state.latest = due.saturating_sub(self.time_for(1.0)).max(now);
    }

    fn fill(&self, state: &mut State, now: Duration) {
        let elapsed = now.saturating_sub(state.at);
        state.at = now;
        state.tokens = elapsed.as_secs_f64().mul_add(self.rate, state.tokens).min(self.burst);
    }

    fn time_for(&self, tokens: f64) -> Duration {
        Duration::try_from_secs_f64(tokens / self.rate).unwrap_or(Duration::MAX)
    }
}

/// A moment that belongs to one caller. Dropped unused, it goes back.
#[derive(Debug)]
struct Reservation<'a> {
    bucket: &'a TokenBucket,
    due: Duration,
    wait: Duration,
    used: bool,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.used {
            self.bucket.give_back(self.due);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::Future, pin::pin, task::Context};

    use kcm_clock::{FakeClock, SimulatedClock, Timestamp};
    use tokio::sync::mpsc;

    use super::*;

    fn simulated(qps: f64, burst: u32) -> (Arc<TokenBucket>, SimulatedClock) {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        (Arc::new(TokenBucket::new(RateLimit { qps, burst }, Arc::new(clock.clone()))), clock)
    }

    #[tokio::test(start_paused = true)]
    async fn bucket_after_its_burst_lets_one_through_each_period_of_the_given_clock() {
        let (bucket, clock) = simulated(10.0, 2);
        let mut moments = Vec::new();
        for _ in 0..5 {
            bucket.acquire().await;
            moments.push(clock.monotonic().as_millis());
        }
        assert_eq!(moments, [0, 0, 100, 200, 300]);
    }

    #[tokio::test(start_paused = true)]
    async fn bucket_with_many_waiters_serves_them_in_the_order_they_came() {
        let (bucket, clock) = simulated(1000.0, 1);
        let (served, mut order) = mpsc::unbounded_channel();
        for waiter in 0..500 {
            let (bucket, served) = (Arc::clone(&bucket), served.clone());
            tokio::spawn(async move {
                bucket.acquire().await;
                served.send(waiter).unwrap();
            });
        }
        drop(served);
        let mut got = Vec::new();
        while let Some(waiter) = order.recv().await {
            got.push(waiter);
        }
        assert_eq!(got, (0..500).collect::<Vec<_>>());
        assert_eq!(clock.monotonic(), Duration::from_millis(499));
    }

    #[test]
    fn bucket_left_alone_fills_to_its_burst_and_no_further() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let bucket = TokenBucket::new(RateLimit { qps: 1.0, burst: 3 }, Arc::new(clock.clone()));
        clock.step(Duration::from_secs(3600));
        for _ in 0..3 {
            let mut reservation = bucket.reserve();
            assert_eq!(reservation.wait, Duration::ZERO);
            reservation.used = true;
        }
        assert_eq!(bucket.reserve().wait, Duration::from_secs(1));
    }

    #[test]
    fn bucket_whose_last_waiter_gives_up_offers_the_moment_again() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let bucket = TokenBucket::new(RateLimit { qps: 1.0, burst: 1 }, Arc::new(clock));
        bucket.reserve().used = true;
        {
            let mut waiting = pin!(bucket.acquire());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
        }
        assert_eq!(bucket.reserve().wait, Duration::from_secs(1));
    }

    #[test]
    fn bucket_whose_waiter_in_the_middle_gives_up_leaves_those_behind_where_they_are() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let bucket = TokenBucket::new(RateLimit { qps: 1.0, burst: 1 }, Arc::new(clock));
        bucket.reserve().used = true;
        let second = bucket.reserve();
        let mut third = bucket.reserve();
        third.used = true;
        drop(second);
        assert_eq!(bucket.reserve().wait, Duration::from_secs(3));
    }

    #[tokio::test(start_paused = true)]
    async fn bucket_without_a_limit_never_waits() {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let bucket = TokenBucket::new(RateLimit::UNLIMITED, Arc::new(clock.clone()));
        for _ in 0..1000 {
            assert_eq!(bucket.acquire().await, Duration::ZERO);
        }
        assert_eq!(clock.monotonic(), Duration::ZERO);
    }
}
