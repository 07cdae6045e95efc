//! Client-side rate limit.
//!
//! Upstream counterpart: the token bucket of `client-go/util/flowcontrol`.
//!
//! Each caller reserves a token and sleeps until it is available. The token then goes to the most urgent caller.

mod waiters;

use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_flowcontrol::TokenBucket;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::waiters::{MAX_WAIT, WaiterKey, Waiters};

/// Maximum number of tokens that callers of less urgent levels leave to those of [`PriorityLevel::Rollout`].
const MAX_RESERVED: u32 = 100;

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

/// Priority of a request at the rate limit of its client, the most urgent first.
///
/// Upstream counterpart: the priority levels of the API server. Clients of upstream have none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriorityLevel {
    /// Writes of a status that reports fewer available objects. Until then, others may remove objects that are needed.
    Availability,
    /// Requests that a rollout waits for, and all others that are not of the other levels.
    #[default]
    Rollout,
    /// Writes of a status that no controller waits for.
    Status,
    /// Writes of events.
    Event,
}

impl PriorityLevel {
    /// All levels, the most urgent first.
    pub const ALL: [Self; 4] = [Self::Availability, Self::Rollout, Self::Status, Self::Event];

    /// Returns the name of the level in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Availability => "availability",
            Self::Rollout => "rollout",
            Self::Status => "status",
            Self::Event => "event",
        }
    }
}

/// Rate limiter of a client. Each request takes a token; tokens are added at a constant rate.
///
/// The burst is for callers of the levels [`Availability`](PriorityLevel::Availability) and
/// [`Rollout`](PriorityLevel::Rollout). The others wait until nine tenths of it, or 100 tokens, are available, at most 5 s.
///
/// If callers wait, a token goes to the one with the most urgent [`PriorityLevel`], and to the first of them. A level
/// whose first caller has waited for more than 5 s gets at least every fourth token.
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use kcm_client::{PriorityLevel, RateLimit, RateLimiter};
/// use kcm_clock::FakeClock;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let clock = FakeClock::new(kcm_clock::Timestamp::UNIX_EPOCH);
/// let limiter = RateLimiter::new(RateLimit { qps: 10.0, burst: 2 }, Arc::new(clock.clone()));
/// let acquire = || limiter.acquire(PriorityLevel::Rollout);
/// assert_eq!(acquire().await, Duration::ZERO);
/// assert_eq!(acquire().await, Duration::ZERO);
/// // The third request waits for a new token.
/// let later = async { clock.step(Duration::from_millis(100)) };
/// let (waited, ()) = tokio::join!(acquire(), later);
/// assert_eq!(waited, Duration::from_millis(100));
/// # }
/// ```
///
/// Upstream counterpart: `flowcontrol.NewTokenBucketRateLimiter`.
///
/// DEVIATION: upstream serves callers in the order of their calls.
pub struct RateLimiter {
    clock: Arc<dyn Clock>,
    /// `None` if there is no limit.
    state: Option<Mutex<State>>,
}

struct State {
    bucket: TokenBucket,
    burst: u32,
    waiters: Waiters,
}

impl RateLimiter {
    /// Creates a rate limiter with a full bucket.
    pub fn new(limit: RateLimit, clock: Arc<dyn Clock>) -> Self {
        // A bucket without capacity would block forever.
        let burst = limit.burst.max(1);
        let state = (limit.qps > 0.0).then(|| {
            Mutex::new(State {
                bucket: TokenBucket::new(limit.qps, burst),
                burst,
                waiters: Waiters::default(),
            })
        });
        Self { clock, state }
    }

    /// Returns `true` if there is a limit.
    pub fn is_limited(&self) -> bool {
        self.state.is_some()
    }

    /// Returns the number of tokens; `u32::MAX` without a limit.
    pub fn available(&self) -> u32 {
        self.state.as_ref().map_or(u32::MAX, |state| state.lock().bucket.available(self.clock.monotonic()))
    }

