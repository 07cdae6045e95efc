//! Informers that controllers share.

use std::sync::Arc;

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::{ApiClient, Decode, Kind, ListParams};
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_informer::{
    AnyInformer, Deleted, EventHandler, Indexers, InformerConfig, InformerOptions, ListWatch, SharedInformer,
    SharedInformerFactory,
};
use tokio::sync::watch;

use crate::{CacheSize, Dependencies, ManagerConfig, Metrics, adapters::ReplicationControllerClient};

/// Name of the client that lists and watches (US-1.3).
const SHARED_INFORMERS: &str = "shared-informers";

/// Creates each informer when the first controller requests it, and returns the same informer to all controllers.
///
/// Upstream counterpart: `ControllerContext.InformerFactory`.
pub(crate) struct ManagerInformers {
    config: ManagerConfig,
    dependencies: Dependencies,
    reader: ApiClient,
    shared: SharedInformerFactory,
    restored: Arc<watch::Sender<bool>>,
}

/// Sends `true` when a list is older than the one before it.
struct RestoreHandler(Arc<watch::Sender<bool>>);

impl<K> EventHandler<K> for RestoreHandler {
    fn on_add(&self, _: &Arc<K>, _: bool) {}

    fn on_update(&self, _: &Arc<K>, _: &Arc<K>) {}

    fn on_delete(&self, _: &Deleted<K>) {}

    fn on_restore(&self) {
        self.0.send_replace(true);
    }
}

impl ManagerInformers {
    pub(crate) fn new(config: ManagerConfig, dependencies: Dependencies) -> Self {
        let reader = dependencies.clients.client(SHARED_INFORMERS, config.rate_limit);
        Self { config, dependencies, reader, shared: SharedInformerFactory::new(), restored: Arc::default() }
    }

    /// Returns a signal that is `true` after an informer has listed objects of an older storage than before.
    pub(crate) fn restored(&self) -> Arc<watch::Sender<bool>> {
        Arc::clone(&self.restored)
    }

    pub(crate) fn pods(&self) -> SharedInformer<Pod> {
        self.informer("pods", pod_indexers(), self.source())
    }

    pub(crate) fn replica_sets(&self) -> SharedInformer<ReplicaSet> {
        self.informer("replicasets", replica_set_indexers(), self.source())
    }

    pub(crate) fn deployments(&self) -> SharedInformer<Deployment> {
        self.shared.informer(&InformerOptions::new("deployments"), || {
            let informer = self.new_informer("deployments", deployment_indexers(), self.source());
            if let Some(metrics) = &self.dependencies.metrics {
                informer.add_handler(metrics.rollouts());
            }
            informer
        })
    }

    /// Sets the caches in which the causes of stuck rollouts are found.
    pub(crate) fn explain_rollouts(
        &self,
        deployments: &SharedInformer<Deployment>,
        replica_sets: &SharedInformer<ReplicaSet>,
        pods: &SharedInformer<Pod>,
    ) {
        if let Some(metrics) = &self.dependencies.metrics {
            metrics.rollout_caches(deployments.store(), replica_sets.store(), pods.store());
        }
    }

    /// Informer of ReplicationControllers, converted to ReplicaSets.
    pub(crate) fn replication_controllers(&self) -> SharedInformer<ReplicaSet> {
        let source = ReplicationControllerClient::new(&self.reader).list_watch();
        self.informer("replicationcontrollers", replica_set_indexers(), source)
    }

    /// Source of all objects of a type.
    fn source<K: Kind<Decoder: Decode<K>>>(&self) -> Arc<dyn ListWatch<K>> {
        self.reader.api::<K>().list_watch(ListParams::default())
    }

    fn informer<K: CacheSize>(
        &self,
        name: &'static str,
        indexers: Indexers<K>,
        source: Arc<dyn ListWatch<K>>,
    ) -> SharedInformer<K> {
        let new = || self.new_informer(name, indexers, source);
        self.shared.informer(&InformerOptions::new(name), new)
    }

    fn new_informer<K: CacheSize>(
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
        informer.add_handler(Arc::new(RestoreHandler(self.restored())));
        if let Some(metrics) = metrics {
            metrics.cache(name, informer.store());
        }
        informer
    }

    /// Returns all informers that controllers have requested. The caller runs them.
    pub(crate) fn into_informers(self) -> Vec<Arc<dyn AnyInformer>> {
        let informers = self.shared.informers();
        self.dependencies.informer_sync.set(&informers);
        informers
    }
}
