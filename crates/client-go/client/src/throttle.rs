//! Log lines for requests that the client-side rate limit delayed.
//!
//! Upstream counterpart: `tryThrottleWithInfo` and `globalThrottledLogger` in `client-go/rest/request.go`.
//!
//! | delay | verbosity | lines |
//! |---|---|---|
//! | over 50 ms | 3 | one per request |
//! | over 1 s | 2 and above | at most one per second |
//! | over 1 s | below 2 | at most one every ten seconds |

use std::time::Duration;

use kcm_clock::Clock;
use parking_lot::Mutex;
use tracing::Level;

/// Delays up to this are not logged.
const LONG_DELAY: Duration = Duration::from_millis(50);

/// Delays over this are logged at a lower verbosity, at a limited rate.
const EXTRA_LONG_DELAY: Duration = Duration::from_secs(1);

/// Minimum time between two lines about extra long delays, at verbosity 2.
const VERBOSE_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two lines about extra long delays, at verbosity 0.
const INTERVAL: Duration = Duration::from_secs(10);

const REASON: &str = "client-side throttling, not priority and fairness";

/// Rate limit of the lines about extra long delays. Shared by all clients of a process.
#[derive(Debug, Default)]
pub(crate) struct ThrottleLog(Mutex<LastLines>);

/// Times of the last lines, on the monotonic clock.
#[derive(Debug, Default)]
struct LastLines {
    verbose: Option<Duration>,
    normal: Option<Duration>,
}

impl ThrottleLog {
    /// Logs that a request was delayed by `delay`, if that is long enough.
    pub(crate) fn delayed(
        &self,
        delay: Duration,
        verb: &str,
        url: impl FnOnce() -> String,
        clock: &dyn Clock,
    ) {
        if delay <= LONG_DELAY {
            return;
        }
        let is_verbose = tracing::enabled!(Level::DEBUG);
        let extra_long = (delay > EXTRA_LONG_DELAY)
            .then(|| self.extra_long_level(is_verbose, clock.monotonic()))
            .flatten();
        if extra_long.is_none() && !tracing::enabled!(Level::TRACE) {
            return;
        }
        let url = url();
        macro_rules! log {
            ($level:expr) => {
                tracing::event!(
                    $level,
                    ?delay,
                    reason = REASON,
                    verb,
                    URL = url,
                    "Waited before sending request"
                )
            };
        }
        log!(Level::TRACE);
        match extra_long {
            Some(Level::DEBUG) => log!(Level::DEBUG),
            Some(_) => log!(Level::INFO),
            None => {}
        }
    }

    /// Returns the level of a line about an extra long delay, or `None` if the last one is too recent.
    fn extra_long_level(&self, is_verbose: bool, now: Duration) -> Option<Level> {
        let mut last = self.0.lock();
        let LastLines { verbose, normal } = &mut *last;
        let (last, interval, level) = if is_verbose {
            (verbose, VERBOSE_INTERVAL, Level::DEBUG)
        } else {
            (normal, INTERVAL, Level::INFO)
        };
        if last.is_some_and(|last| now.saturating_sub(last) < interval) {
            return None;
        }
        *last = Some(now);
        Some(level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Levels of the lines about extra long delays, ten per second for half a minute.
    fn levels(is_verbose: bool) -> Vec<(u64, Level)> {
        let log = ThrottleLog::default();
        (0..300)
            .map(|step| Duration::from_millis(step * 100))
            .filter_map(|now| log.extra_long_level(is_verbose, now).map(|level| (now.as_secs(), level)))
            .collect()
    }

    #[test]
    fn every_ten_seconds() {
        assert_eq!(levels(false), [0, 10, 20].map(|at| (at, Level::INFO)));
    }

    #[test]
    fn every_second_if_verbose() {
        assert_eq!(levels(true), (0..30).map(|at| (at, Level::DEBUG)).collect::<Vec<_>>());
    }
}
