use std::time::Duration;

use kcm_api::error::reason;
use kcm_clock::FakeClock;
use kcm_controller_util::{NoStatusTurns, StatusTurns, StatusUrgency};
use kcm_deployment_util::annotations::{DESIRED_REPLICAS, REVISION, ROLLBACK_TO};
use kcm_events::FakeRecorder;
use kcm_expectations::OwnWrites;
use kcm_runtime::{Reconciler as _, Requeue};
use serde_json::json;

use super::*;
use crate::testing::{
    Caches, FakeApiServer, FakeCluster, START, deployment, pod_of, replica_set, set_recreate,
};

fn clock() -> FakeClock {
    FakeClock::new(kcm_api::Time::from_unix(START).timestamp())
}

/// Returns a syncer, its API server and its event recorder.
fn syncer(caches: &Caches, cluster: FakeCluster) -> (Syncer, Arc<FakeApiServer>, Arc<FakeRecorder>) {
    let (server, recorder) = (Arc::new(FakeApiServer::new(cluster)), Arc::new(FakeRecorder::new()));
    let syncer = Syncer {
        clock: Arc::new(clock()),
        deployments: caches.deployments.reader(),
        replica_sets: caches.replica_sets.reader(),
        pods: caches.pods.reader(),
        executor: Executor {
            deployment_control: Arc::clone(&server) as _,
            replica_set_control: Arc::clone(&server) as _,
            recorder: Arc::clone(&recorder) as _,
            replica_sets: caches.replica_sets.reader(),
            status_turns: Arc::new(NoStatusTurns),
            own_writes: Arc::new(OwnWrites::new(Arc::new(clock()), [])),
        },
        terminating_replicas: true,
        coalesce_status_writes: true,
    };
    (syncer, server, recorder)
}

fn cluster(deployment: &Deployment, sets: &[&ReplicaSet]) -> FakeCluster {
    let mut cluster = FakeCluster::new(deployment.clone());
    cluster.sets = sets.iter().map(|set| (set.metadata.name.to_string(), (*set).clone())).collect();
    cluster
}

fn orphan(mut set: ReplicaSet) -> ReplicaSet {
    set.metadata.owner_references.clear();
    set
}

async fn sync(
    d: &Deployment,
    sets: &[&ReplicaSet],
) -> (Result<Option<SyncOutcome>, SyncError>, Vec<String>, Vec<String>) {
    let (syncer, server, recorder) = syncer(&Caches::with(&[d], sets), cluster(d, sets));
    let outcome = syncer.sync_deployment(&d.metadata.key()).await;
    (outcome, server.requests(), recorder.take())
}

/// `TestSyncDeploymentCreatesReplicaSet`.
#[tokio::test]
async fn sync_deployment_creates_replica_set() {
    let (outcome, requests, events) = sync(&deployment(1), &[]).await;
    outcome.unwrap();
    let name = "web-78c95bb4f";
    let expected =
        [format!("create replica set {name} with 1 replicas"), "update status of deployment web".to_owned()];
    assert_eq!(requests, expected);
    assert_eq!(events, [format!("Normal ScalingReplicaSet Scaled up replica set {name} from 0 to 1")]);
}

#[tokio::test]
async fn sync_with_stale_caches_uses_own_writes() {
    let d = deployment(1);
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[]), cluster(&d, &[]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests().len(), 2, "one create and one status update");
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), [""; 0], "nothing to do");
}

/// `TestSyncDeploymentDontDoAnythingDuringDeletion`.
#[tokio::test]
async fn deployment_being_deleted_only_updates_its_status() {
    let mut d = deployment(1);
    d.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    let (outcome, requests, _) = sync(&d, &[&orphan(replica_set("web-1", "web:1", 0, 1, 1))]).await;
    outcome.unwrap();
    assert_eq!(requests, ["update status of deployment web"]);
}

