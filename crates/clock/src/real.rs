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
