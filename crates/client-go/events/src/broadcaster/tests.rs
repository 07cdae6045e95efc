use std::{
    collections::{BTreeSet, VecDeque},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use async_trait::async_trait;
use kcm_api::{
    ApiError, Status, StatusCause, StatusDetails, error::CAUSE_NAMESPACE_TERMINATING, error::reason,
};
use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};
use parking_lot::Mutex;

use super::*;
use crate::StoredEvent;

/// Sink that records requests. It returns the queued results first, and then each event as it was sent.
struct FakeSink {
    clock: Arc<dyn Clock>,
    results: Mutex<VecDeque<Result<(), ApiError>>>,
    requests: Mutex<Vec<SinkRequest>>,
    /// Name of stored events, if it is not the one that was sent.
    stored_name: Mutex<Option<&'static str>>,
    /// Time from a request to its response.
    latency: Mutex<Duration>,
    max_concurrent_writes: AtomicUsize,
    must_wait: AtomicBool,
}

#[derive(Debug, Clone, PartialEq)]
struct SinkRequest {
    /// Milliseconds since the start.
    at: u128,
    verb: &'static str,
    namespace: String,
    name: String,
    count: i32,
}

impl FakeSink {
    fn new(clock: Arc<dyn Clock>, results: impl IntoIterator<Item = Result<(), ApiError>>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            results: Mutex::new(results.into_iter().collect()),
            requests: Mutex::default(),
            stored_name: Mutex::default(),
            latency: Mutex::default(),
            max_concurrent_writes: AtomicUsize::new(usize::MAX),
            must_wait: AtomicBool::new(false),
        })
    }

    async fn handle(&self, verb: &'static str, event: &Event) -> Result<StoredEvent, ApiError> {
        self.requests.lock().push(SinkRequest {
            at: self.clock.monotonic().as_millis(),
            verb,
            namespace: event.namespace().to_owned(),
            name: event.name.clone(),
            count: event.count,
        });
        let result = self.results.lock().pop_front().unwrap_or(Ok(()));
        let latency = *self.latency.lock();
        if !latency.is_zero() {
            self.clock.sleep(latency).await;
        }
        result?;
        let name = self.stored_name.lock().unwrap_or(&event.name).to_owned();
        Ok(StoredEvent { name: Some(name), count: Some(event.count), ..StoredEvent::default() })
    }

    fn request_times(&self) -> Vec<u128> {
        self.requests.lock().iter().map(|request| request.at).collect()
    }
}

#[async_trait]
impl EventSink for FakeSink {
    async fn create(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        self.handle("create", event).await
    }

    async fn patch(&self, event: &Event) -> Result<StoredEvent, ApiError> {
        self.handle("patch", event).await
    }

    fn max_concurrent_writes(&self) -> usize {
        self.max_concurrent_writes.load(Ordering::Relaxed)
    }

    fn must_wait(&self) -> bool {
        self.must_wait.load(Ordering::Relaxed)
    }
}

struct TestEnv {
    clock: Arc<SimulatedClock>,
    sink: Arc<FakeSink>,
    broadcaster: EventBroadcaster,
    recorder: Arc<dyn EventRecorder>,
}

impl TestEnv {
    /// Starts at half past midnight on 1 January 2026.
    fn new(results: impl IntoIterator<Item = Result<(), ApiError>>) -> Self {
        let clock = Arc::new(SimulatedClock::new("2026-01-01T00:30:00Z".parse::<Timestamp>().unwrap()));
        let sink = FakeSink::new(clock.clone(), results);
        let random = Arc::new(SeededRandom::new(7));
        let broadcaster = EventBroadcaster::start(sink.clone(), clock.clone(), random);
        let recorder = broadcaster.recorder("deployment-controller");
        Self { clock, sink, broadcaster, recorder }
    }

    fn record(&self, message: impl Into<String>) {
        self.record_about("web", message);
    }

    fn record_about(&self, name: &str, message: impl Into<String>) {
        let regarding = ObjectReference {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: "shop".into(),
            name: name.into(),
            uid: "0b1c".into(),
            resource_version: "42".to_owned(),
        };
        self.recorder.event(&regarding, EventType::Normal, "ScalingReplicaSet", message.into());
    }

    /// Waits until all events are written. Returns verb and count of each request.
    async fn requests(&self) -> Vec<(&'static str, i32)> {
        self.broadcaster.shutdown(Duration::from_secs(3600)).await;
        self.sink.requests.lock().iter().map(|request| (request.verb, request.count)).collect()
    }
}

fn unreachable() -> Result<(), ApiError> {
    Err(ApiError::Transport("connection refused".into()))
}

