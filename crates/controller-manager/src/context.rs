//! What controllers share.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::{ApiClient, ClientFactory};
use kcm_clock::{Clock, Random};
use kcm_controller_util::{
    NoSyncMetrics, SyncMetrics, deployment_indexers, pod_indexers, replica_set_indexers,
};
use kcm_events::{EventBroadcaster, EventRecorder};
use kcm_informer::{Indexers, InformerConfig, ListWatch, SharedInformer};
use kcm_metrics::{CacheSize, Metrics};
use kcm_replicaset_controller::{NoReplicaSetMetrics, ReplicaSetMetrics};
use kcm_workqueue::MetricsProvider;
use parking_lot::Mutex;

use crate::{
    ManagerConfig,
    adapters::{EventClient, ReplicationControllerClient},
    informers::AnyInformer,
    readiness::InformerSync,
};

/// The name of the client that lists and watches (US-1.3).
const SHARED_INFORMERS: &str = "shared-informers";

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

/// What controllers are put together from. Informers come into being when the first of them asks, and then
/// serve all.
///
/// Upstream counterpart: `ControllerContext`.
pub(crate) struct Context {
    config: ManagerConfig,
    dependencies: Dependencies,
    reader: ApiClient,
    pods: OnceLock<SharedInformer<Pod>>,
    replica_sets: OnceLock<SharedInformer<ReplicaSet>>,
    deployments: OnceLock<SharedInformer<Deployment>>,
    replication_controllers: OnceLock<SharedInformer<ReplicaSet>>,
    /// Those that nobody runs yet.
    idle: Mutex<Vec<AnyInformer>>,
    broadcasters: Mutex<Vec<EventBroadcaster>>,
}

impl Context {
    pub(crate) fn new(config: ManagerConfig, dependencies: Dependencies) -> Self {
        let reader = dependencies.clients.client(SHARED_INFORMERS, config.rate_limit);
        Self {
            config,
            dependencies,
            reader,
            pods: OnceLock::new(),
            replica_sets: OnceLock::new(),
            deployments: OnceLock::new(),
            replication_controllers: OnceLock::new(),
            idle: Mutex::default(),
            broadcasters: Mutex::default(),
        }
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

    pub(crate) fn pods(&self) -> SharedInformer<Pod> {
        let new = || self.informer("pods", pod_indexers(), self.reader.pods());
        self.pods.get_or_init(new).clone()
    }

    pub(crate) fn replica_sets(&self) -> SharedInformer<ReplicaSet> {
        let new = || self.informer("replicasets", replica_set_indexers(), self.reader.replica_sets());
        self.replica_sets.get_or_init(new).clone()
    }

    pub(crate) fn deployments(&self) -> SharedInformer<Deployment> {
        let new = || {
            let informer = self.informer("deployments", deployment_indexers(), self.reader.deployments());
            if let Some(metrics) = &self.dependencies.metrics {
                informer.add_handler(metrics.rollouts());
            }
            informer
        };
        self.deployments.get_or_init(new).clone()
    }

    /// ReplicationControllers, as the ReplicaSets that they almost are.
    pub(crate) fn replication_controllers(&self) -> SharedInformer<ReplicaSet> {
        let new = || {
            let source = ReplicationControllerClient::new(self.reader.clone()).list_watch();
            self.informer("replicationcontrollers", replica_set_indexers(), source)
        };
        self.replication_controllers.get_or_init(new).clone()
    }

    fn informer<K: CacheSize>(
        &self,
        name: &'static str,
        indexers: Indexers<K>,
        source: Arc<dyn ListWatch<K>>,
    ) -> SharedInformer<K> {
        let new = InformerConfig::new(name, source, self.clock(), self.random());
        let metrics = self.dependencies.metrics.as_ref().map_or(new.metrics, Metrics::informers);
        let resync = Some(self.config.min_resync_period);
        let informer = SharedInformer::new(InformerConfig {
            indexers,
            resync,
            streaming_lists: self.config.features.watch_list_client,
            metrics,
            ..new
        });
        if let Some(metrics) = &self.dependencies.metrics {
            metrics.cache(name, informer.store());
        }
        self.dependencies.informer_sync.add(name, &informer);
        self.idle.lock().push(AnyInformer::new(name, &informer));
        informer
    }

    /// Reports whether the caches have synced.
    pub(crate) fn informer_sync(&self) -> &InformerSync {
        &self.dependencies.informer_sync
    }

    /// Those that have come into being since this was asked last, to be run.
    pub(crate) fn take_idle_informers(&self) -> Vec<AnyInformer> {
        std::mem::take(&mut *self.idle.lock())
    }

    /// Those that have come into being, to be shut down in the end.
    pub(crate) fn into_broadcasters(self) -> Vec<EventBroadcaster> {
        self.broadcasters.into_inner()
    }
}