/// `TestSyncDeploymentDeletionRace`: the Deployment is being deleted, and the cache is behind.
#[tokio::test]
async fn deletion_race_reads_once_and_adopts_nothing() {
    let d = deployment(1);
    let sets =
        [orphan(replica_set("web-1", "web:1", 0, 1, 1)), orphan(replica_set("web-2", "web:2", 1, 1, 1))];
    let mut terminating = d.clone();
    terminating.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&sets[0], &sets[1]]), cluster(&terminating, &[]));
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert!(error.to_string().contains("just been deleted"), "{error}");
    assert_eq!(server.requests(), ["get deployment web"]);
}

/// `TestDontSyncDeploymentsWithEmptyPodSelector`.
#[tokio::test]
async fn dont_sync_deployments_with_empty_pod_selector() {
    let mut d = deployment(1);
    d.spec.selector = Some(kcm_api::LabelSelector::default());
    let orphan = orphan(replica_set("web-1", "web:1", 0, 1, 1));
    let (outcome, requests, events) = sync(&d, &[&orphan]).await;
    outcome.unwrap();
    assert_eq!(requests, ["update status of deployment web"]);
    assert_eq!(events.len(), 1);
    d.status.observed_generation = 1;
    assert_eq!(sync(&d, &[&orphan]).await.1, [""; 0], "observedGeneration is up to date");
}

/// `TestReentrantRollback`.
#[tokio::test]
async fn reentrant_rollback() {
    let mut d = deployment(1);
    d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), "0".to_owned());
    d.metadata.annotations.insert(REVISION.to_owned(), "1".to_owned());
    let with_revision = |mut set: ReplicaSet, revision: &str| {
        set.metadata.annotations.insert(REVISION.to_owned(), revision.to_owned());
        set
    };
    let new = with_revision(replica_set("web-new", "web:1", 0, 1, 1), "1");
    let old = with_revision(replica_set("web-old", "web:0", 1, 0, 0), "2");
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&new, &old]), cluster(&d, &[&new, &old]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), ["update replica set web-new to 1 replicas", "update deployment web"]);
    let cluster = server.cluster.lock();
    assert_eq!(cluster.sets["web-new"].metadata.annotations[REVISION], "3");
    assert!(!cluster.deployment.metadata.annotations.contains_key(ROLLBACK_TO));
    assert!(cluster.deployment.spec.template.equal_ignore_hash(&old.spec.template));
}

/// The Deployment is deleted, and its event is late.
#[tokio::test]
async fn deployment_that_a_write_does_not_find_gets_no_replica_set_at_the_next_event() {
    let d = deployment(1);
    let key = d.metadata.key();
    let mut cluster = cluster(&d, &[]);
    let body = json!({"code": 404, "reason": reason::NOT_FOUND, "details": {"name": "web"}});
    let error = ApiError::Status(Box::new(serde_json::from_value(body).unwrap()));
    let not_found = || ("update status", error.clone());
    cluster.write_errors = vec![not_found(), not_found()];
    let mut caches = Caches::with(&[&d], &[]);
    let (mut syncer, server, _) = syncer(&caches, cluster);
    let clock = clock();
    syncer.executor.own_writes = Arc::new(OwnWrites::new(Arc::new(clock.clone()), []));
    let writes = ["create replica set web-78c95bb4f with 1 replicas", "update status of deployment web"];
    syncer.reconcile(&key).await.unwrap_err();
    assert_eq!(server.requests(), writes);
    // The garbage collector deletes the ReplicaSet.
    let collect = || {
        server.cluster.lock().sets.clear();
        let set = ObjectKey::new("default", "web-78c95bb4f");
        syncer.executor.own_writes.objects.gone::<ReplicaSet>(&key, &set);
    };
    collect();
    let pause = Duration::from_secs(1);
    assert_eq!(syncer.reconcile(&key).await.unwrap(), Requeue::After(pause));
    assert_eq!(server.requests(), [""; 0]);
    clock.step(pause);
    syncer.reconcile(&key).await.unwrap_err();
    assert_eq!(server.requests(), writes);
    collect();
    // Deleted and created again.
    let mut created = d.clone();
    created.metadata.uid = "created-again".into();
    caches.deployments.apply(Arc::new(created));
    syncer.reconcile(&key).await.unwrap();
    assert_eq!(server.requests(), writes);
}

