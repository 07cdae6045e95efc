//! Embedded cluster in simulated time, in which changes are made for real.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcm_apiserver::{
    ApiServer, ApiServerConfig, AuditEvent, ListOptions, Patch, Resource, WatchEvent, WatchStart, Watcher,
    WriteOptions,
};
use kcm_client::{ClientFactory, ClientOptions};
use kcm_clock::{Clock, Random, SeededRandom, SimulatedClock, Timestamp};
use kcm_controller_manager::{Controllers, Dependencies, ManagerConfig};
use kcm_preview::{Change, ChangeRequest, Snapshot};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) const NAMESPACE: &str = "shop";
const NAME: &str = "web";
/// Time without writes after which nothing more happens: longer than the progress deadline.
const QUIET: Duration = Duration::from_secs(700);

/// Time from creation to readiness, and from deletion to removal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) ready: Duration,
    pub(crate) stop: Duration,
}

/// Consecutive writes of the same kind.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) seconds: f64,
    pub(crate) verb: String,
    pub(crate) resource: String,
    /// Name of the Deployment or ReplicaSet, or of the ReplicaSet of the pods.
    pub(crate) name: String,
    pub(crate) replicas: Option<i64>,
    pub(crate) count: usize,
}

impl Write {
    /// `true` if the writes differ at most in their times.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let fields = |write: &Self| (write.replicas, write.count);
        self.verb == other.verb
            && self.resource == other.resource
            && self.name == other.name
            && fields(self) == fields(other)
    }
}

/// Course of a change.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub(crate) writes: Vec<Write>,
    pub(crate) most_pods: i32,
    pub(crate) most_with_terminating: i32,
    pub(crate) fewest_available: i32,
}

type Requests = Arc<Mutex<Vec<(Duration, AuditEvent)>>>;

pub(crate) struct World {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    requests: Requests,
    _controllers: Controllers,
    _stop: DropGuard,
}

#[derive(Debug)]
struct NoJitter;

