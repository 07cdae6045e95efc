//! Last sync of each key, for debugging.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use kcm_clock::Timestamp;
use kcm_meta::ObjectKey;
use kcm_workqueue::ItemState;
use parking_lot::Mutex;

use crate::SyncResult;

/// State of one key of a [`Controller`](crate::Controller).
#[derive(Debug, Clone, PartialEq)]
pub struct KeyState {
    /// State in the queue.
    pub queue: ItemState,
    /// Last sync that has ended. `None` if there was none, or the [log](crate::ControllerBuilder::sync_log) does not
    /// contain it.
    pub last_sync: Option<SyncRecord>,
}

/// Sync that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncRecord {
    /// Time at which it ended.
    pub ended: Timestamp,
    /// Duration.
    pub duration: Duration,
    /// Result.
    pub result: SyncResult,
    /// Error, or reason for which the key was postponed.
    pub error: Option<String>,
}

/// Last syncs of a limited number of keys. The key that was added first is removed first.
#[derive(Debug)]
pub(crate) struct SyncLog {
    capacity: usize,
    records: Mutex<Records>,
}

#[derive(Debug, Default)]
struct Records {
    by_key: HashMap<ObjectKey, SyncRecord>,
    /// Keys of `by_key` in the order of their addition.
    order: VecDeque<ObjectKey>,
}

impl SyncLog {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, records: Mutex::default() }
    }

    pub(crate) fn record(&self, key: &ObjectKey, record: SyncRecord) {
        let mut records = self.records.lock();
        if records.by_key.insert(key.clone(), record).is_some() {
            return;
        }
        records.order.push_back(key.clone());
        if records.order.len() > self.capacity
            && let Some(oldest) = records.order.pop_front()
        {
            records.by_key.remove(&oldest);
        }
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<SyncRecord> {
        self.records.lock().by_key.get(key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_keeps_the_last_sync_of_the_newest_keys() {
        let log = SyncLog::new(2);
        let key = |name: &str| ObjectKey::new("shop", name);
        let record = |millis: u64| SyncRecord {
            ended: Timestamp::UNIX_EPOCH,
            duration: Duration::from_millis(millis),
            result: SyncResult::Success,
            error: None,
        };
        for (name, millis) in [("a", 1), ("b", 2), ("b", 3), ("c", 4)] {
            log.record(&key(name), record(millis));
        }
        assert_eq!(log.get(&key("a")), None);
        assert_eq!((log.get(&key("b")), log.get(&key("c"))), (Some(record(3)), Some(record(4))));
    }
}
