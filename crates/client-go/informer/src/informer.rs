use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::{Clock, Random, jitter};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    EventHandler, HandlerRegistration, Indexers, InformerMetrics, ListWatch, NoInformerMetrics, Object,
    Store, StoreWriter, delivery::Delivery, reflector::Reflector, relist::Relists,
};

/// What an informer is made of.
pub struct InformerConfig<K> {
    /// What it is called in logs and metrics; by custom the resource, such as `pods`.
    pub name: String,
    /// The indexes of its store.
    pub indexers: Indexers<K>,
    /// Where the objects come from.
    pub list_watch: Arc<dyn ListWatch<K>>,
    /// What to measure and wait by.
    pub clock: Arc<dyn Clock>,
    /// Where time-outs, back-off and resync get their jitter from.
    pub random: Arc<dyn Random>,
    /// After how long every object is told again: at least this, and less than twice this, drawn once for the
    /// informer (US-2.1). Never, if `None`.
    pub resync: Option<Duration>,
    /// If `false`, the store is filled by list requests even where the source has streaming lists.
    ///
    /// Upstream counterpart: the feature gate `WatchListClient`.
    pub streaming_lists: bool,
    /// Who counts.
    pub metrics: Arc<dyn InformerMetrics>,
}

impl<K> InformerConfig<K> {
    /// A configuration without indexes, resync and metrics; change the fields to have some.
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

/// A store that follows its source, and tells handlers what changes. Clones are the same informer.
///
/// Handlers are called on the task that [`run`](Self::run)s, one after the other, each change told to all of
/// them before the next one is taken from the source. There is no buffer that could grow (upstream's grows
/// until memory ends), and a handler that blocks stops everything: it should put a key into a work queue.
///
/// A handler must not add or remove handlers of the informer that calls it; it would wait for itself.
///
/// Upstream counterpart: `cache.SharedIndexInformer`.
pub struct SharedInformer<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    name: String,
    delivery: Arc<Delivery<K>>,
    clock: Arc<dyn Clock>,
    resync: Option<Duration>,
    relists: Arc<Relists>,
    /// Held by whoever runs.
    reflector: Mutex<Reflector<K>>,
}

impl<K: Object> SharedInformer<K> {
    /// An informer that does nothing until it is [`run`](Self::run).
    pub fn new(config: InformerConfig<K>) -> Self {
        let InformerConfig { name, indexers, list_watch, clock, random, resync, streaming_lists, metrics } =
            config;
        let writer = StoreWriter::new(indexers);
        let delivery = Arc::new(Delivery::new(name.clone(), Arc::clone(&metrics), writer));
        let resync = resync.filter(|period| !period.is_zero()).map(|period| jitter(&*random, period, 1.0));
        let relists = Arc::new(Relists::new());
        let mut reflector = Reflector::new(
            name.clone(),
            list_watch,
            Arc::clone(&delivery),
            Arc::clone(&clock),
            random,
            metrics,
            Arc::clone(&relists),
        );
        if !streaming_lists {
            reflector.disable_streaming_lists();
        }
        let reflector = Mutex::new(reflector);
        Self { inner: Arc::new(Inner { name, delivery, clock, resync, relists, reflector }) }
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The objects, to be read.
    pub fn store(&self) -> Store<K> {
        self.inner.delivery.store().clone()
    }

    /// Lets `handler` know of everything from now on.
    ///
    /// If there are objects already, it gets `on_add` for each, marked initial, before this returns, on the
    /// caller's thread, and nothing that happens meanwhile is lost or told twice.
    pub fn add_handler(&self, handler: Arc<dyn EventHandler<K>>) -> HandlerRegistration {
        self.inner.delivery.join(handler)
    }

    /// Tells the handler nothing more.
    pub fn remove_handler(&self, registration: &HandlerRegistration) {
        self.inner.delivery.leave(registration);
    }

    /// Whether the store has held a complete state, of which all handlers of that moment were told.
    pub fn has_synced(&self) -> bool {
        *self.inner.delivery.synced().borrow()
    }

    /// Waits until [`has_synced`](Self::has_synced). False if `cancel` came first.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn wait_for_sync(&self, cancel: &CancellationToken) -> bool {
        let mut synced = self.inner.delivery.synced();
        tokio::select! {
            biased;
            waited = synced.wait_for(|synced| *synced) => waited.is_ok(),
            () = cancel.cancelled() => false,
        }
    }

    /// Relists from the newest state and waits until the store holds it.
    ///
    /// The store then is at a version at or after the time of the call: the list is a consistent read that is requested
    /// after the call, and takes the place of any request under way. It is retried with back-off until it succeeds.
    /// Objects that have not changed keep their [`Arc`]; handlers get an update for them, as after every relist.
    ///
    /// This waits while the informer does not [run](Self::run), or the API server does not answer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the wait, not the relist.
    pub async fn relist(&self) {
        self.inner.relists.relist().await;
    }

    /// Follows the source until `cancel`. Whatever goes wrong is logged and tried again (US-2.1).
    ///
    /// When it already runs, this waits for that run to end and then takes over. An informer that was stopped
    /// can be run again; its store has meanwhile kept the last state, and catches up.
    ///
    /// # Panics
    ///
    /// When a handler or an index function panics: the panic is theirs, and is not swallowed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the informer as `cancel` does. The store is never left between two states.
    pub async fn run(&self, cancel: CancellationToken) {
        let follow = async {
            let mut reflector = self.inner.reflector.lock().await;
            tokio::join!(reflector.run(), self.resync());
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => {}
            () = follow => {}
        }
    }

    /// Resyncs for ever, once there is something to tell.
    async fn resync(&self) {
        let Some(period) = self.inner.resync else { return };
        if self.inner.delivery.synced().wait_for(|synced| *synced).await.is_err() {
            return;
        }
        loop {
            self.inner.clock.sleep(period).await;
            tracing::debug!(informer = self.inner.name, "resync");
            self.inner.delivery.resync();
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
            .field("store", self.inner.delivery.store())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
