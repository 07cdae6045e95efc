//! Health of a controller.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use kcm_clock::Clock;
use kcm_informer::SharedInformer;
use kcm_meta::{Object, ObjectKey};
use parking_lot::Mutex;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

/// Health of a controller. Can be read while the controller runs. Cheap to clone.
///
/// Both checks inspect state only, so they can be called for each request.
#[derive(Clone)]
pub struct ControllerHealth {
    pub(crate) controller: &'static str,
    pub(crate) caches: Arc<[Arc<dyn Cache>]>,
    pub(crate) running: Running,
    pub(crate) clock: Arc<dyn Clock>,
}

/// Failed health check.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unhealthy {
    /// An informer has not received a complete list.
    #[error("controller {controller}: informer {informer} has not synced")]
    NotSynced {
        /// Name of the controller.
        controller: &'static str,
        /// Name of the informer.
        informer: String,
    },
    /// A key has been reconciled for longer than the limit.
    #[error("controller {controller}: a key has been reconciled for {duration:?}")]
    Stuck {
        /// Name of the controller.
        controller: &'static str,
        /// Time since the reconciliation of the key began.
        duration: Duration,
    },
}

impl ControllerHealth {
    /// Checks that all informers have received a complete list. For `/readyz`: a standby of an election passes it, too.
    ///
    /// # Errors
    ///
    /// Names the first informer that has not.
    pub fn synced(&self) -> Result<(), Unhealthy> {
        match self.caches.iter().find(|cache| !cache.has_synced()) {
            None => Ok(()),
            Some(cache) => {
                let informer = cache.name().to_owned();
                Err(Unhealthy::NotSynced { controller: self.controller, informer })
            }
        }
    }

    /// Checks that no key has been reconciled for longer than `limit`. For `/healthz`: a worker that never returns is only
    /// ended by a restart.
    ///
    /// # Errors
    ///
    /// If a key has, with the longest duration.
    pub fn responsive(&self, limit: Duration) -> Result<(), Unhealthy> {
        let now = self.clock.monotonic();
        match self.running.earliest().map(|started| now.saturating_sub(started)) {
            Some(duration) if duration > limit => {
                Err(Unhealthy::Stuck { controller: self.controller, duration })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for ControllerHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerHealth").field("controller", &self.controller).finish_non_exhaustive()
    }
}

/// An informer of any type, as far as a controller uses it.
#[async_trait]
pub(crate) trait Cache: Send + Sync {
    fn name(&self) -> &str;

    /// Returns `true` once the cache contains a complete list.
    fn has_synced(&self) -> bool;

    /// Returns the resource versions of the cached objects.
    fn versions(&self) -> Vec<(ObjectKey, String)>;

    /// Waits until the cache contains a complete list. Returns `false` if `stop` is cancelled before.
    async fn wait_for_sync(&self, stop: &CancellationToken) -> bool;
}

#[async_trait]
impl<K: Object> Cache for SharedInformer<K> {
    fn name(&self) -> &str {
        Self::name(self)
    }

    fn has_synced(&self) -> bool {
        Self::has_synced(self)
    }

    fn versions(&self) -> Vec<(ObjectKey, String)> {
        let version = |object: &Arc<K>| (object.key(), object.resource_version_str().to_owned());
        self.store().list().iter().map(version).collect()
    }

    async fn wait_for_sync(&self, stop: &CancellationToken) -> bool {
        Self::wait_for_sync(self, stop).await
    }
}

/// Start times of the keys that are being reconciled, one slot per worker. Clones share the slots.
#[derive(Debug, Clone, Default)]
pub(crate) struct Running(Arc<Mutex<Arc<[Slot]>>>);

/// Monotonic nanoseconds at which the worker took its key. [`IDLE`] if it has none.
type Slot = AtomicU64;

const IDLE: u64 = u64::MAX;

impl Running {
    /// Replaces the slots by those of `workers` idle workers.
    pub(crate) fn start(&self, workers: usize) -> Arc<[Slot]> {
        let slots: Arc<[Slot]> = (0..workers).map(|_| AtomicU64::new(IDLE)).collect();
        *self.0.lock() = Arc::clone(&slots);
        slots
    }

    /// Returns the earliest start.
    fn earliest(&self) -> Option<Duration> {
        let slots = Arc::clone(&self.0.lock());
        let earliest = slots.iter().map(|slot| slot.load(Ordering::Relaxed)).min();
        earliest.filter(|nanos| *nanos != IDLE).map(Duration::from_nanos)
    }
}

/// Marks a worker as busy until this is dropped.
pub(crate) struct Busy<'a>(&'a Slot);

impl<'a> Busy<'a> {
    pub(crate) fn new(slot: &'a Slot, started: Duration) -> Self {
        slot.store(u64::try_from(started.as_nanos()).unwrap_or(IDLE - 1), Ordering::Relaxed);
        Self(slot)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(IDLE, Ordering::Relaxed);
    }
}
