//! Watch caches that lag behind the store.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use kcm_clock::Clock;
use parking_lot::Mutex;

use super::{State, Store, signal::Signal};

/// Lag of a front end's watch cache behind the store. Clones share one lag.
///
/// The lag can be changed while requests are served. A shorter lag takes effect at once. A longer lag does not take
/// back what the cache has reached already.
#[derive(Debug, Clone)]
pub struct WatchCacheLag(Arc<Lag>);

#[derive(Debug)]
struct Lag {
    current: Mutex<Duration>,
    changed: Signal,
}

impl WatchCacheLag {
    /// Creates a lag of `lag`.
    pub fn new(lag: Duration) -> Self {
        Self(Arc::new(Lag { current: Mutex::new(lag), changed: Signal::default() }))
    }

    /// Changes the lag.
    pub fn set(&self, lag: Duration) {
        *self.0.current.lock() = lag;
        self.0.changed.send();
    }

    /// The current lag.
    pub fn get(&self) -> Duration {
        *self.0.current.lock()
    }
}

/// Watch cache of one front end: the state of the store as it was a [lag](WatchCacheLag) ago.
///
/// It holds no objects. Earlier states are computed from the store's history, so the cache lags behind no further
/// than the history reaches. Writes are dated by the server's wall clock.
///
/// Upstream counterpart: `cacher.Cacher`, which exists once per resource; here one cache serves all resources.
pub(crate) struct WatchCache {
    store: Store,
    clock: Arc<dyn Clock>,
    lag: WatchCacheLag,
    /// Revision that the cache has reached. It only decreases if a backup is restored.
    reached: AtomicU64,
}

impl WatchCache {
    pub(crate) fn new(store: Store, clock: Arc<dyn Clock>, lag: WatchCacheLag) -> Self {
        Self { store, clock, lag, reached: AtomicU64::new(0) }
    }

    /// Revision of the state that the cache shows now.
    pub(crate) fn revision(&self) -> u64 {
        self.advance(&self.store.0.state.read()).0
    }

    /// As [`revision`](Self::revision), under the store's lock.
    pub(super) fn revision_in(&self, state: &State) -> u64 {
        self.advance(state).0
    }

    /// Advances to the latest change that is old enough. Returns the revision reached, and the time until the next change
    /// is old enough, if there is one.
    fn advance(&self, state: &State) -> (u64, Option<Duration>) {
        let (now, lag) = (self.clock.now(), self.lag.get());
        self.reached.fetch_min(state.revision, Ordering::AcqRel);
        let mut reached = self.reached.load(Ordering::Acquire).max(state.history.oldest(None));
        let mut due = None;
        for change in state.history.after(reached) {
            let left = until(now, change.object.written(), lag);
            if !left.is_zero() {
                due = Some(left);
                break;
            }
            reached = change.revision();
        }
        // A concurrent reader may have advanced further with a shorter lag.
        let before = self.reached.fetch_max(reached, Ordering::AcqRel);
        (before.max(reached), due)
    }

    /// Waits until the cache has reached `revision`, or a backup is restored.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn wait_for(&self, revision: u64) {
        let mut lag = self.lag.0.changed.listen();
        let mut written = self.store.0.any.listen();
        let restores = self.store.0.state.read().restores;
        loop {
            lag.mark_unchanged();
            written.mark_unchanged();
            let (reached, due, is_restored) = {
                let state = self.store.0.state.read();
                let (reached, due) = self.advance(&state);
                (reached, due, state.restores != restores)
            };
            if reached >= revision || is_restored {
                return;
            }
            let old_enough = async {
                match due {
                    Some(due) => self.clock.sleep(due).await,
                    None => std::future::pending().await,
                }
            };
            // Neither sender is dropped while `self` is borrowed.
            tokio::select! {
                biased;
                _ = lag.changed() => {}
                _ = written.changed() => {}
                () = old_enough => {}
            }
        }
    }

    /// Waits until the cache has reached `revision`, at most for `limit`. Returns `false` if it has not.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub(crate) async fn wait_for_at_most(&self, revision: u64, limit: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.wait_for(revision) => true,
            () = self.clock.sleep(limit) => false,
        }
    }
}

/// Time from `now` until a change written at `written` is `lag` old. At most `lag`, even if the wall clock was set
/// back.
fn until(now: Timestamp, written: Timestamp, lag: Duration) -> Duration {
    let lag = SignedDuration::try_from(lag).unwrap_or(SignedDuration::MAX);
    let left = lag.saturating_sub(now.duration_since(written)).min(lag);
    Duration::try_from(left).unwrap_or_default()
}
