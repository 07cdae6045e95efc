use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::{Clock, Sleep};

/// A clock for whole clusters in simulated time: both the wall clock and the monotonic one follow tokio's
/// timer.
///
/// Under `#[tokio::test(start_paused = true)]` time jumps to the next timer whenever nothing else can run, so
/// a ten-minute progress deadline passes in microseconds, and always in the same order.
#[derive(Debug, Clone)]
pub struct SimulatedClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl SimulatedClock {
    /// A clock that reads `start` now.
    pub fn new(start: Timestamp) -> Self {
        Self { start, origin: tokio::time::Instant::now() }
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.monotonic()).unwrap_or(SignedDuration::MAX);
        self.start.saturating_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        self.origin.elapsed()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}
