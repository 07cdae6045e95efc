//! Informers that controllers share.

use std::sync::{Arc, OnceLock};

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::ApiClient;
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_informer::{Indexers, InformerConfig, ListWatch, SharedInformer};
use parking_lot::Mutex;

use crate::{
    CacheSize, Dependencies, ManagerConfig, Metrics, adapters::ReplicationControllerClient,
    informers::AnyInformer,
};

/// Name of the client that lists and watches (US-1.3).
const SHARED_INFORMERS: &str = "shared-informers";

/// Creates each informer when the first controller requests it, and returns the same informer to all controllers.
///
/// Upstream counterpart: `SharedInformerFactory`.
pub(crate) struct InformerFactory {
    config: ManagerConfig,
    dependencies: Dependencies,
    reader: ApiClient,
    pods: OnceLock<SharedInformer<Pod>>,
    replica_sets: OnceLock<SharedInformer<ReplicaSet>>,
    deployments: OnceLock<SharedInformer<Deployment>>,
    replication_controllers: OnceLock<SharedInformer<ReplicaSet>>,
    created: Mutex<Vec<AnyInformer>>,
}

impl InformerFactory {
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
            created: Mutex::default(),
        }
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

    /// Informer of ReplicationControllers, converted to ReplicaSets.
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
        let Dependencies { clock, random, metrics, .. } = &self.dependencies;
        let new = InformerConfig::new(name, source, Arc::clone(clock), Arc::clone(random));
        let informer = SharedInformer::new(InformerConfig {
            indexers,
            resync: Some(self.config.min_resync_period),
            streaming_lists: self.config.features.watch_list_client,
            metrics: metrics.as_ref().map_or(new.metrics, Metrics::informers),
            ..new
        });
        if let Some(metrics) = metrics {
            metrics.cache(name, informer.store());
        }
        self.dependencies.informer_sync.add(name, &informer);
        self.created.lock().push(AnyInformer::new(name, &informer));
        informer
    }

    /// Returns all informers that controllers have requested. The caller runs them.
    pub(crate) fn into_informers(self) -> Vec<AnyInformer> {
        self.dependencies.informer_sync.complete();
        self.created.into_inner()
    }
}
