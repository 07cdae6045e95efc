//! Upstream's `replica_set_test.go` for syncs, and the adoption rules of its integration tests.

mod coalescing;
mod related;
mod status_turns;

use std::time::Duration;

use kcm_api::{Phase, error::reason};
use kcm_clock::{FakeClock, Sleep};
use kcm_runtime::Reconciler as _;
use parking_lot::Mutex;
use serde_json::json;

use super::*;
use crate::{DeletionReason, Plan, PlanReason, PodDeletion, REPLICA_SET, testing::*};

/// Syncs once. Returns the result and the requests.
async fn sync(world: &World, key: &ObjectKey) -> (Result<Requeue, String>, String) {
    let outcome = world.syncer.sync_replica_set(key).await.map_err(|error| error.to_string());
    (outcome, summary(&world.cluster.take()))
}

fn expectations(world: &World, key: &ObjectKey) -> (i64, i64) {
    world.own_writes.expectations.get(key).unwrap_or_default()
}

fn settled(replicas: i32) -> ReplicaSet {
    let status = json!({"replicas": replicas, "fullyLabeledReplicas": replicas, "terminatingReplicas": 0,
        "observedGeneration": 1});
    changed_replica_set("web", replicas, &json!({"status": status}))
}

/// Upstream: TestSyncReplicaSetDoesNothing.
#[tokio::test]
async fn test_sync_replica_set_does_nothing() {
    let mut world = World::new();
    let subject = settled(2);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 2));
    assert_eq!(sync(&world, &key).await, (Ok(Requeue::Done), String::new()));
    assert!(world.events.take().is_empty());
}

#[tokio::test]
async fn creates_missing_pods_and_writes_the_previous_count() {
    let mut world = World::new();
    let subject = replica_set("web", 3);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    assert_eq!(sync(&world, &key).await, (Ok(Requeue::Done), "create x2, status".to_owned()));
    assert_eq!(expectations(&world, &key), (2, 0));
    assert_eq!(world.cluster.take_statuses()[0].status.replicas, 1);
    let names = world.cluster.take_names();
    let events: Vec<_> =
        names.iter().map(|name| format!("Normal SuccessfulCreate Created pod: {name}")).collect();
    assert_eq!(world.events.take(), events);
}

/// Upstream: TestSyncReplicaSetCreateFailures.
#[tokio::test]
async fn test_sync_replica_set_create_failures() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 100));
    *world.cluster.refuse_creates.lock() = Some((10, refusal("exceeded quota")));
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!(outcome, Err("exceeded quota".to_owned()));
    // 1 + 2 + 4 + 8, of which the last batch fails from its fourth on.
    assert_eq!(requests, "create x15, status");
    assert_eq!(expectations(&world, &key), (10, 0));
    let status = &world.cluster.take_statuses()[0].status;
    assert_eq!(status.conditions[0].message, "exceeded quota");
    let failures = world.events.take();
    let failures =
        failures.iter().filter(|event| *event == "Warning FailedCreate Error creating: exceeded quota");
    assert_eq!(failures.count(), 5);
}

/// Upstream: TestSyncReplicaSetDormancy.
#[tokio::test]
async fn test_sync_replica_set_dormancy() {
    let mut world = World::without_consistency(500);
    let subject = replica_set("web", 2);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    assert_eq!(sync(&world, &key).await.1, "create, status");
    world.catch_up();

    // The creation is not observed, so only the status is updated.
    let mut seen = settled(2);
    seen.status.replicas = 0;
    world.add_replica_set(&seen);
    world.catch_up();
    assert_eq!(sync(&world, &key).await.1, "status");
    assert_eq!(world.cluster.take_statuses().len(), 2);

    // It is observed, and the pod is deleted.
    world.own_writes.expectations.creation_observed(&key);
    let mut seen = settled(2);
    (seen.status.replicas, seen.status.fully_labeled_replicas) = (1, 1);
    world.add_replica_set(&seen);
    world.catch_up();
    // A failed creation leaves no expectation.
    *world.cluster.refuse_creates.lock() = Some((0, refusal("no")));
    assert!(sync(&world, &key).await.0.is_err());
    assert_eq!(expectations(&world, &key), (0, 0));
    *world.cluster.refuse_creates.lock() = None;
    world.catch_up();
    assert_eq!(sync(&world, &key).await.1, "create");
}

