//! Metrics of the controllers, beside those of every [manager](kcm_manager::Metrics).

mod cache_size;
mod replica_sets;
mod rollouts;

use std::{fmt, ops::Deref, sync::Arc};

use kcm_api::{Deployment, Pod, ReplicaSet};
use kcm_clock::Clock;
use kcm_informer::{EventHandler, Store};
use kcm_metrics::{BuildInfo, MetricsOptions, MetricsOptionsError};
use kcm_replicaset_controller::ReplicaSetMetrics;

pub use cache_size::CacheSize;

use self::{replica_sets::ReplicaSets, rollouts::Rollouts};
use crate::version::BINARY;

/// Metrics of the process. Clones share the metrics. Dereferences to those of the manager.
#[derive(Clone)]
pub struct Metrics {
    manager: kcm_manager::Metrics,
    replica_sets: Arc<ReplicaSets>,
    rollouts: Arc<Rollouts>,
}

impl Metrics {
    /// Creates the registry and registers all metrics.
    ///
    /// # Errors
    ///
    /// If an option is invalid.
    pub fn new(
        options: &MetricsOptions,
        clock: Arc<dyn Clock>,
        build: &BuildInfo,
    ) -> Result<Self, MetricsOptionsError> {
        let manager = kcm_manager::Metrics::new(BINARY, options, clock, build)?;
        let metrics = Self {
            replica_sets: Arc::new(ReplicaSets::new(manager.registry())),
            rollouts: Rollouts::new(manager.registry()),
            manager,
        };
        metrics.count_registered();
        Ok(metrics)
    }

    /// Metrics of the ReplicaSet controller.
    pub fn replica_sets(&self) -> Arc<dyn ReplicaSetMetrics> {
        Arc::clone(&self.replica_sets) as _
    }

    /// Event handler that counts stuck rollouts, for the informer of Deployments.
    pub fn rollouts(&self) -> Arc<dyn EventHandler<Deployment>> {
        Arc::clone(&self.rollouts) as _
    }

    /// Sets the caches in which each scrape finds the causes of stuck rollouts. Without them, causes are `unknown`.
    ///
    /// The stores require the indexes of `kcm-controller-util`.
    pub fn rollout_caches(
        &self,
        deployments: Store<Deployment>,
        replica_sets: Store<ReplicaSet>,
        pods: Store<Pod>,
    ) {
        self.rollouts.set_caches(deployments, replica_sets, pods);
    }

    /// Exports the estimated size of the objects in the cache called `name`. Each scrape samples the objects.
    pub fn cache<K: CacheSize>(&self, name: &str, store: Store<K>) {
        self.cache_size(name, move || cache_size::estimate(&store));
    }
}

impl Deref for Metrics {
    type Target = kcm_manager::Metrics;

    fn deref(&self) -> &Self::Target {
        &self.manager
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metrics").field(self.registry()).finish()
    }
}
