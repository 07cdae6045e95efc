use std::time::Duration;

use kcm_api::ApiError;
use kcm_clock::SimulatedClock;
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_events::FakeRecorder;
use kcm_informer::{InformerConfig, testing::FakeSource};

use super::*;
use crate::{
    ProgressCheck, WaitsFor,
    testing::{Server, World, deployment},
};

fn clock() -> Arc<dyn Clock> {
    Arc::new(SimulatedClock::new(kcm_api::Time::from_unix(crate::testing::START).timestamp()))
}

fn queue() -> RateLimitingQueue<ObjectKey> {
    RateLimitingQueue::new(QueueConfig::new(QUEUE, clock()))
}

fn key() -> ObjectKey {
    ObjectKey::new("default", "web")
}

fn write_error() -> SyncError {
    let source = ApiError::Transport("connection refused".to_owned());
    SyncError::Write { what: "create replica set", object: key(), source }
}

/// Outcomes of a sync in which a write failed.
fn failures() -> [Result<Option<Outcome>, SyncError>; 2] {
    let ignored_error = Some(write_error());
    [Err(write_error()), Ok(Some(Outcome { ignored_error, ..Outcome::waiting(WaitsFor::ReplicaSets) }))]
}

#[tokio::test(start_paused = true)]
async fn failed_write_is_retried_ever_more_slowly_until_it_succeeds() {
    for failure in failures() {
        let queue = queue();
        let started = tokio::time::Instant::now();
        for retries in 1..=MAX_QUIET_RETRIES + 5 {
            assert_eq!(handle_outcome(&queue, key(), failure.clone()), SyncResult::Error);
            assert_eq!(queue.num_requeues(&key()), retries);
            assert_eq!(queue.get().await, Some(key()));
            queue.done(&key());
        }
        // The waits are 5 ms, 10 ms, … 655 s, and 1000 s from then on.
        let waits: u64 = (0..20).map(|retry| (5 << retry).min(1_000_000)).sum();
        assert_eq!(started.elapsed(), Duration::from_millis(waits));
        handle_outcome(&queue, key(), Ok(Some(Outcome::waiting(WaitsFor::Nothing))));
        assert_eq!(queue.num_requeues(&key()), 0);
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert!(queue.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn failed_sync_in_a_namespace_that_is_going_is_dropped_at_once() {
    let queue = queue();
    let json = serde_json::json!({
        "reason": "Forbidden", "code": 403, "details": {"causes": [{"reason": "NamespaceTerminating"}]},
    });
    let source = ApiError::Status(Box::new(serde_json::from_value(json).unwrap()));
    let error = SyncError::Write { what: "create replica set", object: key(), source };
    assert_eq!(handle_outcome(&queue, key(), Err(error)), SyncResult::Dropped);
    assert_eq!(queue.num_requeues(&key()), 0);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn sync_that_asks_for_a_later_look_gets_it_and_its_failures_are_forgotten() {
    let started = tokio::time::Instant::now();
    let waiting =
        |progress_check| Ok(Some(Outcome { progress_check, ..Outcome::waiting(WaitsFor::ReplicaSets) }));
    let check = |after: Option<u64>, can_time_out| {
        Some(ProgressCheck { after: after.map(Duration::from_secs), can_time_out })
    };
    let queue = queue();
    queue.add_rate_limited(key());
    queue.get().await;
    queue.done(&key());
    handle_outcome(&queue, key(), waiting(check(Some(61), true)));
    assert_eq!(queue.num_requeues(&key()), 0);
    queue.get().await;
    assert_eq!(started.elapsed().as_secs(), 61);
    queue.done(&key());
    // US-4.12: this back-off never grows.
    for _ in 0..3 {
        handle_outcome(&queue, key(), waiting(check(None, true)));
        assert_eq!(queue.num_requeues(&key()), 0);
        queue.get().await;
        queue.done(&key());
    }
    assert_eq!(started.elapsed().as_secs(), 61);
    for progress_check in [None, check(Some(1), false), check(None, false)] {
        assert_eq!(handle_outcome(&queue, key(), waiting(progress_check)), SyncResult::Success);
    }
    assert_eq!(handle_outcome(&queue, key(), Ok(None)), SyncResult::Success);
    assert!(queue.is_empty());
}

/// From the watch event of a new Deployment to the writes, and an orderly end.
#[tokio::test(start_paused = true)]
async fn controller_that_runs_syncs_what_the_informers_bring_and_ends_when_told() {
    fn informer<K: kcm_informer::testing::FakeObject>(
        name: &str,
        source: &Arc<FakeSource<K>>,
        indexers: kcm_informer::Indexers<K>,
        clock: &Arc<dyn Clock>,
    ) -> SharedInformer<K> {
        let random = Arc::new(kcm_clock::SeededRandom::new(1));
        let config = InformerConfig::new(name, Arc::clone(source) as _, Arc::clone(clock), random);
        SharedInformer::new(InformerConfig { indexers, ..config })
    }
    let clock = clock();
    let source = Arc::new(FakeSource::new(Arc::clone(&clock)));
    let deployments = informer("deployments", &source, deployment_indexers(), &clock);
    let sets = Arc::new(FakeSource::new(Arc::clone(&clock)));
    let replica_sets = informer("replicasets", &sets, replica_set_indexers(), &clock);
    let pods = informer("pods", &Arc::new(FakeSource::new(Arc::clone(&clock))), pod_indexers(), &clock);

    source.apply(deployment(2));
    let stored = source.get(&key()).unwrap();
    let server = Arc::new(Server::new(World::new(stored)));
    let recorder = Arc::new(FakeRecorder::new());
    let controller = Arc::new(DeploymentController::new(Config::new(
        clock,
        deployments.clone(),
        replica_sets.clone(),
        pods.clone(),
        Arc::clone(&server) as _,
        Arc::clone(&server) as _,
        Arc::clone(&recorder) as _,
    )));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (controller, stop) = (Arc::clone(&controller), stop.clone());
        async move { controller.run(5, stop).await }
    });
    for run in [
        tokio::spawn({
            let (informer, stop) = (deployments, stop.clone());
            async move { informer.run(stop).await }
        }),
        tokio::spawn({
            let (informer, stop) = (replica_sets, stop.clone());
            async move { informer.run(stop).await }
        }),
        tokio::spawn({
            let (informer, stop) = (pods, stop.clone());
            async move { informer.run(stop).await }
        }),
    ] {
        drop(run);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let requests = server.requests();
    assert!(requests[0].starts_with("create replica set web-"), "{requests:?}");
    assert_eq!(requests[1..3], ["update status of deployment web", "update status of deployment web"]);
    assert_eq!(recorder.take().len(), 1);
    assert!(controller.sync(&ObjectKey::new("default", "nobody")).await.unwrap().is_none());
    stop.cancel();
    running.await.unwrap();
}