/// Rate limit without tokens.
struct NoTokens;

impl StatusTurns for NoTokens {
    fn take(&self, _: &ObjectKey, _: StatusUrgency) -> bool {
        false
    }
}

#[tokio::test]
async fn status_is_written_when_its_turn_comes() {
    let d = deployment(1);
    let (mut syncer, server, _) = syncer(&Caches::with(&[&d], &[]), cluster(&d, &[]));
    syncer.executor.status_turns = Arc::new(NoTokens);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), ["create replica set web-78c95bb4f with 1 replicas"]);
    syncer.executor.status_turns = Arc::new(NoStatusTurns);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), ["update status of deployment web"]);
}

#[tokio::test]
async fn failure_is_returned_before_the_turn_of_the_status() {
    let d = deployment(1);
    let mut cluster = cluster(&d, &[]);
    cluster.write_errors.push(("create", ApiError::status(403, "Forbidden", "quota exceeded")));
    let (mut syncer, server, _) = syncer(&Caches::with(&[&d], &[]), cluster);
    syncer.executor.status_turns = Arc::new(NoTokens);
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert!(error.to_string().contains("quota exceeded"), "{error}");
    assert_eq!(server.requests(), ["create replica set web-78c95bb4f with 1 replicas"]);
}

#[tokio::test]
async fn hash_collision_is_written_at_once() {
    let d = deployment(1);
    let mut other = replica_set("web-78c95bb4f", "web:0", 0, 1, 1);
    other.metadata.owner_references.clear();
    other.metadata.labels = Default::default();
    let (mut syncer, server, _) = syncer(&Caches::with(&[&d], &[]), cluster(&d, &[&other]));
    syncer.executor.status_turns = Arc::new(NoTokens);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert_eq!(
        server.requests(),
        [
            "create replica set web-78c95bb4f with 1 replicas",
            "get replica set web-78c95bb4f",
            "update status of deployment web"
        ]
    );
}

/// The cache contains the ReplicaSet of a former Deployment of this name. The first creation got no response.
#[tokio::test]
async fn replica_set_of_a_former_deployment_in_the_cache_is_no_collision() {
    let d = deployment(1);
    let created = replica_set("web-78c95bb4f", "web:1", 0, 1, 1);
    let mut cached = created.clone();
    cached.metadata.owner_references[0].uid = "former-uid".into();
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&cached]), cluster(&d, &[&created]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    let requests = server.requests();
    assert_eq!(
        requests[..2],
        ["create replica set web-78c95bb4f with 1 replicas", "get replica set web-78c95bb4f"]
    );
    assert_eq!(server.cluster.lock().deployment.status.collision_count, None, "{requests:?}");
}

fn claimed(view: &View) -> Vec<&str> {
    let mut names: Vec<_> = view.replica_sets.iter().map(|set| &*set.metadata.name).collect();
    names.sort_unstable();
    names
}

/// `TestGetReplicaSetsForDeployment`.
#[tokio::test]
async fn claims_the_replica_sets_of_one_deployment() {
    let d1 = deployment(1);
    let mut d2 = deployment(1);
    d2.metadata.name = "other".into();
    d2.metadata.uid = "other-uid".into();
    let rs1 = replica_set("web-1", "web:1", 0, 1, 1);
    let mut rs2 = replica_set("other-1", "web:1", 0, 1, 1);
    rs2.metadata.owner_references = vec![OwnerIdentity::from(&d2).controller_reference()];
    let (syncer, server, _) = syncer(&Caches::with(&[&d1, &d2], &[&rs1, &rs2]), cluster(&d1, &[&rs1, &rs2]));
    assert_eq!(claimed(&syncer.view(Arc::new(d1)).await.unwrap()), ["web-1"]);
    assert_eq!(claimed(&syncer.view(Arc::new(d2)).await.unwrap()), ["other-1"]);
    assert_eq!(server.requests(), [""; 0]);
}