/// No event reports a pod that was created and deleted between two lists.
#[tokio::test]
async fn creation_without_an_event_is_not_awaited_once_the_cache_is_current() {
    let mut world = World::new();
    let key = world.add_replica_set(&settled(2));
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
    assert!(sync(&world, &key).await.0.is_err(), "the cache is behind");
    world.catch_up();
    assert_eq!(expectations(&world, &key), (2, 0));
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
}

/// The API server returns an adopted pod that is being deleted, which the cache does not contain yet.
#[tokio::test]
async fn adopted_pod_that_is_being_deleted_is_not_active() {
    let mut world = World::new();
    let key = world.add_replica_set(&settled(2));
    world.add_pods(["a", "b", "c"].map(pod));
    *world.cluster.live.lock() = Some(settled(2));
    world.cluster.deleting.lock().push("a".to_owned());
    assert_eq!(sync(&world, &key).await.1, "get, adopt a, adopt b, adopt c, status");
    let statuses = world.cluster.take_statuses();
    assert_eq!((statuses[0].status.replicas, statuses[0].status.terminating_replicas), (2, Some(1)));
}

/// Refusal of pods in a namespace that is being deleted.
fn namespace_terminating() -> ApiError {
    let mut error = ApiError::status(403, reason::FORBIDDEN, "namespace is being terminated");
    if let ApiError::Status(status) = &mut error {
        let cause = kcm_api::StatusCause { reason: "NamespaceTerminating".to_owned(), ..Default::default() };
        status.details = Some(kcm_api::StatusDetails { causes: vec![cause], ..Default::default() });
    }
    error
}

#[tokio::test]
async fn creation_in_a_terminating_namespace_keeps_its_expectation() {
    let mut world = World::new();
    let key = world.add_replica_set(&settled(2));
    *world.cluster.refuse_creates.lock() = Some((0, namespace_terminating()));
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!((outcome, requests.as_str()), (Ok(Requeue::Done), "create x2, status"));
    assert_eq!(expectations(&world, &key), (2, 0));
    assert!(world.events.take().is_empty());
    assert!(world.cluster.take_statuses()[0].status.conditions.is_empty());
}

#[tokio::test]
async fn creation_that_times_out_is_a_failure() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 4));
    *world.cluster.refuse_creates.lock() = Some((0, ApiError::Timeout("POST".to_owned())));
    assert!(sync(&world, &key).await.0.is_err());
    assert_eq!(expectations(&world, &key), (0, 0));
}

#[tokio::test]
async fn template_without_labels_is_an_error_without_request_or_event() {
    let mut world = World::new();
    let change = json!({"spec": {"template": {"metadata": {"labels": null}}}});
    let key = world.add_replica_set(&changed_replica_set("web", 2, &change));
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!((outcome, requests.as_str()), (Err("unable to create pods, no labels".to_owned()), "status"));
    assert_eq!(expectations(&world, &key), (0, 0));
    assert!(world.events.take().is_empty());
}

/// Upstream: TestGetPodKeys.
#[tokio::test]
async fn get_pod_keys_are_expected_deletions() {
    let mut world = World::new();
    let subject = replica_set("web", 1);
    let key = world.add_replica_set(&subject);
    let mut pods = pods_of(&subject, 3);
    pods[1] = ready(pods[1].clone(), ago(60));
    world.add_pods(pods);
    let (outcome, _) = sync(&world, &key).await;
    assert_eq!(outcome, Ok(Requeue::Done));
    assert_eq!(expectations(&world, &key), (0, 2));
    let pending = world.own_writes.expectations.pending_deletions(&key);
    let mut pending: Vec<_> = pending.iter().map(|pod| &*pod.key.name).collect();
    pending.sort_unstable();
    assert_eq!(pending, ["pod-0", "pod-2"]);
    assert_eq!(world.cluster.take_statuses()[0].status.replicas, 3);
    assert_eq!(world.events.take().len(), 2);
}

