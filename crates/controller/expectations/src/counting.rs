//! Numbers of expected creations and deletions.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use kcm_clock::Clock;
use tracing::{debug, trace};

use crate::Key;

/// Time after which unfulfilled expectations expire.
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Numbers of expected creations and deletions, by key.
///
/// Upstream counterpart: `controller.ControllerExpectations`.
///
/// ```
/// use std::sync::Arc;
///
/// use kcm_clock::{FakeClock, Timestamp};
/// use kcm_expectations::{ControllerExpectations, EXPECTATIONS_TIMEOUT};
///
/// let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
/// let expectations = ControllerExpectations::new(Arc::new(clock.clone()));
/// expectations.expect_deletions(&"default/web", 1);
/// assert!(!expectations.satisfied(&"default/web"));
/// // No event arrives.
/// clock.step(EXPECTATIONS_TIMEOUT * 2);
/// assert!(expectations.satisfied(&"default/web"));
/// ```
#[derive(Debug)]
pub struct ControllerExpectations<K: Key> {
    records: DashMap<K, Record>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    /// Expected creations. Negative if more were observed than expected.
    add: i64,
    /// Expected deletions. Negative if more were observed than expected.
    del: i64,
    /// Creations whose requests have not returned.
    unanswered: i64,
    /// Monotonic time when the expectations were set. Not changed when they are lowered or raised.
    set_at: Duration,
}

impl Record {
    fn is_fulfilled(self) -> bool {
        self.add <= 0 && self.del <= 0
    }
}

impl<K: Key> ControllerExpectations<K> {
    /// Returns a store without expectations.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { records: DashMap::new(), clock }
    }

    /// Expects `creations` creations and no deletions. Replaces the expectations of `key`.
    pub fn expect_creations(&self, key: &K, creations: usize) {
        self.set(key, count(creations), 0);
    }

    /// Expects `deletions` deletions and no creations. Replaces the expectations of `key`.
    pub fn expect_deletions(&self, key: &K, deletions: usize) {
        self.set(key, 0, count(deletions));
    }

    fn set(&self, key: &K, add: i64, del: i64) {
        trace!(%key, add, del, "setting expectations");
        self.records
            .insert(key.clone(), Record { add, del, unanswered: add, set_at: self.clock.monotonic() });
    }

    /// Lowers the expected creations by one. Has no effect if `key` has no expectations.
    pub fn creation_observed(&self, key: &K) {
        self.change(key, |record| record.add = record.add.saturating_sub(1));
    }

    /// Records that the request of one expected creation succeeded.
    ///
    /// See [`observe_answered_creations`](Self::observe_answered_creations).
    pub fn creation_answered(&self, key: &K) {
        self.change(key, |record| record.unanswered = record.unanswered.saturating_sub(1));
    }

    /// Lowers the expected creations to those whose requests have not returned.
    ///
    /// The caller has checked that the cache contains the resource versions of all confirmed creations. Objects that were
    /// created and deleted between two lists have no event.
    ///
    /// Upstream has no counterpart and waits for [`EXPECTATIONS_TIMEOUT`].
    pub fn observe_answered_creations(&self, key: &K) {
        if self.records.get(key).is_some_and(|record| record.add > record.unanswered) {
            self.change(key, |record| record.add = record.add.min(record.unanswered));
        }
    }

    /// Lowers the expected deletions by one. Has no effect if `key` has no expectations.
    pub fn deletion_observed(&self, key: &K) {
        self.change(key, |record| record.del = record.del.saturating_sub(1));
    }

    /// Lowers the expectations by `add` creations and `del` deletions that failed or were not requested.
    pub fn lower(&self, key: &K, add: i64, del: i64) {
        self.change(key, |record| {
            record.add = record.add.saturating_sub(add);
            record.unanswered = record.unanswered.saturating_sub(add);
            record.del = record.del.saturating_sub(del);
        });
    }

    /// Raises the expectations by `add` creations and `del` deletions. Has no effect if `key` has no expectations.
    pub fn raise(&self, key: &K, add: i64, del: i64) {
        self.change(key, |record| {
            record.add = record.add.saturating_add(add);
            record.unanswered = record.unanswered.saturating_add(add);
            record.del = record.del.saturating_add(del);
        });
    }

    fn change(&self, key: &K, change: impl FnOnce(&mut Record)) {
        if let Some(mut record) = self.records.get_mut(key) {
            change(&mut record);
            trace!(%key, add = record.add, del = record.del, "changed expectations");
        }
    }

    /// Returns `true` if the controller can create and delete objects for `key`: expectations are fulfilled, expired, or
    /// were never set.
    ///
    /// Upstream counterpart: `SatisfiedExpectations`.
    pub fn satisfied(&self, key: &K) -> bool {
        let Some(record) = self.records.get(key).map(|record| *record) else {
            trace!(%key, "controller either never recorded expectations, or the ttl expired");
            return true;
        };
        if record.is_fulfilled() {
            trace!(%key, add = record.add, del = record.del, "controller expectations fulfilled");
            return true;
        }
        let age = self.age(record);
        let expired = age > EXPECTATIONS_TIMEOUT;
        debug!(%key, add = record.add, del = record.del, ?age, expired, "controller still waits on expectations");
        expired
    }

    /// Returns the time until [`satisfied`](Self::satisfied) returns `true` although no creation or deletion is observed.
    /// `None` if the expectations are fulfilled or have expired.
    pub fn expires_in(&self, key: &K) -> Option<Duration> {
        let record = self.records.get(key).map(|record| *record).filter(|record| !record.is_fulfilled())?;
        let last = EXPECTATIONS_TIMEOUT.checked_sub(self.age(record))?;
        // At the age of the timeout itself they have not expired.
        Some(last.saturating_add(Duration::from_nanos(1)))
    }

    fn age(&self, record: Record) -> Duration {
        self.clock.monotonic().saturating_sub(record.set_at)
    }

    /// Returns the expected creations and deletions. `None` if `key` has no expectations.
    pub fn get(&self, key: &K) -> Option<(i64, i64)> {
        self.records.get(key).map(|record| (record.add, record.del))
    }

    /// Returns the keys with unfulfilled expectations, expired ones included.
    pub fn unfulfilled(&self) -> Vec<K> {
        let unfulfilled = self.records.iter().filter(|record| !record.is_fulfilled());
        unfulfilled.map(|record| record.key().clone()).collect()
    }

    /// Removes the expectations of `key`.
    pub fn delete(&self, key: &K) {
        self.records.remove(key);
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
