//! Objects, caches and a fake API server for tests.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use kcm_api::{
    ApiError, Labels, ObjectKey, Phase, Pod, PodControllerRef, PodDecoder, Ready, ReplicaSet, Time,
    error::reason,
};
use kcm_clock::{Clock, FakeClock, Random, SeededRandom, Timestamp};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{
    OwnedObjects, PodControl, PodManifest, ReplicaSetControl, pod_indexers, replica_set_indexers,
};
use kcm_events::FakeRecorder;
use kcm_expectations::{GroupResource, OwnWrites};
use kcm_informer::{
    EventHandler, InformerConfig, SharedInformer, StoreWriter,
    testing::{FakeSource, SetResourceVersion},
};
use kcm_runtime::{KeyQueue, Watch, owned_handler, primary_handler};
use kcm_workqueue::QueueConfig;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    REPLICA_SET, ReplicaSetMetrics, events::ReplicaSetEvents, execute::Executor, handlers, sync::Syncer,
};

/// Current time of all tests.
pub(crate) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Returns the time `seconds` before [`now`].
pub(crate) fn ago(seconds: i64) -> Option<Time> {
    Some(Time::from_unix(now().as_second() - seconds))
}

/// Returns a ReplicaSet with one label in selector and template. Its UID is `NAME-uid`.
pub(crate) fn replica_set(name: &str, replicas: i32) -> ReplicaSet {
    changed_replica_set(name, replicas, &json!({}))
}

/// Returns [`replica_set`] with the fields of `change` replaced.
pub(crate) fn changed_replica_set(name: &str, replicas: i32, change: &Value) -> ReplicaSet {
    let mut object = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("{name}-uid"), "resourceVersion": "10",
            "generation": 1,
        },
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
        },
    });
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, change: &Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (name, value) in change {
                merge(into.entry(name.clone()).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change.clone(),
    }
}

/// Returns a running orphan that [`replica_set`] selects.
pub(crate) fn pod(name: &str) -> Pod {
    Pod {
        key: ObjectKey::new("default", name),
        uid: format!("{name}-uid").into(),
        resource_version: "5".into(),
        labels: Arc::new(Labels::from([("app".to_owned(), "web".to_owned())])),
        controller: None,
        creation_timestamp: None,
        deletion_timestamp: None,
        node_name: Some("node".into()),
        phase: Phase::Running,
        ready: Ready::default(),
        deletion_cost: 0,
        max_restarts: 0,
        max_sidecar_restarts: 0,
        waiting: kcm_api::Waiting::NoFailure,
    }
}

/// `pod`, managed by the ReplicaSet `owner`.
pub(crate) fn owned_by(owner: &ReplicaSet, pod: Pod) -> Pod {
    let controller = PodControllerRef {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: owner.metadata.name.clone(),
        uid: owner.metadata.uid.clone(),
        block_owner_deletion: Some(true),
    };
    Pod { controller: Some(Arc::new(controller)), ..pod }
}

/// So many running pods of `owner`.
pub(crate) fn pods_of(owner: &ReplicaSet, count: usize) -> Vec<Pod> {
    (0..count).map(|number| owned_by(owner, pod(&format!("pod-{number}")))).collect()
}

/// `pod`, ready since then.
pub(crate) fn ready(pod: Pod, since: Option<Time>) -> Pod {
    Pod { ready: Ready { is_ready: true, since }, ..pod }
}

/// `pod`, on its way out.
pub(crate) fn going(pod: Pod) -> Pod {
    Pod { deletion_timestamp: ago(1), ..pod }
}

/// `pod` with a label that [`replica_set`] does not select.
pub(crate) fn relabelled(pod: Pod) -> Pod {
    Pod { labels: Arc::new(Labels::from([("app".to_owned(), "other".to_owned())])), ..pod }
}

/// Returns a newer version of `pod`.
pub(crate) fn newer(pod: Pod) -> Pod {
    Pod { resource_version: "6".into(), ..pod }
}

/// Returns an error that the controller does not treat specially.
pub(crate) fn refusal(message: &str) -> ApiError {
    ApiError::status(403, reason::FORBIDDEN, message)
}