/// The event of the deletion of a pod that has lost its owner names no owner.
#[tokio::test]
async fn deletion_of_a_pod_that_lost_its_owner_is_not_expected() {
    let mut world = World::new();
    let subject = replica_set("web", 0);
    let key = world.add_replica_set(&subject);
    let seen = pods_of(&subject, 2);
    let (lost, adopted) = (newer(pod("pod-0")), Pod { resource_version: "4".into(), ..pod("pod-1") });
    world.add_pods([lost, adopted]);
    let delete = |pod: &Pod| PodDeletion {
        pod: Arc::new(pod.clone()),
        reason: DeletionReason::AllPods,
        age_ratio: None,
    };
    let reason = PlanReason::TooManyReplicas { need: 0, active: 2, deleting: 2 };
    let plan = Plan::DeletePods { pods: seen.iter().map(delete).collect(), reason };
    let owner = OwnerIdentity::new("apps/v1", "ReplicaSet", &subject.metadata);
    world.syncer.executor.execute(&subject, &owner, &plan).await;
    let pending = world.own_writes.expectations.pending_deletions(&key);
    let pending: Vec<_> = pending.iter().map(|pod| &*pod.key.name).collect();
    assert_eq!(pending, ["pod-1"]);
}

/// Upstream: TestDeletePodsAllowsMissing. Failed deletions are not expected either.
#[tokio::test]
async fn delete_pods_allows_missing() {
    let mut world = World::new();
    let subject = replica_set("web", 0);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 3));
    *world.cluster.refuse_deletes.lock() = vec![
        ("pod-0".to_owned(), ApiError::status(404, reason::NOT_FOUND, "gone")),
        ("pod-1".to_owned(), refusal("not allowed")),
    ];
    let (outcome, _) = sync(&world, &key).await;
    assert_eq!(outcome, Err("unable to delete pods: not allowed".to_owned()));
    assert_eq!(expectations(&world, &key), (0, 1));
    let condition = &world.cluster.take_statuses()[0].status.conditions[0];
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("FailedDelete", "unable to delete pods: not allowed")
    );
    assert_eq!(
        world.events.take(),
        ["Warning FailedDelete Error deleting: not allowed", "Normal SuccessfulDelete Deleted pod: pod-2"]
    );
}

/// Upstream: TestControllerBurstReplicas, all three.
#[tokio::test]
async fn test_controller_burst_replicas() {
    for (name, burst, wanted) in [("burst 5 of 30", 5, 30), ("burst 5 of 12", 5, 12), ("burst 3 of 2", 3, 2)]
    {
        let mut world = World::without_consistency(burst);
        let key = world.add_replica_set(&replica_set("web", wanted));
        let subject = replica_set("web", wanted);
        let wanted = usize::try_from(wanted).unwrap();
        let mut there = 0;
        while there < wanted {
            world.catch_up();
            let expected = burst.min(wanted - there);
            assert!(sync(&world, &key).await.0.is_ok());
            assert_eq!(expectations(&world, &key), (i64::try_from(expected).unwrap(), 0), "{name}");
            // All but one are observed: no pod is created.
            for _ in 1..expected {
                world.own_writes.expectations.creation_observed(&key);
            }
            world.catch_up();
            assert!(!sync(&world, &key).await.1.contains("create"), "{name}");
            world.own_writes.expectations.creation_observed(&key);
            there += expected;
            world.add_pods(pods_of(&subject, there));
        }
        // Scale down.
        world.add_replica_set(&replica_set("web", 0));
        world.catch_up();
        let (_, requests) = sync(&world, &key).await;
        assert_eq!(requests.matches("delete").count(), burst.min(wanted), "{name}");
    }
}

