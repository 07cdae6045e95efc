//! Configuration of the controller, and its place in the control loop.

use std::{fmt, sync::Arc, time::Duration};

use kcm_api::{ObjectKey, Pod, ReplicaSet};
use kcm_clock::{Clock, Random};
use kcm_controller_util::{
    CreateError, NoStatusTurns, OwnedObjects, PodControl, ReplicaSetControl, StatusTurns, StatusUrgency,
};
use kcm_events::EventRecorder;
use kcm_expectations::{GroupResource, OwnWrites};
use kcm_informer::SharedInformer;
use kcm_runtime::{Controller, ErrorClass, NoSyncMetrics, Reconciler, Requeue, SyncMetrics};
use kcm_workqueue::{MetricsProvider, NoQueueMetrics};
use tokio_util::sync::CancellationToken;
use tracing::{Span, error_span, field::Empty, trace};

use crate::{
    Inspection, KindConfig, ManageError, NoReplicaSetMetrics, REPLICA_SET, ReplicaSetMetrics, SyncError,
    events::ReplicaSetEvents, execute::Executor, handlers, sync::Syncer,
};

/// Maximum number of pods that one sync creates or deletes.
///
/// Upstream counterpart: `BurstReplicas`.
pub const DEFAULT_BURST_REPLICAS: usize = 500;

/// Maximum number of syncs at a time.
///
/// Upstream counterpart: the default of `--concurrent-replicaset-syncs`.
const DEFAULT_WORKERS: usize = 5;

/// Configuration of a [`ReplicaSetController`].
pub struct ReplicaSetControllerConfig {
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of the random suffixes of pod names.
    pub random: Arc<dyn Random>,
    /// All pods, with the indexes of [`kcm_controller_util::pod_indexers`].
    pub pods: SharedInformer<Pod>,
    /// All ReplicaSets, with the indexes of [`kcm_controller_util::replica_set_indexers`].
    pub replica_sets: SharedInformer<ReplicaSet>,
    /// Requests for pods.
    pub pod_control: Arc<dyn PodControl>,
    /// Uncached reads and status writes of ReplicaSets.
    pub replica_set_control: Arc<dyn ReplicaSetControl>,
    /// Recorder of events, made for [`KindConfig::component`].
    pub recorder: Arc<dyn EventRecorder>,
    /// Settings with defaults.
    pub options: ReplicaSetControllerOptions,
}

/// Settings of a [`ReplicaSetController`]. By default, those for ReplicaSets with upstream's burst and workers, without
/// metrics.
pub struct ReplicaSetControllerOptions {
    /// Kind that the controller is for.
    pub kind_config: KindConfig,
    /// Maximum number of pods that one sync creates or deletes.
    pub burst_replicas: usize,
    /// Maximum number of syncs at a time.
    pub workers: usize,
    /// If `true`, as by default, the `observedGeneration` of a sync that creates or deletes pods is written by the next sync,
    /// which the watch events of the pods start. The first `observedGeneration` of a ReplicaSet is written at once. If
    /// `false`, each is written at once, as upstream.
    pub coalesce_status_writes: bool,
    /// Turns of status writes at the rate limit.
    pub status_turns: Arc<dyn StatusTurns>,
    /// Metrics of the controller.
    pub metrics: Arc<dyn ReplicaSetMetrics>,
    /// Work queue metrics. `None` disables them.
    pub queue_metrics: Option<Arc<dyn MetricsProvider>>,
    /// Sync metrics.
    pub sync_metrics: Arc<dyn SyncMetrics>,
    /// Maximum number of last syncs, one per key, that are kept for [`ReplicaSetController::inspect`]. 0 disables them.
    pub sync_log: usize,
}

impl Default for ReplicaSetControllerOptions {
    fn default() -> Self {
        Self {
            kind_config: REPLICA_SET,
            burst_replicas: DEFAULT_BURST_REPLICAS,
            workers: DEFAULT_WORKERS,
            coalesce_status_writes: true,
            status_turns: Arc::new(NoStatusTurns),
            metrics: Arc::new(NoReplicaSetMetrics),
            queue_metrics: None,
            sync_metrics: Arc::new(NoSyncMetrics),
            sync_log: 0,
        }
    }
}

impl fmt::Debug for ReplicaSetControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaSetControllerConfig").field("options", &self.options).finish_non_exhaustive()
    }
}

impl fmt::Debug for ReplicaSetControllerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaSetControllerOptions")
            .field("kind_config", &self.kind_config)
            .field("burst_replicas", &self.burst_replicas)
            .field("coalesce_status_writes", &self.coalesce_status_writes)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Creates and deletes pods so that each ReplicaSet has the requested number.
///
/// Upstream counterpart: `ReplicaSetController`.
#[derive(Debug)]
pub struct ReplicaSetController(Controller<Syncer>);

