use std::collections::VecDeque;

use async_trait::async_trait;
use kcm_api::{
    ApiError, Status, StatusCause, StatusDetails, error::CAUSE_NAMESPACE_TERMINATING, error::reason,
};
use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;

/// A server that notes when it was asked what, and answers as told, or with what it was sent.
struct Server {
    clock: Arc<dyn Clock>,
    answers: Mutex<VecDeque<Result<(), ApiError>>>,
    asked: Mutex<Vec<Asked>>,
    /// What it calls what it creates, if not by the name it was sent.
    renames_to: Mutex<Option<&'static str>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Asked {
    /// Milliseconds since the start.
    at: u128,
    verb: &'static str,
    namespace: String,
    name: String,
    count: i64,
}

impl Server {
    fn ask(&self, verb: &'static str, namespace: &str, name: &str, body: &Value) -> Result<Value, ApiError> {
        self.asked.lock().push(Asked {
            at: self.clock.monotonic().as_millis(),
            verb,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            count: body["count"].as_i64().unwrap(),
        });
        self.answers.lock().pop_front().unwrap_or(Ok(()))?;
        let mut stored = body.clone();
        stored["metadata"]["name"] = self.renames_to.lock().unwrap_or(name).into();
        Ok(stored)
    }
}

#[async_trait]
impl EventSink for Server {
    async fn create(&self, namespace: &str, event: &Value) -> Result<Value, ApiError> {
        assert_eq!(event["metadata"]["namespace"], namespace);
        self.ask("create", namespace, event["metadata"]["name"].as_str().unwrap(), event)
    }

    async fn patch(&self, namespace: &str, name: &str, patch: &Value) -> Result<Value, ApiError> {
        assert!(patch.get("metadata").is_none(), "{patch}");
        self.ask("patch", namespace, name, patch)
    }
}

struct World {
    clock: Arc<SimulatedClock>,
    server: Arc<Server>,
    broadcaster: EventBroadcaster,
    recorder: Arc<dyn EventRecorder>,
}

/// Half past midnight on 1 January 2026, and a server that answers with `answers` first.
fn world(answers: impl IntoIterator<Item = Result<(), ApiError>>) -> World {
    let clock = Arc::new(SimulatedClock::new("2026-01-01T00:30:00Z".parse::<Timestamp>().unwrap()));
    let server = Arc::new(Server {
        clock: clock.clone(),
        answers: Mutex::new(answers.into_iter().collect()),
        asked: Mutex::default(),
        renames_to: Mutex::default(),
    });
    let random = Arc::new(SeededRandom::new(7));
    let broadcaster = EventBroadcaster::start(server.clone(), clock.clone(), random);
    let recorder = broadcaster.recorder("deployment-controller");
    World { clock, server, broadcaster, recorder }
}

impl World {
    fn tell(&self, message: impl Into<String>) {
        let web = ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "0b1c".into(),
            resource_version: "42".to_owned(),
        };
        self.recorder.event(&web, EventType::Normal, "ScalingReplicaSet", message.into());
    }

    /// What the server was asked, by verb and count, once all is written.
    async fn settled(&self) -> Vec<(&'static str, i64)> {
        self.broadcaster.shutdown(Duration::from_secs(3600)).await;
        self.server.asked.lock().iter().map(|asked| (asked.verb, asked.count)).collect()
    }

    fn asked_at(&self) -> Vec<u128> {
        self.server.asked.lock().iter().map(|asked| asked.at).collect()
    }
}

fn unreachable() -> Result<(), ApiError> {
    Err(ApiError::Transport("connection refused".to_owned()))
}

#[tokio::test(start_paused = true)]
async fn event_told_is_created_in_the_namespace_of_its_object() {
    let world = world([]);
    world.tell("Scaled up");
    assert_eq!(world.settled().await, [("create", 1)]);
    let asked = world.server.asked.lock()[0].clone();
    let nanos = "2026-01-01T00:30:00Z".parse::<Timestamp>().unwrap().as_nanosecond();
    assert_eq!((asked.namespace, asked.name), ("shop".to_owned(), format!("web.{nanos:x}")));
}