/// Upstream: TestControllerUpdateRequeue.
#[tokio::test]
async fn test_controller_update_requeue() {
    let mut world = World::new();
    let subject = replica_set("web", 1);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    world.cluster.refuse_statuses.lock().extend([refusal("first"), refusal("second")]);
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!((outcome, requests.as_str()), (Err("second".to_owned()), "status, get, status"));
}

/// Upstream: TestControllerUpdateStatusWithFailure.
#[tokio::test]
async fn test_controller_update_status_with_failure() {
    let mut world = World::new();
    let subject = changed_replica_set("web", 1, &json!({"metadata": {"generation": 7}}));
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    // The object was changed before the second write, which has the same status.
    let moved_on =
        changed_replica_set("web", 10, &json!({"metadata": {"generation": 8, "resourceVersion": "99"}}));
    *world.cluster.live.lock() = Some(moved_on);
    world.cluster.refuse_statuses.lock().push_back(refusal("conflict"));
    assert_eq!(sync(&world, &key).await.1, "status, get, status");
    let [first, second] = &world.cluster.take_statuses()[..] else { panic!("two writes") };
    assert_eq!(first.status, second.status);
    assert_eq!((second.status.observed_generation, second.status.replicas), (7, 1));
    assert_eq!((second.metadata.resource_version.as_str(), second.replicas()), ("99", 10));
}

#[tokio::test]
async fn status_is_not_written_to_another_object_of_the_name() {
    let mut world = World::new();
    let subject = replica_set("web", 1);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    let created_again = changed_replica_set("web", 1, &json!({"metadata": {"uid": "another"}}));
    *world.cluster.live.lock() = Some(created_again);
    world.cluster.refuse_statuses.lock().push_back(refusal("conflict"));
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!((outcome, requests.as_str()), (Err("conflict".to_owned()), "status, get"));
}

#[tokio::test]
async fn status_retry_returns_the_error_of_its_read() {
    let mut world = World::new();
    let key = world.cache_replica_set(&replica_set("web", 0));
    world.cluster.refuse_statuses.lock().push_back(refusal("conflict"));
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!((outcome, requests.as_str()), (Err("no default/web".to_owned()), "status, get"));
}

#[tokio::test]
async fn status_error_replaces_the_error_of_the_pods() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 1));
    *world.cluster.refuse_creates.lock() = Some((0, refusal("no pods")));
    world.cluster.refuse_statuses.lock().extend([refusal("first"), refusal("no status")]);
    assert_eq!(sync(&world, &key).await.0, Err("no status".to_owned()));
}

/// A clock that adds pods to the cache when it is read.
#[derive(Debug)]
struct ClockWithArrivals {
    clock: FakeClock,
    arrivals: Mutex<Option<Arrivals>>,
}

struct Arrivals(Arc<Mutex<kcm_informer::StoreWriter<Pod>>>, Vec<Pod>);

impl std::fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Arrivals")
    }
}

impl Clock for ClockWithArrivals {
    fn now(&self) -> Timestamp {
        self.monotonic();
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        if let Some(Arrivals(store, pods)) = self.arrivals.lock().take() {
            pods.into_iter().for_each(|pod| drop(store.lock().apply(Arc::new(pod))));
        }
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.clock.sleep(duration)
    }
}

/// Upstream: TestRSSyncExpectations. Pods that are added while expectations are compared are in the list.
#[tokio::test]
async fn test_rs_sync_expectations() {
    let clock = Arc::new(ClockWithArrivals { clock: FakeClock::new(now()), arrivals: Mutex::new(None) });
    let mut world = World::with_expectations_clock(clock.clone());
    let subject = replica_set("web", 2);
    let key = world.add_replica_set(&subject);
    // Expired expectations, for which the clock is read.
    world.own_writes.expectations.expect_creations(&key, 2);
    clock.clock.step(Duration::from_secs(301));
    *clock.arrivals.lock() = Some(Arrivals(world.pods.clone(), pods_of(&subject, 2)));
    assert_eq!(sync(&world, &key).await.1, "status");
    assert!(clock.arrivals.lock().is_none(), "the clock was not read");
}