/// `TestGetReplicaSetsForDeploymentAdoptRelease`. The sync continues with the returned object.
#[tokio::test]
async fn adopts_and_releases() {
    let d = deployment(1);
    let adopt = orphan(replica_set("web-adopt", "web:1", 0, 1, 1));
    let mut release = replica_set("web-release", "web:1", 1, 1, 1);
    release.metadata.labels.clear();
    let (syncer, server, _) =
        syncer(&Caches::with(&[&d], &[&adopt, &release]), cluster(&d, &[&adopt, &release]));
    let view = syncer.view(Arc::new(d)).await.unwrap();
    assert_eq!(claimed(&view), ["web-adopt"]);
    assert_eq!(
        server.requests(),
        ["get deployment web", "adopt replica set web-adopt", "release replica set web-release"]
    );
    let stored = &server.cluster.lock().sets["web-adopt"];
    assert_eq!(*view.replica_sets[0], *stored, "the returned object");
}

/// `TestGetPodMapForReplicaSets`. Only ReplicaSets with running pods are determined.
#[tokio::test]
async fn running_pods_are_assigned_by_owner() {
    let mut d = deployment(1);
    set_recreate(&mut d);
    let (rs1, rs2) = (replica_set("web-1", "web:1", 0, 1, 1), replica_set("web-2", "web:2", 1, 1, 1));
    let mut foreign = replica_set("foreign", "web:1", 0, 1, 1);
    foreign.metadata.owner_references[0].uid = "other".into();
    let running = async |pods: &[&ReplicaSet], d: &Deployment| {
        let mut caches = Caches::with(&[d], &[&rs1, &rs2, &foreign]);
        for (at, owner) in pods.iter().enumerate() {
            caches.pods.apply(Arc::new(pod_of(owner, &format!("pod-{at}"), "Running")));
        }
        let (syncer, ..) = syncer(&caches, cluster(d, &[&rs1, &rs2]));
        let view = syncer.view(Arc::new(d.clone())).await.unwrap();
        view.running.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (one, two) = ("uid-of-web-1", "uid-of-web-2");
    assert_eq!(running(&[&rs1, &rs1, &foreign], &d).await, [one]);
    assert_eq!(running(&[&rs1, &rs2], &d).await, [one, two]);
    assert_eq!(running(&[&rs1], &deployment(1)).await, [""; 0], "not a Recreate");
}

/// `TestOldPodsRunning`. A Recreate creates its new ReplicaSet if no old pods are running.
#[tokio::test]
async fn old_pods_running_upstream_cases() {
    let mut d = deployment(1);
    set_recreate(&mut d);
    struct Case {
        name: &'static str,
        /// `status.replicas` of the first old ReplicaSet.
        status_replicas: i32,
        /// Phases of the pods of each old ReplicaSet.
        pods: &'static [&'static [&'static str]],
        running: bool,
    }
    let case = |name, status_replicas, pods, running| Case { name, status_replicas, pods, running };
    let cases = [
        case("no old RSs", 0, &[], false),
        case("old RSs with running pods", 0, &[&["Running"], &["Running"]], true),
        case("old RSs without pods but with non-zero status replicas", 1, &[&[]], true),
        case("old RSs without pods or non-zero status replicas", 0, &[&[]], false),
        case(
            "old RSs with zero status replicas but pods in terminal state are present",
            0,
            &[&["Failed", "Succeeded"]],
            false,
        ),
        case("old RSs with zero status replicas but pod in unknown phase present", 0, &[&["Unknown"]], true),
        case("old RSs with zero status replicas with pending pod present", 0, &[&["Pending"]], true),
        case("old RSs with zero status replicas with running pod present", 0, &[&["Running"]], true),
        case(
            "old RSs with zero status replicas but pods in terminal state and pending are present",
            0,
            &[&["Failed", "Succeeded"], &[], &["Pending"]],
            true,
        ),
    ];
    for Case { name, status_replicas, pods, running } in cases {
        let mut sets: Vec<_> =
            (0..pods.len()).map(|at| replica_set(&format!("old-{at}"), "web:0", 0, 0, 0)).collect();
        if let Some(first) = sets.first_mut() {
            first.status.replicas = status_replicas;
        }
        let sets: Vec<&ReplicaSet> = sets.iter().collect();
        let mut caches = Caches::with(&[&d], &sets);
        for (owner, phases) in sets.iter().zip(pods) {
            for phase in *phases {
                let name = format!("{}-{phase}", owner.metadata.name);
                caches.pods.apply(Arc::new(pod_of(owner, &name, phase)));
            }
        }
        let (syncer, server, _) = syncer(&caches, cluster(&d, &sets));
        syncer.sync_deployment(&d.metadata.key()).await.unwrap();
        let creates = server.requests().iter().any(|request| request.starts_with("create replica set"));
        assert_eq!(creates, !running, "{name}");
    }
}

/// `TestDeploymentController_generateReplicaSetName`.
#[tokio::test]
async fn long_deployment_name_is_truncated() {
    for (length, prefix_length) in [(242, 242), (250, 253 - 10)] {
        let mut d = deployment(1);
        d.metadata.name = "a".repeat(length).into();
        let (outcome, requests, _) = sync(&d, &[]).await;
        outcome.unwrap();
        // The hash has 9 characters.
        let expected = format!("create replica set {}-78c95bb4f with 1 replicas", "a".repeat(prefix_length));
        assert_eq!(requests[0], expected);
    }
}

#[tokio::test]
async fn missing_deployment_is_ignored() {
    let d = deployment(1);
    let (syncer, server, _) = syncer(&Caches::new(), cluster(&d, &[]));
    assert!(syncer.sync_deployment(&d.metadata.key()).await.unwrap().is_none());
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn invalid_selector_fails() {
    let mut d = deployment(1);
    d.spec.selector =
        serde_json::from_value(serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}))
            .unwrap();
    let (outcome, requests, _) = sync(&d, &[]).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("deployment default/web has invalid label selector: "), "{error}");
    assert_eq!(requests, [""; 0]);
}

