//! Metrics of a manager: implementations of the metrics traits of queues, informers, clients, leader election and
//! controllers.
//!
//! Names, types, labels and buckets equal upstream's where upstream has the metric. The names of other metrics begin
//! with `kcm_`. `docs/metrics.md` lists all metrics.
//!
//! Upstream counterpart: the `prometheus/*` packages of `k8s.io/component-base/metrics`.

mod clients;
mod election;
mod informers;
mod queues;
mod request_path;
mod syncs;

use std::{fmt, sync::Arc};

use kcm_client::ClientMetrics;
use kcm_clock::Clock;
use kcm_informer::InformerMetrics;
use kcm_leader_election::{ElectionMetrics, LeaderGate};
use kcm_metrics::{
    BuildInfo, ComponentMetrics, Definition, HealthStatus, MetricsOptions, MetricsOptionsError,
    ProcessMetrics, Registry, SliMetrics,
};
use kcm_runtime::SyncMetrics;
use kcm_workqueue::MetricsProvider;

use self::{clients::Clients, election::Elections, informers::Informers, queues::Queues, syncs::Syncs};

/// Metrics of a manager process. Clones share the metrics.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    name: &'static str,
    registry: Registry,
    component: ComponentMetrics,
    queues: Arc<Queues>,
    informers: Arc<Informers>,
    clients: Arc<Clients>,
    elections: Arc<Elections>,
    syncs: Syncs,
    slis: SliMetrics,
}

impl Metrics {
    /// Response header with the [start time of the process](Self::process_start), in whole seconds since 1970.
    pub const PROCESS_START_HEADER: &str = "process-start-time-unix";

    /// Creates the registry and registers all metrics. `name` is the program's, the value of some labels.
    ///
    /// # Errors
    ///
    /// If an option is invalid.
    pub fn new(
        name: &'static str,
        options: &MetricsOptions,
        clock: Arc<dyn Clock>,
        build: &BuildInfo,
    ) -> Result<Self, MetricsOptionsError> {
        options.validate(build.minor)?;
        let registry = Registry::new(options);
        let component = ComponentMetrics::new(&registry, options, build);
        ProcessMetrics::register(&registry);
        let metrics = Self(Arc::new(Inner {
            component,
            queues: Arc::new(Queues::new(&registry)),
            informers: Arc::new(Informers::new(&registry, name, clock)),
            clients: Arc::new(Clients::new(&registry)),
            elections: Arc::new(Elections::new(&registry)),
            syncs: Syncs::new(&registry),
            slis: SliMetrics::new(options),
            registry,
            name,
        }));
        metrics.count_registered();
        Ok(metrics)
    }

    /// Sets `registered_metrics_total`. Required after further metrics were registered in the
    /// [`registry`](Self::registry).
    pub fn count_registered(&self) {
        self.0.component.count_registered(&self.0.registry);
    }

    /// Exposition of `/metrics`.
    pub fn text(&self) -> String {
        self.0.registry.text()
    }

    /// Exposition of `/metrics/slis`.
    pub fn slis_text(&self) -> String {
        self.0.slis.text()
    }

    /// Start time of the process in seconds since 1970. `None` if `/proc` cannot be read.
    pub fn process_start(&self) -> Option<f64> {
        self.0.slis.process_start()
    }

    /// Registry of `/metrics`, for further metrics.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Definitions of the metrics of `/metrics`, including those without time series.
    pub fn definitions(&self) -> Vec<Definition> {
        self.0.registry.definitions()
    }

    /// Definitions of the metrics of `/metrics/slis`.
    pub fn slis_definitions(&self) -> Vec<Definition> {
        self.0.slis.definitions()
    }

    /// Metrics of work queues.
    pub fn queues(&self) -> Arc<dyn MetricsProvider> {
        Arc::clone(&self.0.queues) as _
    }

    /// Metrics of informers. The name of an informer is its resource: `replicasets`, `deployments` or one of the core group, such
    /// as `pods`, otherwise `resource.version.group`, such as `leases.v1.coordination.k8s.io`.
    pub fn informers(&self) -> Arc<dyn InformerMetrics> {
        Arc::clone(&self.0.informers) as _
    }

    /// Exports the estimated size in bytes of the cache called `name`. Each scrape calls `estimate`.
    pub fn cache_size(&self, name: &str, estimate: impl Fn() -> usize + Send + Sync + 'static) {
        self.0.informers.export_size(name, estimate, &self.0.registry);
    }

    /// Metrics of clients.
    pub fn clients(&self) -> Arc<dyn ClientMetrics> {
        Arc::clone(&self.0.clients) as _
    }

    /// Metrics of leader election.
    pub fn election(&self) -> Arc<dyn ElectionMetrics> {
        Arc::clone(&self.0.elections) as _
    }

    /// Exports the time until `gate` closes, for the election called `name`, and until then the number of
    /// [`unserved`](crate::Settings::unserved) controllers.
    pub fn leader_gate(&self, name: &str, gate: LeaderGate, unserved: usize) {
        self.0.elections.watch(name, gate, unserved, &self.0.registry);
    }

    /// Metrics of the syncs of `controller`, such as `deployment-controller`.
    pub fn syncs(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        self.0.syncs.for_controller(controller)
    }

    /// Sets whether `controller` runs.
    ///
    /// DEVIATION: upstream sets the metric for a few controllers of cloud providers only.
    pub fn controller_running(&self, controller: &str, running: bool) {
        self.0.syncs.running(self.0.name, controller, running);
    }

    /// Sets the values of feature gates: name, stage (`ALPHA`, `BETA`, `DEPRECATED`, empty if stable) and value.
    pub fn features<'a>(&self, gates: impl IntoIterator<Item = (&'a str, &'a str, bool)>) {
        for (name, stage, enabled) in gates {
            self.0.component.set_feature(name, stage, enabled);
        }
    }

    /// Records the outcome of a health check, such as `leaderElection` of type `healthz`.
    pub fn health_check(&self, name: &str, check_type: &str, status: HealthStatus) {
        self.0.slis.record(name, check_type, status);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metrics").field(&self.0.registry).finish()
    }
}
