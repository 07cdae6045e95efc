//! Caches of a new leader: no controller starts with a state from before the election.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Request;
use kcm_apiserver::{HistoryLimits, Resource, WatchCacheLag, WriteOptions};
use kcm_client::Body;
use kcm_controller_manager::RunError;
use kcm_sandbox::KubeletConfig;
use serde_json::json;

use crate::takeover::{
    connection::{Fault, Outcome, Response, State, response},
    slow_pods,
    world::{Running, World},
};

const PODS: usize = 10;

/// Fault that can be switched on and off.
#[derive(Clone, Default)]
struct FaultSwitch(Arc<AtomicBool>);

impl FaultSwitch {
    fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    fn fault(
        &self,
        matches: fn(&Request<Body>) -> bool,
        outcome: impl Fn() -> Outcome + Send + Sync + 'static,
    ) -> Fault {
        let on = Arc::clone(&self.0);
        Arc::new(
            move |request| {
                if on.load(Ordering::Relaxed) && matches(request) { outcome() } else { Outcome::Served }
            },
        )
    }
}

/// Returns `true` for lists and watches of cached resources.
fn is_read(request: &Request<Body>) -> bool {
    let cached = ["/pods", "/replicasets", "/deployments"];
    request.method() == "GET" && cached.iter().any(|end| request.uri().path().ends_with(end))
}

fn is_watch(request: &Request<Body>) -> bool {
    is_read(request) && request.uri().query().is_some_and(|query| query.contains("watch=true"))
}

fn is_streaming_list(request: &Request<Body>) -> bool {
    is_read(request) && request.uri().query().is_some_and(|query| query.contains("sendInitialEvents=true"))
}

fn is_pod_creation(request: &Request<Body>) -> bool {
    request.method() == "POST" && request.uri().path().ends_with("/pods")
}

/// Watch that is accepted and then ends with 410.
fn expired() -> Response {
    const LINE: &str = concat!(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"too old resource version: 1 (2)","reason":"Expired","code":410}}"#,
        "\n"
    );
    response(200, LINE, None)
}

fn unsupported() -> Response {
    const STATUS: &str = r#"{"kind":"Status","status":"Failure","reason":"Invalid","code":422,
        "message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}"#;
    response(422, STATUS, None)
}

/// Leader whose creations of pods can fail.
struct Leader {
    running: Running,
    creations: FaultSwitch,
}

impl Leader {
    async fn start(world: &World) -> Self {
        let creations = FaultSwitch::default();
        let fault_function = creations.fault(is_pod_creation, || Outcome::Response(response(500, "", None)));
        let running = world.start_at("manager-a", world.server.service(), Some(fault_function));
        world.until_led_by("manager-a").await;
        Self { running, creations }
    }

    /// Creates the pods of a ReplicaSet that is in all caches, and shuts down immediately.
    async fn shut_down_after_creations(self, world: &World) {
        self.creations.set(true);
        world.deploy("web", PODS as u32);
        world.sleep(20).await;
        assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, 0));
        self.creations.set(false);
        world.until("the pods are created", |world| world.count("create", "pods") == PODS).await;
        self.running.shutdown.cancel();
        self.running.ended().await.unwrap();
        world.until_led_by("manager-b").await;
    }
}

/// Waits for the new leader's first write. Returns the time waited.
async fn until_first_write(world: &World) -> Duration {
    let first = |world: &World| world.writes().iter().any(|entry| entry.manager == "manager-b");
    world.until("the new leader writes", first).await
}