impl Random for NoJitter {
    fn next_u64(&self) -> u64 {
        0
    }
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
    pub(crate) fn new(timing: Timing) -> Self {
        let start: Timestamp = "2026-01-15T00:00:00Z".parse().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(77));
        let requests = Requests::default();
        let (sink, audit_clock) = (Arc::clone(&requests), Arc::clone(&clock));
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            audit: Some(Arc::new(move |event: &AuditEvent| {
                let is_write = matches!(event.verb, "create" | "update" | "patch" | "delete");
                if is_write && event.object.as_ref().is_some_and(|object| object.resource != "events") {
                    sink.lock().unwrap().push((audit_clock.monotonic(), event.clone()));
                }
            })),
            ..ApiServerConfig::default()
        });
        let namespace = json!({ "metadata": { "name": NAMESPACE } });
        server.create(Resource::NAMESPACES, "", namespace, &WriteOptions::default()).unwrap();
        let sandbox = Sandbox::new(SandboxConfig {
            server: Arc::clone(&server),
            clock: Arc::clone(&clock),
            random: Arc::new(NoJitter),
            nodes: 3,
            kubelet: KubeletConfig { pod_ready_delay: timing.ready, pod_stop_delay: timing.stop },
        })
        .unwrap();
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        tokio::spawn(async move { sandbox.run(stop).await });
        let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(&clock));
        let clients = ClientFactory::in_process(server.service(), options);
        let dependencies = Dependencies::new(&clients, &clock, &random);
        let controllers = kcm_controller_manager::start(&ManagerConfig::default(), &dependencies);
        Self { server, clock, requests, _controllers: controllers, _stop: guard }
    }

    /// Creates a Deployment and waits until its rollout has ended.
    pub(crate) async fn create(&self, manifest: Value) {
        self.make(&ChangeRequest::Create(manifest)).await;
    }

    /// Makes a change and waits until its rollout has ended.
    pub(crate) async fn change(&self, change: &Change) {
        self.make(&change.request(&self.snapshot()).unwrap()).await;
    }

    /// Makes a change and waits for some time.
    pub(crate) async fn begin(&self, change: &Change, wait: Duration) {
        self.perform(&change.request(&self.snapshot()).unwrap());
        self.clock.sleep(wait).await;
    }

    /// Limits the number of pods.
    pub(crate) fn quota(&self, pods: u32) {
        let quota =
            json!({ "metadata": { "name": "pods" }, "spec": { "hard": { "pods": pods.to_string() } } });
        self.server.create(Resource::RESOURCE_QUOTAS, NAMESPACE, quota, &WriteOptions::default()).unwrap();
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let deployment = self.server.get(Resource::DEPLOYMENTS, NAMESPACE, NAME).ok();
        Snapshot {
            taken: self.clock.now(),
            namespace: NAMESPACE.to_owned(),
            name: NAME.to_owned(),
            deployment: deployment.map(|deployment| deployment.value().clone()),
            replica_sets: self.list(Resource::REPLICA_SETS),
            pods: self.list(Resource::PODS),
            nodes: self.list(Resource::NODES),
            quotas: self.list(Resource::RESOURCE_QUOTAS),
            ..Snapshot::default()
        }
    }

    fn list(&self, resource: Resource) -> Vec<Value> {
        let list = self.server.list(resource, None, &ListOptions::default()).unwrap();
        list.items.iter().map(|object| object.value().clone()).collect()
    }

    pub(crate) fn names(&self, plural: &str) -> Vec<String> {
        let resource = self.server.resource(if plural == "pods" { "" } else { "apps" }, plural).unwrap();
        self.list(resource)
            .iter()
            .map(|object| object["metadata"]["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Makes a change, and returns everything that happens.
    pub(crate) async fn make(&self, request: &ChangeRequest) -> Observed {
        let mut watcher = self.server.watch_everything(WatchStart::Now);
        let mut counts = Counts::new(&self.list(Resource::PODS));
        counts.count(self.clock.now(), self.min_ready());
        self.requests.lock().unwrap().clear();
        let started = self.clock.monotonic();
        self.perform(request);
        let min_ready = self.min_ready();
        while let Some(event) = self.next_event(&mut watcher).await {
            counts.observe(&event, self.clock.now(), min_ready);
        }
        let mut observed = counts.observed;
        for (at, event) in &*self.requests.lock().unwrap() {
            if event.failure.is_none() && event.object.as_ref().unwrap().subresource.is_empty() {
                observed.push(at.saturating_sub(started), event, &counts.owners);
            }
        }
        observed
    }

    fn perform(&self, request: &ChangeRequest) {
        let (resource, options) = (Resource::DEPLOYMENTS, WriteOptions::default());
        match request {
            ChangeRequest::Create(object) => {
                self.server.create(resource, NAMESPACE, object.clone(), &options)
            }
            ChangeRequest::Patch { type_, body } => self.server.patch(
                resource,
                NAMESPACE,
                NAME,
                None,
                Patch { form: *type_, body: body.clone() },
                &options,
            ),
            ChangeRequest::Replace(object) => {
                self.server.update(resource, NAMESPACE, object.clone(), &options)
            }
        }
        .unwrap();
    }

    /// `minReadySeconds` of the Deployment, or 0 if it does not exist.
    fn min_ready(&self) -> i64 {
        let deployment = self.server.get(Resource::DEPLOYMENTS, NAMESPACE, NAME);
        deployment.ok().and_then(|object| object.value()["spec"]["minReadySeconds"].as_i64()).unwrap_or(0)
    }

    async fn next_event(&self, watcher: &mut Watcher) -> Option<WatchEvent> {
        tokio::select! {
            biased;
            event = watcher.next() => Some(event.unwrap()),
            () = self.clock.sleep(QUIET) => None,
        }
    }
}

impl Observed {
    fn push(&mut self, at: Duration, event: &AuditEvent, owners: &HashMap<String, String>) {
        let object = event.object.as_ref().unwrap();
        let body = event.request_object.as_ref().unwrap_or(&Value::Null);
        let given = body["metadata"]["name"].as_str().unwrap_or_default();
        let name = if object.name.is_empty() { given.to_owned() } else { object.name.clone() };
        let name = if object.resource == "pods" { owners[&name].clone() } else { name };
        let replicas = body["spec"]["replicas"].as_i64().filter(|_| object.resource == "replicasets");
        let (verb, resource) = (event.verb.to_owned(), object.resource.clone());
        self.writes.push(Write { seconds: at.as_secs_f64(), verb, resource, name, replicas, count: 1 });
    }
}

/// Pods at a time.
struct Counts {
    pods: HashMap<String, Value>,
    /// Names of ReplicaSets by names of pods.
    owners: HashMap<String, String>,
    observed: Observed,
}

impl Counts {
    fn new(pods: &[Value]) -> Self {
        let mut counts = Self { pods: HashMap::new(), owners: HashMap::new(), observed: Observed::default() };
        pods.iter().for_each(|pod| counts.insert(pod));
        counts.observed.fewest_available = i32::MAX;
        counts
    }

    fn insert(&mut self, pod: &Value) {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let metadata = &pod["metadata"];
        self.owners.insert(text(&metadata["name"]), text(&metadata["ownerReferences"][0]["name"]));
        self.pods.insert(text(&metadata["uid"]), pod.clone());
    }

    fn observe(&mut self, event: &WatchEvent, now: Timestamp, min_ready: i64) {
        let Some(object) = event.object().filter(|object| object.resource() != Resource::EVENTS) else {
            return;
        };
        match event {
            _ if object.resource() != Resource::PODS => {}
            WatchEvent::Deleted(pod) => {
                self.pods.remove(pod.uid());
            }
            _ => self.insert(object.value()),
        }
        self.count(now, min_ready);
    }

    fn count(&mut self, now: Timestamp, min_ready: i64) {
        let (terminating, active): (Vec<_>, Vec<_>) =
            self.pods.values().partition(|pod| pod["metadata"].get("deletionTimestamp").is_some());
        let is_available = |pod: &&&Value| {
            let conditions = pod["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            conditions.iter().filter(|one| one["type"] == "Ready" && one["status"] == "True").any(|ready| {
                let since: Timestamp = ready["lastTransitionTime"].as_str().unwrap().parse().unwrap();
                now.duration_since(since).as_secs_f64() >= min_ready as f64
            })
        };
        let number = |count: usize| i32::try_from(count).unwrap();
        let available = number(active.iter().filter(is_available).count());
        let (pods, all) = (number(active.len()), number(active.len() + terminating.len()));
        let observed = &mut self.observed;
        observed.most_pods = observed.most_pods.max(pods);
        observed.most_with_terminating = observed.most_with_terminating.max(all);
        observed.fewest_available = observed.fewest_available.min(available);
    }
}
