use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use kcm_clock::{Clock, Random, jitter};
use kcm_meta::Object;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    handler::EventHandler,
    handler_fanout::{HandlerFanout, HandlerRegistration},
    index::Indexers,
    metrics::{InformerMetrics, NoInformerMetrics},
    reflector::{Reflector, ReflectorConfig},
    relist::Relists,
    source::ListWatch,
    store::{Store, StoreWriter},
};

/// Changes an object before it is stored. It must not change the key, the UID and the resource version.
///
/// Upstream counterpart: `cache.TransformFunc`.
pub type Transform<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

/// Sources of the objects of an informer.
pub enum Sources<K> {
    /// One source of all objects.
    One(Arc<dyn ListWatch<K>>),
    /// Source of the objects of each namespace, by namespace. The objects are in one store.
    ///
    /// Each source has its own watch. The informer has synced when it has the state of each namespace.
    Namespaces(BTreeMap<Arc<str>, Arc<dyn ListWatch<K>>>),
}

impl<K> Sources<K> {
    /// Returns the sources of the objects in `namespaces`, or the source of all objects if there are no namespaces.
    ///
    /// `list_watch` returns the source of the objects in a namespace. `None`: in all namespaces.
    pub fn of(
        namespaces: impl IntoIterator<Item = impl Into<Arc<str>>>,
        list_watch: impl Fn(Option<&str>) -> Arc<dyn ListWatch<K>>,
    ) -> Self {
        let source = |namespace: Arc<str>| (Arc::clone(&namespace), list_watch(Some(&namespace)));
        let sources: BTreeMap<_, _> = namespaces.into_iter().map(Into::into).map(source).collect();
        if sources.is_empty() { Self::One(list_watch(None)) } else { Self::Namespaces(sources) }
    }
}

impl<K> fmt::Debug for Sources<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(_) => f.debug_tuple("One").finish_non_exhaustive(),
            Self::Namespaces(sources) => f.debug_tuple("Namespaces").field(&sources.keys()).finish(),
        }
    }
}

/// Configuration of a [`SharedInformer`].
pub struct InformerConfig<K> {
    /// Name in logs and metrics; by convention the resource, such as `pods`.
    pub name: String,
    /// Indexes of the store.
    pub indexers: Indexers<K>,
    /// Sources of the objects.
    pub sources: Sources<K>,
    /// Change of objects before they are stored, such as [`drop_managed_fields`](crate::drop_managed_fields). `None`:
    /// objects are stored as they are read.
    pub transform: Option<Transform<K>>,
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
    /// Creates a configuration without indexes, transform, resync and metrics.
    pub fn new(
        name: impl Into<String>,
        list_watch: Arc<dyn ListWatch<K>>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self::with_sources(name, Sources::One(list_watch), clock, random)
    }

    /// As [`new`](Self::new), for several sources.
    pub fn with_sources(
        name: impl Into<String>,
        sources: Sources<K>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> Self {
        Self {
            name: name.into(),
            indexers: Indexers::new(),
            sources,
            transform: None,
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
            .field("sources", &self.sources)
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
    /// Of each reflector.
    relists: Vec<Arc<Relists>>,
    /// Locked by `run`.
    reflectors: Mutex<Vec<Reflector<K>>>,
}

impl<K: Object> SharedInformer<K> {
    /// Creates an informer. It sends no requests until [`run`](Self::run) is called.
    pub fn new(config: InformerConfig<K>) -> Self {
        let InformerConfig {
            name,
            indexers,
            sources,
            transform,
            clock,
            random,
            resync,
            streaming_lists,
            metrics,
        } = config;
        let (writer, sources) = match sources {
            Sources::One(source) => (StoreWriter::new(indexers), vec![(None, source)]),
            Sources::Namespaces(sources) => (
                StoreWriter::for_namespaces(indexers, sources.keys().cloned()),
                sources.into_iter().map(|(namespace, source)| (Some(namespace), source)).collect(),
            ),
        };
        let fanout = Arc::new(HandlerFanout::new(name.clone(), Arc::clone(&metrics), writer));
        let resync = resync.filter(|period| !period.is_zero()).map(|period| jitter(&*random, period, 1.0));
        let relists: Vec<_> = sources.iter().map(|_| Arc::new(Relists::new())).collect();
        let reflector = |((namespace, source), relists): ((Option<Arc<str>>, _), &Arc<Relists>)| {
            let mut reflector = Reflector::new(ReflectorConfig {
                name: name.clone(),
                namespace,
                source,
                transform: transform.clone(),
                fanout: Arc::clone(&fanout),
                clock: Arc::clone(&clock),
                random: Arc::clone(&random),
                metrics: Arc::clone(&metrics),
                relists: Arc::clone(relists),
            });
            if !streaming_lists {
                reflector.disable_streaming_lists();
            }
            reflector
        };
        let reflectors = Mutex::new(sources.into_iter().zip(&relists).map(reflector).collect());
        Self { inner: Arc::new(Inner { name, fanout, clock, resync, relists, reflectors }) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns read access to the objects.
    pub fn store(&self) -> Store<K> {
        self.inner.fanout.store().clone()
    }

    /// Adds the indexes of `indexers` whose names are not in use. Objects in the store are indexed before this returns.
    pub fn add_indexers(&self, indexers: Indexers<K>) {
        self.inner.fanout.add_indexers(indexers);
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
        join_all(self.inner.relists.iter().map(|relists| relists.relist())).await;
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
            let mut reflectors = self.inner.reflectors.lock().await;
            tokio::join!(join_all(reflectors.iter_mut().map(Reflector::run)), self.resync_periodically());
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
            self.inner.clock.timer("resync", period).await;
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
