//! Builder of a controller.

use std::{fmt, sync::Arc, time::Duration};

use kcm_clock::Clock;
use kcm_informer::{EventHandler, SharedInformer, Store};
use kcm_meta::{Object, ObjectKey};
use kcm_workqueue::{MetricsProvider, QueueConfig};

use crate::{
    Controller, KeyQueue, OwnWrites, Reconciler, SyncMetrics, Watch,
    handlers::{mapped_handler, owned_handler, primary_handler},
    health::Cache,
    options::Options,
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
    options: Options,
    primary: P,
    watches: Vec<Registration>,
}

/// State of a [`ControllerBuilder`] without a primary type.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct NoPrimary;

/// State of a [`ControllerBuilder`] with a primary type: its store.
#[diagnostic::on_unimplemented(
    message = "`owns` requires the primary type of the controller",
    label = "`reconciles` was not called before",
    note = "call `.reconciles(…)` before `.owns(…)`"
)]
pub trait WithPrimary {
    /// Primary type.
    type Object: Object;

    /// Returns the store of the primary objects.
    fn store(&self) -> Store<Self::Object>;
}

impl<P: Object> WithPrimary for Store<P> {
    type Object = P;

    fn store(&self) -> Self {
        self.clone()
    }
}

/// Registers the handler of a watch with its informer.
type Registration = Box<dyn FnOnce(&Options, &KeyQueue) -> Arc<dyn Cache> + Send>;

impl Controller<()> {
    /// Returns a builder for a controller without watches. `name` is its name in logs; `clock` is the clock of the queue.
    pub fn builder(name: &'static str, clock: Arc<dyn Clock>) -> ControllerBuilder {
        ControllerBuilder { options: Options::new(name, clock), primary: NoPrimary, watches: Vec::new() }
    }
}

impl ControllerBuilder {
    /// Names the primary type, whose keys are reconciled. Each change enqueues the key of the object.
    ///
    /// Takes an informer, or a [`Watch`] with predicates.
    pub fn reconciles<K: Object>(self, watch: impl Into<Watch<K>>) -> ControllerBuilder<Store<K>> {
        let watch = watch.into();
        let primary = watch.informer.store();
        let builder = ControllerBuilder { options: self.options, primary, watches: self.watches };
        builder.register(watch, |watch, options, queue| {
            primary_handler(watch, queue, options.own_writes.clone())
        })
    }
}

impl<P> ControllerBuilder<P> {
    /// Watches objects that the primary objects own. Each change enqueues the primary object that the controller reference
    /// names, before and after the change.
    ///
    /// Owners are identified by their UID. Nothing is enqueued if the cache does not contain the owner.
    pub fn owns<K: Object>(self, watch: impl Into<Watch<K>>) -> Self
    where
        P: WithPrimary,
    {
        let primaries = self.primary.store();
        self.register(watch.into(), |watch, options, queue| {
            let objects = watch.informer.store();
            owned_handler(watch, objects, primaries, queue, options.own_writes.clone())
        })
    }

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
        handler: impl FnOnce(Watch<K>, &Options, KeyQueue) -> Arc<dyn EventHandler<K>> + Send + 'static,
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

    /// Updates `own_writes` with the changes of primary and [owned](ControllerBuilder::owns) objects, before their keys are
    /// added to the queue.
    ///
    /// The records do not distinguish types: expectations are for owned objects of one type. A reconciler that creates or deletes
    /// objects of several types by expectations would observe one type's events for another.
    ///
    /// The reconciler shares `own_writes`. It calls [`OwnWrites::begin`] before it reads a cache, and classifies its error as
    /// [`StaleCache`](crate::ErrorClass::StaleCache). It creates and deletes nothing while `begin` returns `false`: the cache of
    /// owned objects may lack created ones, and may contain deleted ones. Meanwhile,
    ///
    /// * the primary object, its finalizers and its generation can be read as always;
    /// * an owned object that is found by its name may be outdated, and its absence means nothing;
    /// * a status that counts owned objects may be behind; the sync after the last event corrects it;
    /// * the number of owned objects is no reason for a creation or deletion.
    ///
    /// The key is enqueued by the events that fulfil the expectations; no sync waits for the grace period of a pod. In case that
    /// the events never arrive, the reconciler returns the time at which the expectations
    /// [expire](kcm_expectations::UidTrackingExpectations::expires_in). The control loop adds no such delayed key, because it
    /// would remain in the queue after the events:
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use kcm_runtime::{NotReady, ObjectKey, OwnWrites, Reconciler, Requeue};
    /// struct Pool {
    ///     own_writes: Arc<OwnWrites>,
    /// }
    ///
    /// impl Reconciler for Pool {
    ///     type Error = NotReady;
    ///
    ///     async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, NotReady> {
    ///         // No created object has a fixed name, so none is looked up.
    ///         let may_create_and_delete = self.own_writes.begin(key, |_| false)?;
    ///         // Finalizer and status.
    ///         if !may_create_and_delete {
    ///             let expiry = self.own_writes.expectations.expires_in(key);
    ///             return Ok(expiry.map_or(Requeue::Done, Requeue::After));
    ///         }
    ///         // Creations or deletions.
    ///         Ok(Requeue::Done)
    ///     }
    /// }
    /// ```
    pub fn own_writes(mut self, own_writes: Arc<OwnWrites>) -> Self {
        self.options.own_writes = Some(own_writes);
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
        let queue = KeyQueue::new(config);
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
