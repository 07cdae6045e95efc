//! Readiness of a process: its caches have synced.
//!
//! DEVIATION: upstream's manager serves no `/readyz`, because its standby has no caches.

use std::sync::Arc;

use kcm_informer::{Object, SharedInformer};
use parking_lot::Mutex;

/// Name of the check on `/readyz`, as on that of an API server.
pub(crate) const INFORMER_SYNC: &str = "informer-sync";

/// The caches of a process, and whether each has synced. Clones share their state.
///
/// A standby is ready when all its caches have synced: it could then lead without a delay. A cache that has synced
/// once stays synced, as with client-go.
#[derive(Clone, Default)]
pub struct InformerSync(Arc<Mutex<Vec<Cache>>>);

struct Cache {
    name: &'static str,
    has_synced: Box<dyn Fn() -> bool + Send>,
}

impl InformerSync {
    pub(crate) fn add<K: Object>(&self, name: &'static str, informer: &SharedInformer<K>) {
        let informer = informer.clone();
        self.0.lock().push(Cache { name, has_synced: Box::new(move || informer.has_synced()) });
    }

    /// Returns an error with the names of the caches that have not synced.
    ///
    /// # Errors
    ///
    /// If there are no caches yet, or one has not synced.
    pub fn check(&self) -> Result<(), String> {
        let caches = self.0.lock();
        if caches.is_empty() {
            return Err("no cache has been started".to_owned());
        }
        let missing: Vec<_> =
            caches.iter().filter(|cache| !(cache.has_synced)()).map(|cache| cache.name).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("caches not synced: {}", missing.join(", "))) }
    }
}

impl std::fmt::Debug for InformerSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.lock().iter().map(|cache| cache.name)).finish()
    }
}
