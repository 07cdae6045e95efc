use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::{Clock, Random, jitter};
use kcm_meta::Object;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    handler::EventHandler,
    handler_fanout::{HandlerFanout, HandlerRegistration},
    index::Indexers,
    metrics::{InformerMetrics, NoInformerMetrics},
    reflector::Reflector,
    relist::Relists,
    source::ListWatch,
    store::Store,
};

/// Configuration of a [`SharedInformer`].
pub struct InformerConfig<K> {
    /// Name in logs and metrics; by convention the resource, such as `pods`.
    pub name: String,
    /// Indexes of the store.
    pub indexers: Indexers<K>,
    /// Source of the objects.
    pub list_watch: Arc<dyn ListWatch<K>>,
    /// Clock for timeouts, back-off and resync.
    pub clock: Arc<dyn Clock>,
    /// Source of jitter for timeouts, back-off and resync.
    pub random: Arc<dyn Random>,
    /// Minimum period of resyncs. The period is random, less than twice this, and the same for the life of the informer
    /// (US-2.1). `None` or zero disables resyncs.
    pub resync: Option<Duration>,
    /// If `false`, the informer sends list requests instead of streaming lists.
    ///
    /// Upstream counterpart: the feature gate `WatchListClient`.
    pub streaming_lists: bool,
    /// Metrics.
    pub metrics: Arc<dyn InformerMetrics>,
}

impl<K> InformerConfig<K> {
    /// Creates a configuration without indexes, resync and metrics.
    pub fn new(
        name: impl Into<String>,
        list_watch: Arc<dyn ListWatch<K>>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            name: name.into(),
            indexers: Indexers::new(),
            list_watch,
            clock,
            random,
            resync: None,
            streaming_lists: true,
            metrics: Arc::new(NoInformerMetrics),
        }
    }
}

impl<K> fmt::Debug for InformerConfig<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InformerConfig")
            .field("name", &self.name)
            .field("indexers", &self.indexers)
            .field("resync", &self.resync)
            .finish_non_exhaustive()
    }
}

/// Store that follows a source, and reports changes to handlers. Clones share the same informer.
///
/// Handlers are called on the task of [`run`](Self::run), one after the other, before the next change is read from the
/// source. There is no buffer between source and handlers, so a handler that blocks stops the informer. Upstream's buffer
/// grows without bound instead.
///
/// A handler must not add or remove handlers of the informer that calls it: the call would deadlock.
///
/// Upstream counterpart: `cache.SharedIndexInformer`.
pub struct SharedInformer<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    name: String,
    fanout: Arc<HandlerFanout<K>>,
    clock: Arc<dyn Clock>,
    resync: Option<Duration>,
    relists: Arc<Relists>,
    /// Locked by `run`.
    reflector: Mutex<Reflector<K>>,
}

impl<K: Object> SharedInformer<K> {
    /// Creates an informer. It sends no requests until [`run`](Self::run) is called.
    pub fn new(config: InformerConfig<K>) -> Self {
        let InformerConfig { name, indexers, list_watch, clock, random, resync, streaming_lists, metrics } =
            config;
        let fanout = Arc::new(HandlerFanout::new(name.clone(), Arc::clone(&metrics), indexers));
        let resync = resync.filter(|period| !period.is_zero()).map(|period| jitter(&*random, period, 1.0));
        let relists = Arc::new(Relists::new());
        let mut reflector = Reflector::new(
            name.clone(),
            list_watch,
            Arc::clone(&fanout),
            Arc::clone(&clock),
            random,
            metrics,
            Arc::clone(&relists),
        );
        if !streaming_lists {
            reflector.disable_streaming_lists();
        }
        let reflector = Mutex::new(reflector);
        Self { inner: Arc::new(Inner { name, fanout, clock, resync, relists, reflector }) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns read access to the objects.
    pub fn store(&self) -> Store<K> {
        self.inner.fanout.store().clone()
    }

    /// Adds a handler.
    ///
    /// Before this returns, the handler is called on the current thread with an initial add for each object in the store.
    /// It then gets every later change once.
    pub fn add_handler(&self, handler: Arc<dyn EventHandler<K>>) -> HandlerRegistration {
        self.inner.fanout.add(handler)
    }

    /// Removes a handler. It is not called after this returns.
    pub fn remove_handler(&self, registration: &HandlerRegistration) {
        self.inner.fanout.remove(registration);
    }

    /// Returns `true` once the store has held a complete state and its handlers have received it.
    pub fn has_synced(&self) -> bool {
        *self.inner.fanout.synced().borrow()
    }

    /// Waits until [`has_synced`](Self::has_synced). Returns `false` if `cancel` is cancelled before.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn wait_for_sync(&self, cancel: &CancellationToken) -> bool {
        let mut synced = self.inner.fanout.synced();
        tokio::select! {
            biased;
            result = synced.wait_for(|synced| *synced) => result.is_ok(),
            () = cancel.cancelled() => false,
        }
    }

    /// Relists from the newest state and waits until the store holds it.
    ///
    /// The store then is at a version at or after the time of the call: the list is a consistent read that is requested
    /// after the call, and replaces any request in progress. It is retried with back-off until it succeeds. Objects that
    /// have not changed keep their [`Arc`]; handlers get an update for them, as after every relist.
    ///
    /// Waits while the informer does not [run](Self::run), or the API server does not respond.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait, not the relist.
    pub async fn relist(&self) {
        self.inner.relists.relist().await;
    }

    /// Follows the source until `cancel` is cancelled. Failures are logged and retried (US-2.1).
    ///
    /// If the informer runs already, this waits until that run ends. An informer that was stopped can be run again: its
    /// store keeps the last state, and the watch resumes there.
    ///
    /// # Panics
    ///
    /// If a handler or an index function panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the informer, as `cancel` does. A change of the store is never interrupted.
    pub async fn run(&self, cancel: CancellationToken) {
        let follow = async {
            let mut reflector = self.inner.reflector.lock().await;
            tokio::join!(reflector.run(), self.resync_periodically());
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = follow => {}
        }
    }

    /// Resyncs periodically after the first sync.
    async fn resync_periodically(&self) {
        let Some(period) = self.inner.resync else { return };
        if self.inner.fanout.synced().wait_for(|synced| *synced).await.is_err() {
            return;
        }
        loop {
            self.inner.clock.sleep(period).await;
            tracing::debug!(informer = self.inner.name, "Forcing resync");
            self.inner.fanout.resync();
        }
    }
}

impl<K> Clone for SharedInformer<K> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<K: Object> fmt::Debug for SharedInformer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformer")
            .field("name", &self.inner.name)
            .field("store", self.inner.fanout.store())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