/// API server that records requests, and fails those that a test selects.
#[derive(Default)]
pub(crate) struct Cluster {
    requests: Mutex<Vec<String>>,
    statuses: Mutex<Vec<ReplicaSet>>,
    created: AtomicUsize,
    /// Names of the pods in create requests.
    names: Mutex<Vec<String>>,
    /// Number of creates that succeed, and the error of all others.
    pub(crate) refuse_creates: Mutex<Option<(usize, ApiError)>>,
    /// Errors of the next creates.
    pub(crate) create_errors: Mutex<VecDeque<ApiError>>,
    /// Error of the creates of a pod, by its name.
    pub(crate) name_errors: Mutex<HashMap<String, ApiError>>,
    /// Called by the first create.
    pub(crate) before_create: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Change of the pods that are created, as by a webhook.
    pub(crate) change_created: Mutex<Option<Value>>,
    /// If `true`, no create returns.
    hang_creates: AtomicBool,
    pub(crate) refuse_deletes: Mutex<Vec<(String, ApiError)>>,
    pub(crate) refuse_patches: Mutex<Option<ApiError>>,
    /// Names of pods that are being deleted according to the API server, but not to the cache.
    pub(crate) deleting: Mutex<Vec<String>>,
    /// Results of the next uncached reads of pods. Later reads find no pod.
    pub(crate) found_pods: Mutex<VecDeque<Result<Option<Pod>, ApiError>>>,
    /// Errors of the next status updates.
    pub(crate) refuse_statuses: Mutex<VecDeque<ApiError>>,
    /// ReplicaSet that uncached reads return.
    pub(crate) live: Mutex<Option<ReplicaSet>>,
}

impl Cluster {
    /// Returns the requests since the last call.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    /// Returns the ReplicaSets of the status updates since the last call.
    pub(crate) fn take_statuses(&self) -> Vec<ReplicaSet> {
        std::mem::take(&mut self.statuses.lock())
    }

    /// Returns the names in the create requests since the last call.
    pub(crate) fn take_names(&self) -> Vec<String> {
        std::mem::take(&mut self.names.lock())
    }

    /// Returns the name in the last create request.
    pub(crate) fn last_name(&self) -> String {
        self.names.lock().last().cloned().unwrap()
    }

    /// Lets no create return.
    pub(crate) fn hang_creates(&self) {
        self.hang_creates.store(true, Ordering::SeqCst);
    }

    fn note(&self, request: String) {
        self.requests.lock().push(request);
    }
}

#[async_trait]
impl PodControl for Cluster {
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError> {
        self.note("create".to_owned());
        self.names.lock().push(key.name.to_string());
        let number = self.created.fetch_add(1, Ordering::SeqCst);
        if self.hang_creates.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        let before = self.before_create.lock().take();
        if let Some(before) = before {
            before();
        }
        if let Some(error) = self.create_errors.lock().pop_front() {
            return Err(error);
        }
        if let Some(error) = self.name_errors.lock().get(&*key.name) {
            return Err(error.clone());
        }
        if let Some((allowed, error)) = &*self.refuse_creates.lock()
            && number >= *allowed
        {
            return Err(error.clone());
        }
        let mut pod: Value = serde_json::from_str(&manifest.to_json(&key.name)).unwrap();
        pod["metadata"]["namespace"] = json!(key.namespace);
        pod["metadata"]["resourceVersion"] = json!((1000 + number).to_string());
        if let Some(change) = &*self.change_created.lock() {
            merge(&mut pod, change);
        }
        Ok(PodDecoder::default().decode_value(&pod).unwrap())
    }

    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError> {
        self.note(format!("delete {}", pod.name));
        let refused = self.refuse_deletes.lock();
        refused.iter().find(|(name, _)| **name == *pod.name).map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    async fn patch_pod(&self, key: &ObjectKey, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        let verb = if patch.is_adoption() { "adopt" } else { "release" };
        self.note(format!("{verb} {}", key.name));
        if let Some(error) = &*self.refuse_patches.lock() {
            return Err(error.clone());
        }
        let is_deleting = self.deleting.lock().iter().any(|name| **name == *key.name);
        let deleted = if is_deleting { ago(0) } else { None };
        let answer = Pod { resource_version: "2000".into(), deletion_timestamp: deleted, ..pod(&key.name) };
        Ok(if verb == "adopt" { owned_by(&replica_set("web", 0), answer) } else { relabelled(answer) })
    }

    async fn find_pod(&self, _: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        self.note("find".to_owned());
        self.found_pods.lock().pop_front().unwrap_or(Ok(None))
    }
}

#[async_trait]
impl ReplicaSetControl for Cluster {
    async fn get_replica_set(&self, key: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.note("get".to_owned());
        let body = json!({
            "code": 404, "reason": reason::NOT_FOUND, "message": format!("no {key}"), "details": {"name": key.name},
        });
        let not_found = || ApiError::Status(Box::new(serde_json::from_value(body).unwrap()));
        self.live.lock().clone().ok_or_else(not_found)
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.note("status".to_owned());
        self.statuses.lock().push(replica_set.clone());
        match self.refuse_statuses.lock().pop_front() {
            Some(error) => Err(error),
            None => {
                let mut answer = replica_set.clone();
                answer.metadata.resource_version = "3000".to_owned();
                Ok(answer)
            }
        }
    }