#[tokio::test]
async fn sync_of_a_deleted_replica_set_removes_its_records() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 1));
    assert_eq!(sync(&world, &key).await.1, "create, status");
    world.replica_sets.remove(&key, None);
    world.catch_up();
    assert_eq!(sync(&world, &key).await, (Ok(Requeue::Done), String::new()));
    assert_eq!(world.own_writes.expectations.get(&key), None);
}

#[tokio::test]
async fn sync_waits_for_own_writes() {
    let mut world = World::new();
    let subject = replica_set("web", 1);
    let key = world.add_replica_set(&subject);
    world.add_pods(pods_of(&subject, 1));
    assert!(sync(&world, &key).await.0.is_ok());
    let (outcome, requests) = sync(&world, &key).await;
    let expected =
        "read version: 10 is not as new as written version: 3000 for group resource replicasets.apps";
    assert_eq!((outcome, requests.as_str()), (Err(expected.to_owned()), ""));
    assert_eq!(*world.metrics.skips.lock(), ["replicasets.apps"]);

    // Also if the cache does not contain the ReplicaSet.
    world.replica_sets.remove(&key, None);
    assert!(sync(&world, &key).await.0.is_err());
    world.replica_sets.bookmark("3000");
    assert!(sync(&world, &key).await.0.is_ok());
}

#[tokio::test]
async fn sync_waits_for_created_and_adopted_pods_not_for_released_ones() {
    let behind = async |subject: &ReplicaSet, pods: Vec<Pod>| {
        let mut world = World::new();
        let key = world.add_replica_set(subject);
        world.add_pods(pods);
        // An empty list has a version, too.
        world.pods.lock().bookmark("5");
        assert!(sync(&world, &key).await.0.is_ok());
        world.replica_sets.bookmark("1000000");
        sync(&world, &key).await.0.is_err()
    };
    assert!(behind(&replica_set("web", 1), vec![]).await);
    assert!(behind(&replica_set("web", 1), vec![pod("orphan")]).await);
    let subject = replica_set("web", 0);
    assert!(!behind(&subject, vec![owned_by(&subject, relabelled(pod("stray")))]).await);
}

/// Upstream: TestPatchPodCallbacks. The next sync waits for a patch that succeeded.
#[tokio::test]
async fn patch_pod_callbacks() {
    for (name, refused, waits) in [("patched", None, true), ("not found", Some(reason::NOT_FOUND), false)] {
        let mut world = World::new();
        let key = world.add_replica_set(&replica_set("web", 1));
        world.add_pods([pod("orphan")]);
        *world.cluster.refuse_patches.lock() = refused.map(|reason| ApiError::status(404, reason, "gone"));
        // Creations would be awaited as well.
        *world.cluster.refuse_creates.lock() = Some((0, refusal("no")));
        let _ = sync(&world, &key).await;
        world.replica_sets.bookmark("1000000");
        assert_eq!(world.own_writes.versions.ensure_ready(&key).is_err(), waits, "{name}");
    }
}

