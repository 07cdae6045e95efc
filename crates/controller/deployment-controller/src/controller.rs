//! Configuration of the controller, and its place in the control loop.

use std::{fmt, sync::Arc};

use kcm_api::{Deployment, ObjectKey, Pod, ReplicaSet};
use kcm_clock::Clock;
use kcm_controller_util::{DeploymentControl, NoStatusTurns, ReplicaSetControl, StatusTurns};
use kcm_events::EventRecorder;
use kcm_expectations::OwnWrites;
use kcm_informer::SharedInformer;
use kcm_runtime::{Controller, ErrorClass, NoSyncMetrics, Reconciler, Requeue, SyncMetrics};
use kcm_workqueue::{MetricsProvider, NoQueueMetrics};
use tokio_util::sync::CancellationToken;
use tracing::{Span, error_span, field::Empty, trace};

use crate::{
    Inspection, error::SyncError, execute::Executor, handlers, handlers::Recreates, plan::SyncOutcome,
    sync::Syncer,
};

/// Name of the controller in logs, and of its queue in metrics.
const NAME: &str = "deployment";

/// Maximum number of syncs at a time.
///
/// Upstream counterpart: the default of `--concurrent-deployment-syncs`.
const DEFAULT_WORKERS: usize = 5;

/// Configuration of a [`DeploymentController`].
pub struct DeploymentControllerConfig {
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// All Deployments, with the indexes of [`kcm_controller_util::deployment_indexers`].
    pub deployments: SharedInformer<Deployment>,
    /// All ReplicaSets, with the indexes of [`kcm_controller_util::replica_set_indexers`].
    pub replica_sets: SharedInformer<ReplicaSet>,
    /// All pods, with the indexes of [`kcm_controller_util::pod_indexers`].
    pub pods: SharedInformer<Pod>,
    /// Uncached reads and writes of Deployments.
    pub deployment_control: Arc<dyn DeploymentControl>,
    /// Uncached reads and writes of ReplicaSets.
    pub replica_set_control: Arc<dyn ReplicaSetControl>,
    /// Recorder of events, made for [`COMPONENT`](Self::COMPONENT).
    pub recorder: Arc<dyn EventRecorder>,
    /// Settings with defaults.
    pub options: DeploymentControllerOptions,
}

/// Settings of a [`DeploymentController`]. By default, upstream's default feature gates and workers, without metrics.
pub struct DeploymentControllerOptions {
    /// If `false`, `status.terminatingReplicas` of Deployments is removed (feature gate
    /// `DeploymentReplicaSetTerminatingReplicas`).
    pub terminating_replicas: bool,
    /// If `true`, as by default, updates of a Deployment's status in one sync are combined. If `false`, each is written,
    /// as upstream.
    pub coalesce_status_writes: bool,
    /// Turns of status writes at the rate limit.
    pub status_turns: Arc<dyn StatusTurns>,
    /// Maximum number of syncs at a time.
    pub workers: usize,
    /// Work queue metrics. `None` disables them.
    pub queue_metrics: Option<Arc<dyn MetricsProvider>>,
    /// Sync metrics.
    pub sync_metrics: Arc<dyn SyncMetrics>,
    /// Maximum number of last syncs, one per key, that are kept for [`DeploymentController::inspect`]. 0 disables them.
    pub sync_log: usize,
}

impl DeploymentControllerConfig {
    /// Source of the controller's events.
    pub const COMPONENT: &str = "deployment-controller";
}

impl Default for DeploymentControllerOptions {
    fn default() -> Self {
        Self {
            terminating_replicas: true,
            coalesce_status_writes: true,
            status_turns: Arc::new(NoStatusTurns),
            workers: DEFAULT_WORKERS,
            queue_metrics: None,
            sync_metrics: Arc::new(NoSyncMetrics),
            sync_log: 0,
        }
    }
}

impl fmt::Debug for DeploymentControllerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeploymentControllerConfig").field("options", &self.options).finish_non_exhaustive()
    }
}

impl fmt::Debug for DeploymentControllerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeploymentControllerOptions")
            .field("terminating_replicas", &self.terminating_replicas)
            .field("coalesce_status_writes", &self.coalesce_status_writes)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}

/// Replaces the pods of each Deployment when its template changes, and scales its ReplicaSets.
///
/// Upstream counterpart: `DeploymentController`.
#[derive(Debug)]
pub struct DeploymentController(Controller<Syncer>);

