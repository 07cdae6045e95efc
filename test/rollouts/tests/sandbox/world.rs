//! Embedded cluster in simulated time, on which a scenario is played.

use std::{convert::Infallible, sync::Arc};

use bytes::Bytes;
use http::{Request as HttpRequest, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{Either, Full};
use kcm_apiserver::{
    ApiServer, ApiServerConfig, DeleteOptions, ListOptions, Patch as ApiPatch, Resource, Subresource,
    WriteOptions,
};
use kcm_client::{Body, ClientFactory, ClientOptions};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock, Timestamp};
use kcm_controller_manager::{Controllers, DebugControllers, Dependencies, ManagerConfig};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use parking_lot::Mutex;
use rollout_scenarios::{
    Condition, ObjectRef, Patch, Refusal, Running, Scenario, Step, Which,
    objects::{self, NAME, NAMESPACE, START, STOP, condition_patch, merge, patch_of},
};
use serde_json::{Map, Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

use crate::view;

type Refusals = Arc<Mutex<Vec<Refusal>>>;

/// API server, controllers and simulated components.
pub(crate) struct World {
    pub(crate) server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    refusals: Refusals,
    controllers: Option<Controllers>,
    lease_renewed: bool,
    hidden: Vec<String>,
    queues: DebugControllers,
    reads_queues: bool,
    as_read: Value,
    /// Changes of the Deployment by clients, with their times.
    changes: Vec<(Timestamp, Value)>,
    _stop: DropGuard,
}

/// Plays the scenario. Returns the diagnosis, and the statuses and events as text.
pub(crate) fn play(scenario: &Scenario) -> (Value, String) {
    let builder = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    builder.unwrap().block_on(async {
        let mut world = World::new();
        for object in &scenario.objects {
            world.create(object.clone());
        }
        let manifest = objects::manifest(&scenario.deployment);
        world.changes.push((world.clock.now(), manifest.clone()));
        world.create(manifest);
        world.clock.sleep(scenario.settle).await;
        for step in &scenario.steps {
            world.step(step).await;
        }
        world.renew_lease();
        (view::diagnosis(&world, &world.hidden), world.describe())
    })
}

impl World {
    fn new() -> Self {
        let start: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(77));
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            managed_fields: false,
            ..ApiServerConfig::default()
        });
        let sandbox = Sandbox::new(SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            nodes: 2,
            kubelet: KubeletConfig { pod_ready_delay: START, pod_stop_delay: STOP },
        })
        .unwrap();
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        tokio::spawn(async move { sandbox.run(stop).await });
        let mut world = Self {
            server,
            clock,
            random,
            refusals: Refusals::default(),
            controllers: None,
            lease_renewed: true,
            hidden: Vec::new(),
            queues: DebugControllers::default(),
            reads_queues: false,
            as_read: json!({}),
            changes: Vec::new(),
            _stop: guard,
        };
        for namespace in [NAMESPACE, "kube-system"] {
            let object = json!({ "metadata": { "name": namespace } });
            // Namespaces of the system may exist.
            drop(world.server.create(Resource::NAMESPACES, "", object, &WriteOptions::default()));
        }
        world.create(json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "kube-controller-manager", "namespace": "kube-system" },
            "spec": { "holderIdentity": "node-1_abc", "leaseDurationSeconds": 15 },
        }));
        world.renew_lease();
        world.start_controllers();
        world
    }

    fn start_controllers(&mut self) {
        let (service, refusals) = (self.server.service(), Arc::clone(&self.refusals));
        let refusing = tower::service_fn(move |request: HttpRequest<Body>| {
            let refused = refusals
                .lock()
                .iter()
                .find(|one| one.request.matches(request.method().as_str(), request.uri().path()))
                .cloned();
            let service = service.clone();
            async move {
                match refused {
                    Some(refusal) => Ok::<_, Infallible>(refuse(&refusal).map(Either::Right)),
                    None => Ok(service.oneshot(request).await.unwrap().map(Either::Left)),
                }
            }
        });
        let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(&self.clock));
        let clients = ClientFactory::in_process(refusing, options);
        let dependencies =
            Dependencies::new(&clients, &self.clock, &self.random).with_debug(self.queues.clone());
        self.controllers = Some(kcm_controller_manager::start(&ManagerConfig::default(), &dependencies));
    }

    /// The Deployment as it is read, with the writers that kube-apiserver records.
    pub(crate) fn deployment(&self) -> Value {
        let mut deployment = self.get("apps", "deployments", NAMESPACE, NAME);
        let entry = |manager: &str, fields: &Value, time: Timestamp| {
            json!({
                "manager": manager, "operation": "Update", "apiVersion": "apps/v1",
                "time": kcm_api::Time::new(time), "fieldsType": "FieldsV1", "fieldsV1": fields_of(fields),
            })
        };
        let changes = self.changes.iter().map(|(time, patch)| entry("kubectl-patch", patch, *time));
        deployment["metadata"]["managedFields"] = changes.collect();
        merge(&mut deployment, &self.as_read);
        deployment
    }

    /// Statuses and events as text.
    fn describe(&self) -> String {
        let mut text = format!("{}\n", self.get("apps", "deployments", NAMESPACE, NAME)["status"]);
        for resource in [Resource::REPLICA_SETS, Resource::PODS] {
            for object in self.list(resource) {
                let metadata = &object["metadata"];
                let end = metadata.get("deletionTimestamp").unwrap_or(&Value::Null);
                text.push_str(&format!("{} {end} {}\n", metadata["name"], object["status"]));
            }
        }
        for event in self.list(Resource::EVENTS) {
            let fields = ["firstTimestamp", "lastTimestamp", "count", "type", "reason", "message"];
            let fields = fields.map(|field| event[field].to_string()).join(" ");
            text.push_str(&format!("{} {fields}\n", event["involvedObject"]["name"]));
        }
        text
    }

    /// Queue states of the Deployment and of its ReplicaSets, with their kinds. Empty unless the reader may read them.
    pub(crate) fn queues(&self) -> Vec<(&'static str, Value)> {
        let sets = self.list(Resource::REPLICA_SETS);
        let names = sets.iter().map(|set| ("replicaset", set["metadata"]["name"].as_str().unwrap()));
        let names = [("deployment", NAME)].into_iter().chain(names).filter(|_| self.reads_queues);
        let state = |(kind, name): (&'static str, &str)| {
            let response = self.queues.respond(&format!("{kind}/{NAMESPACE}/{name}"));
            (kind, serde_json::from_slice(&response.body).unwrap())
        };
        names.map(state).collect()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Renews the Lease, if it is renewed. A manager does so every two seconds.
    fn renew_lease(&self) {
        if self.lease_renewed {
            let patch = json!({ "spec": { "renewTime": format!("{:.6}", self.clock.now()) } });
            let leases = self.resource("coordination.k8s.io", "leases");
            self.patch(leases, "kube-system", "kube-controller-manager", None, patch);
        }
    }

    fn resource(&self, group: &str, plural: &str) -> Resource {
        self.server.resource(group, plural).unwrap_or_else(|| panic!("unknown resource {group}/{plural}"))
    }

    fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Value {
        self.server.get(self.resource(group, plural), namespace, name).unwrap().value().clone()
    }

    fn create(&self, object: Value) {
        let kind = object["kind"].as_str().unwrap_or_default();
        let group =
            object["apiVersion"].as_str().unwrap_or_default().rsplit_once('/').map_or("", |(group, _)| group);
        let resources = self.server.resources();
        let resource = resources.into_iter().find(|one| one.kind() == kind && one.group() == group);
        let resource = resource.unwrap_or_else(|| panic!("unknown kind {kind}"));
        let namespace = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => namespace.to_owned(),
            None if resource.is_namespaced() => NAMESPACE.to_owned(),
            None => String::new(),
        };
        self.server.create(resource, &namespace, object, &WriteOptions::default()).unwrap();
    }

    fn patch(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        part: Option<Subresource>,
        patch: Value,
    ) {
        let options =
            WriteOptions { field_manager: Some("kubectl-patch".to_owned()), ..WriteOptions::default() };
        self.server.patch(resource, namespace, name, part, ApiPatch::strategic(patch), &options).unwrap();
    }

    /// Resource, namespace and name of a reference.
    fn resolve(&self, object: &ObjectRef) -> (Resource, String, String) {
        let resource = self.resource(&object.group, &object.resource);
        let name = match object.name.as_str() {
            "new" | "old" if object.resource == "replicasets" => self.replica_set(object.name == "new"),
            name => name.to_owned(),
        };
        (resource, object.namespace.clone(), name)
    }

    /// Name of the ReplicaSet with the highest revision, or with the one before it.
    fn replica_set(&self, new: bool) -> String {
        objects::replica_set_name(self.list(Resource::REPLICA_SETS), new).unwrap()
    }

    fn list(&self, resource: Resource) -> Vec<Value> {
        let namespace = resource.is_namespaced().then_some(NAMESPACE);
        let list = self.server.list(resource, namespace, &ListOptions::default()).unwrap();
        list.items.iter().map(|object| object.value().clone()).collect()
    }

    /// Pods of the Deployment, sorted by name.
    fn pods(&self, which: Which, count: usize) -> Vec<Value> {
        let deployment = self.get("apps", "deployments", NAMESPACE, NAME);
        objects::select_pods(self.list(Resource::PODS), &deployment, which, count)
    }

    fn patch_pods(&self, which: Which, count: usize, part: Option<Subresource>, patch: &Value) {
        for pod in self.pods(which, count) {
            self.patch(
                Resource::PODS,
                NAMESPACE,
                pod["metadata"]["name"].as_str().unwrap(),
                part,
                patch.clone(),
            );
        }
    }

    fn patch_nodes(&self, names: &[String], part: Option<Subresource>, patch: &Value) {
        for name in names {
            self.patch(Resource::NODES, "", name, part, patch.clone());
        }
    }

    async fn step(&mut self, step: &Step) {
        let now = || kcm_api::Time::new(self.clock.now());
        match step {
            Step::Advance(time) => self.clock.sleep(*time).await,
            Step::Change(change) => {
                self.patch(Resource::DEPLOYMENTS, NAMESPACE, NAME, None, patch_of(change));
                self.changes.push((self.clock.now(), patch_of(change)));
            }
            Step::Create(object) => self.create(object.clone()),
            Step::Patch(Patch { object, patch, status }) => {
                let (resource, namespace, name) = self.resolve(object);
                self.patch(resource, &namespace, &name, status.then_some(Subresource::Status), patch.clone());
            }
            Step::Delete(object) => {
                let (resource, namespace, name) = self.resolve(object);
                self.server.delete(resource, &namespace, &name, &DeleteOptions::default()).unwrap();
            }
            Step::DeletePods(deletion) => {
                for pod in self.pods(deletion.which, deletion.count) {
                    let name = pod["metadata"]["name"].as_str().unwrap();
                    self.server.delete(Resource::PODS, NAMESPACE, name, &DeleteOptions::default()).unwrap();
                }
            }
            Step::PatchPods(one) => self.patch_pods(one.which, one.count, None, &one.patch),
            Step::PodStatus(report) => {
                let patch = json!({ "status": report.status });
                self.patch_pods(report.which, report.count, Some(Subresource::Status), &patch);
            }
            Step::Condition(Condition { which, type_, status }) => {
                let patch = condition_patch(type_, status, now());
                self.patch_pods(*which, usize::MAX, Some(Subresource::Status), &patch);
            }
            Step::PodEvent(event) => {
                for pod in self.pods(event.which, usize::MAX) {
                    self.create(objects::warning(event, &pod, now()));
                }
            }
            Step::Controllers(Running::Stopped) => self.controllers = None,
            Step::Controllers(Running::Running) => self.start_controllers(),
            Step::Lease(running) => {
                self.renew_lease();
                self.lease_renewed = *running == Running::Running;
            }
            Step::Refuse(refusal) => self.refusals.lock().push(refusal.clone()),
            Step::Allow(request) => self.refusals.lock().retain(|one| one.request != *request),
            Step::Cordon(names) => {
                self.patch_nodes(names, None, &json!({ "spec": { "unschedulable": true } }));
            }
            Step::Uncordon(names) => {
                self.patch_nodes(names, None, &json!({ "spec": { "unschedulable": null } }));
            }
            Step::LoseNodes(names) => {
                let patch = objects::lost_node_patch(now());
                self.patch_nodes(names, Some(Subresource::Status), &patch);
                // The node lifecycle controller marks the pods.
                let patch = condition_patch("Ready", "False", now());
                for pod in self.pods(Which::All, usize::MAX) {
                    let name = pod["metadata"]["name"].as_str().unwrap();
                    if names.iter().any(|node| pod["spec"]["nodeName"] == **node) {
                        self.patch(Resource::PODS, NAMESPACE, name, Some(Subresource::Status), patch.clone());
                    }
                }
            }
            Step::AsRead(patch) => self.as_read = patch.clone(),
            Step::Hide(resources) => self.hidden.extend(resources.iter().cloned()),
            Step::ReadQueues => self.reads_queues = true,
        }
    }
}

/// Fields of a patch, in the form of `managedFields`.
fn fields_of(patch: &Value) -> Value {
    let Some(members) = patch.as_object() else { return json!({}) };
    members.iter().map(|(name, value)| (format!("f:{name}"), fields_of(value))).collect::<Map<_, _>>().into()
}

fn refuse(refusal: &Refusal) -> Response<Full<Bytes>> {
    let code = StatusCode::from_u16(refusal.code).unwrap();
    let response = Response::builder().status(code).header(CONTENT_TYPE, "application/json");
    response.body(Full::from(refusal.status().to_string())).unwrap()
}
