//! Readiness check: all caches have synced.
//!
//! DEVIATION: upstream's manager serves no `/readyz`, because its standby has no caches.

use std::sync::Arc;

use kcm_informer::{Object, SharedInformer};
use parking_lot::Mutex;

/// Name of the check on `/readyz`, as on that of an API server.
pub(crate) const INFORMER_SYNC: &str = "informer-sync";

/// Sync state of the caches of a process. Clones share their state.
///
/// A standby is ready when all its caches have synced. A cache that has synced once stays synced, as in client-go.
#[derive(Clone, Default)]
pub struct InformerSync(Arc<Mutex<Caches>>);

#[derive(Default)]
struct Caches {
    /// `true` once the caches of all controllers have been added. The list may be empty.
    are_complete: bool,
    all: Vec<Cache>,
}

struct Cache {
    name: &'static str,
    has_synced: Box<dyn Fn() -> bool + Send>,
}

impl InformerSync {
    pub(crate) fn add<K: Object>(&self, name: &'static str, informer: &SharedInformer<K>) {
        let informer = informer.clone();
        self.0.lock().all.push(Cache { name, has_synced: Box::new(move || informer.has_synced()) });
    }

    /// Marks the list of caches as complete.
    pub(crate) fn complete(&self) {
        self.0.lock().are_complete = true;
    }

    /// Returns an error with the names of the caches that have not synced.
    ///
    /// # Errors
    ///
    /// If the caches have not been started, or one has not synced.
    pub fn check(&self) -> Result<(), String> {
        let caches = self.0.lock();
        if !caches.are_complete {
            return Err("caches not started".to_owned());
        }
        let missing: Vec<_> =
            caches.all.iter().filter(|cache| !(cache.has_synced)()).map(|cache| cache.name).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("caches not synced: {}", missing.join(", "))) }
    }
}

impl std::fmt::Debug for InformerSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lock().all.iter().map(|cache| cache.name)).finish()
    }
}
