use std::sync::Arc;

use kcm_api::{ObjectKey, Pod, ReplicaSet};
use kcm_clock::{Clock, Random};
use kcm_controller_util::{
    ConsistencyStore, GroupResource, NoSyncMetrics, PodControl, ReplicaSetControl, SyncMetrics, SyncResult,
    consistency::ReadVersion, run_workers,
};
use kcm_events::EventRecorder;
use kcm_expectations::UidTrackingExpectations;
use kcm_informer::{Object, SharedInformer, Store};
use kcm_workqueue::{MetricsProvider, QueueConfig, RateLimitingQueue};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, debug_span, error, field::Empty, info, trace};

use crate::{
    Descriptor, NoReplicaSetMetrics, REPLICA_SET, ReplicaSetMetrics, SyncError, Synced, handlers::Handlers,
    pending_creates::PendingCreates, sync::Syncer,
};

/// The most pods that one sync creates or deletes.
///
/// Upstream counterpart: `BurstReplicas`.
pub const DEFAULT_BURST_REPLICAS: usize = 500;

/// What a [`ReplicaSetController`] is made of.
pub struct Config {
    /// Which kind it is for.
    pub descriptor: Descriptor,
    /// What it takes the time from, and waits by.
    pub clock: Arc<dyn Clock>,
    /// Source of the random suffixes of pod names.
    pub random: Arc<dyn Random>,
    /// All pods, with the indexes of [`kcm_controller_util::pod_indexers`].
    pub pods: SharedInformer<Pod>,
    /// All ReplicaSets, with the indexes of [`kcm_controller_util::replica_set_indexers`].
    pub replica_sets: SharedInformer<ReplicaSet>,
    /// Writes pods.
    pub pod_control: Arc<dyn PodControl>,
    /// Reads ReplicaSets past the cache, and writes their status.
    pub replica_set_control: Arc<dyn ReplicaSetControl>,
    /// Takes its events; to be made for [`Descriptor::component`].
    pub recorder: Arc<dyn EventRecorder>,
    /// The most pods to create or delete in one sync.
    pub burst_replicas: usize,
    /// Who counts what it does.
    pub metrics: Arc<dyn ReplicaSetMetrics>,
    /// Who counts what its queue does; none for nobody.
    pub queue_metrics: Option<Arc<dyn MetricsProvider>>,
    /// Who counts its syncs.
    pub sync_metrics: Arc<dyn SyncMetrics>,
}

impl Config {
    /// A configuration for ReplicaSets with upstream's burst and no metrics; change the fields for others.
    pub fn new(
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        pods: SharedInformer<Pod>,
        replica_sets: SharedInformer<ReplicaSet>,
        pod_control: Arc<dyn PodControl>,
        replica_set_control: Arc<dyn ReplicaSetControl>,
        recorder: Arc<dyn EventRecorder>,
    ) -> Self {
        Self {
            descriptor: REPLICA_SET,
            clock,
            random,
            pods,
            replica_sets,
            pod_control,
            replica_set_control,
            recorder,
            burst_replicas: DEFAULT_BURST_REPLICAS,
            metrics: Arc::new(NoReplicaSetMetrics),
            queue_metrics: None,
            sync_metrics: Arc::new(NoSyncMetrics),
        }
    }
}

/// Keeps as many pods around as each ReplicaSet wants.
///
/// Upstream counterpart: `ReplicaSetController`.
pub struct ReplicaSetController {
    syncer: Arc<Syncer>,
    queue: RateLimitingQueue<ObjectKey>,
    sync_metrics: Arc<dyn SyncMetrics>,
    pods: SharedInformer<Pod>,
    replica_sets: SharedInformer<ReplicaSet>,
}

impl ReplicaSetController {
    /// A controller that takes note of events from now on, and acts on them once it is [`run`](Self::run).
    pub fn new(config: Config) -> Self {
        let Config { descriptor, clock, random, pods, replica_sets, .. } = config;
        // Pods for either kind: expectations are lowered once too often when a pending name turns out to exist.
        let mut caches = vec![(GroupResource::PODS, read_version(pods.store()))];
        if descriptor.reads_own_writes {
            caches.push((GroupResource::REPLICA_SETS, read_version(replica_sets.store())));
        }
        let consistency = ConsistencyStore::new(caches);
        let mut queue = QueueConfig::new(descriptor.queue, Arc::clone(&clock));
        if let Some(metrics) = config.queue_metrics {
            queue.metrics = metrics;
        }
        let queue = RateLimitingQueue::new(queue);
        let syncer = Arc::new(Syncer {
            descriptor,
            expectations: UidTrackingExpectations::new(Arc::clone(&clock)),
            clock,
            random,
            pods: pods.store(),
            replica_sets: replica_sets.store(),
            pod_control: config.pod_control,
            replica_set_control: config.replica_set_control,
            recorder: config.recorder,
            metrics: config.metrics,
            consistency,
            pending_creates: PendingCreates::default(),
            burst_replicas: config.burst_replicas,
        });
        let handlers = Arc::new(Handlers { syncer: Arc::clone(&syncer), queue: queue.clone() });
        replica_sets.add_handler(Arc::clone(&handlers) as _);
        pods.add_handler(handlers);
        Self { syncer, queue, sync_metrics: config.sync_metrics, pods, replica_sets }
    }

