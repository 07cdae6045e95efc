//! Informers that controllers share, and what their constructors need beside them.

use std::sync::Arc;

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_client::{Decode, Kind, ListParams};
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_informer::{Indexers, InformerOptions, ListWatch, SharedInformer};
use kcm_manager::Manager;

use crate::{CacheSize, DebugControllers, ManagerConfig, Metrics, adapters::ReplicationControllerClient};

/// Creates each informer when the first controller requests it, and returns the same informer to all controllers.
///
/// Upstream counterpart: `ControllerContext.InformerFactory`.
pub(crate) struct ManagerInformers<'a> {
    pub(crate) config: &'a ManagerConfig,
    pub(crate) metrics: Option<&'a Metrics>,
    pub(crate) debug: Option<&'a DebugControllers>,
    pub(crate) manager: &'a Manager,
}

impl ManagerInformers<'_> {
    pub(crate) fn pods(&self) -> SharedInformer<Pod> {
        self.informer("pods", pod_indexers(), || self.source())
    }

    pub(crate) fn replica_sets(&self) -> SharedInformer<ReplicaSet> {
        self.informer("replicasets", replica_set_indexers(), || self.source())
    }

    pub(crate) fn deployments(&self) -> SharedInformer<Deployment> {
        let informer = self.informer("deployments", deployment_indexers(), || self.source());
        if let Some(metrics) = self.metrics {
            informer.add_handler(metrics.rollouts());
        }
        informer
    }

    /// Sets the caches in which the causes of stuck rollouts are found.
    pub(crate) fn explain_rollouts(
        &self,
        deployments: &SharedInformer<Deployment>,
        replica_sets: &SharedInformer<ReplicaSet>,
        pods: &SharedInformer<Pod>,
    ) {
        if let Some(metrics) = self.metrics {
            metrics.rollout_caches(deployments.store(), replica_sets.store(), pods.store());
        }
    }

    /// Informer of ReplicationControllers, converted to ReplicaSets.
    pub(crate) fn replication_controllers(&self) -> SharedInformer<ReplicaSet> {
        let source = || ReplicationControllerClient::new(self.manager.reader()).list_watch();
        self.informer("replicationcontrollers", replica_set_indexers(), source)
    }

    /// Source of all objects of a type.
    fn source<K: Kind<Decoder: Decode<K>>>(&self) -> Arc<dyn ListWatch<K>> {
        self.manager.reader().api::<K>().list_watch(ListParams::default())
    }

    fn informer<K: CacheSize>(
        &self,
        name: &'static str,
        indexers: Indexers<K>,
        source: impl FnOnce() -> Arc<dyn ListWatch<K>>,
    ) -> SharedInformer<K> {
        let mut is_new = false;
        let source = || {
            is_new = true;
            source()
        };
        let informer = self.manager.informer_of(&InformerOptions::new(name), indexers, source);
        if let (true, Some(metrics)) = (is_new, self.metrics) {
            metrics.cache(name, informer.store());
        }
        informer
    }
}
