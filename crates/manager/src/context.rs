//! Dependencies of a manager, and the context that controllers are constructed in.

use std::{fmt, sync::Arc, time::Duration};

use kcm_client::{ApiClient, ClientFactory, EventClient, RateLimit};
use kcm_clock::{Clock, Random};
use kcm_events::{EventBroadcaster, EventRecorder};
use kcm_runtime::{Controller, ControllerBuilder, NoSyncMetrics, SyncMetrics};
use kcm_workqueue::MetricsProvider;
use parking_lot::Mutex;

use crate::{InformerSync, Metrics, Placement, Settings};

/// Returns the sync metrics of the controller with this name.
pub type SyncMetricsByName = dyn Fn(&str) -> Arc<dyn SyncMetrics> + Send + Sync;

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
    /// Thread that leader election runs on.
    pub placement: Placement,
}

impl Dependencies {
    /// Required dependencies, without metrics. Leader election runs on the runtime of the caller. `clock` replaces that of
    /// `clients`.
    pub fn new(clients: &ClientFactory, clock: &Arc<dyn Clock>, random: &Arc<dyn Random>) -> Self {
        let (clock, random) = (Arc::clone(clock), Arc::clone(random));
        Self {
            clients: clients.with_clock(Arc::clone(&clock)),
            clock,
            random,
            metrics: None,
            informer_sync: InformerSync::default(),
            syncs: None,
            placement: Placement::default(),
        }
    }
}

impl fmt::Debug for Dependencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dependencies").field("clients", &self.clients).finish_non_exhaustive()
    }
}

/// Clients, recorders and metrics that controllers are constructed with. Clones share the recorders' broadcasters.
///
/// Upstream counterpart: `ControllerContext`, without its informers. Those are in the [`Manager`](crate::Manager).
#[derive(Clone)]
pub struct Context {
    dependencies: Dependencies,
    rate_limit: RateLimit,
    drain_timeout: Option<Duration>,
    broadcasters: Arc<Mutex<Vec<EventBroadcaster>>>,
}

impl Context {
    pub(crate) fn new(dependencies: Dependencies, settings: &Settings) -> Self {
        // The rest of the time is for the syncs that are then in progress, and for events.
        let timeout = settings.controller_shutdown_timeout;
        let drain_timeout = (!timeout.is_zero()).then_some(timeout / 2);
        Self { dependencies, rate_limit: settings.rate_limit, drain_timeout, broadcasters: Arc::default() }
    }

    pub(crate) fn dependencies(&self) -> &Dependencies {
        &self.dependencies
    }

    /// Source of time.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.dependencies.clock)
    }

    /// Source of randomness.
    pub fn random(&self) -> Arc<dyn Random> {
        Arc::clone(&self.dependencies.random)
    }

    /// Client of the controller called `name`, with a separate rate limit. With leader election, it writes only while this
    /// process leads.
    pub fn client(&self, name: &str) -> ApiClient {
        self.dependencies.clients.controller_client(name, self.rate_limit)
    }

    /// Event recorder that uses `client` and its rate limit. `component` is the source of the events.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn recorder(&self, client: &ApiClient, component: &str) -> Arc<dyn EventRecorder> {
        let sink = Arc::new(EventClient::new(client));
        let broadcaster = EventBroadcaster::start(sink, self.clock(), self.random());
        let recorder = broadcaster.recorder(component);
        self.broadcasters.lock().push(broadcaster);
        recorder
    }

    /// Metrics of work queues.
    pub fn queue_metrics(&self) -> Option<Arc<dyn MetricsProvider>> {
        self.dependencies.metrics.as_ref().map(Metrics::queues)
    }

    /// Metrics of the syncs of `controller`.
    pub fn sync_metrics(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        let Dependencies { metrics, syncs, .. } = &self.dependencies;
        match (syncs, metrics) {
            (Some(syncs), _) => syncs(controller),
            (None, Some(metrics)) => metrics.syncs(controller),
            (None, None) => Arc::new(NoSyncMetrics),
        }
    }

    /// Builder of the controller called `name`, with the manager's clock and metrics. After shutdown, queued keys are reconciled
    /// for half of [`controller_shutdown_timeout`](Settings::controller_shutdown_timeout).
    ///
    /// The controller needs no [leader gate](ControllerBuilder::leader_gate): the manager runs it while this process leads, and
    /// the clients refuse writes while the next renewal of the Lease is overdue.
    pub fn controller(&self, name: &'static str) -> ControllerBuilder {
        let mut builder = Controller::builder(name, self.clock()).sync_metrics(self.sync_metrics(name));
        if let Some(metrics) = self.queue_metrics() {
            builder = builder.queue_metrics(metrics);
        }
        if let Some(timeout) = self.drain_timeout {
            builder = builder.drain_timeout(timeout);
        }
        builder
    }

    /// Broadcasters of all recorders so far. The caller shuts them down.
    pub(crate) fn take_broadcasters(&self) -> Vec<EventBroadcaster> {
        std::mem::take(&mut self.broadcasters.lock())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("dependencies", &self.dependencies).finish_non_exhaustive()
    }
}
