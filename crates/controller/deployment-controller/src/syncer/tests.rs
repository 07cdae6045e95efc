use std::time::Duration;

use kcm_clock::FakeClock;
use kcm_deployment_util::annotations::{REVISION, ROLLBACK_TO};
use kcm_events::FakeRecorder;

use super::*;
use crate::own_writes::OwnWrites;
use crate::testing::{Caches, START, Server, World, deployment, pod_of, replica_set, set_recreate};

fn clock() -> FakeClock {
    FakeClock::new(kcm_api::Time::from_unix(START).timestamp())
}

/// A syncer over `caches`, the server that it talks to, and its events.
fn syncer(caches: &Caches, world: World) -> (Syncer, Arc<Server>, Arc<FakeRecorder>) {
    let (server, recorder) = (Arc::new(Server::new(world)), Arc::new(FakeRecorder::new()));
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
            own_writes: OwnWrites::default(),
        },
        terminating_replicas: true,
    };
    (syncer, server, recorder)
}

fn world(deployment: &Deployment, sets: &[&ReplicaSet]) -> World {
    let mut world = World::new(deployment.clone());
    world.sets = sets.iter().map(|set| (set.metadata.name.to_string(), (*set).clone())).collect();
    world
}

fn orphan(mut set: ReplicaSet) -> ReplicaSet {
    set.metadata.owner_references.clear();
    set
}

async fn sync(
    d: &Deployment,
    sets: &[&ReplicaSet],
) -> (Result<Option<Outcome>, SyncError>, Vec<String>, Vec<String>) {
    let (syncer, server, recorder) = syncer(&Caches::with(&[d], sets), world(d, sets));
    let outcome = syncer.sync_deployment(&d.metadata.key()).await;
    (outcome, server.requests(), recorder.take())
}

/// `TestSyncDeploymentCreatesReplicaSet`: one create and two writes of the status.
#[tokio::test]
async fn sync_deployment_creates_replica_set() {
    let (outcome, requests, events) = sync(&deployment(1), &[]).await;
    outcome.unwrap();
    let name = "web-78c95bb4f";
    let expected = [
        format!("create replica set {name} with 1 replicas"),
        "update status of deployment web".to_owned(),
        "update status of deployment web".to_owned(),
    ];
    assert_eq!(requests, expected);
    assert_eq!(events, [format!("Normal ScalingReplicaSet Scaled up replica set {name} from 0 to 1")]);
}

#[tokio::test]
async fn sync_repeated_before_the_caches_have_caught_up_goes_on_from_its_own_writes() {
    let d = deployment(1);
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[]), world(&d, &[]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests().len(), 3, "one create and two writes of the status");
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), [""; 0], "nothing is left to do");
}

/// `TestSyncDeploymentDontDoAnythingDuringDeletion`: one write of the status, and that is all.
#[tokio::test]
async fn sync_deployment_dont_do_anything_during_deletion() {
    let mut d = deployment(1);
    d.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    let (outcome, requests, _) = sync(&d, &[&orphan(replica_set("web-1", "web:1", 0, 1, 1))]).await;
    outcome.unwrap();
    assert_eq!(requests, ["update status of deployment web"]);
}

/// `TestSyncDeploymentDeletionRace`: the cache says alive, the server says going.
#[tokio::test]
async fn sync_deployment_deletion_race_reads_once_and_adopts_nothing() {
    let d = deployment(1);
    let sets =
        [orphan(replica_set("web-1", "web:1", 0, 1, 1)), orphan(replica_set("web-2", "web:2", 1, 1, 1))];
    let mut going = d.clone();
    going.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&sets[0], &sets[1]]), world(&going, &[]));
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert!(error.to_string().contains("just been deleted"), "{error}");
    assert_eq!(server.requests(), ["get deployment web"]);
}

/// `TestDontSyncDeploymentsWithEmptyPodSelector`.
#[tokio::test]
async fn dont_sync_deployments_with_empty_pod_selector() {
    let mut d = deployment(1);
    d.spec.selector = Some(kcm_api::LabelSelector::default());
    let stray = orphan(replica_set("web-1", "web:1", 0, 1, 1));
    let (outcome, requests, events) = sync(&d, &[&stray]).await;
    outcome.unwrap();
    assert_eq!(requests, ["update status of deployment web"]);
    assert_eq!(events.len(), 1);
    d.status.observed_generation = 1;
    assert_eq!(sync(&d, &[&stray]).await.1, [""; 0], "its generation was looked at before");
}

