//! Readiness check: all caches have synced.
//!
//! DEVIATION: upstream's manager serves no `/readyz`, because its standby has no caches.

use std::sync::{Arc, OnceLock};

use kcm_informer::AnyInformer;
use kcm_serving::HealthChecks;

/// Name of the check on `/readyz`, as on that of an API server.
const INFORMER_SYNC: &str = "informer-sync";

/// Sync state of the caches of a process. Clones share their state.
///
/// A standby is ready when all its caches have synced. A cache that has synced once stays synced, as in client-go.
#[derive(Clone, Default)]
pub struct InformerSync(Arc<OnceLock<Vec<Arc<dyn AnyInformer>>>>);

impl InformerSync {
    /// Sets the informers of all controllers. There may be none. Later calls have no effect.
    pub(crate) fn set(&self, informers: &[Arc<dyn AnyInformer>]) {
        self.0.get_or_init(|| informers.to_vec());
    }

    /// Adds the check to those of `/readyz`.
    pub fn add_to(&self, readiness: &HealthChecks) {
        let caches = self.clone();
        readiness.add(INFORMER_SYNC, Arc::new(move || caches.check()));
    }

    /// Returns an error with the names of the caches that have not synced.
    ///
    /// # Errors
    ///
    /// If the caches have not been started, or one has not synced.
    pub fn check(&self) -> Result<(), String> {
        let Some(caches) = self.0.get() else { return Err("caches not started".to_owned()) };
        let missing: Vec<_> =
            caches.iter().filter(|cache| !cache.has_synced()).map(|cache| cache.name()).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("caches not synced: {}", missing.join(", "))) }
    }
}

impl std::fmt::Debug for InformerSync {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.get().into_iter().flatten().map(|cache| cache.name())).finish()
    }
}