/// No action follows the write that failed.
#[tokio::test]
async fn failed_status_update_ends_the_sync() {
    let d = deployment(5);
    let old = replica_set("web-old", "web:0", 0, 3, 3);
    let conflict = ApiError::status(409, reason::CONFLICT, "modified");
    let mut cluster = cluster(&d, &[&old]);
    cluster.write_errors.push(("update status", conflict));
    let (syncer, server, recorder) = syncer(&Caches::with(&[&d], &[&old]), cluster);
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to update status of deployment default/web: modified");
    let name = "web-78c95bb4f";
    let created = format!("create replica set {name} with 4 replicas");
    assert_eq!(server.requests(), [created, "update status of deployment web".to_owned()]);
    assert_eq!(
        recorder.take(),
        [format!("Normal ScalingReplicaSet Scaled up replica set {name} from 0 to 4")]
    );
}

#[tokio::test]
async fn times_are_truncated_to_seconds() {
    let d = deployment(1);
    let (mut syncer, server, _) = syncer(&Caches::with(&[&d], &[]), cluster(&d, &[]));
    let clock = clock();
    clock.step(Duration::from_millis(1700));
    syncer.clock = Arc::new(clock);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    let cluster = server.cluster.lock();
    let times = cluster.deployment.status.conditions.iter().map(|condition| condition.last_update_time);
    assert!(times.into_iter().all(|time| time == Some(kcm_api::Time::from_unix(START + 1))));
}

#[tokio::test]
async fn lost_response_of_create_is_read_from_the_api_server() {
    let d = deployment(1);
    let mut cluster = cluster(&d, &[]);
    cluster.lost_responses.push(("create replica set", ApiError::Transport("connection reset".into())));
    let (syncer, server, recorder) = syncer(&Caches::with(&[&d], &[]), cluster);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    let name = "web-78c95bb4f";
    let requests = server.requests();
    let expected = [format!("create replica set {name} with 1 replicas"), format!("get replica set {name}")];
    assert_eq!(requests[..2], expected);
    assert_eq!(
        recorder.take(),
        [format!("Normal ScalingReplicaSet Scaled up replica set {name} from 0 to 1")]
    );
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), [""; 0], "nothing to do");
}

