//! Dependencies of a manager, and the context that controllers are constructed in.

use std::{fmt, sync::Arc};

use kcm_client::{ApiClient, ClientFactory};
use kcm_clock::{Clock, Random};
use kcm_events::{EventBroadcaster, EventRecorder};
use kcm_replicaset_controller::{NoReplicaSetMetrics, ReplicaSetMetrics};
use kcm_runtime::{NoSyncMetrics, SyncMetrics};
use kcm_workqueue::MetricsProvider;
use parking_lot::Mutex;

use crate::{
    DebugControllers, ManagerConfig, Metrics, Placement, adapters::EventClient, debug::SYNC_LOG,
    readiness::InformerSync,
};

/// Returns the sync metrics of the controller with this name.
type SyncMetricsByName = dyn Fn(&str) -> Arc<dyn SyncMetrics> + Send + Sync;

/// Dependencies of a manager.
#[derive(Clone)]
pub struct Dependencies {
    /// Clients of the API server.
    pub clients: ClientFactory,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
    /// Source of randomness.
    pub random: Arc<dyn Random>,
    /// Metrics of controllers, work queues, informers and leader election. `None` disables them. Metrics of `clients` are
    /// set in their [options](kcm_client::ClientOptions::metrics).
    pub metrics: Option<Metrics>,
    /// Sync state of the caches, for readiness checks.
    pub informer_sync: InformerSync,
    /// Metrics of syncs by name of the controller. Replaces those of `metrics`.
    pub syncs: Option<Arc<SyncMetricsByName>>,
    /// Receives the running controllers, for `/debug/controllers/`. `None` disables it.
    pub debug: Option<DebugControllers>,
    /// Thread that leader election runs on.
    pub placement: Placement,
}

impl Dependencies {
    /// Required dependencies, without metrics. Leader election runs on the runtime of the caller.
    pub fn new(clients: &ClientFactory, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Self {
        let (clock, random) = (Arc::clone(clock), Arc::clone(random));
        Self {
            clients: clients.clone(),
            clock,
            random,
            metrics: None,
            informer_sync: InformerSync::default(),
            syncs: None,
            debug: None,
            placement: Placement::default(),
        }
    }
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies").field("clients", &self.clients).finish_non_exhaustive()
    }
}

/// Clients, recorders and metrics that controllers are constructed with.
///
/// Upstream counterpart: `ControllerContext`, without its informers. Those are in the
/// [`ManagerInformers`](crate::manager_informers::ManagerInformers).
pub(crate) struct Context {
    config: ManagerConfig,
    dependencies: Dependencies,
    broadcasters: Mutex<Vec<EventBroadcaster>>,
}

impl Context {
    pub(crate) fn new(config: ManagerConfig, dependencies: Dependencies) -> Self {
        Self { config, dependencies, broadcasters: Mutex::default() }
    }

    pub(crate) fn config(&self) -> &ManagerConfig {
        &self.config
    }

    pub(crate) fn clients(&self) -> ClientFactory {
        self.dependencies.clients.clone()
    }

    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.dependencies.clock)
    }

    pub(crate) fn random(&self) -> Arc<dyn Random> {
        Arc::clone(&self.dependencies.random)
    }

    /// Metrics of work queues.
    pub(crate) fn queue_metrics(&self) -> Option<Arc<dyn MetricsProvider>> {
        self.dependencies.metrics.as_ref().map(Metrics::queues)
    }

    /// Metrics of the syncs of `controller`.
    pub(crate) fn sync_metrics(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        let Dependencies { metrics, syncs, .. } = &self.dependencies;
        match (syncs, metrics) {
            (Some(syncs), _) => syncs(controller),
            (None, Some(metrics)) => metrics.syncs(controller),
            (None, None) => Arc::new(NoSyncMetrics),
        }
    }

    /// Controllers that can be inspected. `None` if that is disabled.
    pub(crate) fn debug(&self) -> Option<&DebugControllers> {
        self.dependencies.debug.as_ref()
    }

    /// Maximum number of recorded last syncs per controller, one per key.
    pub(crate) fn sync_log(&self) -> usize {
        if self.dependencies.debug.is_some() { SYNC_LOG } else { 0 }
    }

    /// Metrics of the ReplicaSet controller.
    pub(crate) fn replica_set_metrics(&self) -> Arc<dyn ReplicaSetMetrics> {
        let metrics = self.dependencies.metrics.as_ref();
        metrics.map_or_else(|| Arc::new(NoReplicaSetMetrics) as _, Metrics::replica_sets)
    }

    /// Client of the controller called `name`, with a separate rate limit.
    pub(crate) fn client(&self, name: &str) -> ApiClient {
        self.dependencies.clients.controller_client(name, self.config.rate_limit)
    }

    /// Event recorder that uses `client` and its rate limit.
    pub(crate) fn recorder(&self, client: &ApiClient, component: &str) -> Arc<dyn EventRecorder> {
        let sink = Arc::new(EventClient::new(client));
        let broadcaster = EventBroadcaster::start(sink, self.clock(), self.random());
        let recorder = broadcaster.recorder(component);
        self.broadcasters.lock().push(broadcaster);
        recorder
    }

    /// Broadcasters of all recorders. The caller shuts them down.
    pub(crate) fn into_broadcasters(self) -> Vec<EventBroadcaster> {
        self.broadcasters.into_inner()
    }
}
