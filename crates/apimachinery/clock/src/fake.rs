use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::clock::{Clock, Sleep};

/// Clock that advances only when it is stepped. Clones share the same time.
///
/// Upstream counterpart: `clock/testing.FakeClock`.
///
/// ```
/// use std::time::Duration;
///
/// use kcm_clock::{Clock, FakeClock, Timestamp};
///
/// let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
/// clock.step(Duration::from_secs(90));
/// assert_eq!(clock.monotonic(), Duration::from_secs(90));
/// assert_eq!(clock.now().to_string(), "1970-01-01T00:01:30Z");
/// ```
#[derive(Debug, Clone)]
pub struct FakeClock {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    start: Timestamp,
    /// Adjustment of the wall clock by [`FakeClock::set_wall`].
    skew: SignedDuration,
    elapsed: Duration,
    /// Sleepers by deadline. The number orders sleepers with the same deadline.
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    next: u64,
}

impl FakeClock {
    /// Creates a clock at wall-clock time `start`.
    pub fn new(start: Timestamp) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                start,
                skew: SignedDuration::ZERO,
                elapsed: Duration::ZERO,
                sleepers: BTreeMap::new(),
                next: 0,
            })),
        }
    }

    /// Advances both clocks, and wakes the sleepers that are due, earliest first.
    pub fn step(&self, by: Duration) {
        let due = {
            let mut state = self.state.lock();
            state.elapsed = state.elapsed.saturating_add(by);
            let now = state.elapsed;
            let later = state.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.sleepers, later)
        };
        for sleeper in due.into_values() {
            // Fails if the sleep was dropped.
            let _ = sleeper.send(());
        }
    }

    /// Adjusts the wall clock. Does not affect the monotonic clock.
    pub fn set_wall(&self, to: Timestamp) {
        let mut state = self.state.lock();
        let unskewed = add(state.start, state.elapsed);
        state.skew = to.duration_since(unskewed);
    }

    /// Returns the number of sleeps in progress. Tests use it to step the clock only after the code under test waits.
    pub fn sleepers(&self) -> usize {
        self.state.lock().sleepers.values().filter(|s| !s.is_closed()).count()
    }
}

fn add(time: Timestamp, elapsed: Duration) -> Timestamp {
    let elapsed = SignedDuration::try_from(elapsed).unwrap_or(SignedDuration::MAX);
    time.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
}

impl Clock for FakeClock {
    fn now(&self) -> Timestamp {
        let state = self.state.lock();
        add(state.start, state.elapsed).saturating_add(state.skew).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.state.lock().elapsed
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if duration.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        let mut state = self.state.lock();
        let deadline = state.elapsed.saturating_add(duration);
        let id = state.next;
        state.next += 1;
        state.sleepers.insert((deadline, id), wake);
        Box::pin(async move {
            if woken.await.is_err() {
                // All clones of the clock are dropped, so it cannot advance.
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn poll(sleep: &mut Sleep) -> Poll<()> {
        pin!(sleep).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn sleep_ends_at_its_deadline() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let mut sleep = clock.sleep(Duration::from_secs(5));
        clock.step(Duration::from_secs(4));
        assert_eq!(poll(&mut sleep), Poll::Pending);
        assert_eq!(clock.sleepers(), 1);
        clock.step(Duration::from_secs(1));
        assert_eq!(poll(&mut sleep), Poll::Ready(()));
        assert_eq!(clock.sleepers(), 0);
    }

    #[tokio::test]
    async fn step_wakes_all_sleepers_whose_deadline_is_reached() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let sleeps = [3, 1, 2].map(|seconds| clock.sleep(Duration::from_secs(seconds)));
        clock.step(Duration::from_secs(3));
        for sleep in sleeps {
            sleep.await;
        }
    }

    #[tokio::test]
    async fn sleep_of_zero_does_not_wait() {
        FakeClock::new(Timestamp::UNIX_EPOCH).sleep(Duration::ZERO).await;
    }

    #[test]
    fn dropped_sleep_is_not_counted() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let sleep = clock.sleep(Duration::from_secs(5));
        drop(sleep);
        assert_eq!(clock.sleepers(), 0);
        clock.step(Duration::from_secs(5));
    }

    #[test]
    fn set_wall_does_not_affect_the_monotonic_clock() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        clock.step(Duration::from_secs(10));
        let to = Timestamp::from_second(3).unwrap();
        clock.set_wall(to);
        assert_eq!(clock.now(), to);
        assert_eq!(clock.monotonic(), Duration::from_secs(10));
        clock.step(Duration::from_secs(2));
        assert_eq!(clock.now(), Timestamp::from_second(5).unwrap());
    }
}
