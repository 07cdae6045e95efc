//! Failing requests for the lease, and an unavailable API server: the manager logs the error, retries at a limited rate,
//! writes nothing, and recovers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Method, Request};
use kcm_client::{Body, RateLimit};
use kcm_controller_manager::RunError;
use kcm_sandbox::KubeletConfig;
use kcm_testkit::CapturedLog;
use parking_lot::Mutex;
use tracing::{level_filters::LevelFilter, subscriber::DefaultGuard};

use crate::takeover::{
    connection::{Fault, Outcome, Response, State, response},
    world::World,
};

fn is_of_lease(request: &Request<Body>) -> bool {
    request.uri().path().contains("/leases")
        && !request.uri().query().is_some_and(|query| query.contains("watch"))
}

/// Failure of all requests that match, until it ends. Records the times of these requests.
struct Failure {
    is_active: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Duration>>>,
    /// Warnings and errors.
    log: CapturedLog,
    _guard: DefaultGuard,
}

impl Failure {
    fn new(world: &World, matches: fn(&Request<Body>) -> bool, failed: fn() -> Response) -> (Self, Fault) {
        let (log, guard) = CapturedLog::of_this_thread(LevelFilter::WARN);
        let is_active = Arc::new(AtomicBool::new(true));
        let this = Self { is_active, seen: Arc::default(), log, _guard: guard };
        let (is_active, seen, clock) =
            (Arc::clone(&this.is_active), Arc::clone(&this.seen), Arc::clone(&world.clock));
        let fault: Fault = Arc::new(move |request| {
            if !is_active.load(Ordering::Relaxed) || !matches(request) {
                return Outcome::Served;
            }
            seen.lock().push(clock.monotonic());
            Outcome::Response(failed())
        });
        (this, fault)
    }

    fn end(&self) {
        self.is_active.store(false, Ordering::Relaxed);
    }

    /// Number of failed requests, and the maximum within a second.
    fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock().clone();
        let window = |from: &Duration| {
            seen.iter().filter(|at| **at >= *from && **at < *from + Duration::from_secs(1)).count()
        };
        (seen.len(), seen.iter().map(window).max().unwrap_or_default())
    }
}

/// Runs a manager whose requests for the lease fail for five minutes.
async fn assert_recovers(
    name: &str,
    matches: fn(&Request<Body>) -> bool,
    failed: fn() -> Response,
    line: &str,
) {
    let world = World::new(KubeletConfig::default());
    let (failure, fault) = Failure::new(&world, matches, failed);
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(fault));
    world.deploy("web", 3);
    world.sleep(300).await;
    assert!(manager.is_running(), "{name}");
    assert!(world.writes().is_empty(), "{name}: {:?}", world.writes());
    let (requests, at_most) = failure.counts();
    println!("{name}: {requests} requests in five minutes, {at_most} in a second at most");
    // An attempt every 2 s to 4.4 s, of one or two requests.
    assert!((4..=300).contains(&requests) && at_most <= 4, "{name}: {requests}, {at_most}");
    let warnings = failure.log.text();
    assert!(warnings.contains(line), "{name}: {warnings}");
    assert!(warnings.lines().count() <= 150, "{name}: {} lines", warnings.lines().count());

    failure.end();
    world.until_led_by("manager-a").await;
    world.until_rolled_out("web").await;
    manager.shutdown.cancel();
    manager.ended().await.unwrap();
}

const FORBIDDEN: &str = r#"{"kind":"Status","status":"Failure","reason":"Forbidden","code":403,
    "message":"leases.coordination.k8s.io is forbidden: User \"u\" cannot get resource \"leases\""}"#;
const NO_NAMESPACE: &str = r#"{"kind":"Status","status":"Failure","reason":"NotFound","code":404,
    "message":"namespaces \"kube-system\" not found"}"#;

