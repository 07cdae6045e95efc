//! A new leader's caches: no controller starts on a state from before the election.

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

use crate::{
    line::{Answer, Fate, Instead, State, answer},
    slow_pods,
    world::{Running, World},
};

const PODS: usize = 10;

/// Applies a fault to some requests while it is on.
#[derive(Clone, Default)]
struct Fault(Arc<AtomicBool>);

impl Fault {
    fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    fn instead(
        &self,
        concerns: fn(&Request<Body>) -> bool,
        fate: impl Fn() -> Fate + Send + Sync + 'static,
    ) -> Instead {
        let on = Arc::clone(&self.0);
        Arc::new(
            move |request| {
                if on.load(Ordering::Relaxed) && concerns(request) { fate() } else { Fate::Served }
            },
        )
    }
}

/// A list or watch of a resource that is cached.
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

/// A watch that is accepted and then ends with 410.
fn expired() -> Answer {
    const LINE: &str = concat!(
        r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","#,
        r#""message":"too old resource version: 1 (2)","reason":"Expired","code":410}}"#,
        "\n"
    );
    answer(200, LINE, None)
}

fn unsupported() -> Answer {
    const STATUS: &str = r#"{"kind":"Status","status":"Failure","reason":"Invalid","code":422,
        "message":"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"}"#;
    answer(422, STATUS, None)
}

/// A leader whose creations of pods fail while the fault is on.
struct Leader {
    running: Running,
    creations: Fault,
}

impl Leader {
    async fn start(world: &World) -> Self {
        let creations = Fault::default();
        let instead = creations.instead(is_pod_creation, || Fate::Answered(answer(500, "", None)));
        let running = world.start_at("manager-a", world.server.service(), Some(instead));
        world.until_led_by("manager-a").await;
        Self { running, creations }
    }

