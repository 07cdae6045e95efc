//! Informers, controller and leader election.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kcm_client::{ApiClient, ClientFactory, Decode, Kind, ListParams, RateLimit};
use kcm_clock::{Clock, Random};
use kcm_controller_manager::{
    Metrics,
    adapters::{EventClient, LeaseClient},
};
use kcm_events::EventBroadcaster;
use kcm_informer::{InformerConfig, SharedInformer};
use kcm_leader_election::{
    ElectionConfigError, ElectionStatus, LeaderElectionConfig, LeaderElector, identity,
};
use kcm_runtime::{Controller, ControllerHealth, ObjectKey, Watch, predicate};
use tokio_util::sync::CancellationToken;

use crate::{
    controller::{NAME, WebsiteReconciler},
    dns::Dns,
    website::Website,
};

/// Timeout of a request for the Lease: half of the renew deadline.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time to write queued events at the end.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Dependencies of the operator.
#[derive(Clone)]
pub struct Dependencies {
    /// Connections to the API server.
    pub clients: ClientFactory,
    /// DNS provider.
    pub dns: Arc<dyn Dns>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Source of jitter and of names.
    pub random: Arc<dyn Random>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of this process, such as the pod's.
    pub host: String,
}

/// The operator.
pub struct Operator {
    websites: SharedInformer<Website>,
    deployments: SharedInformer<Deployment>,
    services: SharedInformer<Service>,
    budgets: SharedInformer<PodDisruptionBudget>,
    controller: Controller<WebsiteReconciler>,
    elector: LeaderElector,
    events: EventBroadcaster,
}

impl Operator {
    /// Creates the operator. It sends no requests before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// If the election cannot be configured.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn new(dependencies: Dependencies) -> Result<Self, ElectionConfigError> {
        let Dependencies { clients, dns, clock, random, metrics, namespace, host } = dependencies;
        let limit = RateLimit::DEFAULT;

        // Separate connections: other requests do not delay renewals.
        let elections = clients.for_election().with_timeout(LEASE_TIMEOUT).without_retries();
        let lock = Arc::new(LeaseClient::new(&elections.client("leader-election", limit)));
        let lease = ObjectKey::new(namespace, NAME);
        let elector = LeaderElector::new(LeaderElectionConfig {
            release_on_cancel: true,
            unique_identity: true,
            metrics: metrics.election(),
            ..LeaderElectionConfig::new(
                lease,
                identity(&host, &*random),
                lock,
                Arc::clone(&clock),
                Arc::clone(&random),
            )
        })?;

        // A process that lost the lease writes nothing, even if it was stopped in between.
        let gate = elector.gate();
        let client = clients.gated(move || gate.remaining()).client(NAME, limit);
        let sink = Arc::new(EventClient::new(&client));
        let events = EventBroadcaster::start(sink, Arc::clone(&clock), Arc::clone(&random));

        let source = Source { client: &client, clock: &clock, random: &random, metrics: &metrics };
        let websites = source.informer("websites", ListParams::default());
        let owned = ListParams::labels("app.kubernetes.io/name=website");
        let deployments = source.informer("deployments", owned.clone());
        let services = source.informer("services", owned.clone());
        let budgets = source.informer("poddisruptionbudgets", owned);

        let reconciler = WebsiteReconciler {
            websites: websites.store(),
            deployments: deployments.store(),
            services: services.store(),
            budgets: budgets.store(),
            client: client.clone(),
            dns,
            recorder: events.recorder(NAME),
            clock: Arc::clone(&clock),
        };
        let gate = elector.gate();
        let controller = Controller::builder("website", Arc::clone(&clock))
            .reconciles(Watch::new(&websites).when(predicate::resource_version_changed()))
            .owns(&deployments)
            .owns(&services)
            .owns(&budgets)
            .workers(2)
            .leader_gate(move || gate.is_leader())
            .drain_timeout(Duration::from_secs(20))
            .queue_metrics(metrics.queues())
            .sync_metrics(metrics.syncs("website"))
            .build(reconciler);
        Ok(Self { websites, deployments, services, budgets, controller, elector, events })
    }

    /// Returns the health of the controller.
    pub fn health(&self) -> ControllerHealth {
        self.controller.health()
    }

    /// Returns the status of the election.
    pub fn election(&self) -> ElectionStatus {
        self.elector.status()
    }

    /// Runs until `stop` is cancelled or the lease is lost. A standby keeps its caches current.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the operator at once. The lease expires.
    pub async fn run(mut self, stop: CancellationToken) {
        let stop_informers = CancellationToken::new();
        let informers = async {
            tokio::join!(
                self.websites.run(stop_informers.clone()),
                self.deployments.run(stop_informers.clone()),
                self.services.run(stop_informers.clone()),
                self.budgets.run(stop_informers.clone()),
            )
        };
        let lead = async {
            let controller = &self.controller;
            let events = &self.events;
            let lead = async |_| {
                controller.run(stop.clone()).await;
                // Before the Lease is released: later writes are rejected.
                events.shutdown(EVENT_TIMEOUT).await;
            };
            self.elector.run(&stop, lead).await;
            stop_informers.cancel();
        };
        tokio::join!(informers, lead);
    }
}

/// Source of informers.
struct Source<'a> {
    client: &'a ApiClient,
    clock: &'a Arc<dyn Clock>,
    random: &'a Arc<dyn Random>,
    metrics: &'a Metrics,
}

impl Source<'_> {
    fn informer<K: Kind<Decoder: Decode<K>>>(&self, name: &str, params: ListParams) -> SharedInformer<K> {
        let list_watch = self.client.api::<K>().list_watch(params);
        let config = InformerConfig::new(name, list_watch, Arc::clone(self.clock), Arc::clone(self.random));
        SharedInformer::new(InformerConfig { metrics: self.metrics.informers(), ..config })
    }
}
