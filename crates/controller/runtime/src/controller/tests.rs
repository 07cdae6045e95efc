mod own_changes;

use std::{collections::VecDeque, time::Duration};

use kcm_clock::{FakeClock, SeededRandom, SimulatedClock, Timestamp};
use kcm_expectations::EXPECTATIONS_TIMEOUT;
use kcm_informer::{ControllerRef, InformerConfig, SharedInformer, testing::FakeSource};
use kcm_meta::{Object, SetResourceVersion};
use kcm_testkit::CapturedLog;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tracing::level_filters::LevelFilter;

use super::*;
use crate::{Change, ControllerBuilder};

/// Reconciler whose syncs return the given results, and then succeed.
#[derive(Default)]
struct Scripted(Mutex<VecDeque<Result<Requeue, ErrorClass>>>);

impl Reconciler for Scripted {
    type Error = Failure;

    async fn reconcile(&self, _: &ObjectKey) -> Result<Requeue, Failure> {
        self.0.lock().pop_front().unwrap_or(Ok(Requeue::Done)).map_err(Failure)
    }

    fn classify(error: &Failure) -> ErrorClass {
        error.0
    }

    fn span(&self, key: &ObjectKey) -> Span {
        tracing::error_span!("sync", object = %key)
    }
}

#[derive(Debug, PartialEq)]
struct Failure(ErrorClass);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Results of syncs, in order.
#[derive(Default)]
struct Results(Mutex<Vec<SyncResult>>);

impl SyncMetrics for Results {
    fn ended(&self, _: Duration, result: SyncResult) {
        self.0.lock().push(result);
    }
}

fn key() -> ObjectKey {
    ObjectKey::new("default", "web")
}

/// Syncs a key with the given results until the queue is empty. Returns the seconds at which syncs started, and their
/// results.
async fn play(script: impl IntoIterator<Item = Result<Requeue, ErrorClass>>) -> (Vec<f64>, Vec<SyncResult>) {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let metrics = Arc::new(Results::default());
    let controller = Controller::builder("test", Arc::clone(&clock) as _)
        .sync_metrics(Arc::clone(&metrics) as _)
        .build(Scripted(Mutex::new(script.into_iter().collect())));
    let queue = controller.queue();
    let started = clock.monotonic();
    let mut starts = Vec::new();
    queue.add(key());
    while let Ok(Some(next)) = tokio::time::timeout(Duration::from_secs(3600), queue.get()).await {
        starts.push(clock.monotonic().saturating_sub(started).as_secs_f64());
        let _ = controller.shared.process(next, None).await;
    }
    assert_eq!(queue.num_requeues(&key()), 0, "back-off of a key that is not retried");
    let results = metrics.0.lock().clone();
    (starts, results)
}

#[tokio::test(start_paused = true)]
async fn retries_failed_syncs_with_growing_delays_until_one_succeeds() {
    for class in
        [ErrorClass::Failed, ErrorClass::Temporary, ErrorClass::StaleCache, ErrorClass::ObjectDeleted]
    {
        let (starts, results) = play([Err(class); 20]).await;
        let delays: Vec<_> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(delays.len(), 20);
        // 5 ms, 10 ms, … 655.36 s, 1000 s.
        for (retry, delay) in delays.iter().enumerate() {
            let expected = (0.005 * f64::from(1 << retry)).min(1000.0);
            assert!((delay - expected).abs() < 0.002, "{class:?}: {delay} s before retry {retry}");
        }
        let failed = if class == ErrorClass::StaleCache { SyncResult::Stale } else { SyncResult::Error };
        assert_eq!(results[..20], [failed; 20]);
        assert_eq!(results[20..], [SyncResult::Success]);
    }
}

#[tokio::test(start_paused = true)]
async fn drops_keys_whose_error_is_terminal() {
    let (starts, results) = play([Err(ErrorClass::Failed), Err(ErrorClass::Terminal)]).await;
    assert_eq!(starts.len(), 2);
    assert_eq!(results, [SyncResult::Error, SyncResult::Dropped]);
}

#[tokio::test(start_paused = true)]
async fn requeues_after_the_requested_time_and_resets_the_back_off() {
    let after = Ok(Requeue::After(Duration::from_secs(61)));
    let (starts, results) = play([Err(ErrorClass::Failed), after]).await;
    assert_eq!(starts.len(), 3);
    assert!((starts[2] - starts[1] - 61.0).abs() < 0.002, "{starts:?}");
    assert_eq!(results, [SyncResult::Error, SyncResult::Success, SyncResult::Success]);
}