    async fn create_replica_set(&self, _: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        panic!("this controller creates no ReplicaSets")
    }

    async fn update_replica_set(&self, _: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        panic!("this controller changes nothing but the status")
    }

    async fn delete_replica_set(&self, _: &ObjectKey) -> Result<(), ApiError> {
        panic!("this controller deletes no ReplicaSets")
    }

    async fn patch_replica_set(&self, _: &ObjectKey, _: &OwnerPatch) -> Result<ReplicaSet, ApiError> {
        panic!("this controller patches no ReplicaSets")
    }
}

/// Recorded metrics.
#[derive(Default)]
pub(crate) struct Metrics {
    pub(crate) ratios: Mutex<Vec<f64>>,
    pub(crate) skips: Mutex<Vec<String>>,
}

impl ReplicaSetMetrics for Metrics {
    fn sorting_deletion_age_ratio(&self, ratio: f64) {
        self.ratios.lock().push(ratio);
    }

    fn stale_sync_skip(&self, resource: GroupResource) {
        self.skips.lock().push(resource.to_string());
    }
}

/// Caches, API server, clock and controller of a test.
pub(crate) struct World {
    pub(crate) pods: Arc<Mutex<StoreWriter<Pod>>>,
    pub(crate) replica_sets: StoreWriter<ReplicaSet>,
    pub(crate) clock: FakeClock,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) events: Arc<FakeRecorder>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) syncer: Syncer,
    pub(crate) queue: KeyQueue,
    pub(crate) pod_handler: Arc<dyn EventHandler<Pod>>,
    pub(crate) replica_set_handler: Arc<dyn EventHandler<ReplicaSet>>,
}

impl World {
    /// An empty world.
    pub(crate) fn new() -> Self {
        Self::with_random(Arc::new(SeededRandom::new(1)))
    }

    /// An empty world whose pod names are generated from `random`.
    pub(crate) fn with_random(random: Arc<dyn Random>) -> Self {
        let clock = FakeClock::new(now());
        Self::with(clock.clone(), Arc::new(clock), random, 500, true)
    }

    /// An empty world with a burst, and without versions of caches: syncs wait for expectations alone.
    pub(crate) fn without_consistency(burst_replicas: usize) -> Self {
        let clock = FakeClock::new(now());
        let random = Arc::new(SeededRandom::new(1));
        Self::with(clock.clone(), Arc::new(clock), random, burst_replicas, false)
    }

    /// An empty world with another clock for expectations.
    pub(crate) fn with_expectations_clock(clock: Arc<dyn Clock>) -> Self {
        Self::with(FakeClock::new(now()), clock, Arc::new(SeededRandom::new(1)), 500, true)
    }

