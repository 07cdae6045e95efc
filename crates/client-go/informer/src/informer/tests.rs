//! The whole, against a source that misbehaves, in simulated time.

mod handlers;
mod relist;
mod replay;
mod requests;
mod undecodable;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    InformerConfig, InformerMetrics, ListWatchError, ListWatchErrorKind, SharedInformer,
    test_object::{TestObject, indexers, key, object},
    testing::{FakeRequest, FakeSource, RecordingHandler},
};

/// An informer on a source, with a handler from the start.
struct World {
    clock: Arc<SimulatedClock>,
    source: FakeSource<TestObject>,
    informer: SharedInformer<TestObject>,
    handler: Arc<RecordingHandler<TestObject>>,
    metrics: Arc<Counts>,
}

impl World {
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
                "things",
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

    /// Runs, until nothing is left to do; forgets what that took.
    async fn synced(&self) -> Running {
        let running = self.start();
        settle().await;
        assert!(self.informer.has_synced());
        self.source.take_requests();
        self.handler.take();
        running
    }

    /// What was asked since this was last called, in short: `watch 3`, `list newest`, `stream 0`.
    fn asked(&self) -> Vec<String> {
        let version = |version: &Option<String>| version.clone().unwrap_or_else(|| "newest".to_owned());
        let requests = self.source.take_requests().into_iter();
        let short = requests.map(|request| match request {
            FakeRequest::List(options) => format!("list {}", version(&options.resource_version)),
            FakeRequest::Watch(options) if options.send_initial_events => {
                format!("stream {}", version(&options.resource_version))
            }
            FakeRequest::Watch(options) => format!("watch {}", version(&options.resource_version)),
        });
        short.collect()
    }

    fn names(&self) -> Vec<String> {
        let things = self.informer.store().list();
        let mut names: Vec<_> = things.iter().map(|t| format!("{}@{}", t.key.name, t.version)).collect();
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

/// Lets everything run that can run now: paused time moves only when all tasks wait.
async fn settle() {
    pass(Duration::from_millis(1)).await;
}

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn refused() -> ListWatchError {
    ListWatchError::new(ListWatchErrorKind::Connection, "connection refused")
}

#[derive(Default)]
struct Counts(Mutex<BTreeMap<&'static str, usize>>);

impl Counts {
    fn add(&self, what: &'static str) {
        *self.0.lock().unwrap().entry(what).or_default() += 1;
    }

    fn get(&self, what: &str) -> usize {
        self.0.lock().unwrap().get(what).copied().unwrap_or_default()
    }
}

impl InformerMetrics for Counts {
    fn store_changed(&self, informer: &str, objects: usize, resource_version: &str) {
        assert_eq!(informer, "things");
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
        assert_eq!(informer, "things");
        self.add("processed");
    }

    fn watch_ended(&self, _: &str, _: Duration, events: u64) {
        self.add(if events == 0 { "watches without events" } else { "watches with events" });
    }
}

#[tokio::test(start_paused = true)]
async fn metrics_tell_what_happened() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await;
    world.source.apply(object("b"));
    world.source.apply_undecodable(object("c"));
    world.source.compact();
    world.source.end_watches();
    pass(MINUTE).await;
    let counts = ["lists", "relists", "failures", "watches", "undecodable", "objects", "version"];
    // Undecodable: once in the watch, once in the relist. Watches: streaming, the one refused, streaming again.
    assert_eq!(counts.map(|count| world.metrics.get(count)), [1, 1, 1, 3, 2, 2, 5]);
    // Each list as a whole, and the two events of the watch.
    assert_eq!(world.metrics.get("processed"), 4);
    assert_eq!(
        ["watches with events", "watches without events"].map(|ended| world.metrics.get(ended)),
        [1, 1]
    );
}

#[tokio::test(start_paused = true)]
async fn run_cancelled_ends_and_may_be_run_again() {
    let world = World::new();
    world.source.apply(object("a"));
    world.synced().await.stop().await;
    assert_eq!(world.source.watchers(), 0);
    world.source.apply(object("b"));
    settle().await;
    assert_eq!(world.names(), ["a@2"]);
    world.start();
    settle().await;
    assert_eq!(world.asked(), ["watch 2"], "it goes on where it was");
    assert_eq!(world.names(), ["a@2", "b@3"]);
}

#[tokio::test(start_paused = true)]
async fn run_cancelled_in_the_middle_of_a_request_or_a_wait_ends_at_once() {
    for delay in [Duration::ZERO, MINUTE] {
        let world = World::new();
        world.source.set_delay(delay);
        world.source.fail_watches(&refused(), 1);
        let running = world.start();
        settle().await;
        let before = world.clock.monotonic();
        running.stop().await;
        assert_eq!(world.clock.monotonic(), before);
        assert!(!world.informer.has_synced());
    }
}

#[tokio::test(start_paused = true)]
async fn run_twice_at_once_lets_the_second_take_over() {
    let world = World::new();
    let first = world.synced().await;
    let second = world.start();
    settle().await;
    assert_eq!(world.source.watchers(), 1);
    assert!(world.asked().is_empty());
    first.stop().await;
    settle().await;
    assert_eq!(world.asked(), ["watch 1"]);
    assert_eq!(world.source.watchers(), 1);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn wait_for_sync_ends_with_the_sync_or_with_the_cancellation() {
    let world = World::new();
    let cancel = CancellationToken::new();
    let wait = |cancel: &CancellationToken| {
        let (informer, cancel) = (world.informer.clone(), cancel.clone());
        tokio::spawn(async move { informer.wait_for_sync(&cancel).await })
    };
    let cancelled = wait(&cancel);
    settle().await;
    assert!(!cancelled.is_finished());
    cancel.cancel();
    assert!(!cancelled.await.unwrap());
    let synced = wait(&CancellationToken::new());
    world.start();
    assert!(synced.await.unwrap());
    assert!(world.informer.wait_for_sync(&cancel).await, "what is so needs no waiting");
    assert_eq!(world.informer.store().get(&key("a")), None);
}
