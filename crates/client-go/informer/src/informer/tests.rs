//! Tests of a [`SharedInformer`] with a [`FakeSource`], in simulated time.

mod handlers;
mod indexers;
mod namespaces;
mod relist;
mod replay;
mod requests;
mod resync;
mod transform;
mod undecodable;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use kcm_testkit::CapturedLog;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::level_filters::LevelFilter;

use crate::{
    InformerConfig, InformerMetrics, ListWatchError, ListWatchErrorKind, SharedInformer, Sources,
    test_object::{TestObject, indexers, key, object},
    testing::{FakeRequest, FakeSource, RecordingHandler},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// Informer with a source and a handler.
struct TestEnv {
    clock: Arc<SimulatedClock>,
    source: FakeSource<TestObject>,
    informer: SharedInformer<TestObject>,
    handler: Arc<RecordingHandler<TestObject>>,
    metrics: Arc<Counts>,
}

impl TestEnv {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(configure: impl FnOnce(&mut InformerConfig<TestObject>)) -> Self {
        let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
        let source = FakeSource::new(clock.clone());
        let metrics = Arc::new(Counts::default());
        let mut config = InformerConfig {
            indexers: indexers(),
            metrics: metrics.clone(),
            ..InformerConfig::new(
                "tests",
                Arc::new(source.clone()),
                clock.clone(),
                Arc::new(SeededRandom::new(1)),
            )
        };
        configure(&mut config);
        let informer = SharedInformer::new(config);
        let handler = Arc::new(RecordingHandler::new());
        informer.add_handler(handler.clone());
        Self { clock, source, informer, handler, metrics }
    }

    fn start(&self) -> Running {
        let cancel = CancellationToken::new();
        let informer = self.informer.clone();
        let task = tokio::spawn({
            let cancel = cancel.clone();
            async move { informer.run(cancel).await }
        });
        Running { cancel, task }
    }

    /// Starts the informer, waits until it has synced, and clears the recorded requests and calls.
    async fn start_synced(&self) -> Running {
        let running = self.start();
        settle().await;
        assert!(self.informer.has_synced());
        self.source.take_requests();
        self.handler.take();
        running
    }

    /// Ends the watches and compacts the history, so that the informer must relist.
    fn force_relist(&self) {
        self.source.end_watches();
        self.source.compact();
    }

    /// Returns and removes the recorded requests as text: `watch 3`, `list newest`, `stream 0`.
    fn take_requests(&self) -> Vec<String> {
        let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "newest".to_owned());
        let requests = self.source.take_requests().into_iter();
        let texts = requests.map(|request| match request {
            FakeRequest::List(options) => format!("list {}", version(&options.resource_version)),
            FakeRequest::Watch(options) if options.send_initial_events => {
                format!("stream {}", version(&options.resource_version))
            }
            FakeRequest::Watch(options) => format!("watch {}", version(&options.resource_version)),
        });
        texts.collect()
    }

    /// Returns name and version of the objects in the store, sorted.
    fn stored(&self) -> Vec<String> {
        let objects = self.informer.store().list();
        let mut names: Vec<_> = objects.iter().map(|o| format!("{}@{}", o.key.name, o.version)).collect();
        names.sort();
        names
    }

    fn version(&self) -> Option<String> {
        self.informer.store().last_sync_resource_version()
    }
}

struct Running {
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Running {
    async fn stop(self) {
        self.cancel.cancel();
        self.task.await.unwrap();
    }
}

/// Runs all tasks that can run: paused time advances only when all tasks wait.
async fn settle() {
    pass(Duration::from_millis(1)).await;
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

fn connection_refused() -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::Connection, "connection refused")
}

fn expired() -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::Expired, "too old resource version")
}

fn too_many_requests() -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::TooManyRequests, "too many requests")
}

fn internal_error() -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::Other, "internal error")
}

fn forbidden() -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::Other, "tests is forbidden")
}

/// Metrics by name.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<&'static str, usize>>);

impl Counts {
    fn add(&self, name: &'static str) {
        *self.0.lock().unwrap().entry(name).or_default() += 1;
    }