    fn with(
        clock: FakeClock,
        expectations_clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        burst_replicas: usize,
        is_consistent: bool,
    ) -> Self {
        let pods = StoreWriter::new(pod_indexers());
        let replica_sets = StoreWriter::new(replica_set_indexers());
        let cluster = Arc::new(Cluster::default());
        let recorder = Arc::new(FakeRecorder::new());
        let metrics = Arc::new(Metrics::default());
        let versions = [
            (GroupResource::PODS, pods.reader().version_reader()),
            (GroupResource::REPLICA_SETS, replica_sets.reader().version_reader()),
        ];
        let caches = versions.into_iter().filter(|_| is_consistent);
        let own_writes = Arc::new(OwnWrites::new(expectations_clock, caches));
        let events = Arc::new(ReplicaSetEvents { kind_config: REPLICA_SET, recorder: recorder.clone() });
        let owned_pods = OwnedObjects {
            clock: Arc::new(clock.clone()),
            random,
            cache: pods.reader(),
            resource: GroupResource::PODS,
            own_writes: own_writes.clone(),
        };
        let executor = Executor {
            pods: owned_pods,
            pod_control: cluster.clone(),
            replica_set_control: cluster.clone(),
            metrics: metrics.clone(),
            events,
        };
        let syncer = Syncer {
            status_turns: Arc::new(kcm_controller_util::NoStatusTurns),
            kind_config: REPLICA_SET,
            clock: Arc::new(clock.clone()),
            replica_sets: replica_sets.reader(),
            executor,
            burst_replicas,
            coalesce_status_writes: true,
        };
        let queue = KeyQueue::new(QueueConfig::new("replicaset", Arc::new(clock.clone())));
        let records = Some(own_writes.clone());
        let watch = handlers::pods(&idle_informer(&clock), replica_sets.reader(), REPLICA_SET.kind);
        let pod_handler =
            owned_handler(watch, pods.reader(), replica_sets.reader(), queue.clone(), records.clone());
        let watch = Watch::new(&idle_informer(&clock));
        let replica_set_handler = primary_handler(watch, queue.clone(), records);
        let pods = Arc::new(Mutex::new(pods));
        Self {
            pods,
            replica_sets,
            clock,
            cluster,
            events: recorder,
            metrics,
            own_writes,
            syncer,
            queue,
            pod_handler,
            replica_set_handler,
        }
    }

    /// Adds `replica_set` to the cache and the API server.
    pub(crate) fn add_replica_set(&mut self, replica_set: &ReplicaSet) -> ObjectKey {
        *self.cluster.live.lock() = Some(replica_set.clone());
        self.cache_replica_set(replica_set)
    }

    /// Adds `replica_set` to the cache.
    pub(crate) fn cache_replica_set(&mut self, replica_set: &ReplicaSet) -> ObjectKey {
        self.replica_sets.apply(Arc::new(replica_set.clone()));
        replica_set.metadata.key()
    }

    /// Adds `pods` to the cache.
    pub(crate) fn add_pods(&mut self, pods: impl IntoIterator<Item = Pod>) {
        let mut writer = self.pods.lock();
        for pod in pods {
            writer.apply(Arc::new(pod));
        }
    }

    /// Makes the caches newer than all writes.
    pub(crate) fn catch_up(&mut self) {
        self.pods.lock().bookmark("1000000");
        self.replica_sets.bookmark("1000000");
    }

    /// Removes all keys from the queue and returns their names, sorted.
    pub(crate) async fn take_queued(&self) -> Vec<String> {
        let queue = &self.queue;
        let mut names = Vec::new();
        while !queue.is_empty() {
            let key = queue.get().await.unwrap();
            names.push(key.name.to_string());
        }
        names.sort();
        names
    }
}

/// Returns an informer that does not run.
fn idle_informer<K: SetResourceVersion + Clone>(clock: &FakeClock) -> SharedInformer<K> {
    let clock: Arc<dyn Clock> = Arc::new(clock.clone());
    let source = Arc::new(FakeSource::new(Arc::clone(&clock)));
    SharedInformer::new(InformerConfig::new("idle", source, clock, Arc::new(SeededRandom::new(1))))
}

/// Joins `requests`, with the count of equal successive ones.
pub(crate) fn summary(requests: &[String]) -> String {
    let mut parts: Vec<(String, usize)> = Vec::new();
    for request in requests {
        match parts.last_mut() {
            Some((last, count)) if last == request => *count += 1,
            _ => parts.push((request.clone(), 1)),
        }
    }
    let texts = parts.into_iter().map(|(request, count)| match count {
        1 => request,
        count => format!("{request} x{count}"),
    });
    texts.collect::<Vec<_>>().join(", ")
}
