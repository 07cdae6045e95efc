//! Callers that wait for a token, and their order.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_flowcontrol::TokenBucket;
use tokio::sync::Notify;

use super::PriorityLevel;

/// Time after which the first caller of a level gets a token although more urgent ones wait.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(5);

/// Number of tokens of which a level with such a caller gets at least one.
const SHARE: u8 = 4;

/// Level and number of a caller. The order is that of the service.
pub(super) type WaiterKey = (PriorityLevel, u64);

/// Callers that wait for a token. Each has reserved one, whose time is swapped with that of the served caller.
#[derive(Default)]
pub(super) struct Waiters {
    queue: BTreeMap<WaiterKey, Waiting>,
    next: u64,
    /// Number of tokens since a caller of each level was served.
    since_served: [u8; PriorityLevel::ALL.len()],
}

struct Waiting {
    start: Duration,
    /// Time at which the reserved token is available.
    due: Duration,
    /// Notified when the caller was served or its time has changed.
    wake: Arc<Notify>,
}

impl Waiters {
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Adds a caller that has reserved a token.
    pub(super) fn add(
        &mut self,
        level: PriorityLevel,
        start: Duration,
        due: Duration,
    ) -> (WaiterKey, Arc<Notify>) {
        let (key, wake) = ((level, self.next), Arc::new(Notify::new()));
        self.next += 1;
        self.queue.insert(key, Waiting { start, due, wake: Arc::clone(&wake) });
        (key, wake)
    }

    /// Removes a caller. Returns the time of its token; `None` if it was served.
    pub(super) fn remove(&mut self, key: WaiterKey) -> Option<Duration> {
        self.queue.remove(&key).map(|waiting| waiting.due)
    }

    /// Returns the time of a caller's token; `None` if it was served.
    pub(super) fn due(&self, key: WaiterKey) -> Option<Duration> {
        self.queue.get(&key).map(|waiting| waiting.due)
    }

    /// Serves the most urgent caller with a token that is due at `now`. Returns the time of the token that it had reserved.
    pub(super) fn serve(&mut self, now: Duration) -> Option<Duration> {
        let key = self.most_urgent(now)?;
        let served = self.queue.remove(&key)?;
        for (level, since) in PriorityLevel::ALL.into_iter().zip(&mut self.since_served) {
            *since = if level == key.0 { 0 } else { since.saturating_add(1) };
        }
        served.wake.notify_one();
        Some(served.due)
    }

    /// Serves the most urgent caller with the token of the caller at `key`. If these differ, that caller then waits for the
    /// token of the served one.
    pub(super) fn serve_with(&mut self, key: WaiterKey, now: Duration) {
        let due = self.serve(now);
        if let (Some(waiting), Some(due)) = (self.queue.get_mut(&key), due) {
            waiting.due = due;
        }
    }

    /// Gives a reserved token, due at `due`, to the caller whose token is due last, and returns that one to `bucket`.
    pub(super) fn cancel(&mut self, mut due: Duration, now: Duration, bucket: &mut TokenBucket) {
        if let Some(last) = self.queue.values_mut().max_by_key(|waiting| waiting.due)
            && last.due > due
        {
            std::mem::swap(&mut last.due, &mut due);
            last.wake.notify_one();
        }
        bucket.cancel(due, now);
    }

    fn most_urgent(&self, now: Duration) -> Option<WaiterKey> {
        let first = |level| self.queue.range((level, 0)..=(level, u64::MAX)).next();
        let overdue = PriorityLevel::ALL.into_iter().zip(self.since_served).find_map(|(level, since)| {
            let (key, waiting) = first(level).filter(|_| since >= SHARE - 1)?;
            (now.saturating_sub(waiting.start) > MAX_WAIT).then_some(*key)
        });
        overdue.or_else(|| self.queue.keys().next().copied())
    }
}
