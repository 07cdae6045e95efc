//! Bound on the work of a component between two yields.

use std::{sync::Arc, time::Duration};

use kcm_clock::Clock;

/// Number of steps between two yields.
const STEPS_PER_YIELD: usize = 512;
/// Number of steps at one instant of the clock after which the component sleeps for [`PAUSE`].
const STEPS_PER_INSTANT: usize = 4096;
/// Sleep that lets simulated time advance.
const PAUSE: Duration = Duration::from_millis(50);

/// Counts units of work and yields to other tasks after each [`STEPS_PER_YIELD`] of them.
///
/// Yielding is enough in real time. In simulated time, the clock advances only while all tasks wait, so two writers that
/// react to each other would stop it. The component therefore sleeps for [`PAUSE`] after [`STEPS_PER_INSTANT`] steps at one instant.
#[derive(Debug)]
pub(crate) struct YieldBudget {
    clock: Arc<dyn Clock>,
    /// Steps since the last yield or wait.
    steps: usize,
    /// Steps at the time `now`.
    steps_at_now: usize,
    now: Duration,
}

impl YieldBudget {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let now = clock.monotonic();
        Self { clock, steps: 0, steps_at_now: 0, now }
    }

    /// Resets the number of steps until the next yield. Called before or after the component waits.
    pub(crate) fn reset(&mut self) {
        self.steps = 0;
    }

    /// Counts `steps` units of work.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: if the future is dropped, the steps are still counted.
    pub(crate) async fn spend(&mut self, steps: usize) {
        let now = self.clock.monotonic();
        if now != self.now {
            self.now = now;
            self.steps_at_now = 0;
        }
        self.steps = self.steps.saturating_add(steps);
        self.steps_at_now = self.steps_at_now.saturating_add(steps);
        if self.steps_at_now >= STEPS_PER_INSTANT {
            self.steps_at_now = 0;
            self.steps = 0;
            self.clock.sleep(PAUSE).await;
        } else if self.steps >= STEPS_PER_YIELD {
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
    async fn simulated_time_advances_while_two_tasks_are_always_ready() {
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new("2026-01-01T00:00:00Z".parse().unwrap()));
        for _ in 0..2 {
            let mut budget = YieldBudget::new(Arc::clone(&clock));
            tokio::spawn(async move {
                loop {
                    budget.spend(1).await;
                }
            });
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}