mod writes {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn event_in_the_namespace_of_its_object() {
        let env = TestEnv::new([]);
        env.record("Scaled up");
        assert_eq!(env.requests().await, [("create", 1)]);
        let request = env.sink.requests.lock()[0].clone();
        let nanos = "2026-01-01T00:30:00Z".parse::<Timestamp>().unwrap().as_nanosecond();
        assert_eq!((request.namespace, request.name), ("shop".to_owned(), format!("web.{nanos:x}")));
    }

    #[tokio::test(start_paused = true)]
    async fn simultaneous_events_with_different_names() {
        let env = TestEnv::new([]);
        for n in 0..5 {
            env.record(n.to_string());
        }
        assert_eq!(env.requests().await, [("create", 1); 5]);
        let mut names: Vec<_> = env.sink.requests.lock().iter().map(|request| request.name.clone()).collect();
        names.dedup();
        assert_eq!(names.len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_event_as_a_patch_of_the_first() {
        let env = TestEnv::new([]);
        for _ in 0..3 {
            env.record("Scaled up");
            env.clock.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(env.requests().await, [("create", 1), ("patch", 2), ("patch", 3)]);
        let requests = env.sink.requests.lock();
        assert!(requests.iter().all(|other| other.name == requests[0].name), "{requests:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_event_with_the_stored_name() {
        let env = TestEnv::new([]);
        *env.sink.stored_name.lock() = Some("web.renamed");
        env.record("Scaled up");
        env.record("Scaled up");
        env.requests().await;
        assert_eq!(env.sink.requests.lock()[1].name, "web.renamed");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_event_as_a_new_one_if_the_first_has_expired() {
        let env = TestEnv::new([Ok(()), Err(ApiError::status(404, reason::NOT_FOUND, "not found"))]);
        for _ in 0..3 {
            env.record("Scaled up");
        }
        assert_eq!(env.requests().await, [("create", 1), ("patch", 2), ("create", 2), ("patch", 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn similar_events_as_a_combined_one() {
        let env = TestEnv::new([]);
        for step in 0..12 {
            env.record(format!("Scaled up replica set web-1 from {step} to {}", step + 1));
        }
        let mut expected = vec![("create", 1); 10];
        expected.extend([("patch", 2), ("patch", 3)]);
        assert_eq!(env.requests().await, expected);
    }
}

mod concurrency {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(5);

    fn slow_env(results: impl IntoIterator<Item = Result<(), ApiError>>) -> TestEnv {
        let env = TestEnv::new(results);
        *env.sink.latency.lock() = LATENCY;
        env
    }

    #[tokio::test(start_paused = true)]
    async fn events_about_16_objects_are_written_at_the_same_time() {
        let env = slow_env([]);
        for n in 0..40 {
            env.record_about(&format!("web-{n}"), "Scaled up");
        }
        assert_eq!(env.requests().await.len(), 40);
        let expected: Vec<u128> = [vec![0; 16], vec![5; 16], vec![10; 8]].concat();
        assert_eq!(env.sink.request_times(), expected);
    }

    #[tokio::test(start_paused = true)]
    async fn sink_limits_concurrent_writes() {
        for (max, times) in [(0, [0, 5, 10]), (1, [0, 5, 10]), (2, [0, 0, 5])] {
            let env = slow_env([]);
            env.sink.max_concurrent_writes.store(max, Ordering::Relaxed);
            for n in 0..3 {
                env.record_about(&format!("web-{n}"), "Scaled up");
            }
            env.requests().await;
            assert_eq!(env.sink.request_times(), times);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn events_about_an_object_are_written_in_order() {
        let env = slow_env([]);
        for message in ["first", "second", "first", "second"] {
            env.record_about("web", message);
            env.record_about("api", message);
        }
        assert_eq!(env.requests().await, [[("create", 1); 4], [("patch", 2); 4]].concat());
        assert_eq!(env.sink.request_times(), [0, 0, 5, 5, 10, 10, 15, 15]);
        let requests = env.sink.requests.lock();
        let about_web = requests.iter().filter(|request| request.name.starts_with("web."));
        let names: Vec<_> = about_web.map(|request| &request.name).collect();
        assert_eq!((names[0], names[1]), (names[2], names[3]));
        assert_ne!(names[0], names[1]);
    }

    #[tokio::test(start_paused = true)]
    async fn events_about_an_object_do_not_delay_others() {
        let env = slow_env([]);
        for n in 0..20 {
            env.record(n.to_string());
        }
        env.record_about("api", "Scaled up");
        env.requests().await;
        let requests = env.sink.requests.lock();
        let api = requests.iter().find(|request| request.name.starts_with("api.")).unwrap();
        assert_eq!(api.at, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn sixteen_events_are_written_at_a_time_while_more_than_500_wait() {
        let env = slow_env([]);
        env.sink.max_concurrent_writes.store(1, Ordering::Relaxed);
        for n in 0..520 {
            env.record_about(&format!("web-{n}"), "Scaled up");
        }
        env.requests().await;
        let times = env.sink.request_times();
        let at = |time| times.iter().filter(|at| **at == time).count();
        assert_eq!([at(0), at(5), at(15), at(20)], [16, 16, 1, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn outage_drops_one_event_per_twelve_attempts() {
        // 16 writes are in progress when the outage begins. The first of them is dropped after 11 retries.
        let env = slow_env((0..16 + 11 + 3).map(|_| unreachable()));
        for n in 0..30 {
            env.record_about(&format!("web-{n}"), "Scaled up");
        }
        assert_eq!(env.requests().await.len(), 16 + 11 + 3 + 29);
        let requests = env.sink.requests.lock();
        let outage = &requests[16..16 + 11 + 3];
        let at: Vec<_> = outage.iter().map(|request| request.at).collect();
        assert!(at.is_sorted_by(|a, b| a < b), "one at a time: {at:?}");
        assert!(outage[..11].iter().all(|request| request.name == outage[0].name), "{outage:?}");
        assert!(outage[11..].iter().all(|request| request.name == outage[11].name), "{outage:?}");
        let written: BTreeSet<_> = requests[30..].iter().map(|request| &request.name).collect();
        assert_eq!(written.len(), 29, "all but the dropped one");
    }

    #[tokio::test(start_paused = true)]
    async fn lower_limit_applies_to_waiting_events() {
        let env = slow_env([]);
        for n in 0..6 {
            env.record_about(&format!("web-{}", n % 3), n.to_string());
        }
        env.clock.sleep(Duration::from_millis(1)).await;
        assert_eq!(env.sink.request_times(), [0, 0, 0]);
        env.sink.max_concurrent_writes.store(1, Ordering::Relaxed);
        env.requests().await;
        assert_eq!(env.sink.request_times(), [0, 0, 0, 5, 10, 15]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_event_at_a_time_is_written_during_an_outage() {
        let env = slow_env((0..12).map(|_| unreachable()));
        env.record_about("web-0", "Scaled up");
        env.clock.sleep(LATENCY).await;
        tokio::task::yield_now().await;
        for n in 1..20 {
            env.record_about(&format!("web-{n}"), "Scaled up");
        }
        env.requests().await;
        let requests = env.sink.requests.lock();
        let (outage, after) = requests.split_at(12);
        assert!(outage.iter().all(|request| request.name == outage[0].name), "{outage:?}");
        let start = after[0].at;
        let times: Vec<_> = after.iter().map(|request| request.at - start).collect();
        assert_eq!(times, [vec![0], vec![5; 16], vec![10; 2]].concat(), "the first answer ends the outage");
    }
}

mod retries {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rejected_events_are_not_retried() {
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
        let rejections = [
            ApiError::status(409, reason::ALREADY_EXISTS, "already exists"),
            ApiError::status(403, reason::FORBIDDEN, "forbidden"),
            ApiError::status(429, reason::TOO_MANY_REQUESTS, "too many requests"),
            ApiError::status(500, "InternalError", "etcd"),
            terminating,
        ];
        let env = TestEnv::new(rejections.map(Err));
        for n in 0..6 {
            env.record(n.to_string());
        }
        assert_eq!(env.requests().await, [("create", 1); 6]);
        assert_eq!(env.sink.request_times(), [0; 6]);
    }

    #[tokio::test(start_paused = true)]
    async fn first_delay_is_random_and_others_are_ten_seconds() {
        let env = TestEnv::new([
            unreachable(),
            Err(ApiError::Timeout("events".to_owned())),
            Err(ApiError::Decode("not JSON".into())),
        ]);
        env.record("Scaled up");
        env.record("Scaled down");
        assert_eq!(env.requests().await, [("create", 1); 5]);
        let at = env.sink.request_times();
        assert!((1..10_000).contains(&at[1]), "{at:?}");
        let second = at[1];
        assert_eq!(at, [0, second, second + 10_000, second + 20_000, second + 20_000]);
    }

    #[tokio::test(start_paused = true)]
    async fn event_is_dropped_after_twelve_attempts() {
        let env = TestEnv::new((0..12).map(|_| unreachable()));
        env.record("dropped");
        env.record("written");
        assert_eq!(env.requests().await, [("create", 1); 13]);
        let at = env.sink.request_times();
        assert_eq!(at[11] - at[1], 100_000);
        assert_eq!(at[12], at[11], "no delay after the last attempt");
    }

    #[tokio::test(start_paused = true)]
    async fn first_delay_differs_between_clients() {
        let mut delays = Vec::new();
        for seed in 0..3 {
            let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
            let sink = FakeSink::new(clock.clone(), [unreachable()]);
            let random = Arc::new(SeededRandom::new(seed));
            let broadcaster = EventBroadcaster::start(sink.clone(), clock, random);
            let recorder = broadcaster.recorder("test");
            recorder.event(&ObjectReference::default(), EventType::Normal, "Reason", String::new());
            broadcaster.shutdown(Duration::from_secs(60)).await;
            delays.push(sink.request_times()[1]);
        }
        delays.dedup();
        assert_eq!(delays.len(), 3, "{delays:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn events_above_the_queue_size_are_dropped() {
    let env = TestEnv::new([]);
    for n in 0..MAX_QUEUED_EVENTS + 50 {
        let regarding = ObjectReference { name: format!("web-{n}").into(), ..Default::default() };
        env.recorder.event(&regarding, EventType::Normal, "Reason", "message".to_owned());
    }
    assert_eq!(env.requests().await.len(), MAX_QUEUED_EVENTS);
    assert_eq!(env.sink.requests.lock().last().unwrap().namespace, "default");
}

mod rate_limit {
    use super::*;

    fn limited_env() -> TestEnv {
        let env = TestEnv::new([]);
        *env.sink.latency.lock() = Duration::from_millis(5);
        env.sink.must_wait.store(true, Ordering::Relaxed);
        env.sink.max_concurrent_writes.store(1, Ordering::Relaxed);
        env
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_events_that_wait_are_written_as_one() {
        let env = limited_env();
        for message in ["first", "second", "second", "second", "third", "first", "first"] {
            env.record(message);
        }
        let expected = [("create", 1), ("create", 3), ("create", 1), ("patch", 3)];
        assert_eq!(env.requests().await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn similar_events_that_wait_are_written_as_one() {
        let env = limited_env();
        for n in 0..20 {
            env.record(n.to_string());
        }
        let expected = [vec![("create", 1); 9], vec![("create", 11)]].concat();
        assert_eq!(env.requests().await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_do_not_wait_are_written_one_by_one() {
        let env = limited_env();
        env.sink.must_wait.store(false, Ordering::Relaxed);
        for _ in 0..3 {
            env.record("again");
        }
        assert_eq!(env.requests().await, [("create", 1), ("patch", 2), ("patch", 3)]);
    }
}

mod shutdown {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_queued_events_and_records_no_more() {
        let env = TestEnv::new([]);
        for n in 0..3 {
            env.record(n.to_string());
        }
        env.broadcaster.shutdown(Duration::from_secs(5)).await;
        assert_eq!(env.sink.requests.lock().len(), 3);
        env.record("too late");
        env.broadcaster.shutdown(Duration::from_secs(5)).await;
        tokio::task::yield_now().await;
        assert_eq!(env.sink.requests.lock().len(), 3);
        assert_eq!(env.clock.monotonic(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn drops_events_after_its_timeout() {
        let env = TestEnv::new((0..100).map(|_| unreachable()));
        env.record("one");
        env.record("two");
        env.broadcaster.shutdown(Duration::from_secs(25)).await;
        assert_eq!(env.clock.monotonic(), Duration::from_secs(25));
        let requests = env.sink.requests.lock().len();
        assert!((3..=4).contains(&requests), "{requests}");
        env.clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(env.sink.requests.lock().len(), requests);
    }

    #[tokio::test(start_paused = true)]
    async fn dropped_events_are_counted() {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let sink = FakeSink::new(clock.clone(), []);
        *sink.latency.lock() = Duration::from_secs(60);
        let (random, shared) = (Arc::new(SeededRandom::new(7)), clock.clone() as Arc<dyn Clock>);
        let correlator = Correlator::new(&shared, Arc::new(Names::new(random.clone())));
        let (queue, queued) = mpsc::channel(100);
        let writer = Writer::new(queued, correlator, sink.clone(), shared, random);
        // 16 in progress, 48 that wait for the first of them, and 36 in the queue.
        for n in 0..100 {
            let mut event = crate::event::tests::event("Reason", "message");
            event.regarding.name = format!("web-{}", if n < 16 { n } else { 0 }).into();
            queue.send(event).await.unwrap();
        }
        let (closing, abandon) = (CancellationToken::new(), CancellationToken::new());
        let running = tokio::spawn(writer.run(closing, abandon.clone()));
        clock.sleep(Duration::from_secs(1)).await;
        abandon.cancel();
        assert_eq!((running.await.unwrap(), sink.requests.lock().len()), (100, 16));
    }

    #[tokio::test(start_paused = true)]
    async fn happens_when_broadcaster_and_recorders_are_dropped() {
        let env = TestEnv::new([]);
        env.record("last");
        let (finished, sink) = (env.broadcaster.finished.clone(), Arc::clone(&env.sink));
        drop(env.broadcaster);
        tokio::task::yield_now().await;
        assert!(!finished.is_cancelled());
        drop(env.recorder);
        finished.cancelled().await;
        assert_eq!(sink.requests.lock().len(), 1);
    }
}
