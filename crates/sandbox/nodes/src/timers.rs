//! Timers that share one clock, earliest first.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_clock::Clock;

use crate::yield_budget::YieldBudget;

/// Values ordered by due time. Values with the same due time keep their order of insertion.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    clock: Arc<dyn Clock>,
    due: BTreeMap<(Duration, u64), T>,
    next: u64,
    budget: YieldBudget,
}

impl<T> Timers<T> {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let budget = YieldBudget::new(Arc::clone(&clock));
        Self { clock, due: BTreeMap::new(), next: 0, budget }
    }

    /// Makes `value` due after `delay`.
    pub(crate) fn add(&mut self, delay: Duration, value: T) {
        let at = self.clock.monotonic().saturating_add(delay);
        self.due.insert((at, self.next), value);
        self.next += 1;
    }

    /// Waits for the next due value and returns it. Pending forever if there is none. Yields to other tasks regularly.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a value is removed only when it is returned.
    pub(crate) async fn next(&mut self) -> T {
        loop {
            self.budget.spend(1).await;
            let Some(first) = self.due.first_entry() else {
                return std::future::pending().await;
            };
            let wait = first.key().0.saturating_sub(self.clock.monotonic());
            if wait.is_zero() {
                return first.remove();
            }
            self.budget.reset();
            self.clock.sleep(wait).await;
        }
    }
}