/// US-4.12.
#[tokio::test(start_paused = true)]
async fn rate_limited_requeues_do_not_grow_the_back_off() {
    let (starts, _) = play([Ok(Requeue::RateLimited); 5]).await;
    assert_eq!(starts.len(), 6);
    assert!(starts[5] < 0.1, "{starts:?}");
}

/// Conflicts with a cache that is late, for example.
#[tokio::test]
async fn temporary_failures_of_syncs_that_events_start_do_not_delay_the_retry() {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let script = vec![Err(ErrorClass::Temporary); 40];
    let controller =
        Controller::builder("test", Arc::new(clock.clone())).build(Scripted(Mutex::new(script.into())));
    for _ in 0..30 {
        controller.queue().add(key());
        controller.drain().await;
        clock.step(Duration::from_millis(100));
    }
    assert!(controller.queue().num_requeues(&key()) <= 10);
    clock.step(Duration::from_secs(3));
    assert_eq!(controller.drain().await.len(), 1, "retry");
}

/// The limit of all keys together is 10 per second after a burst of 100.
#[tokio::test]
async fn keys_that_wait_for_a_cache_do_not_delay_those_that_failed() {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let mut script = vec![Err(ErrorClass::StaleCache); 150];
    script.push(Err(ErrorClass::Failed));
    let controller =
        Controller::builder("test", Arc::new(clock.clone())).build(Scripted(Mutex::new(script.into())));
    for number in 0..150 {
        controller.queue().add(ObjectKey::new("default", format!("waits-{number}")));
    }
    controller.queue().add(key());
    assert_eq!(controller.drain().await.len(), 151);
    clock.step(Duration::from_millis(5));
    assert_eq!(controller.drain().await.len(), 151);
}

/// Object of a type without a crate.
#[derive(Debug, Clone, PartialEq)]
struct Thing {
    name: &'static str,
    uid: &'static str,
    /// Name and UID of the controller.
    controller: Option<(&'static str, &'static str)>,
    label: &'static str,
    is_terminating: bool,
    version: String,
}

fn thing(name: &'static str, uid: &'static str) -> Thing {
    Thing { name, uid, controller: None, label: "", is_terminating: false, version: String::new() }
}

/// Object that `owner` controls.
fn owned(name: &'static str, owner: (&'static str, &'static str)) -> Thing {
    Thing { controller: Some(owner), ..thing(name, name) }
}

impl Object for Thing {
    fn key(&self) -> ObjectKey {
        let namespace = if self.name.starts_with("cluster-") { "" } else { "default" };
        ObjectKey::new(namespace, self.name)
    }

    fn uid_str(&self) -> &str {
        self.uid
    }

    fn resource_version_str(&self) -> &str {
        &self.version
    }

    fn label(&self, _: &str) -> Option<&str> {
        Some(self.label)
    }

    fn creation_time(&self) -> Option<Timestamp> {
        None
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.is_terminating.then_some(Timestamp::UNIX_EPOCH)
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        self.controller.map(|(name, uid)| ControllerRef { api_version: "v1", kind: "Thing", name, uid })
    }
}

impl SetResourceVersion for Thing {
    fn set_resource_version(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }
}

/// Two types of objects in a fake API server, and informers of them that run.
struct TestEnv {
    clock: FakeClock,
    primaries: FakeSource<Thing>,
    secondaries: FakeSource<Thing>,
    primary_informer: SharedInformer<Thing>,
    secondary_informer: SharedInformer<Thing>,
}

impl TestEnv {
    async fn new() -> Self {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let source = || FakeSource::new(Arc::new(clock.clone()));
        let informer = |name: &str, source: &FakeSource<Thing>| {
            let random = Arc::new(SeededRandom::new(1));
            let config = InformerConfig::new(name, Arc::new(source.clone()), Arc::new(clock.clone()), random);
            let informer = SharedInformer::new(config);
            let running = informer.clone();
            tokio::spawn(async move { running.run(CancellationToken::new()).await });
            informer
        };
        let (primaries, secondaries) = (source(), source());
        let env = Self {
            primary_informer: informer("primaries", &primaries),
            secondary_informer: informer("secondaries", &secondaries),
            primaries,
            secondaries,
            clock,
        };
        env.settle().await;
        env
    }

    fn builder(&self) -> ControllerBuilder {
        Controller::builder("test", Arc::new(self.clock.clone()))
    }

