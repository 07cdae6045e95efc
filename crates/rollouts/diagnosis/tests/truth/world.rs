//! Embedded cluster in simulated time.

use std::{convert::Infallible, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{Either, Full};
use kcm_api::{Deployment, Pod, PodDecoder, ReplicaSet};
use kcm_apiserver::{ApiServer, ApiServerConfig, ListOptions, Patch, Resource, Subresource, WriteOptions};
use kcm_client::{Body, ClientFactory, ClientOptions};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock, Timestamp};
use kcm_controller_manager::{Controllers, Dependencies, ManagerConfig};
use kcm_deployment_util::replica_sets::ReplicaSetSplit;
use kcm_rollouts::{Cause, Diagnosis, Known, Snapshot, cached_cause, diagnose};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig, rollout_snapshot};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

pub(crate) const NAMESPACE: &str = "shop";
pub(crate) const NAME: &str = "web";

/// Message with which the creation of pods is refused.
type Refusal = Arc<Mutex<Option<&'static str>>>;

/// API server, controllers and simulated components.
pub(crate) struct World {
    pub(crate) server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    refusal: Refusal,
    controllers: Option<Controllers>,
    /// Time at which the controllers were stopped.
    stopped: Option<Timestamp>,
    _stop: DropGuard,
}

/// Runs a test in simulated time.
pub(crate) fn simulate<T>(test: impl Future<Output = T>) -> T {
    let builder = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    builder.unwrap().block_on(test)
}

/// Manifest of a Deployment.
pub(crate) fn deployment(replicas: i64, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": NAME, "namespace": NAMESPACE },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": {
                "metadata": { "labels": { "app": "web" } },
                "spec": { "containers": [{ "name": "app", "image": image }] },
            },
        },
    })
}

