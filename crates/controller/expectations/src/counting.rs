//! How many creations and deletions are still to be seen.

use std::{sync::Arc, time::Duration};

use dashmap::DashMap;
use kcm_clock::Clock;
use tracing::{debug, trace};

use crate::Key;

/// How long a note is believed when what it waits for does not come.
pub const EXPECTATIONS_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// Creations and deletions that are still to be seen, per key.
///
/// Upstream counterpart: `controller.ControllerExpectations`.
#[derive(Debug)]
pub struct ControllerExpectations<K: Key> {
    records: DashMap<K, Record>,
    clock: Arc<dyn Clock>,
}

#[derive(Debug, Clone, Copy)]
struct Record {
    /// Creations to be seen; below zero when more were seen than expected.
    add: i64,
    /// Deletions to be seen; the same.
    del: i64,
    /// Creations whose request has not been answered, and has not failed either.
    unanswered: i64,
    /// When this was set, by the monotonic clock. Counting off and raising do not renew it.
    set_at: Duration,
}

impl Record {
    fn is_fulfilled(self) -> bool {
        self.add <= 0 && self.del <= 0
    }
}

impl<K: Key> ControllerExpectations<K> {
    /// Nothing expected of anyone.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { records: DashMap::new(), clock }
    }

    /// Notes that `creations` are on their way for `key`, and no deletion. Overwrites what was noted.
    pub fn expect_creations(&self, key: &K, creations: usize) {
        self.set(key, count(creations), 0);
    }

    /// Notes that `deletions` are on their way for `key`, and no creation. Overwrites what was noted.
    pub fn expect_deletions(&self, key: &K, deletions: usize) {
        self.set(key, 0, count(deletions));
    }

    fn set(&self, key: &K, add: i64, del: i64) {
        trace!(%key, add, del, "setting expectations");
        self.records
            .insert(key.clone(), Record { add, del, unanswered: add, set_at: self.clock.monotonic() });
    }

    /// Counts off one creation. Nothing happens when nothing is noted for `key`.
    pub fn creation_observed(&self, key: &K) {
        self.change(key, |record| record.add = record.add.saturating_sub(1));
    }

    /// Records that the API server has answered one of the expected creations.
    ///
    /// See [`observe_answered_creations`](Self::observe_answered_creations).
    pub fn creation_answered(&self, key: &K) {
        self.change(key, |record| record.unanswered = record.unanswered.saturating_sub(1));
    }

    /// Records that the cache has reached the versions of all creations that were answered: no further event of these is
    /// awaited. An object that was created and deleted between two lists has none.
    ///
    /// There is no upstream counterpart: upstream waits for [`EXPECTATIONS_TIMEOUT`].
    pub fn observe_answered_creations(&self, key: &K) {
        self.change(key, |record| record.add = record.add.min(record.unanswered));
    }

    /// Counts off one deletion. Nothing happens when nothing is noted for `key`.
    pub fn deletion_observed(&self, key: &K) {
        self.change(key, |record| record.del = record.del.saturating_sub(1));
    }

    /// Lowers the expectations by `add` creations and `del` deletions that will not happen, below zero if need be.
    pub fn lower(&self, key: &K, add: i64, del: i64) {
        self.change(key, |record| {
            record.add = record.add.saturating_sub(add);
            record.unanswered = record.unanswered.saturating_sub(add);
            record.del = record.del.saturating_sub(del);
        });
    }

    /// Expects `add` more creations and `del` more deletions. Nothing happens when nothing is noted for `key`.
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

    /// Whether a controller may act for `key`: all that was expected was seen, or it is too old to be believed,
    /// or nothing was ever expected.
    pub fn satisfied(&self, key: &K) -> bool {
        let Some(record) = self.records.get(key).map(|record| *record) else {
            trace!(%key, "controller either never recorded expectations, or the ttl expired");
            return true;
        };
        if record.is_fulfilled() {
            trace!(%key, add = record.add, del = record.del, "controller expectations fulfilled");
            return true;
        }
        let age = self.clock.monotonic().saturating_sub(record.set_at);
        let expired = age > EXPECTATIONS_TIMEOUT;
        debug!(%key, add = record.add, del = record.del, ?age, expired, "controller still waits on expectations");
        expired
    }

    /// Creations and deletions still to be seen; `None` when nothing is noted.
    pub fn get(&self, key: &K) -> Option<(i64, i64)> {
        self.records.get(key).map(|record| (record.add, record.del))
    }

    /// Keys whose expectations have not been fulfilled, among them those that have expired.
    pub fn unfulfilled(&self) -> Vec<K> {
        let unfulfilled = self.records.iter().filter(|record| !record.is_fulfilled());
        unfulfilled.map(|record| record.key().clone()).collect()
    }

    /// Drops the expectations of `key`, whose object is gone.
    pub fn delete(&self, key: &K) {
        self.records.remove(key);
    }

    /// How many keys have a note.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether no key has a note.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

fn count(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
