//! What is to be done later, earliest first.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_clock::Clock;

use crate::pace::Pace;

/// Things with a time, in the order of their times, and within one time in the order in which they came.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    clock: Arc<dyn Clock>,
    due: BTreeMap<(Duration, u64), T>,
    next: u64,
    pace: Pace,
}

impl<T> Timers<T> {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let pace = Pace::new(Arc::clone(&clock));
        Self { clock, due: BTreeMap::new(), next: 0, pace }
    }

    /// Has `thing` come due after `delay`.
    pub(crate) fn add(&mut self, delay: Duration, thing: T) {
        let at = self.clock.monotonic().saturating_add(delay);
        self.due.insert((at, self.next), thing);
        self.next += 1;
    }

    /// Returns the next thing once it is due; waits for ever if there is none. Yields to other tasks at times.
    ///
    /// # Cancel safety
    ///
    /// A thing is taken out only as it is returned.
    pub(crate) async fn next(&mut self) -> T {
        loop {
            self.pace.spend(1).await;
            let Some(first) = self.due.first_entry() else {
                return std::future::pending().await;
            };
            let wait = first.key().0.saturating_sub(self.clock.monotonic());
            if wait.is_zero() {
                return first.remove();
            }
            self.pace.rested();
            self.clock.sleep(wait).await;
        }
    }
}