    /// Returns the number of callers that wait.
    pub fn waiting(&self) -> usize {
        self.state.as_ref().map_or(0, |state| state.lock().waiters.len())
    }

    /// Takes a token if a caller of `level` would not wait for it. Returns `true` if it did.
    pub fn try_acquire(&self, level: PriorityLevel) -> bool {
        let Some(state) = &self.state else { return true };
        let mut state = state.lock();
        let now = self.clock.monotonic();
        let is_available = state.bucket.available(now) > 0 && state.wait_for_burst(level, now).is_zero();
        if is_available {
            state.bucket.reserve(now);
        }
        is_available
    }

    /// Waits for a token and takes it. Returns the time that it waited.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future returns the token. The other callers wait no longer than without the call.
    pub async fn acquire(&self, level: PriorityLevel) -> Duration {
        let Some(state) = &self.state else { return Duration::ZERO };
        let start = self.clock.monotonic();
        let Some(mut waiter) = Waiter::enter(state, &*self.clock, level, start) else {
            return Duration::ZERO;
        };
        while let Some(delay) = waiter.take_turn() {
            tokio::select! {
                biased;
                () = waiter.wake.notified() => {}
                () = self.clock.sleep(delay) => {}
            }
        }
        waiter.has_ended = true;
        self.clock.monotonic().saturating_sub(start)
    }

    /// Returns a token that was taken and is not used. The most urgent caller gets it.
    pub fn give_back(&self) {
        let Some(state) = &self.state else { return };
        state.lock().give_back(self.clock.monotonic());
    }
}

impl State {
    /// Returns the time for which a caller waits so that it leaves the burst to others.
    fn wait_for_burst(&self, level: PriorityLevel, now: Duration) -> Duration {
        if level <= PriorityLevel::Rollout {
            return Duration::ZERO;
        }
        let reserved = (self.burst - self.burst / 10).min(MAX_RESERVED);
        self.bucket.until_full_but(self.burst - reserved, now).min(MAX_WAIT)
    }

    fn give_back(&mut self, now: Duration) {
        match self.waiters.serve(now) {
            Some(due) => self.waiters.cancel(due, now, &mut self.bucket),
            None => self.bucket.give_back(),
        }
    }
}

/// Caller that waits for a token. It returns its token if it is dropped before.
struct Waiter<'a> {
    state: &'a Mutex<State>,
    clock: &'a dyn Clock,
    key: WaiterKey,
    wake: Arc<Notify>,
    /// `true` when the caller has taken its token.
    has_ended: bool,
}

impl<'a> Waiter<'a> {
    /// Reserves a token. Returns `None` if it is available at `now`.
    fn enter(
        state: &'a Mutex<State>,
        clock: &'a dyn Clock,
        level: PriorityLevel,
        now: Duration,
    ) -> Option<Self> {
        let mut locked = state.lock();
        let longer = locked.wait_for_burst(level, now);
        let delay = locked.bucket.reserve(now).max(longer);
        if delay.is_zero() {
            return None;
        }
        let (key, wake) = locked.waiters.add(level, now, now.saturating_add(delay));
        Some(Self { state, clock, key, wake, has_ended: false })
    }

    /// Gives a token that is due to the most urgent caller. Returns the time until the next token that was reserved for
    /// this caller, or `None` if it was served.
    fn take_turn(&self) -> Option<Duration> {
        let mut state = self.state.lock();
        loop {
            let due = state.waiters.due(self.key)?;
            let now = self.clock.monotonic();
            if due > now {
                return Some(due.saturating_sub(now));
            }
            state.waiters.serve_with(self.key, now);
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        let (mut state, now) = (self.state.lock(), self.clock.monotonic());
        let State { bucket, waiters, .. } = &mut *state;
        match waiters.remove(self.key) {
            Some(due) => waiters.cancel(due, now, bucket),
            // It was served and has not been polled since.
            None => state.give_back(now),
        }
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimiter").field("available", &self.available()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