/// The ReplicaSet is deleted, and its event is late.
#[tokio::test]
async fn replica_set_that_a_status_update_does_not_find_gets_no_pods_at_the_next_event() {
    let mut world = World::new();
    let subject = settled(1);
    let key = world.cache_replica_set(&subject);
    let not_found = || ApiError::status(404, reason::NOT_FOUND, "gone");
    *world.cluster.refuse_statuses.lock() = [not_found(), not_found()].into();
    let reconcile = async |world: &World| {
        let result = world.syncer.reconcile(&key).await.map_err(|error| error.to_string());
        (result, summary(&world.cluster.take()))
    };
    let (result, requests) = reconcile(&world).await;
    assert_eq!(requests, "create, status, get");
    result.unwrap_err();
    world.own_writes.observe_creation(&key);
    world.catch_up();
    let pause = Duration::from_secs(1);
    assert_eq!(reconcile(&world).await, (Ok(Requeue::After(pause)), String::new()));
    world.clock.step(pause);
    // A sync without a write does not show that the object exists.
    let pods = pods_of(&subject, 1);
    world.add_pods(pods.clone());
    world.catch_up();
    assert_eq!(reconcile(&world).await, (Ok(Requeue::Done), String::new()));
    world.pods.lock().remove(&pods[0].key, None);
    world.catch_up();
    assert_eq!(reconcile(&world).await.1, "create, status, get");
    world.own_writes.observe_creation(&key);
    assert_eq!(reconcile(&world).await.0, Ok(Requeue::After(pause * 2)));
    assert!(!world.own_writes.is_settled());
    // Deleted and created again.
    let created = ReplicaSet {
        metadata: kcm_api::ObjectMeta { uid: "created-again".into(), ..subject.metadata.clone() },
        ..subject.clone()
    };
    world.own_writes.observe_owner_deletion(&key, &subject.metadata.uid);
    world.add_replica_set(&created);
    assert_eq!(reconcile(&world).await.1, "create, status");
}

#[tokio::test]
async fn invalid_selector_is_not_retried() {
    let mut world = World::new();
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    let key = world.add_replica_set(&changed_replica_set("web", 1, &json!({"spec": {"selector": selector}})));
    assert_eq!(sync(&world, &key).await, (Ok(Requeue::Done), String::new()));
}

/// Upstream: TestDoNotPatchPodWithOtherControlRef.
#[tokio::test]
async fn test_do_not_patch_pod_with_other_control_ref() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    world.add_pods(pods_of(&replica_set("other", 2), 1));
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
}

/// Upstream: TestPatchPodFails.
#[tokio::test]
async fn test_patch_pod_fails() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    world.add_pods([pod("a"), pod("b")]);
    *world.cluster.refuse_patches.lock() = Some(refusal("fake error"));
    // The sync ends without creations and status.
    assert_eq!(sync(&world, &key).await, (Err("fake error".to_owned()), "get, adopt a, adopt b".to_owned()));
}

/// Upstream: TestDoNotAdoptOrCreateIfBeingDeleted.
#[tokio::test]
async fn test_do_not_adopt_or_create_if_being_deleted() {
    let mut world = World::new();
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T11:59:00Z"}});
    let key = world.add_replica_set(&changed_replica_set("web", 2, &deleting));
    world.add_pods([pod("orphan")]);
    // The status is still updated.
    assert_eq!(sync(&world, &key).await.1, "status");
}

/// Upstream: TestDoNotAdoptOrCreateIfBeingDeletedRace.
#[tokio::test]
async fn test_do_not_adopt_or_create_if_being_deleted_race() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T11:59:00Z"}});
    *world.cluster.live.lock() = Some(changed_replica_set("web", 2, &deleting));
    world.add_pods([pod("orphan")]);
    let (outcome, requests) = sync(&world, &key).await;
    assert_eq!(
        outcome,
        Err("can't adopt Pod default/orphan (orphan-uid): default/web has just been deleted at \
             2026-01-01T11:59:00Z"
            .to_owned())
    );
    assert_eq!(requests, "get");
}

#[tokio::test]
async fn test_extra_pods_adoption_and_deletion() {
    let mut world = World::new();
    let key = world.add_replica_set(&replica_set("web", 2));
    world.add_pods(["a", "b", "c"].map(pod));
    let (_, requests) = sync(&world, &key).await;
    assert!(requests.starts_with("get, adopt a, adopt b, adopt c, delete "), "{requests}");
    assert_eq!(requests.matches("delete").count(), 1);
}

#[tokio::test]
async fn test_deleting_and_failed_pods() {
    let mut world = World::new();
    let subject = replica_set("web", 2);
    let key = world.add_replica_set(&subject);
    let mut pods = pods_of(&subject, 2);
    pods[0] = going(pods[0].clone());
    pods[1].phase = Phase::Failed;
    world.add_pods(pods);
    // Both are replaced.
    assert_eq!(sync(&world, &key).await.1, "create x2, status");
    assert_eq!(world.cluster.take_statuses()[0].status.terminating_replicas, Some(1));
}