#[tokio::test]
async fn failed_create_is_reported_and_retried() {
    let d = deployment(1);
    let mut cluster = cluster(&d, &[]);
    cluster
        .write_errors
        .push(("create replica set", ApiError::status(500, "InternalError", "webhook failed")));
    let (syncer, server, recorder) = syncer(&Caches::with(&[&d], &[]), cluster);
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert_eq!(error.to_string(), "failed to create replica set default/web-78c95bb4f: webhook failed");
    assert_eq!(server.requests()[1], "get replica set web-78c95bb4f");
    assert!(recorder.take()[0].starts_with("Warning ReplicaSetCreateError Failed to create new replica set"));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests()[0], "create replica set web-78c95bb4f with 1 replicas");
}

/// The ReplicaSet exists, and the cache does not contain it.
#[tokio::test]
async fn create_of_uncached_replica_set_is_sent_once() {
    let d = deployment(1);
    let mut earlier = cluster(&d, &[]);
    earlier.sync().unwrap();
    let stored = earlier.sets["web-78c95bb4f"].clone();
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[]), cluster(&d, &[&stored]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    let creates = |requests: Vec<String>| requests.iter().filter(|one| one.starts_with("create")).count();
    assert_eq!(creates(server.requests()), 1);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(creates(server.requests()), 0);
}

mod recreate {
    use super::*;

    /// A Recreate. The 3 pods of the ReplicaSet `web-old` were not created yet.
    struct Recreate {
        deployment: Deployment,
        old: ReplicaSet,
        caches: Caches,
        syncer: Syncer,
        server: Arc<FakeApiServer>,
    }

    impl Recreate {
        fn new() -> Self {
            Self::with(|_| {})
        }

        fn with(prepare: impl FnOnce(&mut FakeCluster)) -> Self {
            let mut deployment = deployment(3);
            set_recreate(&mut deployment);
            let mut old = replica_set("web-old", "web:0", 0, 3, 0);
            old.status.replicas = 0;
            let caches = Caches::with(&[&deployment], &[&old]);
            let mut cluster = cluster(&deployment, &[&old]);
            prepare(&mut cluster);
            let (syncer, server, _) = syncer(&caches, cluster);
            Self { deployment, old, caches, syncer, server }
        }

        /// Syncs the Deployment. Returns the requests for ReplicaSets.
        async fn sync(&self) -> Vec<String> {
            // A refused write is retried by the queue.
            let _ = self.syncer.sync_deployment(&self.deployment.metadata.key()).await;
            self.server.requests().into_iter().filter(|request| request.contains("replica set")).collect()
        }

        /// Updates the cached ReplicaSet from the API server. It reports `observed` as observed.
        fn cache_old(&mut self, observed: i64) {
            let mut cluster = self.server.cluster.lock();
            let version = cluster.next_version();
            let stored = cluster.sets.get_mut("web-old").unwrap();
            stored.status.observed_generation = observed;
            stored.metadata.resource_version = version;
            self.caches.replica_sets.apply(Arc::new(stored.clone()));
        }
    }

    const SCALE_DOWN: &str = "update replica set web-old to 0 replicas";
    const CREATE: &str = "create replica set web-78c95bb4f with 3 replicas";

    #[tokio::test]
    async fn waits_until_the_cache_reports_its_scale_down_as_observed() {
        let mut test = Recreate::new();
        assert_eq!(test.sync().await, [SCALE_DOWN]);
        assert_eq!(test.sync().await, [""; 0], "the cache contains 3 replicas");
        test.cache_old(1);
        assert_eq!(test.sync().await, [""; 0], "the cache contains 0 replicas, which are not observed");
        test.cache_old(2);
        assert_eq!(test.sync().await, [CREATE]);
        let key = test.deployment.metadata.key();
        assert!(test.syncer.executor.own_writes.objects.unobserved(&key).is_empty());
    }

