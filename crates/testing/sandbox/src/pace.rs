//! Bound on the work of a stand-in between two points at which other tasks run.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;

/// Number of steps between two yields, if the stand-in does not wait in between.
const STEPS: usize = 512;
/// Number of steps in one instant of the clock after which the stand-in waits for [`REST`].
const BURST: usize = 4096;
/// Wait that lets simulated time pass.
const REST: Duration = Duration::from_millis(50);

/// Counts steps of work, and yields to other tasks after each [`STEPS`] of them.
///
/// A yield is enough in real time. In simulated time, the clock advances only while all tasks wait; so two writers that
/// react to each other would stop it for ever. A stand-in therefore waits for [`REST`] after [`BURST`] steps in one
/// instant.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Arc<dyn Clock>,
    /// Steps since the last yield or wait.
    steps: usize,
    /// Steps at the time `now`.
    burst: usize,
    now: Duration,
}

impl Pace {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let now = clock.monotonic();
        Self { clock, steps: 0, burst: 0, now }
    }

    /// Resets the steps until the next yield: the stand-in is about to wait, or has waited.
    pub(crate) fn rested(&mut self) {
        self.steps = 0;
    }

    /// Counts `steps` of work.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the steps are counted.
    pub(crate) async fn spend(&mut self, steps: usize) {
        let now = self.clock.monotonic();
        if now != self.now {
            self.now = now;
            self.burst = 0;
        }
        self.steps = self.steps.saturating_add(steps);
        self.burst = self.burst.saturating_add(steps);
        if self.burst >= BURST {
            self.burst = 0;
            self.steps = 0;
            self.clock.sleep(REST).await;
        } else if self.steps >= STEPS {
            self.steps = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::SimulatedClock;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_time_passes_while_two_tasks_are_always_ready() {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        for _ in 0..2 {
            let mut pace = Pace::new(Arc::clone(&clock));
            tokio::spawn(async move {
                loop {
                    pace.spend(1).await;
                }
            });
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}
