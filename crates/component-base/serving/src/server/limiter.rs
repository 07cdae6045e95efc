//! Limit of the number of connections, and the choice of the connection that is closed for a new one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Maximum number of connections. Probes and scrapers need a handful. An idle connection takes 42 KiB, and
/// a client can make it take 253 KiB.
pub(super) const MAX_CONNECTIONS: usize = 250;

/// Time that a connection has for its handshake and its first request before it can be closed for a new one.
///
/// Without it, a burst of new connections closes a probe's connection before the probe has sent its request. At most
/// [`MAX_CONNECTIONS`] connections are accepted in this time while the limit is reached; further ones wait in the
/// kernel's backlog. A probe behind 750 of them waits for 0.6 s, less than a probe's default timeout of 1 s.
const GUARANTEED: Duration = Duration::from_millis(200);

/// Keeps the number of connections at or below [`MAX_CONNECTIONS`].
///
/// A connection is idle if the server waits for its client: for a header, for a body, or until the client has read the
/// response. Idle connections are closed in the order of their last activity. A connection with an active request is
/// closed only if all connections have one.
pub(super) struct ConnectionLimiter {
    connections: Mutex<Connections>,
    /// Notified when a connection ends.
    released: Notify,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Connections {
    accepted: u64,
    by_id: BTreeMap<u64, Arc<State>>,
}

struct State {
    accepted: Duration,
    evicted: CancellationToken,
    /// Number of requests that are being authorized.
    requests: AtomicUsize,
    last_active: Mutex<Duration>,
}

/// A connection that counts against the limit until it is dropped.
pub(super) struct ConnectionPermit {
    id: u64,
    state: Arc<State>,
    limiter: Arc<ConnectionLimiter>,
}

/// A request that the server works on. While one exists, its connection is not idle.
pub(super) struct RequestGuard {
    state: Arc<State>,
    clock: Arc<dyn Clock>,
}

/// Result of an attempt to admit a connection.
enum Attempt {
    Admitted(u64, Arc<State>),
    /// Every connection is younger than [`GUARANTEED`]; one is not after this time.
    Wait(Duration),
}

impl ConnectionLimiter {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { connections: Mutex::default(), released: Notify::new(), clock }
    }

    /// Admits a connection. If the limit is reached, closes another one first, as soon as one is old enough.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, no connection is admitted or closed.
    pub(super) async fn admit(self: &Arc<Self>) -> ConnectionPermit {
        if self.connections.lock().by_id.len() >= MAX_CONNECTIONS {
            // The tasks of connections that have received data or their end run first. Otherwise a server that is behind
            // closes connections although others have ended.
            tokio::task::yield_now().await;
        }
        loop {
            match self.try_admit() {
                Attempt::Admitted(id, state) => {
                    return ConnectionPermit { id, state, limiter: Arc::clone(self) };
                }
                Attempt::Wait(wait) => tokio::select! {
                    () = self.released.notified() => {}
                    () = self.clock.sleep(wait) => {}
                },
            }
        }
    }

    fn try_admit(&self) -> Attempt {
        let now = self.clock.monotonic();
        let mut connections = self.connections.lock();
        if connections.by_id.len() >= MAX_CONNECTIONS {
            let age = |state: &State| now.saturating_sub(state.accepted);
            let old = connections.by_id.iter().filter(|(_, state)| age(state) >= GUARANTEED);
            let order = |state: &State| (state.is_active(), *state.last_active.lock());
            let Some((_, id)) = old.map(|(id, state)| (order(state), *id)).min() else {
                // Ids rise with the time of acceptance.
                let oldest = connections.by_id.values().next().map_or(GUARANTEED, |state| age(state));
                return Attempt::Wait(GUARANTEED.saturating_sub(oldest));
            };
            if let Some(state) = connections.by_id.remove(&id) {
                state.evicted.cancel();
            }
        }
        connections.accepted += 1;
        let id = connections.accepted;
        let state = Arc::new(State {
            accepted: now,
            evicted: CancellationToken::new(),
            requests: AtomicUsize::new(0),
            last_active: Mutex::new(now),
        });
        connections.by_id.insert(id, Arc::clone(&state));
        Attempt::Admitted(id, state)
    }
}

impl State {
    fn is_active(&self) -> bool {
        self.requests.load(Ordering::Relaxed) > 0
    }
}

impl ConnectionPermit {
    /// Completes when the connection must be closed for a new one.
    pub(super) async fn evicted(&self) {
        self.state.evicted.cancelled().await;
    }

