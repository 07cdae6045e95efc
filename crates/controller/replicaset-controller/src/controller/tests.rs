//! The controller with informers and a fake API server, in simulated time.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use kcm_api::{ApiError, PodControllerRef, PodDecoder, error::reason};
use kcm_clock::{SeededRandom, SimulatedClock};
use kcm_controller_ref_manager::OwnerPatch;
use kcm_controller_util::{PodManifest, pod_indexers, replica_set_indexers};
use kcm_events::FakeRecorder;
use kcm_informer::{InformerConfig, testing::FakeSource};
use kcm_runtime::SyncResult;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::REPLICATION_CONTROLLER;
use crate::testing::{changed_replica_set, now, pod, ready, refusal, replica_set};

/// A server with pods and ReplicaSets.
struct Server {
    clock: SimulatedClock,
    pods: FakeSource<Pod>,
    replica_sets: FakeSource<ReplicaSet>,
    created: AtomicUsize,
    /// Number of creates that will be rejected.
    refusals: AtomicUsize,
    /// Number of creates that will be executed without a response.
    lost_answers: AtomicUsize,
    /// `true` if pod names that end in a digit are refused.
    refuses_digits: AtomicBool,
    /// Names of all requests, if a name is refused that was requested before.
    known_names: Mutex<Option<HashSet<String>>>,
    /// Number of creates that will fail in a webhook, which has seen the name.
    failing_webhooks: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

/// Takes one from a counter. Returns `false` if it is 0.
fn take_one(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
}

impl Server {
    fn note(&self, request: impl Into<String>) {
        self.requests.lock().push(request.into());
    }

    fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock())
    }

    fn replica_set(&self) -> ReplicaSet {
        self.replica_sets.get(&replica_set("web", 0).metadata.key()).unwrap()
    }

    /// Sets `spec.replicas`.
    fn scale(&self, replicas: i32) {
        let mut replica_set = self.replica_set();
        replica_set.spec.replicas = Some(replicas);
        replica_set.metadata.generation += 1;
        self.replica_sets.apply(replica_set);
    }

    /// Makes all pods ready.
    fn start_pods(&self) {
        for pod in self.pods.objects() {
            if !pod.ready.is_ready {
                let since = Some(self.clock.now().into());
                self.pods.apply(Pod { phase: kcm_api::Phase::Running, ..ready(pod, since) });
            }
        }
    }

    /// Returns replicas, ready and available replicas.
    fn counts(&self) -> (i32, i32, i32) {
        let status = self.replica_set().status;
        (status.replicas, status.ready_replicas, status.available_replicas)
    }
}

#[async_trait]
impl PodControl for Server {
    async fn create_pod(&self, key: &ObjectKey, manifest: &PodManifest) -> Result<Pod, ApiError> {
        self.note("create");
        if take_one(&self.refusals) {
            return Err(refusal("not yet"));
        }
        let is_known =
            self.known_names.lock().as_mut().is_some_and(|known| !known.insert(key.name.to_string()));
        let is_refused = self.refuses_digits.load(Ordering::SeqCst) && key.name.ends_with(char::is_numeric);
        if is_known || is_refused {
            return Err(refusal("the name is refused"));
        }
        if take_one(&self.failing_webhooks) {
            return Err(ApiError::status(500, "InternalError", "failed calling webhook"));
        }
        if self.pods.get(key).is_some() {
            return Err(ApiError::status(409, reason::ALREADY_EXISTS, format!("{key} already exists")));
        }
        let uid = format!("uid-{}", self.created.fetch_add(1, Ordering::SeqCst));
        let mut pod: Value = serde_json::from_str(&manifest.to_json(&key.name)).unwrap();
        pod["metadata"]["namespace"] = json!(key.namespace);
        pod["metadata"]["uid"] = json!(uid);
        let mut pod = PodDecoder::default().decode_value(&pod).unwrap();
        let is_lost = take_one(&self.lost_answers);
        if is_lost {
            self.pods.end_watches();
        }
        pod.resource_version = self.pods.apply(pod.clone()).to_string().into();
        if is_lost {
            return Err(ApiError::Transport("the connection broke".into()));
        }
        Ok(pod)
    }

    async fn find_pod(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        self.note("find");
        Ok(self.pods.get(key))
    }

    async fn delete_pod(&self, pod: &ObjectKey) -> Result<(), ApiError> {
        self.note("delete");
        let not_found = || ApiError::status(404, reason::NOT_FOUND, "gone");
        self.pods.delete(pod).map(drop).ok_or_else(not_found)
    }