/// `TestReentrantRollback`: the revision is raised, then the template is put back, and the annotation goes.
#[tokio::test]
async fn reentrant_rollback() {
    let mut d = deployment(1);
    d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), "0".to_owned());
    d.metadata.annotations.insert(REVISION.to_owned(), "1".to_owned());
    let numbered = |mut set: ReplicaSet, revision: &str| {
        set.metadata.annotations.insert(REVISION.to_owned(), revision.to_owned());
        set
    };
    let new = numbered(replica_set("web-new", "web:1", 0, 1, 1), "1");
    let old = numbered(replica_set("web-old", "web:0", 1, 0, 0), "2");
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&new, &old]), world(&d, &[&new, &old]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests(), ["update replica set web-new to 1 replicas", "update deployment web"]);
    let world = server.world.lock();
    assert_eq!(world.sets["web-new"].metadata.annotations[REVISION], "3");
    assert!(!world.deployment.metadata.annotations.contains_key(ROLLBACK_TO));
    assert!(world.deployment.spec.template.equal_ignore_hash(&old.spec.template));
}

fn claimed(view: &View) -> Vec<&str> {
    let mut names: Vec<_> = view.replica_sets.iter().map(|set| &*set.metadata.name).collect();
    names.sort_unstable();
    names
}

/// `TestGetReplicaSetsForDeployment`: two Deployments, each with its own.
#[tokio::test]
async fn get_replica_sets_for_deployment_gives_each_its_own() {
    let d1 = deployment(1);
    let mut d2 = deployment(1);
    d2.metadata.name = "other".into();
    d2.metadata.uid = "other-uid".into();
    let rs1 = replica_set("web-1", "web:1", 0, 1, 1);
    let mut rs2 = replica_set("other-1", "web:1", 0, 1, 1);
    rs2.metadata.owner_references = vec![OwnerIdentity::from(&d2).controller_reference()];
    let (syncer, server, _) = syncer(&Caches::with(&[&d1, &d2], &[&rs1, &rs2]), world(&d1, &[&rs1, &rs2]));
    assert_eq!(claimed(&syncer.view(Arc::new(d1)).await.unwrap()), ["web-1"]);
    assert_eq!(claimed(&syncer.view(Arc::new(d2)).await.unwrap()), ["other-1"]);
    assert_eq!(server.requests(), [""; 0]);
}

/// `TestGetReplicaSetsForDeploymentAdoptRelease`, and what the sync then goes on with.
#[tokio::test]
async fn get_replica_sets_for_deployment_adopt_release() {
    let d = deployment(1);
    let adopt = orphan(replica_set("web-adopt", "web:1", 0, 1, 1));
    let mut release = replica_set("web-release", "web:1", 1, 1, 1);
    release.metadata.labels.clear();
    let (syncer, server, _) =
        syncer(&Caches::with(&[&d], &[&adopt, &release]), world(&d, &[&adopt, &release]));
    let view = syncer.view(Arc::new(d)).await.unwrap();
    assert_eq!(claimed(&view), ["web-adopt"]);
    assert_eq!(
        server.requests(),
        ["get deployment web", "adopt replica set web-adopt", "release replica set web-release"]
    );
    let stored = &server.world.lock().sets["web-adopt"];
    assert_eq!(*view.replica_sets[0], *stored, "as the server has it now, not as the cache had it");
}