    /// Syncs with up to `workers` at a time until `stop` is cancelled, and the last of them is through.
    ///
    /// Begins once both caches hold a complete state; the informers must be run by somebody.
    ///
    /// # Panics
    ///
    /// When a sync panics.
    pub async fn run(&self, workers: usize, stop: CancellationToken) {
        let name = self.syncer.descriptor.name;
        info!(controller = name, "Starting controller");
        if self.pods.wait_for_sync(&stop).await && self.replica_sets.wait_for_sync(&stop).await {
            let (syncer, queue, metrics) =
                (Arc::clone(&self.syncer), self.queue.clone(), Arc::clone(&self.sync_metrics));
            let process = move |key| process(Arc::clone(&syncer), queue.clone(), Arc::clone(&metrics), key);
            run_workers(&self.queue, workers, process, stop).await;
        }
        self.queue.shut_down();
        info!(controller = name, "Shutting down controller");
    }

    /// One pass over the ReplicaSet at `key`, past the queue. What it asks for is for the caller to do.
    ///
    /// # Errors
    ///
    /// When it is to be tried again; what is to be done by then is told in [`SyncError`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave requests under way of which nobody learns the outcome, and expectations of
    /// them that last until they time out.
    pub async fn sync(&self, key: &ObjectKey) -> Result<Synced, SyncError> {
        self.syncer.sync(key).await
    }

    /// How many creations and deletions are still to be seen for the ReplicaSet at `key`, if any ever were.
    pub fn expectations(&self, key: &ObjectKey) -> Option<(i64, i64)> {
        self.syncer.expectations.get(key)
    }
}

async fn process(
    syncer: Arc<Syncer>,
    queue: RateLimitingQueue<ObjectKey>,
    metrics: Arc<dyn SyncMetrics>,
    key: ObjectKey,
) {
    let started = syncer.clock.monotonic();
    metrics.started();
    let controller = syncer.descriptor.name;
    // So that each line of a sync says whose it is; where none is written, at less than `-v=2`, it costs nothing.
    let span = debug_span!("sync", controller, %key, uid = Empty);
    let outcome = syncer.sync(&key).instrument(span).await;
    let took = syncer.clock.monotonic().saturating_sub(started);
    trace!(controller, %key, duration = ?took, "Finished syncing");
    metrics.ended(took, handle_outcome(controller, &queue, key, outcome));
}

fn handle_outcome(
    controller: &'static str,
    queue: &RateLimitingQueue<ObjectKey>,
    key: ObjectKey,
    outcome: Result<Synced, SyncError>,
) -> SyncResult {
    match outcome {
        Ok(Synced { requeue_after }) => {
            queue.forget(&key);
            if let Some(delay) = requeue_after {
                queue.add_after(key, delay);
            }
            SyncResult::Success
        }
        // Again and again, ever more slowly, without an end (US-5.3).
        Err(error) => {
            // DEVIATION: upstream logs a cache that is behind as an error. It is none: it happens whenever an
            // event overtakes the one that tells of our own write.
            match &error {
                SyncError::NotReady(behind) => debug!(controller, %key, err = %behind, "Sync put off"),
                // DEVIATION: an error in upstream's log too. It has just been deleted, and the watch will tell.
                SyncError::Status(gone) if gone.is_not_found() => {
                    debug!(controller, %key, err = %gone, "Sync came too late");
                }
                error => error!(controller, %key, err = %error, "Sync failed"),
            }
            let result =
                if matches!(error, SyncError::NotReady(_)) { SyncResult::Stale } else { SyncResult::Error };
            queue.add_rate_limited(key);
            result
        }
    }
}

fn read_version<K: Object>(store: Store<K>) -> ReadVersion {
    Arc::new(move || store.last_sync_resource_version())
}

#[cfg(test)]
mod tests;
