use std::time::Duration;

use kcm_api::ApiError;
use kcm_clock::SimulatedClock;
use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
use kcm_events::FakeRecorder;
use kcm_informer::{
    InformerConfig,
    testing::{FakeSource, SetResourceVersion},
};

use super::*;
use crate::{
    plan::{BlockedOn, ProgressCheck},
    testing::{FakeApiServer, FakeCluster, deployment},
};

fn clock() -> Arc<dyn Clock> {
    Arc::new(SimulatedClock::new(kcm_api::Time::from_unix(crate::testing::START).timestamp()))
}

fn key() -> ObjectKey {
    ObjectKey::new("default", "web")
}

fn write_error() -> SyncError {
    let source = ApiError::Transport("connection refused".into());
    SyncError::Write { operation: "create replica set", object: key(), source }
}

fn outcome(progress_check: Option<ProgressCheck>) -> SyncOutcome {
    SyncOutcome { progress_check, ..SyncOutcome::blocked_on(BlockedOn::ReplicaSetStatus) }
}

#[test]
fn temporary_errors_are_separate() {
    let classify =
        |source| Syncer::classify(&SyncError::Write { operation: "update", object: key(), source });
    assert_eq!(Syncer::classify(&write_error()), ErrorClass::Temporary);
    assert_eq!(classify(ApiError::status(503, "", "")), ErrorClass::Temporary);
    assert_eq!(classify(ApiError::status(429, "", "")), ErrorClass::Temporary);
    assert_eq!(classify(ApiError::status(403, "", "")), ErrorClass::Failed);
    assert_eq!(classify(ApiError::status(409, "Conflict", "")), ErrorClass::Temporary);
    let not_read = SyncError::ExistingReplicaSetNotRead {
        replica_set: key(),
        source: ApiError::status(409, "AlreadyExists", ""),
    };
    assert_eq!(Syncer::classify(&not_read), ErrorClass::Temporary);
    assert_eq!(Syncer::classify(&SyncError::UnknownStrategy("Canary".to_owned())), ErrorClass::Failed);
}

#[test]
fn requeues_after_the_progress_check() {
    let check = |after: Option<u64>, can_time_out| {
        Some(ProgressCheck { after: after.map(Duration::from_secs), can_time_out })
    };
    let expect = |progress_check, expected| {
        assert_eq!(requeue(outcome(progress_check)).unwrap(), expected, "{progress_check:?}");
    };
    expect(check(Some(61), true), Requeue::After(Duration::from_secs(61)));
    expect(check(None, true), Requeue::RateLimited);
    expect(check(Some(1), false), Requeue::Done);
    expect(check(None, false), Requeue::Done);
    expect(None, Requeue::Done);
}

#[test]
fn retries_after_ignored_write_errors() {
    let error = requeue(SyncOutcome { ignored_error: Some(write_error()), ..outcome(None) }).unwrap_err();
    assert_eq!(error.to_string(), write_error().to_string());
    assert_eq!(Syncer::classify(&error), ErrorClass::Temporary);
}

#[test]
fn drops_keys_in_terminating_namespaces() {
    let json = serde_json::json!({
        "reason": "Forbidden", "code": 403, "details": {"causes": [{"reason": "NamespaceTerminating"}]},
    });
    let source = ApiError::Status(Box::new(serde_json::from_value(json).unwrap()));
    let error = SyncError::Write { operation: "create replica set", object: key(), source };
    assert_eq!(Syncer::classify(&error), ErrorClass::Terminal);
}

#[tokio::test(start_paused = true)]
async fn runs_from_watch_event_to_write() {
    fn informer<K: SetResourceVersion + Clone>(
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
    let server = Arc::new(FakeApiServer::new(FakeCluster::new(stored)));
    let recorder = Arc::new(FakeRecorder::new());
    let controller = Arc::new(DeploymentController::new(DeploymentControllerConfig {
        clock,
        deployments: deployments.clone(),
        replica_sets: replica_sets.clone(),
        pods: pods.clone(),
        deployment_control: server.clone(),
        replica_set_control: server.clone(),
        recorder: recorder.clone(),
        options: DeploymentControllerOptions::default(),
    }));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (controller, stop) = (Arc::clone(&controller), stop.clone());
        async move { controller.run(stop).await }
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
    assert_eq!(requests[1..], ["update status of deployment web"]);
    assert_eq!(recorder.take().len(), 1);
    assert!(controller.sync(&ObjectKey::new("default", "missing")).await.unwrap().is_none());
    stop.cancel();
    running.await.unwrap();
}