    fn get(&self, name: &str) -> usize {
        self.0.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

impl InformerMetrics for Counts {
    fn store_changed(&self, informer: &str, objects: usize, resource_version: &str) {
        assert_eq!(informer, "tests");
        let mut counts = self.0.lock().unwrap();
        counts.insert("objects", objects);
        counts.insert("version", resource_version.parse().unwrap());
    }

    fn listed(&self, _: &str, relist: bool) {
        self.add(if relist { "relists" } else { "lists" });
    }

    fn request_failed(&self, _: &str, _: &ListWatchError) {
        self.add("failures");
    }

    fn watch_started(&self, _: &str) {
        self.add("watches");
    }

    fn undecodable(&self, _: &str) {
        self.add("undecodable");
    }

    fn records_durations(&self) -> bool {
        true
    }

    fn processed(&self, informer: &str, _: Duration) {
        assert_eq!(informer, "tests");
        self.add("processed");
    }

    fn watch_ended(&self, _: &str, _: Duration, events: u64) {
        self.add(if events == 0 { "watches without events" } else { "watches with events" });
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_are_reported() {
    let env = TestEnv::new();
    env.source.apply(object("a"));
    env.start_synced().await;
    env.source.apply(object("b"));
    env.source.apply_undecodable(object("c"));
    env.source.compact();
    env.source.end_watches();
    pass(MINUTE).await;
    let names = ["lists", "relists", "failures", "watches", "undecodable", "objects", "version"];
    // The undecodable object is in the watch and in the relist. Watches: streaming list, expired, streaming list.
    assert_eq!(names.map(|name| env.metrics.get(name)), [1, 1, 1, 3, 2, 2, 5]);
    // Two lists and two events.
    assert_eq!(env.metrics.get("processed"), 4);
    let ended = ["watches with events", "watches without events"];
    assert_eq!(ended.map(|name| env.metrics.get(name)), [1, 1]);
}

mod run {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn resumes_the_watch_after_a_stop() {
        let env = TestEnv::new();
        env.source.apply(object("a"));
        env.start_synced().await.stop().await;
        assert_eq!(env.source.watchers(), 0);
        env.source.apply(object("b"));
        settle().await;
        assert_eq!(env.stored(), ["a@2"]);
        env.start();
        settle().await;
        assert_eq!(env.take_requests(), ["watch 2"]);
        assert_eq!(env.stored(), ["a@2", "b@3"]);
    }

    #[tokio::test(start_paused = true)]
    async fn ends_immediately_during_a_request_or_back_off() {
        for delay in [Duration::ZERO, MINUTE] {
            let env = TestEnv::new();
            env.source.set_delay(delay);
            env.source.fail_watches(&connection_refused(), 1);
            let running = env.start();
            settle().await;
            let before = env.clock.monotonic();
            running.stop().await;
            assert_eq!(env.clock.monotonic(), before);
            assert!(!env.informer.has_synced());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_the_end_of_another_run() {
        let env = TestEnv::new();
        let first = env.start_synced().await;
        let second = env.start();
        settle().await;
        assert_eq!(env.source.watchers(), 1);
        assert!(env.take_requests().is_empty());
        first.stop().await;
        settle().await;
        assert_eq!(env.take_requests(), ["watch 1"]);
        assert_eq!(env.source.watchers(), 1);
        second.stop().await;
    }
}

mod wait_for_sync {
    use super::*;

    fn wait(env: &TestEnv, cancel: &CancellationToken) -> JoinHandle<bool> {
        let (informer, cancel) = (env.informer.clone(), cancel.clone());
        tokio::spawn(async move { informer.wait_for_sync(&cancel).await })
    }

    #[tokio::test(start_paused = true)]
    async fn returns_false_if_cancelled() {
        let (env, cancel) = (TestEnv::new(), CancellationToken::new());
        let waiting = wait(&env, &cancel);
        settle().await;
        assert!(!waiting.is_finished());
        cancel.cancel();
        assert!(!waiting.await.unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn returns_true_after_the_sync() {
        let (env, cancel) = (TestEnv::new(), CancellationToken::new());
        let waiting = wait(&env, &cancel);
        env.start();
        assert!(waiting.await.unwrap());
        cancel.cancel();
        assert!(env.informer.wait_for_sync(&cancel).await, "synced already");
        assert_eq!(env.informer.store().get(&key("a")), None);
    }
}
