//! What controllers share.

use std::{fmt, sync::Arc};

use kcm_client::{ApiClient, ClientFactory};
use kcm_clock::{Clock, Random};
use kcm_controller_util::{NoSyncMetrics, SyncMetrics};
use kcm_events::{EventBroadcaster, EventRecorder};
use kcm_metrics::Metrics;
use kcm_replicaset_controller::{NoReplicaSetMetrics, ReplicaSetMetrics};
use kcm_workqueue::MetricsProvider;
use parking_lot::Mutex;

use crate::{ManagerConfig, adapters::EventClient, readiness::InformerSync};

/// What controllers run on.
#[derive(Clone)]
pub struct Dependencies {
    /// The way to the API server.
    pub clients: ClientFactory,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where chance comes from.
    pub random: Arc<dyn Random>,
    /// Who counts what controllers, their queues and informers do. What clients do, they were told at
    /// [birth](kcm_client::ClientOptions::metrics).
    pub metrics: Option<Metrics>,
    /// Reports whether the caches have synced.
    pub informer_sync: InformerSync,
    /// Who is told of syncs instead of `metrics`: made for a controller by its name.
    pub syncs: Option<SyncMetricsFactory>,
}

/// Makes one who is told of the syncs of the controller of this name.
pub type SyncMetricsFactory = Arc<dyn Fn(&str) -> Arc<dyn SyncMetrics> + Send + Sync>;

impl Dependencies {
    /// What every manager needs, and no more.
    pub fn new(clients: &ClientFactory, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Self {
        let (clock, random) = (Arc::clone(clock), Arc::clone(random));
        Self {
            clients: clients.clone(),
            clock,
            random,
            metrics: None,
            informer_sync: InformerSync::default(),
            syncs: None,
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
/// [`InformerFactory`](crate::informer_factory::InformerFactory).
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

    /// Who counts what queues do.
    pub(crate) fn queue_metrics(&self) -> Option<Arc<dyn MetricsProvider>> {
        self.dependencies.metrics.as_ref().map(Metrics::queues)
    }

    /// Who counts the syncs of `controller`.
    pub(crate) fn sync_metrics(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        let Dependencies { metrics, syncs, .. } = &self.dependencies;
        match (syncs, metrics) {
            (Some(syncs), _) => syncs(controller),
            (None, Some(metrics)) => metrics.syncs(controller),
            (None, None) => Arc::new(NoSyncMetrics),
        }
    }

    /// Who counts what else the ReplicaSet controller does.
    pub(crate) fn replica_set_metrics(&self) -> Arc<dyn ReplicaSetMetrics> {
        let metrics = self.dependencies.metrics.as_ref();
        metrics.map_or_else(|| Arc::new(NoReplicaSetMetrics) as _, Metrics::replica_sets)
    }

    /// A client for the controller called `name`, with a rate limit of its own.
    pub(crate) fn client(&self, name: &str) -> ApiClient {
        self.dependencies.clients.controller_client(name, self.config.rate_limit)
    }

    /// A recorder that writes through `client`, sharing its rate limit.
    pub(crate) fn recorder(&self, client: &ApiClient, component: &str) -> Arc<dyn EventRecorder> {
        let sink = Arc::new(EventClient::new(client.clone()));
        let broadcaster = EventBroadcaster::start(sink, self.clock(), self.random());
        let recorder = broadcaster.recorder(component);
        self.broadcasters.lock().push(broadcaster);
        recorder
    }

    /// Those that have come into being, to be shut down in the end.
    pub(crate) fn into_broadcasters(self) -> Vec<EventBroadcaster> {
        self.broadcasters.into_inner()
    }
}
