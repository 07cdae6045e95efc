//! Builder of a controller.

use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_informer::{EventHandler, SharedInformer, Store};
use kcm_meta::{Object, ObjectKey};
use kcm_workqueue::{MetricsProvider, NoQueueMetrics, QueueConfig};

use crate::{
    ConsistencyStore, Controller, NoSyncMetrics, OwnedExpectations, Queue, Reconciler, SyncMetrics, Watch,
    WriteRecords,
    handlers::{Records, mapped_handler, owned_handler, primary_handler},
    health::Cache,
    sync_log::SyncLog,
};

/// Watched types and options of a [`Controller`].
///
/// `P` is [`NoPrimary`] until [`reconciles`](ControllerBuilder::reconciles) names the primary type, and the store of the
/// primary type from then on. Watches are registered with their informers by [`build`](ControllerBuilder::build).
///
/// Upstream counterpart: `builder.Builder` of controller-runtime. Its `For`, `Owns` and `Watches` are `reconciles`, `owns`
/// and `watches`.
#[must_use = "no informer is watched before `build`"]
pub struct ControllerBuilder<P = NoPrimary> {
    pub(crate) options: Options,
    primary: P,
    watches: Vec<Registration>,
}

/// State of a [`ControllerBuilder`] without a primary type.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NoPrimary;

/// Registers the handler of a watch with its informer.
type Registration = Box<dyn FnOnce(&Options, &Queue) -> Arc<dyn Cache> + Send>;

/// Options of a controller.
pub(crate) struct Options {
    pub(crate) name: &'static str,
    queue_name: &'static str,
    pub(crate) clock: Arc<dyn Clock>,
    queue_metrics: Arc<dyn MetricsProvider>,
    pub(crate) sync_metrics: Arc<dyn SyncMetrics>,
    pub(crate) workers: usize,
    pub(crate) drain_timeout: Option<Duration>,
    pub(crate) leader_gate: Option<LeaderGate>,
    pub(crate) expectations: Option<Arc<OwnedExpectations>>,
    pub(crate) own_writes: Option<Arc<ConsistencyStore>>,
    records: Records,
    pub(crate) sync_log: Option<SyncLog>,
}

/// Returns `true` while this process leads.
pub(crate) type LeaderGate = Box<dyn Fn() -> bool + Send + Sync>;

impl ControllerBuilder {
    pub(crate) fn new(name: &'static str, clock: Arc<dyn Clock>) -> Self {
        let options = Options {
            name,
            queue_name: name,
            clock,
            queue_metrics: Arc::new(NoQueueMetrics),
            sync_metrics: Arc::new(NoSyncMetrics),
            workers: 1,
            drain_timeout: None,
            leader_gate: None,
            expectations: None,
            own_writes: None,
            records: Records::new(),
            sync_log: None,
        };
        Self { options, primary: NoPrimary, watches: Vec::new() }
    }

    /// Names the primary type, whose keys are reconciled. Each change enqueues the key of the object.
    ///
    /// Takes an informer, or a [`Watch`] with predicates.
    pub fn reconciles<K: Object>(self, watch: impl Into<Watch<K>>) -> ControllerBuilder<Store<K>> {
        let watch = watch.into();
        let primary = watch.informer.store();
        let builder = ControllerBuilder { options: self.options, primary, watches: self.watches };
        builder
            .register(watch, |watch, options, queue| primary_handler(watch, queue, options.records.clone()))
    }
}

impl<P: Object> ControllerBuilder<Store<P>> {
    /// Watches objects that the primary objects own. Each change enqueues the primary object that the controller reference
    /// names, before and after the change.
    ///
    /// Owners are identified by their UID. Nothing is enqueued if the cache does not contain the owner.
    pub fn owns<K: Object>(self, watch: impl Into<Watch<K>>) -> Self {
        let primaries = self.primary.clone();
        self.register(watch.into(), |watch, options, queue| {
            owned_handler(watch, primaries, queue, options.records.clone())
        })
    }
}

impl<P> ControllerBuilder<P> {
    /// Watches objects of any other type. Each change enqueues the keys that `keys` returns for the object, before and
    /// after the change.
    ///
    /// `keys` is called on the task of the informer and must not block. For large numbers of primary objects it should
    /// look them up in an index.
    pub fn watches<K, I>(
        self,
        watch: impl Into<Watch<K>>,
        keys: impl Fn(&K) -> I + Send + Sync + 'static,
    ) -> Self
    where
        K: Object,
        I: IntoIterator<Item = ObjectKey> + 'static,
    {
        self.register(watch.into(), |watch, _, queue| mapped_handler(watch, keys, queue))
    }