#[tokio::test(start_paused = true)]
async fn failing_lease_requests_are_logged_and_retried() {
    let no_namespace = |request: &Request<Body>| is_of_lease(request) && request.method() == Method::POST;
    assert_recovers(
        "no namespace",
        no_namespace,
        || response(404, NO_NAMESPACE, None),
        "namespaces \"kube-system\" not found",
    )
    .await;
    assert_recovers("403", is_of_lease, || response(403, FORBIDDEN, None), "cannot get resource").await;
    assert_recovers("401", is_of_lease, || response(401, "", None), "the server answered 401 Unauthorized")
        .await;
    assert_recovers("500", is_of_lease, || response(500, "", None), "500 Internal Server Error").await;
    assert_recovers(
        "garbage",
        is_of_lease,
        || response(200, "<html>", None),
        "failed to decode the response",
    )
    .await;
    assert_recovers("429", is_of_lease, || response(429, "", Some("1")), "429 Too Many Requests").await;
    assert_recovers(
        "503 now and then",
        is_of_lease,
        || response(503, "", Some("30")),
        "503 Service Unavailable",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn lease_is_held_without_permission_to_watch() {
    let world = World::new(KubeletConfig::default());
    let watches = |request: &Request<Body>| {
        request.uri().path().contains("/leases")
            && request.uri().query().is_some_and(|query| query.contains("watch"))
    };
    let (failure, fault) = Failure::new(&world, watches, || response(403, FORBIDDEN, None));
    let leader = world.start("manager-b");
    world.until_led_by("manager-b").await;
    let standby = world.start_with("manager-a", RateLimit::UNLIMITED, Some(fault));
    world.sleep(600).await;
    let (requests, _) = failure.counts();
    assert!((20..=30).contains(&requests), "{requests}");
    let warnings = failure.log.text();
    assert!(warnings.is_empty(), "{warnings}");
    leader.shutdown.cancel();
    let took = world.until_led_by("manager-a").await;
    assert!(took <= Duration::from_millis(4_450), "at the next retry: {took:?}");
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn unavailable_api_server_is_waited_for() {
    let world = World::new(KubeletConfig::default());
    let everything = |_: &Request<Body>| true;
    let (failure, fault) = Failure::new(&world, everything, || response(503, "", None));
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(fault));
    world.deploy("web", 3);
    world.sleep(600).await;
    assert!(manager.is_running());
    let (requests, at_most) = failure.counts();
    println!("no server: {requests} requests in ten minutes, {at_most} in a second at most");
    assert!(requests < 600 && at_most <= 12, "{requests}, {at_most}");
    failure.end();
    world.until_rolled_out("web").await;
    world.assert_single_writer();
}

#[tokio::test(start_paused = true)]
async fn unhealthy_api_server_at_takeover_is_an_error_and_releases_the_lease() {
    let world = World::new(KubeletConfig::default());
    let health = |request: &Request<Body>| request.uri().path() == "/healthz";
    let (_trouble, fault) = Failure::new(&world, health, || response(500, "", None));
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(fault));
    world.until_led_by("manager-a").await;
    let start = world.now();
    let error = manager.ended().await.unwrap_err();
    assert!(matches!(error, RunError::ApiServer { .. }), "{error}");
    assert_eq!((world.now() - start).as_secs(), 9, "{:?}", world.now() - start);
    assert_eq!((world.leader(), world.writes().len()), (String::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn standby_without_an_api_server_stops_immediately() {
    let world = World::new(KubeletConfig::default());
    let manager = world.start("manager-a");
    manager.switch.set(State::Cut);
    world.sleep(20).await;
    let start = world.now();
    manager.shutdown.cancel();
    manager.ended().await.unwrap();
    assert_eq!(world.now(), start);
}

#[tokio::test(start_paused = true)]
async fn pending_write_keeps_the_lease_until_expiry() {
    let world = World::new(KubeletConfig::default());
    let is_pod =
        |request: &Request<Body>| request.method() == Method::POST && request.uri().path().ends_with("/pods");
    let fault: Fault = Arc::new(move |request| if is_pod(request) { Outcome::Lost } else { Outcome::Served });
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(fault));
    world.until_led_by("manager-a").await;
    let _standby = world.start("manager-b");
    world.deploy("web", 3);
    world.sleep(5).await;
    let start = world.now();
    manager.shutdown.cancel();
    let error = manager.ended().await.unwrap_err();
    assert_eq!(error.to_string(), "controller shutdown timeout reached: replicaset-controller did not stop");
    // The shutdown timeout, and the time for writes in progress.
    assert_eq!(world.now() - start, Duration::from_secs(12));
    // The API server may still perform the write, so the lease is not released.
    assert_eq!(world.leader(), "manager-a");
    let took = world.until_led_by("manager-b").await;
    assert!(took >= Duration::from_secs(12), "{took:?}");
    world.until_rolled_out("web").await;
    world.assert_single_writer();
}

#[tokio::test(start_paused = true)]
async fn shutdown_timeout_without_pending_writes_releases_the_lease() {
    let world = World::new(KubeletConfig::default());
    let manager = world.start_with("manager-a", RateLimit { qps: 1.0, burst: 1 }, None);
    world.until_led_by("manager-a").await;
    let _standby = world.start("manager-b");
    for number in 0..20 {
        world.deploy(&format!("web-{number}"), 3);
    }
    world.sleep(5).await;
    let start = world.now();
    manager.shutdown.cancel();
    let error = manager.ended().await.unwrap_err();
    assert!(error.to_string().starts_with("controller shutdown timeout reached: "), "{error}");
    world.until_led_by("manager-b").await;
    let took = world.now() - start;
    // Includes a read and a write of the Lease at this rate limit.
    assert!(took <= Duration::from_millis(12_100), "{took:?}");
    for number in 0..20 {
        world.until_rolled_out(&format!("web-{number}")).await;
    }
    world.assert_single_writer();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (20, 60));
}
