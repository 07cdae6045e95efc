use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Instant of a monotonic clock that includes the time in which the machine was suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootInstant(Duration);

impl BootInstant {
    /// The current instant.
    pub(crate) fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        // Neither part is negative: the clock starts at zero.
        let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
        Self(Duration::new(seconds.unwrap_or_default(), nanos.unwrap_or_default()))
    }

    /// Time since this instant.
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Run it in a time namespace to compare with a machine that was suspended for a day:
    /// `unshare --map-root-user --time --boottime 86400 --fork TEST_BINARY boot_time`.
    #[test]
    fn includes_the_time_in_which_the_machine_was_suspended() {
        let uptime = || -> f64 {
            let text = std::fs::read_to_string("/proc/uptime").unwrap();
            text.split_once(' ').unwrap().0.parse().unwrap()
        };
        let (before, now, after) = (uptime(), BootInstant::now().0.as_secs_f64(), uptime());
        // The kernel prints hundredths of a second, rounded down.
        assert!(before <= now && now <= after + 0.02, "{before} {now} {after}");
    }
}
