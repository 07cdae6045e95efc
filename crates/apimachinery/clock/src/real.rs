use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Clock, Sleep};

/// Clock of the operating system.
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
    origin: tokio::time::Instant,
}

impl RealClock {
    /// Creates a clock whose monotonic origin is now.
    pub fn new() -> Self {
        Self { origin: tokio::time::Instant::now() }
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

    #[tokio::test(start_paused = true)]
    async fn monotonic_time_advances_with_sleeps() {
        let clock = RealClock::new();
        let before = clock.monotonic();
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.monotonic() - before, Duration::from_secs(3600));
    }

    #[test]
    fn wall_clock_is_that_of_the_operating_system() {
        assert!(RealClock::new().now() > "2026-01-01T00:00:00Z".parse().unwrap());
    }
}