/// Asserts that the rollout completes without extra pods.
async fn assert_nothing_is_created_twice(world: &World) {
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    world.assert_single_writer();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, PODS));
    assert_eq!(world.count("delete", "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn takeover_with_current_caches_takes_less_than_200_ms() {
    let world = World::new(slow_pods());
    let leader = world.start("manager-a");
    world.until_led_by("manager-a").await;
    let _standby = world.start("manager-b");
    world.deploy("web", 1);
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    world.deploy("api", 1);
    let took = until_first_write(&world).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn lagging_watch_cache_is_waited_for() {
    // The API server rejects streaming lists if its watch cache lags by more than 3 s.
    for lag in [2, 10] {
        let world = World::new(slow_pods());
        let leader = Leader::start(&world).await;
        let lagging = world.server.service_lagging(WatchCacheLag::new(Duration::from_secs(lag)));
        let _standby = world.start_at("manager-b", lagging, None);
        world.sleep(60).await;
        leader.shut_down_after_creations(&world).await;
        assert_nothing_is_created_twice(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn consistent_lists_replace_streaming_lists() {
    for lag in [0, 2, 10] {
        let world = World::new(slow_pods());
        let leader = Leader::start(&world).await;
        let fault = FaultSwitch::default();
        fault.set(true);
        let fault_function = fault.fault(is_streaming_list, || Outcome::Response(unsupported()));
        let lagging = world.server.service_lagging(WatchCacheLag::new(Duration::from_secs(lag)));
        let _standby = world.start_at("manager-b", lagging, Some(fault_function));
        world.sleep(60).await;
        leader.shut_down_after_creations(&world).await;
        assert_nothing_is_created_twice(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn compacted_version_causes_a_relist() {
    let history = HistoryLimits { events: 20, ..HistoryLimits::default() };
    let world = World::with_history(slow_pods(), history);
    let leader = Leader::start(&world).await;
    let standby = world.start("manager-b");
    world.sleep(5).await;
    standby.switch.freeze_streams();
    leader.shut_down_after_creations(&world).await;
    assert_nothing_is_created_twice(&world).await;
}

#[tokio::test(start_paused = true)]
async fn expired_watch_does_not_make_a_cache_current() {
    let world = World::new(slow_pods());
    let leader = Leader::start(&world).await;
    let fault = FaultSwitch::default();
    let standby = world.start_at(
        "manager-b",
        world.server.service(),
        Some(fault.fault(is_watch, || Outcome::Response(expired()))),
    );
    world.sleep(5).await;
    standby.switch.freeze_streams();
    fault.set(true);
    leader.shut_down_after_creations(&world).await;
    world.sleep(20).await;
    assert!(!world.writes().iter().any(|entry| entry.manager == "manager-b"), "caches are not current");
    fault.set(false);
    assert_nothing_is_created_twice(&world).await;
}

#[tokio::test(start_paused = true)]
async fn streaming_list_without_a_response_times_out() {
    let world = World::new(slow_pods());
    let leader = Leader::start(&world).await;
    let fault = FaultSwitch::default();
    let standby =
        world.start_at("manager-b", world.server.service(), Some(fault.fault(is_watch, || Outcome::Lost)));
    world.sleep(5).await;
    standby.switch.freeze_streams();
    fault.set(true);
    leader.shut_down_after_creations(&world).await;
    let took = until_first_write(&world).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
    fault.set(false);
    world.assert_single_writer();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, PODS));
}

#[tokio::test(start_paused = true)]
async fn failing_lists_are_retried_until_the_caches_are_current() {
    let outcomes: [fn() -> Outcome; 3] = [
        || Outcome::Response(response(200, "", None)),
        || Outcome::Response(response(500, "", None)),
        || Outcome::Response(response(429, "", Some("1"))),
    ];
    for outcome in outcomes {
        let world = World::new(slow_pods());
        let leader = Leader::start(&world).await;
        let fault = FaultSwitch::default();
        let standby =
            world.start_at("manager-b", world.server.service(), Some(fault.fault(is_read, outcome)));
        world.sleep(5).await;
        standby.switch.freeze_streams();
        fault.set(true);
        leader.shut_down_after_creations(&world).await;
        world.sleep(20).await;
        assert!(!world.writes().iter().any(|entry| entry.manager == "manager-b"), "caches are not current");
        fault.set(false);
        assert_nothing_is_created_twice(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pending_first_list_is_replaced() {
    let world = World::new(slow_pods());
    let leader = world.start("manager-a");
    world.until_led_by("manager-a").await;
    let fault = FaultSwitch::default();
    fault.set(true);
    let _standby =
        world.start_at("manager-b", world.server.service(), Some(fault.fault(is_read, || Outcome::Lost)));
    world.sleep(2).await;
    fault.set(false);
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    world.deploy("web", PODS as u32);
    let took = until_first_write(&world).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert_nothing_is_created_twice(&world).await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_with_stale_caches_releases_the_lease() {
    let world = World::new(slow_pods());
    let fault = FaultSwitch::default();
    fault.set(true);
    let fault_function = fault.fault(is_read, || Outcome::Lost);
    let manager = world.start_at("manager-b", world.server.service(), Some(fault_function));
    world.until_led_by("manager-b").await;
    world.sleep(30).await;
    let start = world.now();
    manager.shutdown.cancel();
    manager.ended().await.unwrap();
    assert!(world.now() - start < Duration::from_millis(100));
    assert_eq!((world.leader(), world.writes().len()), (String::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn losing_the_lease_with_stale_caches_is_an_error() {
    let world = World::new(slow_pods());
    let fault = FaultSwitch::default();
    fault.set(true);
    let fault_function = fault.fault(is_read, || Outcome::Lost);
    let manager = world.start_at("manager-b", world.server.service(), Some(fault_function));
    world.until_led_by("manager-b").await;
    manager.switch.set(State::Cut);
    assert!(matches!(manager.ended().await, Err(RunError::LeaseLost(_))));
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn large_backlog_is_cached_before_the_controllers_start() {
    // An unoptimized build takes 15 s for 50,000 pods.
    const BACKLOG: usize = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    let world = World::new(KubeletConfig::default());
    let leader = Leader::start(&world).await;
    let standby = world.start("manager-b");
    world.sleep(5).await;
    standby.switch.freeze_streams();
    for number in 0..BACKLOG {
        // The scheduling gate keeps the pods pending.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("other-{number}")},
            "spec": {"schedulingGates": [{"name": "test"}], "containers": [{"name": "c", "image": "app:1"}]},
        });
        world.server.create(Resource::PODS, "default", pod, &WriteOptions::default()).unwrap();
    }
    leader.shut_down_after_creations(&world).await;
    assert_nothing_is_created_twice(&world).await;
}
