use std::{collections::VecDeque, time::Duration};

use kcm_clock::{SimulatedClock, Timestamp};
use parking_lot::Mutex;

use super::*;

/// Reconciler whose syncs return the given results, and then succeed.
#[derive(Default)]
struct Scripted(Mutex<VecDeque<Result<Requeue, ErrorClass>>>);

#[async_trait]
impl Reconciler for Scripted {
    type Error = Failure;

    async fn sync(&self, _: &ObjectKey) -> Result<Requeue, Failure> {
        self.0.lock().pop_front().unwrap_or(Ok(Requeue::Never)).map_err(Failure)
    }

    fn classify(error: &Failure) -> ErrorClass {
        error.0
    }

    fn span(&self, key: &ObjectKey) -> Span {
        tracing::error_span!("sync", object = %key)
    }
}

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
async fn run(script: impl IntoIterator<Item = Result<Requeue, ErrorClass>>) -> (Vec<f64>, Vec<SyncResult>) {
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let metrics = Arc::new(Results::default());
    let config = ControllerConfig {
        sync_metrics: Arc::clone(&metrics) as _,
        ..ControllerConfig::new("test", Arc::clone(&clock) as _)
    };
    let reconciler = Arc::new(Scripted(Mutex::new(script.into_iter().collect())));
    let controller = Controller::new(config, reconciler);
    let queue = controller.queue();
    let started = clock.monotonic();
    let mut starts = Vec::new();
    queue.add(key());
    while let Ok(Some(next)) = tokio::time::timeout(Duration::from_secs(3600), queue.get()).await {
        starts.push(clock.monotonic().saturating_sub(started).as_secs_f64());
        controller.shared.process(next.clone()).await;
        queue.done(&next);
    }
    assert_eq!(queue.num_requeues(&key()), 0, "back-off of a key that is not retried");
    let results = metrics.0.lock().clone();
    (starts, results)
}

#[tokio::test(start_paused = true)]
async fn retries_failed_syncs_with_growing_delays_until_one_succeeds() {
    for class in [ErrorClass::Failed, ErrorClass::StaleCache, ErrorClass::ObjectDeleted] {
        let (starts, results) = run([Err(class); 20]).await;
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
    let (starts, results) = run([Err(ErrorClass::Failed), Err(ErrorClass::Terminal)]).await;
    assert_eq!(starts.len(), 2);
    assert_eq!(results, [SyncResult::Error, SyncResult::Dropped]);
}

#[tokio::test(start_paused = true)]
async fn requeues_after_the_requested_time_and_resets_the_back_off() {
    let after = Ok(Requeue::After(Duration::from_secs(61)));
    let (starts, results) = run([Err(ErrorClass::Failed), after]).await;
    assert_eq!(starts.len(), 3);
    assert!((starts[2] - starts[1] - 61.0).abs() < 0.002, "{starts:?}");
    assert_eq!(results, [SyncResult::Error, SyncResult::Success, SyncResult::Success]);
}

/// US-4.12.
#[tokio::test(start_paused = true)]
async fn rate_limited_requeues_do_not_grow_the_back_off() {
    let (starts, _) = run([Ok(Requeue::RateLimited); 5]).await;
    assert_eq!(starts.len(), 6);
    assert!(starts[5] < 0.1, "{starts:?}");
}