    /// A new pod of the old ReplicaSet was reported before its status.
    #[tokio::test]
    async fn waits_for_pods_that_were_created_before_the_scale_down_was_observed() {
        let mut test = Recreate::new();
        test.sync().await;
        test.caches.pods.apply(Arc::new(pod_of(&test.old, "web-old-1", "Running")));
        test.cache_old(2);
        assert_eq!(test.sync().await, [""; 0]);
    }

    #[tokio::test]
    async fn waits_after_a_scale_down_without_a_response() {
        let mut test = Recreate::with(|cluster| {
            cluster
                .lost_responses
                .push(("update replica set", ApiError::Transport("connection reset".into())));
        });
        assert_eq!(test.sync().await, [SCALE_DOWN]);
        assert_eq!(test.sync().await, [SCALE_DOWN], "refused: the cache is behind");
        test.cache_old(1);
        assert_eq!(test.sync().await, [""; 0]);
        test.cache_old(2);
        assert_eq!(test.sync().await, [CREATE]);
    }

    /// The Deployment is scaled before the retry. As upstream, the old ReplicaSet follows, and the next sync scales it down.
    #[tokio::test]
    async fn writes_a_scale_down_again_that_was_not_executed() {
        let mut test = Recreate::with(|cluster| {
            cluster.write_errors.push((
                "update replica set",
                ApiError::status(500, "InternalError", "failed calling webhook"),
            ));
        });
        let annotations = &mut test.old.metadata.annotations;
        annotations.insert(DESIRED_REPLICAS.into(), "3".into());
        test.server.cluster.lock().sets.insert("web-old".to_owned(), test.old.clone());
        test.caches.replica_sets.apply(Arc::new(test.old.clone()));
        assert_eq!(test.sync().await, [SCALE_DOWN]);
        test.deployment.spec.replicas = Some(5);
        test.deployment.metadata.resource_version = "900".to_owned();
        test.caches.deployments.apply(Arc::new(test.deployment.clone()));
        assert_eq!(test.sync().await, ["update replica set web-old to 5 replicas"]);
        test.cache_old(2);
        assert_eq!(test.sync().await, [SCALE_DOWN]);
    }

    /// Another client has scaled the ReplicaSet down. As upstream.
    #[tokio::test]
    async fn does_not_wait_for_scale_downs_of_others() {
        let mut test = Recreate::new();
        test.server.cluster.lock().sets.get_mut("web-old").unwrap().spec.replicas = Some(0);
        test.cache_old(0);
        assert_eq!(test.sync().await, [CREATE]);
    }

    /// The Deployment is paused before the scale-down is observed, and a new ReplicaSet exists.
    #[tokio::test]
    async fn paused_deployment_waits_as_well() {
        let mut test = Recreate::new();
        let new = replica_set("web-78c95bb4f", "web:1", 1, 0, 0);
        test.server.cluster.lock().sets.insert(new.metadata.name.to_string(), new.clone());
        test.caches.replica_sets.apply(Arc::new(new));
        test.sync().await;
        test.deployment.spec.paused = true;
        test.deployment.metadata.resource_version = "900".to_owned();
        test.caches.deployments.apply(Arc::new(test.deployment.clone()));
        assert_eq!(test.sync().await, [""; 0]);
        test.cache_old(2);
        assert_eq!(test.sync().await, ["update replica set web-78c95bb4f to 3 replicas"]);
    }
}

/// The ReplicaSet was deleted, and the cache is behind the last write.
#[tokio::test]
async fn not_found_removes_the_own_write() {
    let d = deployment(1);
    let cached = replica_set("web-1", "web:1", 0, 1, 1);
    let mut written = cached.clone();
    written.metadata.resource_version = "15".to_owned();
    written.spec.replicas = Some(5);
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&cached]), cluster(&d, &[]));
    let objects = &syncer.executor.own_writes.objects;
    objects.wrote(&d.metadata.key(), &Arc::new(written));
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert!(error.to_string().ends_with("not found"), "{error}");
    assert_eq!(server.requests()[0], "update replica set web-1 to 5 replicas");
    assert!(objects.is_empty(), "{objects:?}");
}