impl DeploymentController {
    /// Registers the event handlers. Syncs start with [`run`](Self::run).
    pub fn new(config: DeploymentControllerConfig) -> Self {
        let DeploymentControllerConfig { clock, deployments, replica_sets, pods, options, .. } = config;
        let own_writes = Arc::new(OwnWrites::new(Arc::clone(&clock), []));
        let syncer = Syncer {
            clock: Arc::clone(&clock),
            deployments: deployments.store(),
            replica_sets: replica_sets.store(),
            pods: pods.store(),
            executor: Executor {
                deployment_control: config.deployment_control,
                replica_set_control: config.replica_set_control,
                recorder: config.recorder,
                replica_sets: replica_sets.store(),
                own_writes: Arc::clone(&own_writes),
                status_turns: Arc::clone(&options.status_turns),
            },
            terminating_replicas: options.terminating_replicas,
            coalesce_status_writes: options.coalesce_status_writes,
        };
        let recreates = Recreates {
            deployments: deployments.store(),
            replica_sets: replica_sets.store(),
            pods: pods.store(),
        };
        let controller = Controller::builder(NAME, clock)
            .queue_metrics(options.queue_metrics.unwrap_or_else(|| Arc::new(NoQueueMetrics)))
            .sync_metrics(options.sync_metrics)
            .sync_log(options.sync_log)
            .workers(options.workers)
            .own_writes(own_writes)
            .reconciles(&deployments)
            .owns(handlers::replica_sets(&replica_sets, deployments.store()))
            .watches(handlers::pods(&pods), move |pod| recreates.continued_by(pod))
            .build(syncer);
        let queue = controller.queue();
        options.status_turns.on_turn(Box::new(move |key, _| queue.add(key)));
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

    /// Syncs the Deployment at `key` without the queue. The caller requeues the key. Returns `None` if the cache does not
    /// contain the Deployment.
    ///
    /// Upstream counterpart: `syncDeployment`.
    ///
    /// # Errors
    ///
    /// If the sync failed and must be retried. Completed writes are kept.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, one write may take effect without a response. The next sync starts from the caches.
    pub async fn sync(&self, key: &ObjectKey) -> Result<Option<SyncOutcome>, SyncError> {
        self.0.reconciler().sync_deployment(key).await
    }

    /// Returns the state of the Deployment at `key` in the caches and the queue, and the plan of its next sync.
    ///
    /// Nothing is written. It takes as long as the planning of a sync.
    pub fn inspect(&self, key: &ObjectKey) -> Inspection {
        self.0.reconciler().inspect(key, self.0.key_state(key))
    }
}

impl Reconciler for Syncer {
    type Error = SyncError;

    const IS_QUIET: bool = true;
    const STARTED: Option<&'static str> = Some("Started syncing deployment");
    const FINISHED: &'static str = "Finished syncing deployment";
    const FAILED: &'static str = "Error syncing deployment";
    /// Upstream counterpart: `maxRetries`. The delays before these retries are 5 ms, 10 ms, 20 ms … 82 s (US-4.3).
    const QUIET_RETRIES: u32 = 15;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, SyncError> {
        let cached_uid = || Some(Arc::clone(&self.deployments.get(key)?.metadata.uid));
        if let Some(pause) = self.executor.own_writes.missing.pause(key, cached_uid) {
            trace!(deployment = %key, ?pause, "A write has not found the object, not syncing");
            return Ok(Requeue::After(pause));
        }
        self.sync_deployment(key).await?.map_or(Ok(Requeue::Done), requeue)
    }

    fn classify(error: &SyncError) -> ErrorClass {
        match error {
            SyncError::Claim(errors) if errors.are_temporary() => ErrorClass::Temporary,
            // It is not in the cache, so the cache is late.
            SyncError::ExistingReplicaSetNotRead { .. } => ErrorClass::Temporary,
            _ => match error.api_error() {
                Some(error) if error.is_namespace_terminating() => ErrorClass::Terminal,
                Some(error) if error.is_temporary() => ErrorClass::Temporary,
                _ => ErrorClass::Failed,
            },
        }
    }

    fn span(&self, key: &ObjectKey) -> Span {
        error_span!("sync", deployment = %key, uid = Empty)
    }
}

/// Returns the time of the next sync. A sync that ignored a write error is retried.
fn requeue(outcome: SyncOutcome) -> Result<Requeue, SyncError> {
    let requeue = outcome.requeue();
    if let Some(error) = outcome.ignored_error {
        return Err(error);
    }
    trace!(blockedOn = %outcome.blocked_on, ?requeue, "Synced");
    Ok(requeue)
}

#[cfg(test)]
mod tests;