    /// Creates the pods of a ReplicaSet that is old enough to be in every cache, and hands over in the same moment.
    async fn hand_over_right_after_creations(self, world: &World) {
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

/// Time from now until the new leader's first write.
async fn until_it_writes(world: &World) -> Duration {
    let first = |world: &World| world.writes().iter().any(|entry| entry.manager == "manager-b");
    world.until("the new leader writes", first).await
}

/// The rollout completes without another pod.
async fn assert_nothing_is_created_twice(world: &World) {
    world.until_rolled_out("web").await;
    world.sleep(60).await;
    world.assert_never_two_writers();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, PODS));
    assert_eq!(world.count("delete", "pods"), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_to_catch_up_takes_less_than_200_ms() {
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
    let took = until_it_writes(&world).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_cache_that_lags_is_waited_for() {
    // Behind by more than 3 s, the API server refuses streaming lists from the newest state.
    for lag in [2, 10] {
        let world = World::new(slow_pods());
        let leader = Leader::start(&world).await;
        let lagging = world.server.service_lagging(WatchCacheLag::new(Duration::from_secs(lag)));
        let _standby = world.start_at("manager-b", lagging, None);
        world.sleep(60).await;
        leader.hand_over_right_after_creations(&world).await;
        assert_nothing_is_created_twice(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn server_without_streaming_lists_is_asked_for_consistent_lists() {
    for lag in [0, 2, 10] {
        let world = World::new(slow_pods());
        let leader = Leader::start(&world).await;
        let fault = Fault::default();
        fault.set(true);
        let instead = fault.instead(is_streaming_list, || Fate::Answered(unsupported()));
        let lagging = world.server.service_lagging(WatchCacheLag::new(Duration::from_secs(lag)));
        let _standby = world.start_at("manager-b", lagging, Some(instead));
        world.sleep(60).await;
        leader.hand_over_right_after_creations(&world).await;
        assert_nothing_is_created_twice(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn version_that_is_compacted_is_not_resumed_from() {
    let history = HistoryLimits { events: 20, ..HistoryLimits::default() };
    let world = World::with_history(slow_pods(), history);
    let leader = Leader::start(&world).await;
    let standby = world.start("manager-b");
    world.sleep(5).await;
    standby.switch.let_streams_die();
    leader.hand_over_right_after_creations(&world).await;
    assert_nothing_is_created_twice(&world).await;
}

#[tokio::test(start_paused = true)]
async fn watch_that_expires_right_after_it_is_opened_is_no_proof() {
    let world = World::new(slow_pods());
    let leader = Leader::start(&world).await;
    let fault = Fault::default();
    let standby = world.start_at(
        "manager-b",
        world.server.service(),
        Some(fault.instead(is_watch, || Fate::Answered(expired()))),
    );
    world.sleep(5).await;
    standby.switch.let_streams_die();
    fault.set(true);
    leader.hand_over_right_after_creations(&world).await;
    world.sleep(20).await;
    assert!(!world.writes().iter().any(|entry| entry.manager == "manager-b"), "it waits");
    fault.set(false);
    assert_nothing_is_created_twice(&world).await;
}

#[tokio::test(start_paused = true)]
async fn streaming_list_that_gets_no_answer_does_not_hold_up_the_leader() {
    let world = World::new(slow_pods());
    let leader = Leader::start(&world).await;
    let fault = Fault::default();
    let standby =
        world.start_at("manager-b", world.server.service(), Some(fault.instead(is_watch, || Fate::Lost)));
    world.sleep(5).await;
    standby.switch.let_streams_die();
    fault.set(true);
    leader.hand_over_right_after_creations(&world).await;
    let took = until_it_writes(&world).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
    fault.set(false);
    world.assert_never_two_writers();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (1, PODS));
}

#[tokio::test(start_paused = true)]
async fn api_server_that_cuts_and_refuses_is_retried_until_the_caches_are_current() {
    let fates: [fn() -> Fate; 3] = [
        || Fate::Answered(answer(200, "", None)),
        || Fate::Answered(answer(500, "", None)),
        || Fate::Answered(answer(429, "", Some("1"))),
    ];
    for fate in fates {
        let world = World::new(slow_pods());
        let leader = Leader::start(&world).await;
        let fault = Fault::default();
        let standby = world.start_at("manager-b", world.server.service(), Some(fault.instead(is_read, fate)));
        world.sleep(5).await;
        standby.switch.let_streams_die();
        fault.set(true);
        leader.hand_over_right_after_creations(&world).await;
        world.sleep(20).await;
        assert!(!world.writes().iter().any(|entry| entry.manager == "manager-b"), "it waits");
        fault.set(false);
        assert_nothing_is_created_twice(&world).await;
    }
}

#[tokio::test(start_paused = true)]
async fn first_list_that_is_under_way_at_the_election_is_replaced() {
    let world = World::new(slow_pods());
    let leader = world.start("manager-a");
    world.until_led_by("manager-a").await;
    let fault = Fault::default();
    fault.set(true);
    let _standby =
        world.start_at("manager-b", world.server.service(), Some(fault.instead(is_read, || Fate::Lost)));
    world.sleep(2).await;
    fault.set(false);
    leader.shutdown.cancel();
    leader.ended().await.unwrap();
    world.deploy("web", PODS as u32);
    let took = until_it_writes(&world).await;
    assert!(took < Duration::from_millis(200), "{took:?}");
    assert_nothing_is_created_twice(&world).await;
}

#[tokio::test(start_paused = true)]
async fn leader_told_to_stop_while_its_caches_are_behind_gives_the_lease_back_at_once() {
    let world = World::new(slow_pods());
    let fault = Fault::default();
    fault.set(true);
    let instead = fault.instead(is_read, || Fate::Lost);
    let manager = world.start_at("manager-b", world.server.service(), Some(instead));
    world.until_led_by("manager-b").await;
    world.sleep(30).await;
    let began = world.now();
    manager.shutdown.cancel();
    manager.ended().await.unwrap();
    assert!(world.now() - began < Duration::from_millis(100));
    assert_eq!((world.leader(), world.writes().len()), (String::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn leader_that_loses_the_lease_while_its_caches_are_behind_ends() {
    let world = World::new(slow_pods());
    let fault = Fault::default();
    fault.set(true);
    let instead = fault.instead(is_read, || Fate::Lost);
    let manager = world.start_at("manager-b", world.server.service(), Some(instead));
    world.until_led_by("manager-b").await;
    manager.switch.set(State::Cut);
    assert!(matches!(manager.ended().await, Err(RunError::LeaseLost(_))));
    assert!(world.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn backlog_of_pods_is_taken_in_before_the_controllers_start() {
    // A build without optimizations takes 15 s for 50,000.
    const BACKLOG: usize = if cfg!(debug_assertions) { 5_000 } else { 50_000 };
    let world = World::new(KubeletConfig::default());
    let leader = Leader::start(&world).await;
    let standby = world.start("manager-b");
    world.sleep(5).await;
    standby.switch.let_streams_die();
    for number in 0..BACKLOG {
        // The gate keeps the simulated nodes from running them.
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("other-{number}")},
            "spec": {"schedulingGates": [{"name": "test"}], "containers": [{"name": "c", "image": "app:1"}]},
        });
        world.server.create(Resource::PODS, "default", pod, &WriteOptions::default()).unwrap();
    }
    leader.hand_over_right_after_creations(&world).await;
    assert_nothing_is_created_twice(&world).await;
}