    async fn patch_pod(&self, key: &ObjectKey, _: &OwnerPatch) -> Result<Pod, ApiError> {
        self.note("adopt");
        let owner = self.replica_set();
        let controller = PodControllerRef {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: owner.metadata.name.clone(),
            uid: owner.metadata.uid.clone(),
            block_owner_deletion: Some(true),
        };
        let mut pod = Pod { controller: Some(Arc::new(controller)), ..self.pods.get(key).unwrap() };
        pod.resource_version = self.pods.apply(pod.clone()).to_string().into();
        Ok(pod)
    }
}

#[async_trait]
impl ReplicaSetControl for Server {
    async fn get_replica_set(&self, _: &ObjectKey) -> Result<ReplicaSet, ApiError> {
        self.note("get");
        Ok(self.replica_set())
    }

    async fn update_replica_set_status(&self, replica_set: &ReplicaSet) -> Result<ReplicaSet, ApiError> {
        self.note("status");
        let mut stored = self.replica_sets.get(&replica_set.metadata.key()).unwrap();
        if stored.metadata.resource_version != replica_set.metadata.resource_version {
            return Err(ApiError::status(409, reason::CONFLICT, "the object has been modified"));
        }
        stored.status = replica_set.status.clone();
        stored.metadata.resource_version = self.replica_sets.apply(stored.clone()).to_string();
        Ok(stored)
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

/// Recorded sync metrics.
#[derive(Default)]
struct Syncs {
    started: AtomicUsize,
    results: Mutex<Vec<SyncResult>>,
}

impl SyncMetrics for Syncs {
    fn started(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    fn ended(&self, _: Duration, result: SyncResult) {
        self.results.lock().push(result);
    }
}

/// API server and running controller.
struct Running {
    server: Arc<Server>,
    syncs: Arc<Syncs>,
    stop: CancellationToken,
    controller: tokio::task::JoinHandle<()>,
}

impl Running {
    fn start() -> Self {
        Self::start_for(REPLICA_SET)
    }

    fn start_for(kind_config: KindConfig) -> Self {
        let clock = SimulatedClock::new(now());
        let shared: Arc<dyn Clock> = Arc::new(clock.clone());
        let server = Arc::new(Server {
            clock,
            pods: FakeSource::new(shared.clone()),
            replica_sets: FakeSource::new(shared.clone()),
            created: AtomicUsize::new(0),
            refusals: AtomicUsize::new(0),
            lost_answers: AtomicUsize::new(0),
            refuses_digits: AtomicBool::new(false),
            known_names: Mutex::default(),
            failing_webhooks: AtomicUsize::new(0),
            requests: Mutex::default(),
        });
        let random = Arc::new(SeededRandom::new(1));
        let mut config =
            InformerConfig::new("pods", Arc::new(server.pods.clone()), shared.clone(), random.clone());
        config.indexers = pod_indexers();
        let pods = SharedInformer::new(config);
        let mut config = InformerConfig::new(
            "replicasets",
            Arc::new(server.replica_sets.clone()),
            shared.clone(),
            random.clone(),
        );
        config.indexers = replica_set_indexers();
        let replica_sets = SharedInformer::new(config);
        let events = Arc::new(FakeRecorder::new());
        let syncs = Arc::new(Syncs::default());
        let controller = ReplicaSetController::new(ReplicaSetControllerConfig {
            clock: shared,
            random,
            pods: pods.clone(),
            replica_sets: replica_sets.clone(),
            pod_control: server.clone(),
            replica_set_control: server.clone(),
            recorder: events,
            options: ReplicaSetControllerOptions {
                kind_config,
                sync_metrics: syncs.clone(),
                ..ReplicaSetControllerOptions::default()
            },
        });
        let stop = CancellationToken::new();
        tokio::spawn({
            let stop = stop.clone();
            async move { tokio::join!(pods.run(stop.clone()), replica_sets.run(stop)) }
        });
        let controller = tokio::spawn({
            let stop = stop.clone();
            async move { controller.run(stop).await }
        });
        Self { server, syncs, stop, controller }
    }

    /// Advances the time.
    async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    async fn end(self) {
        self.stop.cancel();
        self.controller.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn keeps_the_number_of_replicas_and_writes_nothing_when_settled() {
    let running = Running::start();
    let server = &running.server;
    server.replica_sets.apply(replica_set("web", 3));
    running.pass(1).await;
    server.start_pods();
    running.pass(1).await;
    assert_eq!((server.pods.objects().len(), server.counts()), (3, (3, 3, 3)));

    // A deleted pod is replaced.
    let gone = server.pods.objects()[0].key.clone();
    server.pods.delete(&gone);
    running.pass(1).await;
    server.start_pods();
    running.pass(1).await;
    assert_eq!((server.pods.objects().len(), server.counts()), (3, (3, 3, 3)));
    assert!(server.pods.get(&gone).is_none());

    server.scale(1);
    running.pass(1).await;
    assert_eq!((server.pods.objects().len(), server.counts()), (1, (1, 1, 1)));

    // A settled ReplicaSet causes no requests.
    server.take_requests();
    running.pass(3600).await;
    assert_eq!(server.take_requests(), [""; 0]);
    running.end().await;
}

/// Upstream: TestWatchControllers.
#[tokio::test(start_paused = true)]
async fn watch_controllers() {
    let running = Running::start();
    running.pass(1).await;
    running.server.replica_sets.apply(replica_set("web", 1));
    running.pass(1).await;
    assert_eq!(running.server.take_requests()[..1], ["create"]);
    running.end().await;
}

/// Upstream: TestWatchPods.
#[tokio::test(start_paused = true)]
async fn watch_pods() {
    let running = Running::start();
    running.server.replica_sets.apply(replica_set("web", 1));
    running.pass(1).await;
    running.server.take_requests();
    running.server.start_pods();
    running.pass(1).await;
    assert_eq!(running.server.take_requests(), ["status"]);
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn adopts_orphans_before_it_creates_pods() {
    let running = Running::start();
    let server = &running.server;
    server.pods.apply(pod("orphan"));
    running.pass(1).await;
    server.replica_sets.apply(replica_set("web", 2));
    running.pass(1).await;
    assert_eq!(server.pods.objects().len(), 2);
    assert!(server.pods.objects().iter().all(|pod| pod.controller.is_some()));
    assert_eq!(server.take_requests()[..3], ["get", "adopt", "create"]);
    running.end().await;
}

/// Story r10: at most 500 creations per sync.
#[tokio::test(start_paused = true)]
async fn creates_more_than_a_burst_in_several_syncs() {
    let running = Running::start();
    let server = &running.server;
    server.replica_sets.apply(replica_set("web", 1020));
    running.pass(1).await;
    assert_eq!(server.pods.objects().len(), 1020);
    let requests = server.take_requests();
    let turns: Vec<_> = requests.split(|request| request != "create").map(<[_]>::len).collect();
    assert_eq!(turns.into_iter().filter(|turn| *turn > 0).collect::<Vec<_>>(), [500, 500, 20]);
    server.scale(0);
    running.pass(1).await;
    assert!(server.pods.objects().is_empty());
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn retries_failed_syncs_with_growing_delays() {
    let running = Running::start();
    let server = &running.server;
    server.refusals.store(20, Ordering::SeqCst);
    server.replica_sets.apply(replica_set("web", 2));
    // 5 ms, 10 ms, 20 ms and so on up to 1,000 s: the last refusal comes after more than 2,000 s.
    running.pass(2000).await;
    assert_eq!(server.pods.objects().len(), 0);
    assert_eq!(server.replica_set().status.conditions[0].message, "not yet");
    running.pass(2000).await;
    assert_eq!(server.pods.objects().len(), 2);
    assert!(server.replica_set().status.conditions.is_empty());
    // One creation per failed sync, and two in the last one.
    let requests = server.take_requests();
    assert_eq!(requests.iter().filter(|request| *request == "create").count(), 22);
    let results = running.syncs.results.lock().clone();
    assert_eq!(results.iter().filter(|result| **result == SyncResult::Error).count(), 20);
    assert_eq!(results.last(), Some(&SyncResult::Success));
    assert_eq!(running.syncs.started.load(Ordering::SeqCst), results.len());
    running.end().await;
}

#[test]
fn temporary_errors_are_separate() {
    let create = |error: ApiError| {
        let source = ManageError::Create(error.into());
        Syncer::classify(&SyncError::Manage { source, next_availability: None })
    };
    assert_eq!(
        create(ApiError::status(500, "InternalError", "failed calling webhook")),
        ErrorClass::Temporary
    );
    assert_eq!(create(ApiError::Transport("the connection broke".into())), ErrorClass::Temporary);
    assert_eq!(create(refusal("exceeded quota")), ErrorClass::Failed);
    let status = |code| Syncer::classify(&SyncError::Status(ApiError::status(code, "", "")));
    assert_eq!(status(503), ErrorClass::Temporary);
    assert_eq!(status(422), ErrorClass::Failed);
    assert_eq!(status(404), ErrorClass::ObjectDeleted);
}

#[tokio::test(start_paused = true)]
async fn syncs_when_a_pod_becomes_available() {
    let running = Running::start();
    let server = &running.server;
    server.replica_sets.apply(changed_replica_set("web", 2, &json!({"spec": {"minReadySeconds": 30}})));
    running.pass(1).await;
    server.start_pods();
    running.pass(28).await;
    assert_eq!(server.counts(), (2, 2, 0));
    running.pass(3).await;
    assert_eq!(server.counts(), (2, 2, 2));
    running.end().await;
}

#[tokio::test(start_paused = true)]
async fn syncs_when_a_pod_becomes_available_while_creations_fail() {
    let running = Running::start();
    let server = &running.server;
    server.replica_sets.apply(changed_replica_set("web", 2, &json!({"spec": {"minReadySeconds": 30}})));
    running.pass(1).await;
    server.refusals.store(usize::MAX, Ordering::SeqCst);
    server.scale(3);
    // The back-off exceeds five minutes.
    running.pass(1000).await;
    server.start_pods();
    running.pass(28).await;
    assert_eq!(server.counts(), (2, 2, 0));
    running.pass(3).await;
    assert_eq!(server.counts(), (2, 2, 2));
    running.end().await;
}

/// The cache of ReplicaSets receives nothing for three seconds after a status was written.
#[tokio::test(start_paused = true)]
async fn waits_for_its_status_update_unless_the_gate_is_off() {
    for reads_own_writes in [true, false] {
        let running = Running::start_for(KindConfig { reads_own_writes, ..REPLICA_SET });
        let server = &running.server;
        server.replica_sets.apply(replica_set("web", 2));
        running.pass(1).await;
        server.replica_sets.set_delay(Duration::from_secs(3));
        server.replica_sets.end_watches();
        server.start_pods();
        running.pass(1).await;
        assert_eq!(server.counts(), (2, 2, 2));

        let gone = server.pods.objects()[0].key.clone();
        server.pods.delete(&gone);
        running.pass(1).await;
        let replaced = server.pods.objects().len() == 2;
        assert_eq!(replaced, !reads_own_writes, "replaced at once");
        running.pass(10).await;
        assert_eq!(server.pods.objects().len(), 2);
        running.end().await;
    }
}

/// The watch is re-established after three seconds, long after the retry.
#[tokio::test(start_paused = true)]
async fn creates_no_pod_twice_if_responses_are_lost_and_the_watch_is_late() {
    for kind_config in [REPLICA_SET, REPLICATION_CONTROLLER] {
        let running = Running::start_for(kind_config);
        let server = &running.server;
        running.pass(1).await;
        server.pods.set_delay(Duration::from_secs(3));
        server.lost_answers.store(3, Ordering::SeqCst);
        server.replica_sets.apply(replica_set("web", 5));
        running.pass(60).await;
        let requests = server.take_requests();
        let count = |what: &str| requests.iter().filter(|request| *request == what).count();
        // Three syncs end with a create without a response. The fourth creates two pods, then repeats the three requests and
        // finds that they have taken effect.
        assert_eq!((count("create"), count("find")), (8, 3), "{}: {requests:?}", kind_config.kind);
        assert_eq!((server.pods.objects().len(), server.replica_set().status.replicas), (5, 5));
        running.end().await;
    }
}

/// Names have one of 27 last characters, of which 7 are refused: upstream needs 80 × 27/20 = 108 requests on average.
#[tokio::test(start_paused = true)]
async fn converges_while_names_are_refused() {
    let running = Running::start();
    let server = &running.server;
    server.refuses_digits.store(true, Ordering::SeqCst);
    for number in 0..8 {
        server.replica_sets.apply(replica_set(&format!("web-{number}"), 10));
    }
    running.pass(10).await;
    assert_eq!(server.pods.objects().len(), 80);
    let requests = server.take_requests();
    let creates = requests.iter().filter(|request| *request == "create").count();
    assert!((90..130).contains(&creates), "{creates} requests");
    running.end().await;
}

/// An allocator of addresses records the name of a request that then fails, and refuses it from then on.
#[tokio::test(start_paused = true)]
async fn converges_while_a_webhook_refuses_names_that_it_knows() {
    let running = Running::start();
    let server = &running.server;
    *server.known_names.lock() = Some(HashSet::new());
    server.failing_webhooks.store(3, Ordering::SeqCst);
    server.replica_sets.apply(replica_set("web", 10));
    running.pass(1).await;
    assert_eq!(server.pods.objects().len(), 7, "all but the pending ones");
    running.pass(200).await;
    assert_eq!((server.pods.objects().len(), server.replica_set().status.replicas), (10, 10));
    let requests = server.take_requests();
    assert!(!requests.contains(&"delete".to_owned()), "{requests:?}");
    running.end().await;
}
