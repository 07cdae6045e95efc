//! Dependencies of a manager.

use std::{fmt, sync::Arc};

use kcm_client::ClientFactory;
use kcm_clock::{Clock, Random};
use kcm_manager::{InformerSync, Placement, SyncMetricsByName};

use crate::{DebugControllers, Metrics};

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

    /// Dependencies of the manager, without those of the controllers.
    pub(crate) fn of_manager(&self) -> kcm_manager::Dependencies {
        kcm_manager::Dependencies {
            metrics: self.metrics.as_deref().cloned(),
            informer_sync: self.informer_sync.clone(),
            syncs: self.syncs.clone(),
            placement: self.placement,
            ..kcm_manager::Dependencies::new(&self.clients, &self.clock, &self.random)
        }
    }
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies").field("clients", &self.clients).finish_non_exhaustive()
    }
}
