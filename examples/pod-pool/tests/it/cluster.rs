//! Cluster of a test.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use k8s_openapi::api::core::v1::{Node, Pod};
use kcm::{
    client::RateLimit,
    manager::{Dependencies, LeaderElectionSettings, Settings},
    prelude::*,
};
use kcm_apiserver::{ListOptions, Object, Resource, WatchCacheLag, WatchEvent, WatchStart, WriteOptions};
use kcm_testing::{AuditEvent, RunningManager, TestEnv};
use kube_client::{Client, client::Body};
use pod_pool::{
    controller::NAME,
    on_kube_runtime::{self, PodReads},
    operator,
    pool::{PodPool, PodPoolSpec},
    reservations::FakeReservations,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tower::{Service as _, service_fn};

/// Time of a call of the external system.
pub(crate) const CALL: Duration = Duration::from_secs(20);

/// Implementation of the operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Kcm,
    KubeRuntime(PodReads),
}

/// Running operator.
pub(crate) enum Running {
    Kcm(RunningManager),
    KubeRuntime(JoinHandle<()>),
}

impl Running {
    /// Ends the operator as SIGKILL does.
    pub(crate) async fn kill(self) {
        match self {
            Self::Kcm(manager) => manager.kill().await,
            Self::KubeRuntime(task) => task.abort(),
        }
    }
}

/// Pods of the namespace since its creation.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) created: usize,
    /// Most pods at the same time, without those that are being deleted.
    pub(crate) most: usize,
    active: HashSet<String>,
}

impl History {
    fn observe(&mut self, event: &WatchEvent) {
        let Some(pod) = event.object() else { return };
        match event {
            WatchEvent::Added(_) => {
                self.created += 1;
                self.active.insert(pod.uid().to_owned());
            }
            WatchEvent::Modified(_) if !pod.is_deleting() => {}
            _ => {
                self.active.remove(pod.uid());
            }
        }
        self.most = self.most.max(self.active.len());
    }
}

/// API server with 20 nodes and the namespace `shop`.
pub(crate) struct Cluster {
    pub(crate) env: TestEnv,
    /// Time by which watches of pods are late.
    pub(crate) lag: WatchCacheLag,
    pub(crate) reservations: Arc<FakeReservations>,
    pub(crate) history: Arc<Mutex<History>>,
    client: Client,
}

impl Cluster {
    pub(crate) async fn new() -> Self {
        let env = TestEnv::builder().namespace("shop").crd::<PodPool>().nodes(20).start().await;
        let lag = WatchCacheLag::new(Duration::ZERO);
        let (direct, late) = (env.server().service(), env.server().service_lagging(lag.clone()));
        let client = service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default();
            let is_late = query.contains("watch=") && request.uri().path().ends_with("/pods");
            let mut service = if is_late { late.clone() } else { direct.clone() };
            service.call(request)
        });
        let history = Arc::new(Mutex::new(History::default()));
        let mut pods = env.server().watch(Resource::PODS, Some("shop"), WatchStart::Initial);
        let observed = Arc::clone(&history);
        tokio::spawn(async move {
            while let Ok(event) = pods.next().await {
                observed.lock().unwrap().observe(&event);
            }
        });
        let reservations = Arc::new(FakeReservations::new(CALL));
        Self { env, lag, reservations, history, client: Client::new(client, "shop") }
    }

    pub(crate) fn start(&self, operator: Operator) -> Running {
        let (client, reservations) = (self.client.clone(), Arc::clone(&self.reservations));
        match operator {
            Operator::Kcm => {
                let settings = Settings {
                    leader_election: Some(LeaderElectionSettings::new("shop", NAME)),
                    rate_limit: RateLimit::UNLIMITED,
                    ..Settings::new(NAME)
                };
                let clients = kcm::kube::clients(client);
                let dependencies = Dependencies::new(&clients, self.env.clock(), self.env.random());
                let mut manager = Manager::new(settings, dependencies).unwrap();
                operator::add_to(&mut manager, reservations);
                Running::Kcm(self.env.run(manager))
            }
            Operator::KubeRuntime(reads) => {
                let clock = Arc::clone(self.env.clock());
                let now = Arc::new(move || clock.now());
                Running::KubeRuntime(tokio::spawn(on_kube_runtime::run(client, reservations, reads, now)))
            }
        }
    }

    pub(crate) async fn create_pool(&self, replicas: u32) {
        let spec = PodPoolSpec {
            replicas,
            selector: [("app".to_owned(), "web".to_owned())].into(),
            template: serde_json::from_value(json!({
                "metadata": {"labels": {"app": "web"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "web:1"}]},
            }))
            .unwrap(),
            max_unavailable: 5,
        };
        self.env.api::<PodPool>().create(&PodPool::new("web", spec)).await.unwrap();
    }

    pub(crate) fn scale(&self, replicas: u32) {
        let server = self.env.server();
        let pools = server.resource("example.org", "podpools").unwrap();
        let patch = json!({"spec": {"replicas": replicas}});
        server
            .patch(pools, "shop", "web", None, kcm_apiserver::Patch::merge(patch), &WriteOptions::default())
            .unwrap();
    }

    pub(crate) async fn cordon(&self, node: &str) {
        let patch = Patch::merge(&json!({"spec": {"unschedulable": true}}));
        self.env.client().api::<Node>().patch(node, &patch).await.unwrap();
    }

    /// Creates a pod with the labels of the pool and without an owner.
    pub(crate) async fn create_orphan(&self, name: &str) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "web", "image": "web:1"}]},
        }))
        .unwrap();
        self.env.api::<Pod>().create(&pod).await.unwrap();
    }

    /// All pods of the namespace.
    pub(crate) fn pods(&self) -> Vec<Arc<Object>> {
        self.env.server().list(Resource::PODS, Some("shop"), &ListOptions::default()).unwrap().items
    }

    /// Pool as the API server stores it. `None` if it does not exist.
    pub(crate) fn pool(&self) -> Option<Value> {
        let server = self.env.server();
        let pools = server.resource("example.org", "podpools").unwrap();
        Some(server.get(pools, "shop", "web").ok()?.value().clone())
    }

    /// Waits until the pool has `replicas` ready pods, and no others exist.
    pub(crate) async fn settles(&self, replicas: u32) {
        self.env
            .within(Duration::from_secs(180), &format!("{replicas} ready pods"), async || {
                let status = self.pool().map(|pool| pool["status"]["readyReplicas"].clone());
                self.pods().len() == replicas as usize && status == Some(json!(replicas))
            })
            .await;
    }

    /// Requests of the operator, without those for the Lease.
    pub(crate) fn requests(&self) -> Vec<AuditEvent> {
        let mut requests = self.env.requests();
        requests.retain(|request| {
            !request.user_agent.contains("operator-test")
                && !request.uri.contains("/leases")
                && request.verb != "watch"
        });
        requests
    }
}