    /// Marks the connection as active until the returned value is dropped.
    pub(super) fn begin_request(&self) -> RequestGuard {
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        RequestGuard { state: Arc::clone(&self.state), clock: Arc::clone(&self.limiter.clock) }
    }

    /// Time since the last activity; zero while a request is active.
    pub(super) fn idle(&self) -> Duration {
        if self.state.is_active() {
            return Duration::ZERO;
        }
        self.limiter.clock.monotonic().saturating_sub(*self.state.last_active.lock())
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.limiter.connections.lock().by_id.remove(&self.id);
        self.limiter.released.notify_one();
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        *self.state.last_active.lock() = self.clock.monotonic();
        self.state.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    struct TestLimiter {
        clock: FakeClock,
        limiter: Arc<ConnectionLimiter>,
    }

    impl TestLimiter {
        fn new() -> Self {
            let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
            Self { limiter: Arc::new(ConnectionLimiter::new(Arc::new(clock.clone()))), clock }
        }

        /// Admits a connection if that is possible without waiting.
        fn admit(&self) -> Option<ConnectionPermit> {
            let mut admitted = pin!(self.limiter.admit());
            // The first poll lets other tasks run.
            admitted.as_mut().now_or_never().or_else(|| admitted.now_or_never())
        }

        /// As many connections as the limit allows, `apart` from each other.
        fn fill(&self, apart: Duration) -> Vec<ConnectionPermit> {
            let admit = |_| {
                self.clock.step(apart);
                self.admit().unwrap()
            };
            (0..MAX_CONNECTIONS).map(admit).collect()
        }
    }

    fn evicted(permits: &[ConnectionPermit]) -> Vec<usize> {
        (0..permits.len()).filter(|&at| permits[at].state.evicted.is_cancelled()).collect()
    }

    #[test]
    fn longest_idle_connection_is_closed_at_the_limit() {
        let limiter = TestLimiter::new();
        let permits = limiter.fill(SECOND);
        let _active = permits[0].begin_request();
        drop(permits[1].begin_request());
        let _new = limiter.admit().unwrap();
        assert_eq!(evicted(&permits), [2], "the first is active, the second was active just now");
        assert_eq!(limiter.limiter.connections.lock().by_id.len(), MAX_CONNECTIONS);
        drop(permits);
        assert_eq!(limiter.limiter.connections.lock().by_id.len(), 1);
    }

    #[test]
    fn active_connections_are_closed_if_all_are_active() {
        let limiter = TestLimiter::new();
        let permits = limiter.fill(SECOND);
        let active: Vec<_> = permits.iter().map(ConnectionPermit::begin_request).collect();
        let new = limiter.admit().unwrap();
        assert_eq!(evicted(&permits), [0]);
        drop((active, new));
    }

    #[tokio::test]
    async fn connection_has_time_for_its_first_request() {
        let limiter = TestLimiter::new();
        let mut permits = limiter.fill(Duration::ZERO);
        assert!(limiter.admit().is_none());
        limiter.clock.step(GUARANTEED - Duration::from_millis(1));
        assert!(limiter.admit().is_none());
        assert!(evicted(&permits).is_empty());
        let mut waiting = pin!(limiter.limiter.admit());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(waiting.as_mut().now_or_never().is_none());
        limiter.clock.step(Duration::from_millis(1));
        let _new = waiting.await;
        assert_eq!(evicted(&permits), [0]);
        // The end of a connection frees its permit.
        let limiter = TestLimiter::new();
        permits = limiter.fill(Duration::ZERO);
        let mut waiting = pin!(limiter.limiter.admit());
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(waiting.as_mut().now_or_never().is_none());
        permits.pop();
        waiting.await;
    }

    #[tokio::test]
    async fn connection_that_has_ended_makes_room_first() {
        let limiter = TestLimiter::new();
        let mut permits = limiter.fill(SECOND);
        let ended = permits.pop();
        tokio::spawn(async move { drop(ended) });
        let _new = limiter.limiter.admit().await;
        assert!(evicted(&permits).is_empty());
    }

    #[test]
    fn permit_is_idle_without_requests() {
        let limiter = TestLimiter::new();
        let permit = limiter.admit().unwrap();
        limiter.clock.step(3 * SECOND);
        assert_eq!(permit.idle(), 3 * SECOND);
        let active = permit.begin_request();
        assert_eq!(permit.idle(), Duration::ZERO);
        limiter.clock.step(3 * SECOND);
        drop(active);
        assert_eq!(permit.idle(), Duration::ZERO);
    }
}
