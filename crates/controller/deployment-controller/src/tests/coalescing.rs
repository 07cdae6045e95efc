//! Combined status updates: one in a sync, with the effect of separate ones.

use kcm_api::{ApiError, Deployment, error::reason};
use kcm_deployment_util::annotations::ROLLBACK_TO;

use crate::{
    plan::Action,
    testing::{FakeCluster, deployment, set_recreate, template},
};

/// Change of a Deployment.
type Edit = fn(&mut Deployment);

/// Changes of a Deployment. Each is followed by several syncs.
const STEPS: [(&str, Edit); 11] = [
    ("create", |_| {}),
    ("new image", |d| d.spec.template = template("web:2")),
    ("pause", |d| d.spec.paused = true),
    ("scale while paused", |d| d.spec.replicas = Some(7)),
    ("new image while paused", |d| d.spec.template = template("web:3")),
    ("resume", |d| d.spec.paused = false),
    ("previous image", |d| d.spec.template = template("web:2")),
    ("resume with a rollback", |d| {
        d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), "1".to_owned());
    }),
    ("annotate", |d| {
        d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
    }),
    ("pause and change", |d| {
        d.spec.paused = true;
        d.spec.min_ready_seconds = 5;
    }),
    ("resume with a new image", |d| {
        d.spec.paused = false;
        d.spec.template = template("web:4");
    }),
];

fn cluster(coalesce_status_writes: bool, of: Deployment) -> FakeCluster {
    let mut cluster = FakeCluster::new(of);
    cluster.coalesce_status_writes = coalesce_status_writes;
    cluster
}

fn status_updates(cluster: &FakeCluster) -> usize {
    let is_update = |action: &Action| matches!(action, Action::UpdateDeploymentStatus(_));
    cluster.last_actions.iter().filter(|planned| is_update(&planned.action)).count()
}

/// Returns the Deployment and the names, annotations and sizes of its ReplicaSets, without resource versions.
fn state(cluster: &FakeCluster) -> (Deployment, Vec<String>) {
    let mut deployment = cluster.deployment.clone();
    deployment.metadata.resource_version.clear();
    let sets = cluster.sets.values();
    let sets = sets
        .map(|set| format!("{} {:?} {:?}", set.metadata.name, set.metadata.annotations, set.spec.replicas));
    (deployment, sets.collect())
}

#[test]
fn has_the_effect_of_separate_updates_after_each_sync() {
    for recreate in [false, true] {
        let mut of = deployment(4);
        if recreate {
            set_recreate(&mut of);
        }
        let (mut one, mut several) = (cluster(true, of.clone()), cluster(false, of));
        let (mut fewer, mut syncs) = (0, 0);
        for (title, edit) in STEPS {
            one.edit(title, edit);
            several.edit(title, edit);
            for _ in 0..20 {
                one.sync().unwrap();
                several.sync().unwrap();
                assert_eq!(state(&one), state(&several), "{title}, recreate: {recreate}");
                let is_rollback = one
                    .last_actions
                    .iter()
                    .any(|planned| matches!(planned.action, Action::UpdateDeployment(_)));
                assert!(status_updates(&one) <= 1 || is_rollback, "{title}: {:#?}", one.last_actions);
                assert!(status_updates(&one) <= status_updates(&several), "{title}");
                fewer += status_updates(&several) - status_updates(&one);
                syncs += 1;
                for cluster in [&mut one, &mut several] {
                    cluster.run_replica_sets(2);
                    cluster.advance(1);
                }
            }
        }
        assert!(fewer >= 4, "{fewer} updates less in {syncs} syncs");
        assert_eq!((one.conflicts, several.conflicts), (0, 0));
    }
}

/// Upstream writes the status before the write that fails.
#[test]
fn of_a_failed_sync_is_written() {
    let mut cluster = cluster(true, deployment(4));
    cluster.settle(4);
    cluster.edit("pause", |d| d.spec.paused = true);
    cluster.settle(4);
    cluster.edit("resume and scale", |d| {
        d.spec.paused = false;
        d.spec.replicas = Some(6);
    });
    cluster
        .write_errors
        .push(("update replica set", ApiError::status(500, "InternalError", "internal error")));
    cluster.sync().unwrap_err();
    assert_eq!(cluster.deployment.condition("Progressing").unwrap().reason, "DeploymentResumed");
    assert_ne!(cluster.deployment.status.observed_generation, cluster.deployment.metadata.generation);
}

#[test]
fn failure_of_the_update_fails_the_sync() {
    let mut cluster = cluster(true, deployment(4));
    cluster.write_errors.push(("update status", ApiError::status(409, reason::CONFLICT, "modified")));
    cluster.sync().unwrap_err();
    assert_eq!(cluster.sets.len(), 1);
    cluster.settle(4);
    assert_eq!(cluster.sets.len(), 1);
    assert_eq!(cluster.deployment.condition("Progressing").unwrap().reason, "NewReplicaSetAvailable");
}
