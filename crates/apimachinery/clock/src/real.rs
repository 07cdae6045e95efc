use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Clock, Sleep};

#[cfg(target_os = "linux")]
use crate::boot_time::BootInstant as Instant;
#[cfg(not(target_os = "linux"))]
use tokio::time::Instant;

/// Clock of the operating system.
///
/// On Linux, [`monotonic`](Clock::monotonic) includes the time in which the machine was suspended (`CLOCK_BOOTTIME`).
/// Timers do not run during that time, so a [`sleep`](Clock::sleep) that it interrupts ends that much later: compare
/// deadlines with the clock after a sleep. It does not follow tokio's paused time, see
/// [`SimulatedClock`](crate::SimulatedClock).
///
/// ```
/// use std::{sync::Arc, time::Duration};
///
/// use kcm_clock::{Clock, RealClock};
///
/// let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
/// let start = clock.monotonic();
/// assert!(clock.monotonic() - start < Duration::from_secs(60));
/// ```
#[derive(Debug, Clone)]
pub struct RealClock {
    origin: Instant,
}

impl RealClock {
    /// Creates a clock whose monotonic origin is now.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for RealClock {
    #[expect(clippy::disallowed_methods, reason = "the implementation of the clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
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

    #[tokio::test]
    async fn monotonic_time_advances_with_sleeps() {
        let clock = RealClock::new();
        let before = clock.monotonic();
        clock.sleep(Duration::from_millis(5)).await;
        assert!(clock.monotonic() - before >= Duration::from_millis(5));
    }

    #[test]
    fn wall_clock_is_that_of_the_operating_system() {
        assert!(RealClock::new().now() > "2026-01-01T00:00:00Z".parse().unwrap());
    }
}
