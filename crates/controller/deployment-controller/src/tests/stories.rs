//! Transcripts of rollouts. Each snapshot lists the syncs with their actions and reasons.

use insta::assert_snapshot;
use kcm_api::{
    ApiError, IntOrString, Status, StatusCause, StatusDetails, condition_type::PROGRESSING, error::reason,
};
use kcm_deployment_util::annotations::{REVISION, ROLLBACK_TO};
use kcm_runtime::Requeue;

use crate::{
    plan::BlockedOn,
    testing::{FakeCluster, START, deployment, set_recreate, set_strategy, template},
};

#[test]
fn create() {
    let mut cluster = FakeCluster::new(deployment(3));
    cluster.settle(3);
    assert_snapshot!(cluster.transcript);
    assert_eq!(cluster.sync().unwrap().blocked_on, BlockedOn::Nothing);
}

/// US-7: 10 replicas, `maxSurge` and `maxUnavailable` 25%.
#[test]
fn rolling_update() {
    let mut cluster = FakeCluster::new(deployment(10));
    cluster.settle(10);
    cluster.transcript.clear();
    cluster.set_image("web:2");
    cluster.settle(10);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn rolling_update_with_unhealthy_old_pods() {
    let mut cluster = FakeCluster::new(deployment(10));
    cluster.settle(10);
    cluster.transcript.clear();
    // The pods of this image do not become ready and are removed first.
    cluster.set_image("web:broken");
    cluster.settle(0);
    cluster.set_image("web:2");
    cluster.settle(10);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn progress_deadline_exceeded() {
    let mut cluster = FakeCluster::new(deployment(2));
    cluster.settle(2);
    cluster.set_image("web:broken");
    cluster.settle(0);
    cluster.transcript.clear();
    let waiting = cluster.sync().unwrap();
    assert!(matches!(waiting.requeue(), Requeue::After(_)), "{waiting:?}");
    cluster.advance(599);
    cluster.sync().unwrap();
    cluster.advance(10);
    cluster.sync().unwrap();
    cluster.sync().unwrap();
    assert_eq!(cluster.deployment.condition(PROGRESSING).unwrap().reason, "ProgressDeadlineExceeded");
    cluster.set_image("web:2");
    cluster.settle(2);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn previous_template() {
    let mut cluster = FakeCluster::new(deployment(2));
    cluster.settle(2);
    cluster.set_image("web:2");
    cluster.settle(2);
    cluster.transcript.clear();
    cluster.set_image("web:1");
    cluster.settle(2);
    assert_eq!(cluster.set("web:1").metadata.annotations[REVISION], "3");
    assert_snapshot!(cluster.transcript);
}

#[test]
fn rollback_annotation() {
    let mut cluster = FakeCluster::new(deployment(2));
    cluster.settle(2);
    cluster.set_image("web:2");
    cluster.settle(2);
    cluster.transcript.clear();
    for to in ["0", "7", "3"] {
        cluster.edit(&format!("roll back to {to}"), |d| {
            d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), to.to_owned());
            d.metadata.annotations.insert("note".to_owned(), "of the day".to_owned());
        });
        cluster.settle(2);
        assert!(!cluster.deployment.metadata.annotations.contains_key(ROLLBACK_TO));
    }
    assert_snapshot!(cluster.transcript);
}

#[test]
fn proportional_scaling() {
    let mut d = deployment(10);
    set_strategy(&mut d, IntOrString::Int(3), IntOrString::Int(2));
    let mut cluster = FakeCluster::new(d);
    cluster.settle(10);
    cluster.set_image("web:2");
    cluster.settle(0);
    cluster.transcript.clear();
    cluster.edit("scale to 30", |d| d.spec.replicas = Some(30));
    cluster.settle(0);
    cluster.edit("scale to 5", |d| d.spec.replicas = Some(5));
    cluster.settle(0);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn recreate() {
    let mut d = deployment(2);
    set_recreate(&mut d);
    let mut cluster = FakeCluster::new(d);
    cluster.settle(2);
    cluster.transcript.clear();
    cluster.set_image("web:2");
    cluster.sync().unwrap();
    assert_eq!(cluster.sync().unwrap().blocked_on, BlockedOn::OldPods);
    cluster.settle(2);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn paused_scaled_and_resumed() {
    let mut cluster = FakeCluster::new(deployment(2));
    cluster.settle(2);
    cluster.transcript.clear();
    cluster.edit("pause", |d| d.spec.paused = true);
    cluster.settle(2);
    cluster.set_image("web:2");
    cluster.settle(2);
    assert_eq!(cluster.sets.len(), 1, "no ReplicaSet is created while paused");
    cluster.edit("scale to 3", |d| d.spec.replicas = Some(3));
    cluster.settle(2);
    cluster.edit("resume", |d| d.spec.paused = false);
    cluster.settle(2);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn resumed_condition_remains_until_pods_change() {
    let reason = |cluster: &FakeCluster| cluster.deployment.condition("Progressing").unwrap().reason.clone();
    let mut cluster = FakeCluster::new(deployment(2));
    cluster.settle(2);
    cluster.edit("pause", |d| d.spec.paused = true);
    cluster.set_image("web:2");
    cluster.settle(2);
    cluster.edit("resume", |d| d.spec.paused = false);
    cluster.sync().unwrap();
    assert_eq!(cluster.sets.len(), 2, "the rollout has started");
    assert_eq!(reason(&cluster), "DeploymentResumed");
    cluster.settle(2);
    assert_eq!(reason(&cluster), "NewReplicaSetAvailable");
}

#[test]
fn hash_collision() {
    // A ReplicaSet with the name of the new one and another template.
    let mut cluster = FakeCluster::new(deployment(1));
    cluster.sync().unwrap();
    let mut other = cluster.set("web:1").clone();
    other.spec.template = template("other");
    other.metadata.owner_references.clear();

    let mut cluster = FakeCluster::new(deployment(1));
    cluster.sets.insert(other.metadata.name.to_string(), other);
    let error = cluster.sync().unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert_eq!(cluster.deployment.status.collision_count, Some(1));
    cluster.sync().unwrap();
    assert_eq!(cluster.sets.len(), 2);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn created_by_earlier_sync() {
    let mut cluster = FakeCluster::new(deployment(1));
    cluster.sync().unwrap();
    cluster.transcript.clear();
    cluster.cache_is_stale = true;
    cluster.edit("lose the revision", |d| d.metadata.annotations.clear());
    cluster.sync().unwrap();
    cluster.existing_is_unreadable = true;
    let error = cluster.sync().unwrap_err();
    assert!(error.to_string().contains("failed to read existing replica set"), "{error}");
    assert_eq!(cluster.sets.len(), 1);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn create_fails() {
    let mut cluster = FakeCluster::new(deployment(2));
    let forbidden = || ("create", ApiError::status(403, reason::FORBIDDEN, "exceeded 100% of quota"));
    // The event is recorded even if the status cannot be written.
    cluster.write_errors.push(forbidden());
    cluster.write_errors.push(("update status", ApiError::status(500, "InternalError", "internal error")));
    cluster.sync().unwrap_err();
    cluster.write_errors.push(forbidden());
    cluster.sync().unwrap_err();
    assert_eq!(cluster.deployment.condition(PROGRESSING).unwrap().reason, "ReplicaSetCreateError");
    // The status has the condition already and is not written again.
    cluster.write_errors.push(forbidden());
    cluster.sync().unwrap_err();
    let details = StatusDetails {
        causes: vec![StatusCause { reason: "NamespaceTerminating".to_owned(), ..StatusCause::default() }],
        ..StatusDetails::default()
    };
    let terminating = Status {
        code: 403,
        reason: reason::FORBIDDEN.to_owned(),
        details: Some(details),
        ..Status::default()
    };
    cluster.write_errors.push(("create", ApiError::Status(Box::new(terminating))));
    let error = cluster.sync().unwrap_err();
    assert!(error.api_error().is_some_and(ApiError::is_namespace_terminating));
    assert_snapshot!(cluster.transcript);
}

#[test]
fn revision_history_limit() {
    let mut d = deployment(1);
    d.spec.revision_history_limit = Some(1);
    let mut cluster = FakeCluster::new(d);
    for image in ["web:1", "web:2", "web:3"] {
        cluster.set_image(image);
        cluster.settle(1);
    }
    cluster.transcript.clear();
    // `NotFound` is success.
    cluster.write_errors.push(("delete", ApiError::status(404, reason::NOT_FOUND, "not found")));
    cluster.set_image("web:4");
    cluster.settle(1);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn scale_down_fails() {
    let mut cluster = FakeCluster::new(deployment(4));
    cluster.settle(4);
    cluster.transcript.clear();
    cluster.set_image("web:2");
    // The write error is ignored, and the sync is retried.
    cluster.write_errors.push(("update replica set", ApiError::status(409, reason::CONFLICT, "modified")));
    cluster.sync().unwrap();
    cluster.settle(4);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn annotations_and_min_ready_seconds() {
    let mut cluster = FakeCluster::new(deployment(1));
    cluster.settle(1);
    cluster.transcript.clear();
    cluster.edit("annotate", |d| {
        d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
    });
    cluster.settle(1);
    cluster.edit("remove the annotation, set minReadySeconds to 5", |d| {
        d.metadata.annotations.remove("team");
        d.spec.min_ready_seconds = 5;
    });
    cluster.settle(1);
    assert_eq!(cluster.set("web:1").metadata.annotations["team"], "a");
    assert_snapshot!(cluster.transcript);
}

#[test]
fn deleted() {
    let mut cluster = FakeCluster::new(deployment(2));
    cluster.settle(2);
    cluster.transcript.clear();
    cluster.edit("delete, and scale to 5", |d| {
        d.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
        d.spec.replicas = Some(5);
    });
    cluster.settle(2);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn empty_selector() {
    let mut d = deployment(2);
    d.spec.selector = Some(kcm_api::LabelSelector::default());
    let mut cluster = FakeCluster::new(d);
    cluster.sync().unwrap();
    cluster.sync().unwrap();
    cluster.edit("edit", |_| {});
    cluster.write_errors.push(("update status", ApiError::status(500, "InternalError", "internal error")));
    cluster.sync().unwrap();
    assert_snapshot!(cluster.transcript);
}

/// US-9.9, as upstream: the ReplicaSet already has the desired size, so that its annotation `desired-replicas` is not
/// updated. Each sync takes that for a scaling event, and no rollout starts until the Deployment is scaled.
#[test]
fn stale_desired_replicas_annotation() {
    let mut d = deployment(2);
    set_strategy(&mut d, IntOrString::Int(0), IntOrString::Int(1));
    let mut cluster = FakeCluster::new(d);
    cluster.settle(2);
    cluster.edit("pause, and scale to 3", |d| {
        d.spec.paused = true;
        d.spec.replicas = Some(3);
    });
    cluster.sync().unwrap();
    cluster.edit("scale to 2, and scale the ReplicaSet by hand", |d| d.spec.replicas = Some(2));
    let name = cluster.sets.keys().next().unwrap().clone();
    cluster.sets.get_mut(&name).unwrap().spec.replicas = Some(2);
    cluster.settle(2);
    cluster.transcript.clear();
    cluster.edit("resume, with a new image", |d| {
        d.spec.paused = false;
        d.spec.template = template("web:2");
    });
    cluster.settle(2);
    assert_eq!(cluster.sets.len(), 1);
    cluster.edit("scale to 4", |d| d.spec.replicas = Some(4));
    cluster.settle(4);
    assert_eq!(cluster.sets.len(), 2);
    assert_snapshot!(cluster.transcript);
}

#[test]
fn unknown_strategy() {
    let mut d = deployment(2);
    d.spec.strategy.type_ = "BlueGreen".to_owned();
    let mut cluster = FakeCluster::new(d);
    let error = cluster.sync().unwrap_err();
    assert_eq!(error.to_string(), "unexpected deployment strategy type: BlueGreen");
}
