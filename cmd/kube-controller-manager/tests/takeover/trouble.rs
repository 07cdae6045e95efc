//! An API server that will not let a manager have the lease, or is not there at all: a clear line, tries at a pace
//! that harms nobody, no write, and it goes on once it can.

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
use parking_lot::Mutex;
use tracing::{Event, Level, Subscriber, field::Visit};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt as _};

use crate::{
    line::{Answer, Fate, Instead, State, answer},
    world::World,
};

/// Keeps the warnings and errors that are logged, each as one text.
#[derive(Clone, Default)]
struct Complaints(Arc<Mutex<Vec<String>>>);

impl Complaints {
    fn told(&self) -> Vec<String> {
        self.0.lock().clone()
    }
}

impl<S: Subscriber> Layer<S> for Complaints {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        if *event.metadata().level() <= Level::WARN {
            let mut text = Text(String::new());
            event.record(&mut text);
            self.0.lock().push(text.0);
        }
    }
}

fn is_of_lease(request: &Request<Body>) -> bool {
    request.uri().path().contains("/leases")
        && !request.uri().query().is_some_and(|query| query.contains("watch"))
}

/// Answers what `concerns` with `trouble` for as long as that lasts, and counts. `watches` of the lease are refused.
struct Trouble {
    lasts: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Duration>>>,
    complaints: Complaints,
    _log: tracing::subscriber::DefaultGuard,
}

impl Trouble {
    fn new(world: &World, concerns: fn(&Request<Body>) -> bool, trouble: fn() -> Answer) -> (Self, Instead) {
        let complaints = Complaints::default();
        let log = tracing::subscriber::set_default(tracing_subscriber::registry().with(complaints.clone()));
        let this =
            Self { lasts: Arc::new(AtomicBool::new(true)), seen: Arc::default(), complaints, _log: log };
        let (lasts, seen, clock) =
            (Arc::clone(&this.lasts), Arc::clone(&this.seen), Arc::clone(&world.clock));
        let instead: Instead = Arc::new(move |request| {
            if !lasts.load(Ordering::Relaxed) || !concerns(request) {
                return Fate::Served;
            }
            seen.lock().push(clock.monotonic());
            Fate::Answered(trouble())
        });
        (this, instead)
    }

    fn ends(&self) {
        self.lasts.store(false, Ordering::Relaxed);
    }

    /// How many requests came, and how many at most within a second.
    fn counts(&self) -> (usize, usize) {
        let seen = self.seen.lock().clone();
        let window = |from: &Duration| {
            seen.iter().filter(|at| **at >= *from && **at < *from + Duration::from_secs(1)).count()
        };
        (seen.len(), seen.iter().map(window).max().unwrap_or_default())
    }
}

/// A manager alone, whose requests for the lease end like this for five minutes.
async fn manager_survives(
    name: &str,
    concerns: fn(&Request<Body>) -> bool,
    trouble: fn() -> Answer,
    line: &str,
) {
    let world = World::new(KubeletConfig::default());
    let (trouble, instead) = Trouble::new(&world, concerns, trouble);
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(instead));
    world.deploy("web", 3);
    world.sleep(300).await;
    assert!(manager.is_running(), "{name}");
    assert!(world.writes().is_empty(), "{name}: {:?}", world.writes());
    let (requests, at_most) = trouble.counts();
    println!("{name}: {requests} requests in five minutes, {at_most} in a second at most");
    // A try every 2 s to 4.4 s, of one request or two.
    assert!((4..=300).contains(&requests) && at_most <= 4, "{name}: {requests}, {at_most}");
    let complaints = trouble.complaints.told();
    assert!(complaints.iter().any(|told| told.contains(line)), "{name}: {complaints:#?}");
    assert!(complaints.len() <= 150, "{name}: {} lines", complaints.len());

    trouble.ends();
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
async fn lease_that_cannot_be_had_is_tried_for_at_an_easy_pace_with_a_clear_line() {
    let no_namespace = |request: &Request<Body>| is_of_lease(request) && request.method() == Method::POST;
    manager_survives(
        "no namespace",
        no_namespace,
        || answer(404, NO_NAMESPACE, None),
        "namespaces \"kube-system\" not found",
    )
    .await;
    manager_survives("403", is_of_lease, || answer(403, FORBIDDEN, None), "cannot get resource").await;
    manager_survives("401", is_of_lease, || answer(401, "", None), "the server answered 401 Unauthorized")
        .await;
    manager_survives("500", is_of_lease, || answer(500, "", None), "500 Internal Server Error").await;
    manager_survives("garbage", is_of_lease, || answer(200, "<html>", None), "failed to decode the response")
        .await;
    manager_survives("429", is_of_lease, || answer(429, "", Some("1")), "429 Too Many Requests").await;
    manager_survives(
        "503 now and then",
        is_of_lease,
        || answer(503, "", Some("30")),
        "503 Service Unavailable",
    )
    .await;
}

