//! Dependencies of a manager.

use std::sync::Arc;

use kcm_client::ClientFactory;
use kcm_clock::{Clock, Random};

use crate::{DebugControllers, Metrics};

/// Dependencies of a manager with the controllers of this crate.
#[derive(Debug, Clone)]
pub struct Dependencies {
    /// Dependencies of every manager.
    pub manager: kcm_manager::Dependencies,
    /// Metrics of the controllers. See [`with_metrics`](Self::with_metrics).
    pub(crate) metrics: Option<Metrics>,
    /// Receives the running controllers. See [`with_debug`](Self::with_debug).
    pub(crate) debug: Option<DebugControllers>,
}

impl Dependencies {
    /// Required dependencies, without metrics. Leader election runs on the runtime of the caller.
    pub fn new(clients: &ClientFactory, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Self {
        let manager = kcm_manager::Dependencies::new(clients, clock, random);
        Self { manager, metrics: None, debug: None }
    }

    /// Sets the metrics of the manager and of the controllers.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Metrics) -> Self {
        self.manager.metrics = Some(kcm_manager::Metrics::clone(&metrics));
        self.metrics = Some(metrics);
        self
    }

    /// Sets the receiver of the running controllers, for `/debug/controllers/`.
    #[must_use]
    pub fn with_debug(self, debug: DebugControllers) -> Self {
        Self { debug: Some(debug), ..self }
    }
}
