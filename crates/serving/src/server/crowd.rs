//! All connections, and who makes way when there are too many.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Probes and scrapers need a handful; what is beyond is somebody's mistake or malice, at some 50 KB each.
pub(super) const MAX_CONNECTIONS: usize = 250;

pub(super) struct Crowd {
    inside: Mutex<Inside>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Inside {
    entered: u64,
    places: HashMap<u64, Arc<State>>,
}

struct State {
    evicted: CancellationToken,
    requests: AtomicUsize,
    last: Mutex<Duration>,
}

/// A connection's place among the others. Dropping it leaves.
pub(super) struct Place {
    id: u64,
    state: Arc<State>,
    crowd: Arc<Crowd>,
}

/// A request under way. Dropping it ends it.
pub(super) struct Busy {
    state: Arc<State>,
    clock: Arc<dyn Clock>,
}

impl Crowd {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { inside: Mutex::default(), clock }
    }

    /// A place, if need be that of who has been idle for longest; none if all are busy.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Place> {
        let mut inside = self.inside.lock();
        if inside.places.len() >= MAX_CONNECTIONS {
            let idle = inside.places.iter().filter(|(_, state)| state.requests.load(Ordering::Relaxed) == 0);
            let (_, id) = idle.map(|(id, state)| (*state.last.lock(), *id)).min()?;
            if let Some(state) = inside.places.remove(&id) {
                state.evicted.cancel();
            }
        }
        inside.entered += 1;
        let id = inside.entered;
        let state = Arc::new(State {
            evicted: CancellationToken::new(),
            requests: AtomicUsize::new(0),
            last: Mutex::new(self.clock.monotonic()),
        });
        inside.places.insert(id, Arc::clone(&state));
        Some(Place { id, state, crowd: Arc::clone(self) })
    }
}

impl Place {
    /// Ready once somebody else has taken the place.
    pub(super) async fn evicted(&self) {
        self.state.evicted.cancelled().await;
    }

    /// A request begins.
    pub(super) fn begin(&self) -> Busy {
        self.state.requests.fetch_add(1, Ordering::Relaxed);
        Busy { state: Arc::clone(&self.state), clock: Arc::clone(&self.crowd.clock) }
    }

    /// For how long nothing has been asked; zero while something is.
    pub(super) fn idle(&self) -> Duration {
        if self.state.requests.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.crowd.clock.monotonic().saturating_sub(*self.state.last.lock())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crowd.inside.lock().places.remove(&self.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        *self.state.last.lock() = self.clock.monotonic();
        self.state.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    #[test]
    fn crowd_that_is_full_evicts_who_has_been_idle_for_longest() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let crowd = Arc::new(Crowd::new(Arc::new(clock.clone())));
        let places: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| {
                clock.step(Duration::from_secs(1));
                crowd.enter().unwrap()
            })
            .collect();
        let _busy = places[0].begin();
        drop(places[1].begin());
        let _new = crowd.enter().unwrap();
        let evicted: Vec<_> = (0..3).filter(|&at| places[at].state.evicted.is_cancelled()).collect();
        assert_eq!(evicted, [2], "the first is busy, the second was just now");
        assert_eq!(crowd.inside.lock().places.len(), MAX_CONNECTIONS);
        drop(places);
        assert_eq!(crowd.inside.lock().places.len(), 1);
    }

    #[test]
    fn crowd_that_is_busy_lets_nobody_in() {
        let crowd = Arc::new(Crowd::new(Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH))));
        let places: Vec<_> = (0..MAX_CONNECTIONS).map(|_| crowd.enter().unwrap()).collect();
        let busy: Vec<_> = places.iter().map(Place::begin).collect();
        assert!(crowd.enter().is_none());
        drop(busy);
        assert!(crowd.enter().is_some());
    }

    #[test]
    fn place_is_idle_while_nothing_is_asked() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let place = Arc::new(Crowd::new(Arc::new(clock.clone()))).enter().unwrap();
        clock.step(Duration::from_secs(3));
        assert_eq!(place.idle(), Duration::from_secs(3));
        let busy = place.begin();
        assert_eq!(place.idle(), Duration::ZERO);
        clock.step(Duration::from_secs(3));
        drop(busy);
        assert_eq!(place.idle(), Duration::ZERO);
    }
}
