//! From keys to syncs, and from their outcomes to retries.

use std::sync::Arc;

use kcm_api::{Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_clock::Clock;
use kcm_controller_util::{
    DeploymentControl, NoSyncMetrics, ReplicaSetControl, SyncMetrics, SyncResult, run_workers,
};
use kcm_events::EventRecorder;
use kcm_informer::SharedInformer;
use kcm_workqueue::{MetricsProvider, QueueConfig, RateLimitingQueue};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, debug, debug_span, error, field::Empty, info, trace};

use crate::{
    Outcome, Requeue, SyncError, execute::Executor, handlers::Handlers, own_writes::OwnWrites, syncer::Syncer,
};

/// Number of retries after which a sync that still fails is logged as an error.
///
/// With the default rate limiter the first 15 waits are 5 ms, 10 ms, 20 ms … 82 s.
const MAX_QUIET_RETRIES: u32 = 15;

/// What upstream calls the controller's queue, and its metrics.
const QUEUE: &str = "deployment";

/// What a [`DeploymentController`] is made of.
pub struct Config {
    /// What it takes the time from, and waits by.
    pub clock: Arc<dyn Clock>,
    /// All Deployments, with the indexes of [`kcm_controller_util::deployment_indexers`].
    pub deployments: SharedInformer<Deployment>,
    /// All ReplicaSets, with the indexes of [`kcm_controller_util::replica_set_indexers`].
    pub replica_sets: SharedInformer<ReplicaSet>,
    /// All pods, with the indexes of [`kcm_controller_util::pod_indexers`].
    pub pods: SharedInformer<Pod>,
    /// Reads Deployments past the cache, and writes them.
    pub deployment_control: Arc<dyn DeploymentControl>,
    /// Writes ReplicaSets.
    pub replica_set_control: Arc<dyn ReplicaSetControl>,
    /// Takes its events; to be made for [`COMPONENT`](Self::COMPONENT).
    pub recorder: Arc<dyn EventRecorder>,
    /// If `false`, `status.terminatingReplicas` of Deployments is not set, and cleared where it is (feature gate
    /// `DeploymentReplicaSetTerminatingReplicas`).
    pub terminating_replicas: bool,
    /// Who counts what its queue does; none for nobody.
    pub queue_metrics: Option<Arc<dyn MetricsProvider>>,
    /// Who counts its syncs.
    pub sync_metrics: Arc<dyn SyncMetrics>,
}

impl Config {
    /// What upstream's events name as their source.
    pub const COMPONENT: &str = "deployment-controller";

    /// A configuration with upstream's default feature gates and without metrics.
    pub fn new(
        clock: Arc<dyn Clock>,
        deployments: SharedInformer<Deployment>,
        replica_sets: SharedInformer<ReplicaSet>,
        pods: SharedInformer<Pod>,
        deployment_control: Arc<dyn DeploymentControl>,
        replica_set_control: Arc<dyn ReplicaSetControl>,
        recorder: Arc<dyn EventRecorder>,
    ) -> Self {
        Self {
            clock,
            deployments,
            replica_sets,
            pods,
            deployment_control,
            replica_set_control,
            recorder,
            terminating_replicas: true,
            queue_metrics: None,
            sync_metrics: Arc::new(NoSyncMetrics),
        }
    }
}

/// Rolls each Deployment's pods from one template to the next.
///
/// Upstream counterpart: `DeploymentController`.
pub struct DeploymentController {
    syncer: Arc<Syncer>,
    queue: RateLimitingQueue<ObjectKey>,
    metrics: Arc<dyn SyncMetrics>,
    deployments: SharedInformer<Deployment>,
    replica_sets: SharedInformer<ReplicaSet>,
    pods: SharedInformer<Pod>,
}

impl DeploymentController {
    /// A controller that takes note of events from now on, and acts on them once it is [`run`](Self::run).
    pub fn new(config: Config) -> Self {
        let Config { clock, deployments, replica_sets, pods, .. } = config;
        let mut queue = QueueConfig::new(QUEUE, Arc::clone(&clock));
        if let Some(metrics) = config.queue_metrics {
            queue.metrics = metrics;
        }
        let queue = RateLimitingQueue::new(queue);
        let handlers = Arc::new(Handlers {
            queue: queue.clone(),
            deployments: deployments.store(),
            replica_sets: replica_sets.store(),
            pods: pods.store(),
        });
        deployments.add_handler(Arc::clone(&handlers) as _);
        replica_sets.add_handler(Arc::clone(&handlers) as _);
        pods.add_handler(handlers);
        let syncer = Arc::new(Syncer {
            clock,
            deployments: deployments.store(),
            replica_sets: replica_sets.store(),
            pods: pods.store(),
            executor: Executor {
                deployment_control: config.deployment_control,
                replica_set_control: config.replica_set_control,
                recorder: config.recorder,
                replica_sets: replica_sets.store(),
                own_writes: OwnWrites::default(),
            },
            terminating_replicas: config.terminating_replicas,
        });
        Self { syncer, queue, metrics: config.sync_metrics, deployments, replica_sets, pods }
    }