/// `TestGetPodMapForReplicaSets`, as far as it matters here: who has a pod that has not ended.
#[tokio::test]
async fn get_pod_map_for_replica_sets_is_by_owner_and_only_for_recreate() {
    let mut d = deployment(1);
    set_recreate(&mut d);
    let (rs1, rs2) = (replica_set("web-1", "web:1", 0, 1, 1), replica_set("web-2", "web:2", 1, 1, 1));
    let mut foreign = replica_set("foreign", "web:1", 0, 1, 1);
    foreign.metadata.owner_references[0].uid = "somebody".into();
    let running = async |pods: &[&ReplicaSet], d: &Deployment| {
        let mut caches = Caches::with(&[d], &[&rs1, &rs2, &foreign]);
        for (at, owner) in pods.iter().enumerate() {
            caches.pods.apply(Arc::new(pod_of(owner, &format!("pod-{at}"), "Running")));
        }
        let (syncer, ..) = syncer(&caches, world(d, &[&rs1, &rs2]));
        let view = syncer.view(Arc::new(d.clone())).await.unwrap();
        view.running.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let (one, two) = ("uid-of-web-1", "uid-of-web-2");
    assert_eq!(running(&[&rs1, &rs1, &foreign], &d).await, [one]);
    assert_eq!(running(&[&rs1, &rs2], &d).await, [one, two]);
    assert_eq!(running(&[&rs1], &deployment(1)).await, [""; 0], "not a Recreate");
}

/// `TestOldPodsRunning`, all nine: a Recreate makes its new ReplicaSet once no old pod runs.
#[tokio::test]
async fn old_pods_running_all_cases_as_upstream() {
    let mut d = deployment(1);
    set_recreate(&mut d);
    // What the status of the first ReplicaSet says, and the phases of the pods of each.
    let cases: [(&str, i32, &[&[&str]], bool); 9] = [
        ("no old RSs", 0, &[], false),
        ("old RSs with running pods", 0, &[&["Running"], &["Running"]], true),
        ("old RSs without pods but with non-zero status replicas", 1, &[&[]], true),
        ("old RSs without pods or non-zero status replicas", 0, &[&[]], false),
        (
            "old RSs with zero status replicas but pods in terminal state are present",
            0,
            &[&["Failed", "Succeeded"]],
            false,
        ),
        ("old RSs with zero status replicas but pod in unknown phase present", 0, &[&["Unknown"]], true),
        ("old RSs with zero status replicas with pending pod present", 0, &[&["Pending"]], true),
        ("old RSs with zero status replicas with running pod present", 0, &[&["Running"]], true),
        (
            "old RSs with zero status replicas but pods in terminal state and pending are present",
            0,
            &[&["Failed", "Succeeded"], &[], &["Pending"]],
            true,
        ),
    ];
    for (name, actual, pods, running) in cases {
        let mut sets: Vec<_> =
            (0..pods.len()).map(|at| replica_set(&format!("old-{at}"), "web:0", 0, 0, 0)).collect();
        if let Some(first) = sets.first_mut() {
            first.status.replicas = actual;
        }
        let sets: Vec<&ReplicaSet> = sets.iter().collect();
        let mut caches = Caches::with(&[&d], &sets);
        for (owner, phases) in sets.iter().zip(pods) {
            for phase in *phases {
                let name = format!("{}-{phase}", owner.metadata.name);
                caches.pods.apply(Arc::new(pod_of(owner, &name, phase)));
            }
        }
        let (syncer, server, _) = syncer(&caches, world(&d, &sets));
        syncer.sync_deployment(&d.metadata.key()).await.unwrap();
        let creates = server.requests().iter().any(|request| request.starts_with("create replica set"));
        assert_eq!(creates, !running, "{name}");
    }
}

/// `TestDeploymentController_generateReplicaSetName`: what is created has a name that fits.
#[tokio::test]
async fn generate_replica_set_name_of_a_long_deployment_name_is_cut_where_the_set_is_created() {
    for (length, kept) in [(242, 242), (250, 253 - 10)] {
        let mut d = deployment(1);
        d.metadata.name = "a".repeat(length).into();
        let (outcome, requests, _) = sync(&d, &[]).await;
        outcome.unwrap();
        // This template's hash has nine characters.
        let expected = format!("create replica set {}-78c95bb4f with 1 replicas", "a".repeat(kept));
        assert_eq!(requests[0], expected);
    }
}

#[tokio::test]
async fn sync_of_a_deployment_that_is_gone_does_nothing() {
    let d = deployment(1);
    let (syncer, server, _) = syncer(&Caches::new(), world(&d, &[]));
    assert!(syncer.sync_deployment(&d.metadata.key()).await.unwrap().is_none());
    assert_eq!(server.requests(), [""; 0]);
}

#[tokio::test]
async fn sync_with_a_selector_that_cannot_be_parsed_fails_and_writes_nothing() {
    let mut d = deployment(1);
    d.spec.selector =
        serde_json::from_value(serde_json::json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}))
            .unwrap();
    let (outcome, requests, _) = sync(&d, &[]).await;
    let error = outcome.unwrap_err().to_string();
    assert!(error.starts_with("deployment default/web has invalid label selector: "), "{error}");
    assert_eq!(requests, [""; 0]);
}