    /// Waits until the informers have all changes.
    async fn settle(&self) {
        let pairs =
            [(&self.primaries, &self.primary_informer), (&self.secondaries, &self.secondary_informer)];
        for (source, informer) in pairs {
            let version = source.version().to_string();
            while informer.store().last_sync_resource_version().as_ref() != Some(&version) {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Waits until the informers have all changes, and returns the names of the keys that `controller` processes.
    async fn processed<R: Reconciler>(&self, controller: &Controller<R>) -> Vec<String> {
        self.settle().await;
        controller.drain().await.iter().map(|step| step.key.name.to_string()).collect()
    }
}

mod watches {
    use super::*;
    use crate::{Watch, predicate};

    #[tokio::test]
    async fn each_change_of_a_primary_object_enqueues_its_key() {
        let env = TestEnv::new().await;
        env.primaries.apply(thing("before", "1"));
        env.settle().await;
        let controller = env.builder().reconciles(&env.primary_informer).build(Scripted::default());
        assert_eq!(env.processed(&controller).await, ["before"]);
        env.primaries.apply(thing("a", "2"));
        env.primaries.apply(thing("a", "2"));
        env.primaries.delete(&ObjectKey::new("default", "before"));
        assert_eq!(env.processed(&controller).await, ["a", "before"]);
        assert_eq!(env.processed(&controller).await, [""; 0]);
    }

    #[tokio::test]
    async fn owned_object_enqueues_its_controllers_before_and_after_the_change() {
        let env = TestEnv::new().await;
        env.primaries.apply(thing("a", "uid-a"));
        env.primaries.apply(thing("b", "uid-b"));
        let controller = env
            .builder()
            .reconciles(&env.primary_informer)
            .owns(&env.secondary_informer)
            .build(Scripted::default());
        assert_eq!(env.processed(&controller).await, ["a", "b"]);

        env.secondaries.apply(owned("pod", ("a", "uid-a")));
        assert_eq!(env.processed(&controller).await, ["a"]);
        env.secondaries.apply(owned("pod", ("b", "uid-b")));
        assert_eq!(env.processed(&controller).await, ["a", "b"]);
        env.secondaries.delete(&ObjectKey::new("default", "pod"));
        assert_eq!(env.processed(&controller).await, ["b"]);
        // Another owner of the same name, an owner that does not exist, and none.
        env.secondaries.apply(owned("other", ("a", "earlier-uid")));
        env.secondaries.apply(owned("stray", ("c", "uid-c")));
        env.secondaries.apply(thing("orphan", "orphan"));
        assert_eq!(env.processed(&controller).await, [""; 0]);
    }

    #[tokio::test]
    async fn orphan_enqueues_its_adopters_when_it_is_added_released_or_relabelled() {
        let env = TestEnv::new().await;
        env.primaries.apply(thing("a", "uid-a"));
        let watch = Watch::new(&env.secondary_informer)
            .orphans(|thing| thing.label, |thing| vec![ObjectKey::new("default", thing.label)]);
        let controller =
            env.builder().reconciles(&env.primary_informer).owns(watch).build(Scripted::default());
        assert_eq!(env.processed(&controller).await, ["a"]);
        let orphan = Thing { label: "x", ..thing("pod", "pod") };
        let check = async |change: Thing, expected: &[&str]| {
            env.secondaries.apply(change);
            assert_eq!(env.processed(&controller).await, expected);
        };
        check(orphan.clone(), &["x"]).await;
        check(orphan.clone(), &[]).await;
        check(Thing { label: "y", ..orphan.clone() }, &["y"]).await;
        check(Thing { label: "y", ..owned("pod", ("a", "uid-a")) }, &["a"]).await;
        check(Thing { label: "y", ..orphan.clone() }, &["a", "y"]).await;
        check(Thing { is_terminating: true, ..orphan }, &[]).await;
        env.secondaries.delete(&ObjectKey::new("default", "pod"));
        assert_eq!(env.processed(&controller).await, [""; 0]);
    }

    #[tokio::test]
    async fn mapped_object_enqueues_the_keys_of_the_function_before_and_after_the_change() {
        let env = TestEnv::new().await;
        let controller = env
            .builder()
            .watches(&env.secondary_informer, |thing: &Thing| [ObjectKey::new("default", thing.label)])
            .build(Scripted::default());
        env.secondaries.apply(Thing { label: "x", ..thing("config", "1") });
        assert_eq!(env.processed(&controller).await, ["x"]);
        env.secondaries.apply(Thing { label: "y", ..thing("config", "1") });
        assert_eq!(env.processed(&controller).await, ["x", "y"]);
    }

    #[tokio::test]
    async fn predicates_decide_on_old_and_new() {
        let env = TestEnv::new().await;
        env.primaries.apply(thing("a", "1"));
        env.settle().await;
        let changed = |change: &Change<'_, Thing>| match change {
            Change::Updated { old, new } => old.label != new.label || old.uid != new.uid,
            Change::Added(_) | Change::Deleted(_) => true,
        };
        let watch =
            Watch::new(&env.primary_informer).when(predicate::resource_version_changed()).when(changed);
        let controller = env.builder().reconciles(watch).build(Scripted::default());
        assert_eq!(env.processed(&controller).await, ["a"], "adds pass");
        env.primaries.apply(thing("a", "1"));
        assert_eq!(env.processed(&controller).await, [""; 0]);
        env.primaries.apply(Thing { label: "x", ..thing("a", "1") });
        assert_eq!(env.processed(&controller).await, ["a"]);
        env.primaries.apply(Thing { label: "x", ..thing("a", "2") });
        assert_eq!(env.processed(&controller).await, ["a"]);
        env.primaries.delete(&ObjectKey::new("default", "a"));
        assert_eq!(env.processed(&controller).await, ["a"], "deletions pass");
    }
}

#[tokio::test]
async fn cluster_scoped_owner_of_a_namespaced_object_is_enqueued() {
    let env = TestEnv::new().await;
    let owner = ("cluster-a", "uid-a");
    env.primaries.apply(thing(owner.0, owner.1));
    env.settle().await;
    let controller = env
        .builder()
        .reconciles(&env.primary_informer)
        .owns(&env.secondary_informer)
        .build(Scripted::default());
    controller.drain().await;
    env.secondaries.apply(owned("pod", owner));
    assert_eq!(env.processed(&controller).await, ["cluster-a"]);
}

#[tokio::test]
async fn steps_follow_the_fake_clock() {
    let env = TestEnv::new().await;
    let script = [Err(ErrorClass::Failed), Ok(Requeue::After(Duration::from_secs(60)))];
    let controller = env.builder().build(Scripted(Mutex::new(script.into())));
    assert_eq!(controller.step().await, None);
    controller.queue().add(key());
    let step = controller.step().await.unwrap();
    assert_eq!(step, Step { key: key(), result: Err(Failure(ErrorClass::Failed)) });
    assert_eq!(controller.drain().await, []);
    env.clock.step(Duration::from_millis(5));
    assert_eq!(controller.drain().await.len(), 1);
    env.clock.step(Duration::from_secs(59));
    assert_eq!(controller.drain().await, []);
    env.clock.step(Duration::from_secs(1));
    assert_eq!(controller.drain().await[0].result, Ok(Requeue::Done));
}

mod running {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::Unhealthy;

    /// Reconciler that waits for a permit.
    struct Waiting {
        started: Arc<Semaphore>,
        go: Arc<Semaphore>,
    }

    impl Reconciler for Waiting {
        type Error = std::convert::Infallible;

        async fn reconcile(&self, _: &ObjectKey) -> Result<Requeue, Self::Error> {
            self.started.add_permits(1);
            self.go.acquire().await.unwrap().forget();
            Ok(Requeue::Done)
        }
    }

    fn waiting() -> (Waiting, Arc<Semaphore>, Arc<Semaphore>) {
        let (started, go) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        (Waiting { started: Arc::clone(&started), go: Arc::clone(&go) }, started, go)
    }

    #[tokio::test]
    async fn closed_leader_gate_ends_the_run_and_keeps_the_keys() {
        let env = TestEnv::new().await;
        let leads = Arc::new(AtomicBool::new(false));
        let gate = Arc::clone(&leads);
        let controller = env
            .builder()
            .leader_gate(move || gate.load(Ordering::Relaxed))
            .workers(3)
            .build(Scripted::default());
        controller.queue().add(key());
        assert_eq!(controller.step().await, None);
        assert_eq!(controller.run(CancellationToken::new()).await, RunOutcome::NotLeading);
        leads.store(true, Ordering::Relaxed);
        let stop = CancellationToken::new();
        stop.cancel();
        assert_eq!(controller.run(stop).await, RunOutcome::Stopped);
        assert!(controller.queue().is_empty());
    }

    #[tokio::test]
    async fn key_of_an_aborted_reconciliation_returns_to_the_queue() {
        let env = TestEnv::new().await;
        let (reconciler, started, go) = waiting();
        let controller = env.builder().build(reconciler);
        controller.queue().add(key());
        tokio::select! {
            _ = controller.run(CancellationToken::new()) => unreachable!("it waits for a permit"),
            permit = started.acquire() => permit.unwrap().forget(),
        }
        while controller.queue().is_empty() {
            tokio::task::yield_now().await;
        }
        go.add_permits(1);
        assert_eq!(controller.drain().await.len(), 1);
    }

    #[tokio::test]
    async fn stop_drains_the_queue_up_to_the_timeout() {
        for drain in [false, true] {
            let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
            let (reconciler, started, go) = waiting();
            let controller = Controller::builder("test", Arc::new(clock.clone()))
                .drain_timeout(Duration::from_secs(30))
                .build(reconciler);
            controller.queue().add(key());
            controller.queue().add(ObjectKey::new("default", "second"));
            let stop = CancellationToken::new();
            let run = tokio::spawn({
                let stop = stop.clone();
                async move { controller.run(stop).await }
            });
            started.acquire().await.unwrap().forget();
            stop.cancel();
            let expected = if drain {
                go.add_permits(2);
                RunOutcome::Stopped
            } else {
                // The timeout begins when the workers observe the stop.
                while clock.sleepers() == 0 {
                    tokio::task::yield_now().await;
                }
                clock.step(Duration::from_secs(30));
                RunOutcome::DrainTimedOut
            };
            assert_eq!(run.await.unwrap(), expected);
        }
    }

    #[tokio::test]
    async fn informer_that_was_not_started_is_logged() {
        let (log, _guard) = CapturedLog::of_this_thread(LevelFilter::WARN);
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let (source, shared) = (FakeSource::<Thing>::new(Arc::new(clock.clone())), Arc::new(clock.clone()));
        let random = Arc::new(SeededRandom::new(1));
        let informer = SharedInformer::new(InformerConfig::new("never", Arc::new(source), shared, random));
        let builder = Controller::builder("test", Arc::new(clock.clone())).reconciles(&informer);
        let controller = builder.build(Scripted::default());
        let stop = CancellationToken::new();
        let run = tokio::spawn({
            let stop = stop.clone();
            async move { controller.run(stop).await }
        });
        while clock.sleepers() == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(log.text(), "");
        clock.step(Duration::from_secs(10));
        while log.text().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
        assert_eq!(run.await.unwrap(), RunOutcome::Stopped);
        let text = log.text();
        assert!(text.contains("has not synced") && text.contains("informer=\"never\""), "{text}");
    }

    /// Reconciler that logs a line.
    struct Logging;

    impl Reconciler for Logging {
        type Error = Failure;

        async fn reconcile(&self, _: &ObjectKey) -> Result<Requeue, Failure> {
            info!("Reconciling");
            Ok(Requeue::Done)
        }
    }

    #[tokio::test]
    async fn lines_of_a_reconciler_name_the_object() {
        let (log, _guard) = CapturedLog::of_this_thread(LevelFilter::INFO);
        let clock = Arc::new(FakeClock::new(Timestamp::UNIX_EPOCH));
        let controller = Controller::builder("test", clock).build(Logging);
        controller.queue().add(key());
        controller.step().await.unwrap();
        let text = log.text();
        assert!(text.contains("object=default/web") && text.contains("Reconciling"), "{text}");
    }

    #[tokio::test]
    async fn health_reports_caches_and_stuck_workers() {
        let env = TestEnv::new().await;
        let (reconciler, started, go) = waiting();
        let never = FakeSource::<Thing>::new(Arc::new(env.clock.clone()));
        let clock: Arc<dyn Clock> = Arc::new(env.clock.clone());
        let config =
            InformerConfig::new("never", Arc::new(never), Arc::clone(&clock), Arc::new(SeededRandom::new(1)));
        let informer = SharedInformer::new(config);
        let builder = env.builder().reconciles(&env.primary_informer).owns(&informer);
        let controller = Arc::new(builder.build(reconciler));
        let health = controller.health();
        let error = health.synced().unwrap_err();
        assert_eq!(error, Unhealthy::NotSynced { controller: "test", informer: "never".to_owned() });
        assert_eq!(error.to_string(), "controller test: informer never has not synced");

        let (stop, running) = (CancellationToken::new(), Arc::clone(&controller));
        tokio::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            async move { informer.run(stop).await }
        });
        let run = tokio::spawn({
            let stop = stop.clone();
            async move { running.run(stop).await }
        });
        controller.queue().add(key());
        started.acquire().await.unwrap().forget();
        assert_eq!(health.synced(), Ok(()));
        let limit = Duration::from_secs(60);
        env.clock.step(limit);
        assert_eq!(health.responsive(limit), Ok(()));
        env.clock.step(Duration::from_secs(1));
        let duration = Duration::from_secs(61);
        assert_eq!(health.responsive(limit), Err(Unhealthy::Stuck { controller: "test", duration }));
        go.add_permits(1);
        stop.cancel();
        run.await.unwrap();
        assert_eq!(health.responsive(Duration::ZERO), Ok(()));
    }
}
