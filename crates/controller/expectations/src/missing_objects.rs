//! Objects that a cache contains and the API server does not.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_meta::ObjectKey;
use parking_lot::Mutex;

/// Time without syncs after the first write that does not find the object. It doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// Longest time without syncs. The API server may have answered in error.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Objects that a write has not found by their name and UID, until the deletion is observed.
///
/// DEVIATION: upstream syncs them at each event. While the watch of Deployments is behind, its controller creates a ReplicaSet
/// for a deleted Deployment whenever the garbage collector has deleted the one before.
pub struct MissingObjects {
    clock: Arc<dyn Clock>,
    objects: Mutex<HashMap<ObjectKey, Missing>>,
}

struct Missing {
    uid: Arc<str>,
    pause: Duration,
    /// End of the pause.
    until: Duration,
}

impl MissingObjects {
    /// Returns an empty record.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, objects: Mutex::default() }
    }

    /// Records that a write has not found the object with this UID.
    pub fn not_found(&self, object: &ObjectKey, uid: &Arc<str>) {
        let mut objects = self.objects.lock();
        let before = objects.get(object).filter(|before| before.uid == *uid);
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        let missing = Missing { uid: Arc::clone(uid), pause, until: self.clock.monotonic() + pause };
        objects.insert(object.clone(), missing);
    }

    /// Returns the time for which the object is not synced. `None` if it may exist. `cached_uid` is called for objects that were
    /// not found; it returns the UID of the cached object.
    pub fn pause(
        &self,
        object: &ObjectKey,
        cached_uid: impl FnOnce() -> Option<Arc<str>>,
    ) -> Option<Duration> {
        let (uid, until) = {
            let objects = self.objects.lock();
            let missing = objects.get(object)?;
            (Arc::clone(&missing.uid), missing.until)
        };
        // Not while the lock is held: event handlers may hold that of the cache.
        if cached_uid().is_none_or(|cached| cached != uid) {
            self.remove(object);
            return None;
        }
        until.checked_sub(self.clock.monotonic()).filter(|pause| !pause.is_zero())
    }

    /// Removes the record of an object.
    pub fn remove(&self, object: &ObjectKey) {
        self.objects.lock().remove(object);
    }

    /// Removes all records.
    pub fn clear(&self) {
        self.objects.lock().clear();
    }

    /// Returns `true` if all objects may exist.
    pub fn is_empty(&self) -> bool {
        self.objects.lock().is_empty()
    }
}

impl fmt::Debug for MissingObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.objects.lock().keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, Timestamp};

    use super::*;

    #[test]
    fn pauses_double_until_the_object_is_found_or_replaced() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let missing = MissingObjects::new(Arc::new(clock.clone()));
        let (web, uid) = (ObjectKey::new("default", "web"), Arc::<str>::from("old"));
        let pause = |uid: &str| missing.pause(&web, || Some(uid.into())).map_or(0, |pause| pause.as_secs());
        assert_eq!(pause("old"), 0);
        for expected in [1, 2, 4, 8, 16, 32, 60, 60] {
            missing.not_found(&web, &uid);
            assert_eq!(pause("old"), expected);
            clock.step(Duration::from_secs(expected));
            assert_eq!(pause("old"), 0);
        }
        missing.remove(&web);
        missing.not_found(&web, &uid);
        assert_eq!(pause("old"), 1);
        assert_eq!(pause("new"), 0);
        assert!(missing.is_empty(), "another object has the name");
        missing.not_found(&web, &uid);
        assert_eq!(missing.pause(&web, || None), None);
        assert!(missing.is_empty(), "the deletion is observed");
    }
}