impl World {
    pub(crate) fn new(ready: Duration) -> Self {
        let start: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(77));
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            managed_fields: false,
            ..ApiServerConfig::default()
        });
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        server.create(Resource::NAMESPACES, "", namespace, &WriteOptions::default()).unwrap();
        let sandbox = Sandbox::new(SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            nodes: 2,
            kubelet: KubeletConfig { pod_ready_delay: ready, pod_stop_delay: Duration::from_secs(2) },
        })
        .unwrap();
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        tokio::spawn(async move { sandbox.run(stop).await });
        let mut world = Self {
            server,
            clock,
            refusal: Refusal::default(),
            controllers: None,
            stopped: None,
            _stop: guard,
        };
        world.start_controllers(&random);
        world
    }

    fn start_controllers(&mut self, random: &Arc<dyn Random>) {
        let (service, refusal) = (self.server.service(), Arc::clone(&self.refusal));
        let refusing = tower::service_fn(move |request: Request<Body>| {
            let (service, refusal) = (service.clone(), *refusal.lock());
            async move {
                let creates_pod =
                    *request.method() == Method::POST && request.uri().path().ends_with("/pods");
                match refusal.filter(|_| creates_pod) {
                    Some(message) => Ok::<_, Infallible>(forbidden(message).map(Either::Right)),
                    None => Ok(service.oneshot(request).await.unwrap().map(Either::Left)),
                }
            }
        });
        let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(&self.clock));
        let clients = ClientFactory::in_process(refusing, options);
        let dependencies = Dependencies::new(&clients, &self.clock, random);
        self.controllers = Some(kcm_controller_manager::start(&ManagerConfig::default(), &dependencies));
    }

    /// Stops both controllers, and the renewal of their Lease.
    pub(crate) fn stop_controllers(&mut self) {
        self.controllers = None;
        self.stopped = Some(self.now());
    }

    /// Refuses the creation of pods with this message.
    pub(crate) fn refuse_pods(&self, message: &'static str) {
        *self.refusal.lock() = Some(message);
    }

    pub(crate) async fn advance(&self, seconds: u64) {
        self.clock.sleep(Duration::from_secs(seconds)).await;
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn create(&self, resource: Resource, object: Value) {
        self.server.create(resource, NAMESPACE, object, &WriteOptions::default()).unwrap();
    }

    /// Creates a Deployment and waits until it is complete.
    pub(crate) async fn roll_out(&self, manifest: Value) {
        self.create(Resource::DEPLOYMENTS, manifest);
        self.advance(60).await;
        assert_eq!(self.diagnose().state.exit_code(), 0, "{:#?}", self.diagnose());
    }

    /// Changes the Deployment.
    pub(crate) fn change(&self, patch: Value) {
        self.patch(Resource::DEPLOYMENTS, NAMESPACE, NAME, None, patch);
    }

    pub(crate) fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        part: Option<Subresource>,
        patch: Value,
    ) {
        let options =
            WriteOptions { field_manager: Some("kubectl-patch".to_owned()), ..WriteOptions::default() };
        self.server.patch(resource, namespace, name, part, Patch::strategic(patch), &options).unwrap();
    }

    pub(crate) fn patch_nodes(&self, part: Option<Subresource>, patch: &Value) {
        for node in self.list(Resource::NODES) {
            self.patch(Resource::NODES, "", node["metadata"]["name"].as_str().unwrap(), part, patch.clone());
        }
    }

    /// Reports a status of the pods of the new ReplicaSet, as a kubelet or another controller does.
    pub(crate) fn report(&self, status: &Value) {
        for pod in self.new_pods() {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let patch = json!({ "status": status });
            self.patch(Resource::PODS, NAMESPACE, name, Some(Subresource::Status), patch);
        }
    }

    /// Creates an event about each pod of the new ReplicaSet.
    pub(crate) fn event(&self, reason: &str, message: &str) {
        for pod in self.new_pods() {
            let (name, uid) = (pod["metadata"]["name"].as_str().unwrap(), &pod["metadata"]["uid"]);
            let event = json!({
                "metadata": { "name": format!("{name}.{}", reason.to_lowercase()), "namespace": NAMESPACE },
                "involvedObject": { "kind": "Pod", "namespace": NAMESPACE, "name": name, "uid": uid },
                "type": "Warning", "reason": reason, "message": message,
                "lastTimestamp": kcm_api::Time::new(self.now()),
            });
            self.create(Resource::EVENTS, event);
        }
    }

    /// Pods with the newest image.
    pub(crate) fn new_pods(&self) -> Vec<Value> {
        let deployment = self.deployment();
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        let mut pods = self.list(Resource::PODS);
        pods.retain(|pod| {
            pod["spec"]["containers"][0]["image"] == *image
                && pod["metadata"].get("deletionTimestamp").is_none()
        });
        pods
    }

    pub(crate) fn deployment(&self) -> Value {
        self.server.get(Resource::DEPLOYMENTS, NAMESPACE, NAME).unwrap().value().clone()
    }

    pub(crate) fn list(&self, resource: Resource) -> Vec<Value> {
        let list = self.server.list(resource, None, &ListOptions::default()).unwrap();
        list.items.iter().map(|object| object.value().clone()).collect()
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let renewed = kcm_api::MicroTime::new(self.stopped.unwrap_or_else(|| self.now()));
        let lease = json!({
            "spec": { "holderIdentity": "master-1", "leaseDurationSeconds": 15, "renewTime": renewed },
        });
        Snapshot { lease: Known::Read(Some(lease)), ..rollout_snapshot(&self.server, NAMESPACE) }
    }

    /// Cause that a controller manager finds in its caches.
    pub(crate) fn cached_cause(&self) -> Cause {
        fn decode<T: DeserializeOwned>(object: &Value) -> Arc<T> {
            Arc::new(serde_json::from_value(object.clone()).unwrap())
        }
        let deployment: Arc<Deployment> = decode(&self.deployment());
        let own = |set: &Arc<ReplicaSet>| {
            set.metadata.controller().is_some_and(|owner| owner.uid == deployment.metadata.uid)
        };
        let sets: Vec<Arc<ReplicaSet>> =
            self.list(Resource::REPLICA_SETS).iter().map(decode).filter(own).collect();
        let decoder = PodDecoder::default();
        let pods: Vec<Arc<Pod>> = self
            .list(Resource::PODS)
            .iter()
            .map(|pod| Arc::new(decoder.decode_value(pod).unwrap()))
            .collect();
        let pods = pods.iter().filter(|pod| {
            pod.controller.as_ref().is_some_and(|owner| sets.iter().any(|set| set.metadata.uid == owner.uid))
        });
        cached_cause(&deployment, &ReplicaSetSplit::find(&deployment, &sets), pods)
    }

    pub(crate) fn diagnose(&self) -> Diagnosis {
        self.diagnose_as(&self.snapshot(), &self.deployment())
    }

    /// Diagnosis of other objects than the stored ones.
    pub(crate) fn diagnose_as(&self, snapshot: &Snapshot, deployment: &Value) -> Diagnosis {
        diagnose(snapshot, deployment, self.now()).unwrap()
    }
}

fn forbidden(message: &str) -> Response<Full<Bytes>> {
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": message,
    });
    let response = Response::builder().status(StatusCode::FORBIDDEN).header(CONTENT_TYPE, "application/json");
    response.body(Full::from(status.to_string())).unwrap()
}
