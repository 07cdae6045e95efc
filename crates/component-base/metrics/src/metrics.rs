//! All of it in one value.

use std::{fmt, sync::Arc};

use kcm_api::Deployment;
use kcm_client::ClientMetrics;
use kcm_clock::Clock;
use kcm_controller_util::SyncMetrics;
use kcm_informer::{EventHandler, InformerMetrics, Store};
use kcm_leader_election::{ElectionMetrics, LeaderGate};
use kcm_replicaset_controller::ReplicaSetMetrics;
use kcm_workqueue::{MetricsProvider, Refresh};
use parking_lot::Mutex;

use crate::{
    BuildInfo, CacheSize, Definition, MetricsOptions, MetricsOptionsError, Registry,
    about::About,
    clients::Clients,
    controllers::{ReplicaSets, Syncs},
    election::Elections,
    health::{Health, HealthStatus},
    informers::Informers,
    process::Process,
    queues::Queues,
    rollouts::Rollouts,
    sizes,
};

/// What upstream's manager calls itself in labels.
const MANAGER: &str = "kube-controller-manager";

/// All that one process counts. Clones are handles to the same counts.
///
/// Each of the `Arc<dyn …>` is for a crate that tells of itself; hand out one and the same to all that ask for it.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    about: About,
    refreshers: Refreshers,
    queues: Arc<Queues>,
    informers: Arc<Informers>,
    clients: Arc<Clients>,
    elections: Arc<Elections>,
    syncs: Syncs,
    replica_sets: Arc<ReplicaSets>,
    rollouts: Arc<Rollouts>,
    health: Health,
}

impl Metrics {
    /// The media type of [`text`](Self::text), as upstream answers who does not ask for another.
    pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";

    /// The header beside it in which upstream says [when the process started](Self::process_started), in whole seconds
    /// since 1970.
    pub const PROCESS_START_HEADER: &str = "process-start-time-unix";

    /// Nothing counted so far.
    ///
    /// # Errors
    ///
    /// When an option makes no sense.
    pub fn new(
        options: &MetricsOptions,
        clock: Arc<dyn Clock>,
        build: &BuildInfo,
    ) -> Result<Self, MetricsOptionsError> {
        options.validate(build.minor)?;
        let registry = Registry::new(options);
        let refreshers = Refreshers::default();
        let about = About::new(&registry, options, build);
        if let Some(process) = Process::new(&registry, "/proc") {
            refreshers.add(Box::new(move || {
                process.refresh();
                true
            }));
        }
        let inner = Inner {
            queues: Arc::new(Queues::new(&registry, refreshers.clone())),
            informers: Arc::new(Informers::new(&registry, MANAGER, clock, refreshers.clone())),
            clients: Arc::new(Clients::new(&registry)),
            elections: Arc::new(Elections::new(&registry)),
            syncs: Syncs::new(&registry),
            replica_sets: Arc::new(ReplicaSets::new(&registry)),
            rollouts: Arc::new(Rollouts::new(&registry)),
            health: Health::new(options),
            about,
            refreshers,
            registry,
        };
        inner.about.count_registered(&inner.registry);
        Ok(Self(Arc::new(inner)))
    }

    /// What `/metrics` answers.
    pub fn text(&self) -> String {
        self.0.refreshers.run();
        self.0.about.refresh(&self.0.registry);
        self.0.registry.text()
    }

    /// What `/metrics/slis` answers.
    pub fn slis_text(&self) -> String {
        self.0.health.text()
    }

    /// When the process started, in seconds since 1970; `None` on systems that do not tell.
    pub fn process_started(&self) -> Option<f64> {
        self.0.health.started()
    }

    /// Where metrics of one's own may join these.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// What `/metrics` has metrics of, with and without series.
    pub fn definitions(&self) -> Vec<Definition> {
        self.0.registry.definitions()
    }

    /// What `/metrics/slis` has metrics of.
    pub fn slis_definitions(&self) -> Vec<Definition> {
        self.0.health.definitions()
    }

    /// For queues: pass it as `queue_metrics`.
    pub fn queues(&self) -> Arc<dyn MetricsProvider> {
        Arc::clone(&self.0.queues) as _
    }

    /// For informers. An informer is to be called as its resource, such as `pods`; one that is not among those of
    /// this project's controllers in full, such as `leases.v1.coordination.k8s.io`.
    pub fn informers(&self) -> Arc<dyn InformerMetrics> {
        Arc::clone(&self.0.informers) as _
    }

    /// For clients.
    pub fn clients(&self) -> Arc<dyn ClientMetrics> {
        Arc::clone(&self.0.clients) as _
    }

    /// For elections.
    pub fn election(&self) -> Arc<dyn ElectionMetrics> {
        Arc::clone(&self.0.elections) as _
    }

    /// Shows how long `gate` would stay open, for the election called `name`.
    pub fn leader_gate(&self, name: &str, gate: LeaderGate) {
        self.0.elections.watch(name, gate, &self.0.refreshers);
    }

    /// For the ReplicaSet controller.
    pub fn replica_sets(&self) -> Arc<dyn ReplicaSetMetrics> {
        Arc::clone(&self.0.replica_sets) as _
    }

    /// For the syncs of `controller`, such as `deployment-controller`.
    pub fn syncs(&self, controller: &str) -> Arc<dyn SyncMetrics> {
        self.0.syncs.of(controller)
    }

    /// Counts rollouts that are stuck: add it to the informer of Deployments.
    pub fn rollouts(&self) -> Arc<dyn EventHandler<Deployment>> {
        Arc::clone(&self.0.rollouts) as _
    }

    /// Shows how large the objects of the cache called `name` are, from a look at some of them at each scrape.
    pub fn cache<K: CacheSize>(&self, name: &str, store: Store<K>) {
        self.0.informers.size(name, move || sizes::estimate(&store));
    }

    /// Notes that `controller` runs now, or no longer does.
    ///
    /// DEVIATION: upstream's manager notes it for a few controllers of cloud providers only.
    pub fn controller_running(&self, controller: &str, running: bool) {
        self.0.syncs.running(MANAGER, controller, running);
    }

    /// Shows feature gates: name, stage (`ALPHA`, `BETA`, `DEPRECATED`, empty once stable), whether it is on.
    pub fn features<'a>(&self, gates: impl IntoIterator<Item = (&'a str, &'a str, bool)>) {
        for (name, stage, enabled) in gates {
            self.0.about.feature(name, stage, enabled);
        }
    }

    /// Notes the outcome of a health check, such as `leaderElection` of the type `healthz`.
    pub fn health_check(&self, name: &str, check_type: &str, status: HealthStatus) {
        self.0.health.checked(name, check_type, status);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metrics").field(&self.0.registry).finish()
    }
}

/// What is to be done before each scrape: numbers that change with time alone are computed when somebody looks.
#[derive(Clone, Default)]
pub(crate) struct Refreshers(Arc<Mutex<Vec<Refresh>>>);

impl Refreshers {
    pub(crate) fn add(&self, refresh: Refresh) {
        self.0.lock().push(refresh);
    }

    fn run(&self) {
        self.0.lock().retain(|refresh| refresh());
    }
}