#[tokio::test(start_paused = true)]
async fn lease_that_may_not_be_watched_is_held_all_the_same() {
    let world = World::new(KubeletConfig::default());
    let watches = |request: &Request<Body>| {
        request.uri().path().contains("/leases")
            && request.uri().query().is_some_and(|query| query.contains("watch"))
    };
    let (trouble, instead) = Trouble::new(&world, watches, || answer(403, FORBIDDEN, None));
    let leader = world.start("manager-b");
    world.until_led_by("manager-b").await;
    let standby = world.start_with("manager-a", RateLimit::UNLIMITED, Some(instead));
    world.sleep(600).await;
    let (requests, _) = trouble.counts();
    assert!((20..=30).contains(&requests), "{requests}");
    let complaints = trouble.complaints.told();
    assert!(complaints.is_empty(), "{complaints:?}");
    leader.shutdown.cancel();
    let took = world.until_led_by("manager-a").await;
    assert!(took <= Duration::from_millis(4_450), "at its next turn: {took:?}");
    standby.shutdown.cancel();
    standby.ended().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn server_that_is_not_there_at_the_start_is_waited_for() {
    let world = World::new(KubeletConfig::default());
    let everything = |_: &Request<Body>| true;
    let (trouble, instead) = Trouble::new(&world, everything, || answer(503, "", None));
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(instead));
    world.deploy("web", 3);
    world.sleep(600).await;
    assert!(manager.is_running());
    let (requests, at_most) = trouble.counts();
    println!("no server: {requests} requests in ten minutes, {at_most} in a second at most");
    assert!(requests < 600 && at_most <= 12, "{requests}, {at_most}");
    trouble.ends();
    world.until_rolled_out("web").await;
    world.assert_never_two_writers();
}

#[tokio::test(start_paused = true)]
async fn server_that_is_ill_when_a_manager_is_elected_ends_it_and_the_lease_is_given_back() {
    let world = World::new(KubeletConfig::default());
    let health = |request: &Request<Body>| request.uri().path() == "/healthz";
    let (_trouble, instead) = Trouble::new(&world, health, || answer(500, "", None));
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(instead));
    world.until_led_by("manager-a").await;
    let began = world.now();
    let error = manager.ended().await.unwrap_err();
    assert!(matches!(error, RunError::ApiServer { .. }), "{error}");
    assert_eq!((world.now() - began).as_secs(), 9, "{:?}", world.now() - began);
    assert_eq!((world.leader(), world.writes().len()), (String::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn standby_told_to_stop_while_there_is_no_server_stops_at_once() {
    let world = World::new(KubeletConfig::default());
    let manager = world.start("manager-a");
    manager.switch.set(State::Cut);
    world.sleep(20).await;
    let began = world.now();
    manager.shutdown.cancel();
    manager.ended().await.unwrap();
    assert_eq!(world.now(), began);
}

#[tokio::test(start_paused = true)]
async fn leader_with_a_write_that_does_not_end_leaves_the_lease_to_run_out() {
    let world = World::new(KubeletConfig::default());
    let is_pod =
        |request: &Request<Body>| request.method() == Method::POST && request.uri().path().ends_with("/pods");
    let instead: Instead = Arc::new(move |request| if is_pod(request) { Fate::Lost } else { Fate::Served });
    let manager = world.start_with("manager-a", RateLimit::DEFAULT, Some(instead));
    world.until_led_by("manager-a").await;
    let _standby = world.start("manager-b");
    world.deploy("web", 3);
    world.sleep(5).await;
    let began = world.now();
    manager.shutdown.cancel();
    let error = manager.ended().await.unwrap_err();
    assert_eq!(error.to_string(), "controller shutdown timeout reached: replicaset-controller did not stop");
    // The time to stop, and some more for what is under way.
    assert_eq!(world.now() - began, Duration::from_secs(12));
    // What it has sent may yet be carried out: nobody else may begin before that is past.
    assert_eq!(world.leader(), "manager-a");
    let took = world.until_led_by("manager-b").await;
    assert!(took >= Duration::from_secs(12), "{took:?}");
    world.until_rolled_out("web").await;
    world.assert_never_two_writers();
}

#[tokio::test(start_paused = true)]
async fn leader_with_more_to_do_than_there_is_time_for_gives_the_lease_back_all_the_same() {
    let world = World::new(KubeletConfig::default());
    let manager = world.start_with("manager-a", RateLimit { qps: 1.0, burst: 1 }, None);
    world.until_led_by("manager-a").await;
    let _standby = world.start("manager-b");
    for number in 0..20 {
        world.deploy(&format!("web-{number}"), 3);
    }
    world.sleep(5).await;
    let began = world.now();
    manager.shutdown.cancel();
    let error = manager.ended().await.unwrap_err();
    assert!(error.to_string().starts_with("controller shutdown timeout reached: "), "{error}");
    world.until_led_by("manager-b").await;
    let took = world.now() - began;
    // The lease is read and written, at this slow pace.
    assert!(took <= Duration::from_millis(12_100), "{took:?}");
    for number in 0..20 {
        world.until_rolled_out(&format!("web-{number}")).await;
    }
    world.assert_never_two_writers();
    assert_eq!((world.count("create", "replicasets"), world.count("create", "pods")), (20, 60));
}