    fn register<K: Object>(
        mut self,
        watch: Watch<K>,
        handler: impl FnOnce(Watch<K>, &Options, Queue) -> Arc<dyn EventHandler<K>> + Send + 'static,
    ) -> Self {
        self.watches.push(Box::new(move |options, queue| {
            let informer = watch.informer.clone();
            informer.add_handler(handler(watch, options, queue.clone()));
            Arc::<SharedInformer<K>>::new(informer)
        }));
        self
    }

    /// Sets the number of keys that are reconciled at the same time. Default: 1.
    ///
    /// Upstream counterpart: `MaxConcurrentReconciles`.
    pub fn workers(mut self, workers: usize) -> Self {
        self.options.workers = workers;
        self
    }

    /// Sets the name of the queue in metrics. Default: the name of the controller.
    pub fn queue_name(mut self, name: &'static str) -> Self {
        self.options.queue_name = name;
        self
    }

    /// Sets the metrics of the queue. Default: none.
    pub fn queue_metrics(mut self, metrics: Arc<dyn MetricsProvider>) -> Self {
        self.options.queue_metrics = metrics;
        self
    }

    /// Sets the metrics of reconciliations. Default: none.
    pub fn sync_metrics(mut self, metrics: Arc<dyn SyncMetrics>) -> Self {
        self.options.sync_metrics = metrics;
        self
    }

    /// Reconciles keys only while `is_leader` returns `true`, such as `LeaderGate::is_leader` of `kcm-leader-election`.
    ///
    /// The gate is checked before each key. If it is closed, [`Controller::run`] returns and the keys stay queued.
    pub fn leader_gate(mut self, is_leader: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.options.leader_gate = Some(Box::new(is_leader));
        self
    }

    /// Lowers the expectations of a key when the informers of [owned](ControllerBuilder::owns) types report its objects, and
    /// removes them when the primary object is deleted.
    ///
    /// The reconciler shares `expectations`. It sets them before it creates or deletes owned objects, and does neither
    /// unless they are [satisfied](OwnedExpectations::satisfied). It checks that before it reads the cache of the owned
    /// objects: an object that was observed in between would be created again. Everything else, such as the status and
    /// finalizers, does not wait.
    ///
    /// A deletion is observed when it starts: the deletion timestamp is set, and the object is replaced without waiting for
    /// its grace period. Deletions are identified by UID. A key is reconciled again when its expectations expire.
    ///
    /// With [`own_writes`](Self::own_writes), creations that the reconciler has reported as
    /// [answered](OwnedExpectations::creation_answered) are observed as soon as the caches contain the versions of its
    /// writes.
    pub fn expectations(mut self, expectations: Arc<OwnedExpectations>) -> Self {
        self.options.records.push(Arc::clone(&expectations) as _);
        self.options.expectations = Some(expectations);
        self
    }

    /// Postpones keys until the caches contain the writes that the reconciler has recorded for them
    /// ([`ConsistencyStore::wrote_at`]).
    pub fn own_writes(mut self, own_writes: Arc<ConsistencyStore>) -> Self {
        self.options.records.push(Arc::clone(&own_writes) as _);
        self.options.own_writes = Some(own_writes);
        self
    }

    /// Updates `records` with the changes that the watches of primary and [owned](ControllerBuilder::owns) objects report.
    ///
    /// For controllers that check their records themselves. [`expectations`](Self::expectations) and
    /// [`own_writes`](Self::own_writes) also postpone and requeue keys.
    pub fn write_records(mut self, records: Arc<dyn WriteRecords>) -> Self {
        self.options.records.push(records);
        self
    }

    /// Keeps the last sync of up to `keys` keys for [`Controller::key_state`]. 0 disables it. Default: 0.
    pub fn sync_log(mut self, keys: usize) -> Self {
        self.options.sync_log = (keys > 0).then(|| SyncLog::new(keys));
        self
    }

    /// Limits the time in which queued keys are processed after the controller was stopped. Reconciliations that are not
    /// complete then are aborted. Default: no limit.
    pub fn drain_timeout(mut self, timeout: Duration) -> Self {
        self.options.drain_timeout = Some(timeout);
        self
    }

    /// Registers the watches with their informers, which adds the keys of cached objects to the queue. Keys are processed
    /// by [`Controller::run`].
    pub fn build<R: Reconciler>(self, reconciler: R) -> Controller<R> {
        let mut config = QueueConfig::new(self.options.queue_name, Arc::clone(&self.options.clock));
        config.metrics = Arc::clone(&self.options.queue_metrics);
        let queue = Queue::new(config);
        let caches = self.watches.into_iter().map(|register| register(&self.options, &queue)).collect();
        Controller::new(self.options, queue, caches, reconciler)
    }
}

impl<P> fmt::Debug for ControllerBuilder<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerBuilder")
            .field("name", &self.options.name)
            .field("watches", &self.watches.len())
            .finish_non_exhaustive()
    }
}