    /// Syncs with up to `workers` at a time until `stop` is cancelled, and the last of them is through.
    ///
    /// Begins once all three caches hold a complete state; the informers must be run by somebody.
    ///
    /// # Panics
    ///
    /// When a sync panics.
    pub async fn run(&self, workers: usize, stop: CancellationToken) {
        info!(controller = QUEUE, "Starting controller");
        let synced = self.deployments.wait_for_sync(&stop).await
            && self.replica_sets.wait_for_sync(&stop).await
            && self.pods.wait_for_sync(&stop).await;
        if synced {
            let (syncer, queue, metrics) =
                (Arc::clone(&self.syncer), self.queue.clone(), Arc::clone(&self.metrics));
            let process = move |key| process(Arc::clone(&syncer), queue.clone(), Arc::clone(&metrics), key);
            run_workers(&self.queue, workers, process, stop).await;
        }
        self.queue.shut_down();
        info!(controller = QUEUE, "Shutting down controller");
    }

    /// One pass over the Deployment at `key`, past the queue; `None` if there is none. What it asks for, a retry or
    /// a later look, is for the caller to do.
    ///
    /// Upstream counterpart: `syncDeployment`.
    ///
    /// # Errors
    ///
    /// When it is to be tried again; what was done by then is done.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future may leave one write under way of which nobody learns the outcome. The next sync starts
    /// from what the cache then says.
    pub async fn sync(&self, key: &ObjectKey) -> Result<Option<Outcome>, SyncError> {
        self.syncer.sync(key).await
    }
}

async fn process(
    syncer: Arc<Syncer>,
    queue: RateLimitingQueue<ObjectKey>,
    metrics: Arc<dyn SyncMetrics>,
    key: ObjectKey,
) {
    let started = syncer.clock.monotonic();
    trace!(controller = QUEUE, %key, "Started syncing deployment");
    metrics.started();
    // So that each line of a sync says whose it is; where none is written, at less than `-v=2`, it costs nothing.
    let span = debug_span!("sync", controller = QUEUE, %key, uid = Empty);
    let outcome = syncer.sync(&key).instrument(span).await;
    let took = syncer.clock.monotonic().saturating_sub(started);
    trace!(controller = QUEUE, %key, duration = ?took, "Finished syncing deployment");
    metrics.ended(took, handle_outcome(&queue, key, outcome));
}

/// Requeues the key (US-4.3).
///
/// DEVIATION: a sync that fails is retried until it succeeds, at the rate limiter's longest delay in the end. Upstream
/// drops the key after 15 retries, less than three minutes; an admission webhook that fails for longer leaves the
/// rollout standing until the next resync.
///
/// Upstream counterpart: `handleErr`, and the enqueuing that upstream does in the middle of a sync.
fn handle_outcome(
    queue: &RateLimitingQueue<ObjectKey>,
    key: ObjectKey,
    outcome: Result<Option<Outcome>, SyncError>,
) -> SyncResult {
    let error = match outcome {
        Ok(None) => {
            queue.forget(&key);
            return SyncResult::Success;
        }
        Ok(Some(Outcome { ignored_error: Some(error), .. })) => error,
        Ok(Some(outcome)) => {
            let requeue = outcome.requeue();
            trace!(controller = QUEUE, %key, waits_for = %outcome.waits_for, ?requeue, "Synced");
            match requeue {
                Requeue::Never => queue.forget(&key),
                Requeue::After(delay) => {
                    queue.forget(&key);
                    queue.add_after(key, delay);
                }
                // Forgotten at once, so that this back-off never grows (US-4.12).
                Requeue::RateLimited => {
                    queue.add_rate_limited(key.clone());
                    queue.forget(&key);
                }
            }
            return SyncResult::Success;
        }
        Err(error) => error,
    };
    if error.is_namespace_terminating() {
        queue.forget(&key);
        return SyncResult::Dropped;
    }
    let retries = queue.num_requeues(&key);
    if retries < MAX_QUIET_RETRIES {
        debug!(controller = QUEUE, %key, err = %error, "Error syncing deployment");
    } else {
        error!(controller = QUEUE, %key, retries, err = %error, "Error syncing deployment");
    }
    queue.add_rate_limited(key);
    SyncResult::Error
}

#[cfg(test)]
mod tests;
