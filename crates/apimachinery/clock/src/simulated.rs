use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::clock::{Clock, Sleep};

/// Clock for simulated time: both the wall clock and the monotonic clock follow tokio's timer.
///
/// With `#[tokio::test(start_paused = true)]`, time advances to the next timer when all tasks wait. A progress deadline of
/// ten minutes passes in microseconds, and timers expire in the same order in every run.
///
/// ```
/// use std::time::Duration;
///
/// use kcm_clock::{Clock, SimulatedClock, Timestamp};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
/// let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
/// clock.sleep(Duration::from_secs(600)).await;
/// assert_eq!(clock.now().to_string(), "1970-01-01T00:10:00Z");
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct SimulatedClock {
    start: Timestamp,
    origin: tokio::time::Instant,
}

impl SimulatedClock {
    /// Creates a clock at wall-clock time `start`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn both_clocks_follow_paused_time() {
        let clock = SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap());
        let hour = Duration::from_secs(3600);
        clock.sleep(hour).await;
        assert_eq!(clock.monotonic(), hour);
        assert_eq!(clock.now(), "2026-01-01T01:00:00Z".parse().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn sleeps_end_in_the_order_of_their_deadlines() {
        let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
        let (late, early) = (clock.sleep(Duration::from_secs(9)), clock.sleep(Duration::from_secs(4)));
        tokio::select! {
            () = late => panic!("9 s elapsed before 4 s"),
            () = early => {}
        }
        assert_eq!(clock.monotonic(), Duration::from_secs(4));
    }
}
