//! State of a controller that its next reconciliations depend on.

use std::{fmt, sync::Arc};

use kcm_meta::ObjectKey;

use crate::{KeyQueue, OwnWrites, health::Cache};

/// State of a controller that its next reconciliations depend on: caches, queue and records of own writes. Cheap to clone.
///
/// Upstream has no counterpart.
#[derive(Clone)]
pub struct ControllerState {
    pub(crate) queue: KeyQueue,
    pub(crate) own_writes: Option<Arc<OwnWrites>>,
    pub(crate) caches: Arc<[Arc<dyn Cache>]>,
}

impl ControllerState {
    /// Returns the queue.
    pub fn queue(&self) -> &KeyQueue {
        &self.queue
    }

    /// Returns the records of own writes.
    pub fn own_writes(&self) -> Option<&OwnWrites> {
        self.own_writes.as_deref()
    }

    /// Returns the resource versions of all cached objects, by the name of their informer.
    pub fn cached_versions(&self) -> impl Iterator<Item = (&str, Vec<(ObjectKey, String)>)> {
        self.caches.iter().map(|cache| (cache.name(), cache.versions()))
    }
}

impl fmt::Debug for ControllerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerState").field("queue", &self.queue).finish_non_exhaustive()
    }
}