impl ReplicaSetController {
    /// Registers the event handlers. Syncs start with [`run`](Self::run).
    pub fn new(config: ReplicaSetControllerConfig) -> Self {
        let ReplicaSetControllerConfig { clock, random, pods, replica_sets, options, .. } = config;
        let kind_config = options.kind_config;
        // Pods also if own writes are not awaited: `OwnedObjects` lowers expectations twice for a pod that was created by a
        // request without a response.
        let mut caches = vec![(GroupResource::PODS, pods.store().version_reader())];
        if kind_config.reads_own_writes {
            caches.push((GroupResource::REPLICA_SETS, replica_sets.store().version_reader()));
        }
        let own_writes = Arc::new(OwnWrites::new(Arc::clone(&clock), caches));
        let events = Arc::new(ReplicaSetEvents { kind_config, recorder: config.recorder });
        let owned_pods = OwnedObjects {
            clock: Arc::clone(&clock),
            random,
            cache: pods.store(),
            resource: GroupResource::PODS,
            own_writes: Arc::clone(&own_writes),
        };
        let executor = Executor {
            pods: owned_pods,
            pod_control: config.pod_control,
            replica_set_control: config.replica_set_control,
            metrics: options.metrics,
            events,
        };
        let syncer = Syncer {
            kind_config,
            clock: Arc::clone(&clock),
            replica_sets: replica_sets.store(),
            executor,
            status_turns: Arc::clone(&options.status_turns),
            burst_replicas: options.burst_replicas,
            coalesce_status_writes: options.coalesce_status_writes,
        };
        let controller = Controller::builder(kind_config.controller_name, clock)
            .queue_name(kind_config.queue_name)
            .queue_metrics(options.queue_metrics.unwrap_or_else(|| Arc::new(NoQueueMetrics)))
            .sync_metrics(options.sync_metrics)
            .sync_log(options.sync_log)
            .workers(options.workers)
            .own_writes(own_writes)
            .reconciles(&replica_sets)
            .owns(handlers::pods(&pods, replica_sets.store(), kind_config.kind))
            .build(syncer);
        let queue = controller.queue();
        options.status_turns.on_turn(Box::new(move |key, urgency| {
            if urgency == StatusUrgency::FewerPods {
                queue.add_urgent(key);
            } else {
                queue.add(key);
            }
        }));
        Self(controller)
    }

    /// Runs syncs until `stop` is cancelled. See [`Controller::run`].
    ///
    /// # Panics
    ///
    /// If a sync panics.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future aborts running syncs. See [`sync`](Self::sync).
    pub async fn run(&self, stop: CancellationToken) {
        self.0.run(stop).await;
    }

    /// Syncs the ReplicaSet at `key` without the queue. The caller requeues the key.
    ///
    /// Upstream counterpart: `syncReplicaSet`.
    ///
    /// # Errors
    ///
    /// If the sync failed and must be retried.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, requests may take effect without a response. The expectations of these requests last
    /// until they expire.
    pub async fn sync(&self, key: &ObjectKey) -> Result<Requeue, SyncError> {
        self.0.reconciler().sync_replica_set(key).await
    }

    /// Returns the state of the ReplicaSet at `key` in the caches and the queue, and the plan of its next sync.
    ///
    /// Nothing is written. It takes as long as the planning of a sync.
    pub fn inspect(&self, key: &ObjectKey) -> Inspection {
        self.0.reconciler().inspect(key, self.0.key_state(key))
    }

    /// Returns the number of creations and deletions that the ReplicaSet at `key` still expects.
    pub fn expectations(&self, key: &ObjectKey) -> Option<(i64, i64)> {
        self.0.reconciler().executor.pods.own_writes.expectations.get(key)
    }
}

impl Reconciler for Syncer {
    type Error = SyncError;

    const IS_QUIET: bool = true;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, SyncError> {
        let cached_uid = || Some(Arc::clone(&self.replica_sets.get(key)?.metadata.uid));
        if let Some(pause) = self.executor.pods.own_writes.missing.pause(key, cached_uid) {
            trace!(replicaSet = %key, ?pause, "A write has not found the object, not syncing");
            return Ok(Requeue::After(pause));
        }
        self.sync_replica_set(key).await
    }

    fn classify(error: &SyncError) -> ErrorClass {
        match error {
            SyncError::NotReady(_) => ErrorClass::StaleCache,
            SyncError::Status(error) if error.is_not_found() || error.is_object_missing() => {
                ErrorClass::ObjectDeleted
            }
            SyncError::Status(error)
            | SyncError::Manage {
                source: ManageError::Create(CreateError::Api(error)) | ManageError::Delete(error),
                ..
            } if error.is_temporary() => ErrorClass::Temporary,
            SyncError::Claim(errors) if errors.are_temporary() => ErrorClass::Temporary,
            _ => ErrorClass::Failed,
        }
    }

    fn wake_after(error: &SyncError) -> Option<Duration> {
        match error {
            SyncError::Manage { next_availability, .. } => *next_availability,
            _ => None,
        }
    }

    fn span(&self, key: &ObjectKey) -> Span {
        error_span!("sync", replicaSet = %key, uid = Empty)
    }
}

#[cfg(test)]
mod tests;