#[tokio::test]
async fn releases_pods_that_do_not_match_unless_finished_or_terminating() {
    let mut world = World::new();
    let subject = replica_set("web", 0);
    let key = world.add_replica_set(&subject);
    let stray = |name: &str| owned_by(&subject, relabelled(pod(name)));
    world.add_pods([stray("a"), going(stray("b")), Pod { phase: Phase::Succeeded, ..stray("c") }]);
    assert_eq!(sync(&world, &key).await.1, "release a, status");
    // Pods that do not match are not counted as terminating.
    assert_eq!(world.cluster.take_statuses()[0].status.terminating_replicas, Some(0));
}

/// Upstream: TestClaimedPodFiltering. Terminating pods of the owner that match are counted.
#[tokio::test]
async fn claimed_pod_filtering() {
    let mut world = World::new();
    let subject = replica_set("web", 0);
    let key = world.add_replica_set(&subject);
    world.add_pods([
        going(owned_by(&subject, pod("claimed"))),
        going(owned_by(&subject, relabelled(pod("not-matching")))),
        going(owned_by(&replica_set("other", 0), pod("of-another-owner"))),
        going(pod("orphan")),
    ]);
    assert_eq!(sync(&world, &key).await.1, "status");
    assert_eq!(world.cluster.take_statuses()[0].status.terminating_replicas, Some(1));
}

/// Upstream: TestReplicaSetAvailabilityCheck.
#[tokio::test]
async fn test_replica_set_availability_check() {
    // Ready for 0.3 s, 2.3 s and 4.3 s.
    let mut world = World::new();
    world.clock.step(Duration::from_millis(300));
    let subject = changed_replica_set("web", 4, &json!({"spec": {"minReadySeconds": 5}}));
    let key = world.add_replica_set(&subject);
    let mut pods = pods_of(&subject, 4);
    pods[0].phase = Phase::Pending;
    for (pod, since) in pods[1..].iter_mut().zip([0, 2, 4]) {
        *pod = ready(pod.clone(), ago(since));
    }
    world.add_pods(pods);
    let (outcome, _) = sync(&world, &key).await;
    assert_eq!(outcome, Ok(Requeue::After(Duration::from_millis(700))));
    let status = &world.cluster.take_statuses()[0].status;
    assert_eq!((status.ready_replicas, status.available_replicas), (3, 0));
}

#[tokio::test]
async fn requeues_after_min_ready_seconds_without_a_time_of_readiness() {
    let next = async |min_ready: i32, since| {
        let mut world = World::new();
        let subject = changed_replica_set("web", 1, &json!({"spec": {"minReadySeconds": min_ready}}));
        let key = world.add_replica_set(&subject);
        world.add_pods(pods_of(&subject, 1).into_iter().map(|pod| ready(pod, since)));
        sync(&world, &key).await.0
    };
    assert_eq!(next(7, None).await, Ok(Requeue::After(Duration::from_secs(7))));
    assert_eq!(next(7, ago(7)).await, Ok(Requeue::Done));
    assert_eq!(next(0, ago(0)).await, Ok(Requeue::Done));
}

#[tokio::test]
async fn records_age_ratios_of_deleted_ready_pods() {
    let mut world = World::new();
    let subject = replica_set("web", 1);
    let key = world.add_replica_set(&subject);
    let aged = |name: &str, age, since| {
        ready(Pod { creation_timestamp: ago(age), ..owned_by(&subject, pod(name)) }, ago(since))
    };
    world.add_pods([aged("a", 100, 1), aged("b", 40, 30), owned_by(&subject, pod("not-ready"))]);
    assert!(sync(&world, &key).await.0.is_ok());
    // 100 s / 40 s, rounded down.
    assert_eq!(*world.metrics.ratios.lock(), [2.0]);
}