/// A sync is planned anew after each failure, and no event is sent for what did not happen.
#[tokio::test]
async fn sync_with_a_refused_write_stops_where_upstream_does() {
    let d = deployment(5);
    let old = replica_set("web-old", "web:0", 0, 3, 3);
    let refused = ApiError::status(409, kcm_api::error::reason::CONFLICT, "modified");
    let mut world = world(&d, &[&old]);
    world.refusals.push(("update status", refused));
    let (syncer, server, recorder) = syncer(&Caches::with(&[&d], &[&old]), world);
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot update status of deployment default/web: modified");
    let name = "web-78c95bb4f";
    let created = format!("create replica set {name} with 4 replicas");
    assert_eq!(server.requests(), [created, "update status of deployment web".to_owned()]);
    assert_eq!(
        recorder.take(),
        [format!("Normal ScalingReplicaSet Scaled up replica set {name} from 0 to 4")]
    );
}

#[tokio::test]
async fn sync_takes_the_time_once_and_cuts_it_to_seconds() {
    let d = deployment(1);
    let (mut syncer, server, _) = syncer(&Caches::with(&[&d], &[]), world(&d, &[]));
    let clock = clock();
    clock.step(Duration::from_millis(1700));
    syncer.clock = Arc::new(clock);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    let world = server.world.lock();
    let times = world.deployment.status.conditions.iter().map(|condition| condition.last_update_time);
    assert!(times.into_iter().all(|time| time == Some(kcm_api::Time::from_unix(START + 1))));
}

#[tokio::test]
async fn create_whose_answer_is_lost_is_found_past_the_cache() {
    let d = deployment(1);
    let mut world = world(&d, &[]);
    world.lost.push(("create replica set", ApiError::Transport("connection reset".to_owned())));
    let (syncer, server, recorder) = syncer(&Caches::with(&[&d], &[]), world);
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
    assert_eq!(server.requests(), [""; 0], "nothing is left to do");
}

#[tokio::test]
async fn create_that_failed_without_effect_is_reported_and_sent_again() {
    let d = deployment(1);
    let mut world = world(&d, &[]);
    world.refusals.push(("create replica set", ApiError::status(500, "InternalError", "webhook failed")));
    let (syncer, server, recorder) = syncer(&Caches::with(&[&d], &[]), world);
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert_eq!(error.to_string(), "cannot create replica set default/web-78c95bb4f: webhook failed");
    assert_eq!(server.requests()[1], "get replica set web-78c95bb4f");
    assert!(recorder.take()[0].starts_with("Warning ReplicaSetCreateError Failed to create new replica set"));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(server.requests()[0], "create replica set web-78c95bb4f with 1 replicas");
}

/// An earlier manager created it, and the cache does not contain it yet.
#[tokio::test]
async fn create_of_what_exists_past_the_cache_is_refused_once() {
    let d = deployment(1);
    let mut earlier = world(&d, &[]);
    earlier.sync().unwrap();
    let stored = earlier.sets["web-78c95bb4f"].clone();
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[]), world(&d, &[&stored]));
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    let creates = |requests: Vec<String>| requests.iter().filter(|one| one.starts_with("create")).count();
    assert_eq!(creates(server.requests()), 1);
    syncer.sync_deployment(&d.metadata.key()).await.unwrap();
    assert_eq!(creates(server.requests()), 0);
}

/// It was deleted, and the cache is older than our last write of it.
#[tokio::test]
async fn replica_set_that_is_gone_when_it_is_written_leaves_the_own_writes() {
    let d = deployment(1);
    let cached = replica_set("web-1", "web:1", 0, 1, 1);
    let mut written = cached.clone();
    written.metadata.resource_version = "15".to_owned();
    written.spec.replicas = Some(5);
    let (syncer, server, _) = syncer(&Caches::with(&[&d], &[&cached]), world(&d, &[]));
    let own_writes = &syncer.executor.own_writes;
    own_writes.replica_set(&d.metadata.key(), &Arc::new(written));
    let error = syncer.sync_deployment(&d.metadata.key()).await.unwrap_err();
    assert!(error.to_string().ends_with("not found"), "{error}");
    assert_eq!(server.requests()[0], "update replica set web-1 to 5 replicas");
    assert!(own_writes.is_empty(), "{own_writes:?}");
}
