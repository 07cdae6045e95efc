use std::time::Duration;

use jiff::Timestamp;

use crate::{Clock, Sleep};

/// The operating system's clocks. The only place in the workspace that reads them.
#[derive(Debug, Clone)]
pub struct RealClock {
    origin: tokio::time::Instant,
}

impl RealClock {
    /// A clock whose monotonic origin is now.
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
    #[expect(clippy::disallowed_methods, reason = "this is the one place that may")]
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
    async fn monotonic_clock_advances_by_what_was_slept() {
        let clock = RealClock::new();
        let before = clock.monotonic();
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.monotonic() - before, Duration::from_secs(3600));
    }

    #[test]
    fn wall_clock_is_past_the_day_this_was_written() {
        assert!(RealClock::new().now() > "2026-01-01T00:00:00Z".parse().unwrap());
    }
}