#[tokio::test(start_paused = true)]
async fn events_of_one_instant_have_different_names() {
    let world = world([]);
    for n in 0..5 {
        world.tell(n.to_string());
    }
    assert_eq!(world.settled().await, [("create", 1); 5]);
    let mut names: Vec<_> = world.server.asked.lock().iter().map(|asked| asked.name.clone()).collect();
    names.dedup();
    assert_eq!(names.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn event_repeated_is_patched_under_the_first_ones_name() {
    let world = world([]);
    for _ in 0..3 {
        world.tell("Scaled up");
        world.clock.sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(world.settled().await, [("create", 1), ("patch", 2), ("patch", 3)]);
    let asked = world.server.asked.lock();
    assert!(asked.iter().all(|other| other.name == asked[0].name), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn event_that_the_server_renamed_is_patched_under_its_new_name() {
    let world = world([]);
    *world.server.renames_to.lock() = Some("web.renamed");
    world.tell("Scaled up");
    world.tell("Scaled up");
    world.settled().await;
    assert_eq!(world.server.asked.lock()[1].name, "web.renamed");
}

#[tokio::test(start_paused = true)]
async fn patch_of_an_event_that_has_expired_creates_it_with_its_count() {
    let world = world([Ok(()), Err(ApiError::status(404, reason::NOT_FOUND, "no such event"))]);
    for _ in 0..3 {
        world.tell("Scaled up");
    }
    assert_eq!(world.settled().await, [("create", 1), ("patch", 2), ("create", 2), ("patch", 3)]);
}

#[tokio::test(start_paused = true)]
async fn refusal_is_final() {
    let terminating = ApiError::Status(Box::new(Status {
        reason: reason::FORBIDDEN.to_owned(),
        code: 403,
        details: Some(StatusDetails {
            causes: vec![StatusCause {
                reason: CAUSE_NAMESPACE_TERMINATING.to_owned(),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ..Default::default()
    }));
    let refusals = [
        ApiError::status(409, reason::ALREADY_EXISTS, "already exists"),
        ApiError::status(403, reason::FORBIDDEN, "forbidden"),
        ApiError::status(429, reason::TOO_MANY_REQUESTS, "slow down"),
        ApiError::status(500, "InternalError", "etcd"),
        terminating,
    ];
    let world = world(refusals.map(Err));
    for n in 0..6 {
        world.tell(n.to_string());
    }
    assert_eq!(world.settled().await, [("create", 1); 6], "each once, and the one after them as well");
    assert_eq!(world.asked_at(), [0; 6], "without a wait");
}

#[tokio::test(start_paused = true)]
async fn server_out_of_reach_is_tried_again_first_after_a_random_time_then_every_ten_seconds() {
    let world = world([
        unreachable(),
        Err(ApiError::Timeout("events".to_owned())),
        Err(ApiError::Decode("not JSON".to_owned())),
    ]);
    world.tell("Scaled up");
    world.tell("Scaled down");
    assert_eq!(world.settled().await, [("create", 1); 5]);
    let at = world.asked_at();
    assert!((1..10_000).contains(&at[1]), "{at:?}");
    let second = at[1];
    assert_eq!(at, [0, second, second + 10_000, second + 20_000, second + 20_000]);
}

#[tokio::test(start_paused = true)]
async fn event_is_given_up_after_twelve_tries_and_the_next_goes_on() {
    let world = world((0..12).map(|_| unreachable()));
    world.tell("lost");
    world.tell("kept");
    assert_eq!(world.settled().await, [("create", 1); 13]);
    let at = world.asked_at();
    assert_eq!(at[11] - at[1], 100_000);
    assert_eq!(at[12], at[11], "nobody sleeps after the last try");
}

#[tokio::test(start_paused = true)]
async fn first_wait_differs_from_client_to_client() {
    let mut waits = Vec::new();
    for seed in 0..3 {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let server = Arc::new(Server {
            clock: clock.clone(),
            answers: Mutex::new([unreachable()].into()),
            asked: Mutex::default(),
            renames_to: Mutex::default(),
        });
        let random = Arc::new(SeededRandom::new(seed));
        let broadcaster = EventBroadcaster::start(server.clone(), clock, random);
        let event = (ObjectReference::default(), EventType::Normal);
        broadcaster.recorder("test").event(&event.0, event.1, "Reason", String::new());
        broadcaster.shutdown(Duration::from_secs(60)).await;
        waits.push(server.asked.lock()[1].at);
    }
    waits.dedup();
    assert_eq!(waits.len(), 3, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn events_beyond_a_thousand_waiting_are_dropped_and_telling_never_blocks() {
    let world = world([]);
    for n in 0..MAX_QUEUED_EVENTS + 50 {
        let regarding = ObjectReference { name: format!("web-{n}").into(), ..Default::default() };
        world.recorder.event(&regarding, EventType::Normal, "Reason", "message".to_owned());
    }
    assert_eq!(world.settled().await.len(), MAX_QUEUED_EVENTS);
    assert_eq!(world.server.asked.lock().last().unwrap().namespace, "default");
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_what_is_queued_and_takes_nothing_more() {
    let world = world([]);
    for n in 0..3 {
        world.tell(n.to_string());
    }
    world.broadcaster.shutdown(Duration::from_secs(5)).await;
    assert_eq!(world.server.asked.lock().len(), 3);
    world.tell("too late");
    world.broadcaster.shutdown(Duration::from_secs(5)).await;
    tokio::task::yield_now().await;
    assert_eq!(world.server.asked.lock().len(), 3);
    assert_eq!(world.clock.monotonic(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn shutdown_gives_up_when_its_time_has_passed() {
    let world = world((0..100).map(|_| unreachable()));
    world.tell("one");
    world.tell("two");
    world.broadcaster.shutdown(Duration::from_secs(25)).await;
    assert_eq!(world.clock.monotonic(), Duration::from_secs(25));
    let asked = world.server.asked.lock().len();
    assert!((3..=4).contains(&asked), "{asked}");
    world.clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(world.server.asked.lock().len(), asked, "nothing is written after shutdown");
}

#[tokio::test(start_paused = true)]
async fn writer_ends_when_broadcaster_and_recorders_are_gone() {
    let world = world([]);
    world.tell("last words");
    let (finished, server) = (world.broadcaster.finished.clone(), Arc::clone(&world.server));
    drop(world.broadcaster);
    tokio::task::yield_now().await;
    assert!(!finished.is_cancelled());
    drop(world.recorder);
    finished.cancelled().await;
    assert_eq!(server.asked.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rollout_of_twelve_steps_is_nine_events_and_one_combined_that_is_patched() {
    let world = world([]);
    for step in 0..12 {
        world.tell(format!("Scaled up replica set web-1 from {step} to {}", step + 1));
    }
    let mut expected = vec![("create", 1); 10];
    expected.extend([("patch", 2), ("patch", 3)]);
    assert_eq!(world.settled().await, expected);
}

#[test]
fn server_in_these_tests_answers_with_what_it_was_sent() {
    let clock = Arc::new(kcm_clock::FakeClock::new(Timestamp::UNIX_EPOCH));
    let server =
        Server { clock, answers: Mutex::default(), asked: Mutex::default(), renames_to: Mutex::default() };
    let answer = server.ask("patch", "shop", "web.1", &json!({ "count": 2 })).unwrap();
    assert_eq!(answer, json!({ "count": 2, "metadata": { "name": "web.1" } }));
}
