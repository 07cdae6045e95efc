//! Stories: what a Deployment goes through, told by its plans.
//!
//! Each snapshot is the transcript of the syncs, every action with its reason. Read them: they are the
//! documentation of the controller's behaviour that cannot be out of date.

use insta::assert_snapshot;
use kcm_api::{ApiError, IntOrString, Status, StatusCause, StatusDetails, error::reason};
use kcm_deployment_util::{
    annotations::{REVISION, ROLLBACK_TO},
    conditions::condition_type::PROGRESSING,
};

use crate::{
    Requeue, WaitsFor,
    testing::{START, World, deployment, set_recreate, set_strategy, template},
};

#[test]
fn story_create() {
    let mut world = World::new(deployment(3));
    world.settle(3);
    assert_snapshot!(world.transcript);
    assert_eq!(world.sync().unwrap().waits_for, WaitsFor::Nothing);
}

/// US-7: 10 replicas, 25 %/25 %: old 10→8, new 0→3→5, old 8→…
#[test]
fn story_rolling_update() {
    let mut world = World::new(deployment(10));
    world.settle(10);
    world.transcript.clear();
    world.set_image("web:2");
    world.settle(10);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_rolling_update_with_unhealthy_old_pods() {
    let mut world = World::new(deployment(10));
    world.settle(10);
    world.transcript.clear();
    // A broken image in between: its pods never become ready, and they go first.
    world.set_image("web:broken");
    world.settle(0);
    world.set_image("web:2");
    world.settle(10);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_stuck_and_then_moving() {
    let mut world = World::new(deployment(2));
    world.settle(2);
    world.set_image("web:broken");
    world.settle(0);
    world.transcript.clear();
    let waiting = world.sync().unwrap();
    assert!(matches!(waiting.requeue(), Requeue::After(_)), "{waiting:?}");
    world.advance(599);
    world.sync().unwrap();
    world.advance(10);
    world.sync().unwrap();
    world.sync().unwrap();
    assert_eq!(world.deployment.condition(PROGRESSING).unwrap().reason, "ProgressDeadlineExceeded");
    world.set_image("web:2");
    world.settle(2);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_undo_by_setting_the_old_template() {
    let mut world = World::new(deployment(2));
    world.settle(2);
    world.set_image("web:2");
    world.settle(2);
    world.transcript.clear();
    world.set_image("web:1");
    world.settle(2);
    assert_eq!(world.set("web:1").metadata.annotations[REVISION], "3");
    assert_snapshot!(world.transcript);
}

#[test]
fn story_rollback_by_annotation() {
    let mut world = World::new(deployment(2));
    world.settle(2);
    world.set_image("web:2");
    world.settle(2);
    world.transcript.clear();
    for to in ["0", "7", "3"] {
        world.edit(&format!("roll back to {to}"), |d| {
            d.metadata.annotations.insert(ROLLBACK_TO.to_owned(), to.to_owned());
            d.metadata.annotations.insert("note".to_owned(), "of the day".to_owned());
        });
        world.settle(2);
        assert!(!world.deployment.metadata.annotations.contains_key(ROLLBACK_TO));
    }
    assert_snapshot!(world.transcript);
}

/// A.11: 100 replicas with a surge of 20, scaled to 120 in flight.
#[test]
fn story_scaled_in_the_middle_of_a_rollout() {
    let mut d = deployment(10);
    set_strategy(&mut d, IntOrString::Int(3), IntOrString::Int(2));
    let mut world = World::new(d);
    world.settle(10);
    world.set_image("web:2");
    world.settle(0);
    world.transcript.clear();
    world.edit("scale to 30", |d| d.spec.replicas = Some(30));
    world.settle(0);
    world.edit("scale to 5", |d| d.spec.replicas = Some(5));
    world.settle(0);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_recreate() {
    let mut d = deployment(2);
    set_recreate(&mut d);
    let mut world = World::new(d);
    world.settle(2);
    world.transcript.clear();
    world.set_image("web:2");
    world.sync().unwrap();
    // The old pods take their time.
    assert_eq!(world.sync().unwrap().waits_for, WaitsFor::OldPods);
    world.settle(2);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_paused_scaled_and_resumed() {
    let mut world = World::new(deployment(2));
    world.settle(2);
    world.transcript.clear();
    world.edit("pause", |d| d.spec.paused = true);
    world.settle(2);
    world.set_image("web:2");
    world.settle(2);
    assert_eq!(world.sets.len(), 1, "nothing is created while paused");
    world.edit("scale to 3", |d| d.spec.replicas = Some(3));
    world.settle(2);
    world.edit("resume", |d| d.spec.paused = false);
    world.settle(2);
    assert_snapshot!(world.transcript);
}

#[test]
fn resumed_deployment_with_a_new_image_says_so_until_pods_move() {
    let reason = |world: &World| world.deployment.condition("Progressing").unwrap().reason.clone();
    let mut world = World::new(deployment(2));
    world.settle(2);
    world.edit("pause", |d| d.spec.paused = true);
    world.set_image("web:2");
    world.settle(2);
    world.edit("resume", |d| d.spec.paused = false);
    world.sync().unwrap();
    assert_eq!(world.sets.len(), 2, "the rollout has begun");
    assert_eq!(reason(&world), "DeploymentResumed");
    world.settle(2);
    assert_eq!(reason(&world), "NewReplicaSetAvailable");
}

#[test]
fn story_name_taken() {
    // The name that the hash comes to, with a template that it does not come to.
    let mut world = World::new(deployment(1));
    world.sync().unwrap();
    let mut stranger = world.set("web:1").clone();
    stranger.spec.template = template("other");
    stranger.metadata.owner_references.clear();

    let mut world = World::new(deployment(1));
    world.sets.insert(stranger.metadata.name.to_string(), stranger);
    let error = world.sync().unwrap_err();
    assert!(error.to_string().contains("already exists"), "{error}");
    assert_eq!(world.deployment.status.collision_count, Some(1));
    world.sync().unwrap();
    assert_eq!(world.sets.len(), 2);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_name_taken_by_what_an_earlier_sync_created() {
    let mut world = World::new(deployment(1));
    world.sync().unwrap();
    world.transcript.clear();
    world.unseen = true;
    world.edit("lose the revision", |d| d.metadata.annotations.clear());
    world.sync().unwrap();
    world.holders_unseen = true;
    let error = world.sync().unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert_eq!(world.sets.len(), 1);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_create_refused() {
    let mut world = World::new(deployment(2));
    let refused = || ("create", ApiError::status(403, reason::FORBIDDEN, "exceeded 100% of quota"));
    // The status cannot be written: the event is recorded all the same.
    world.refusals.push(refused());
    world.refusals.push(("update status", ApiError::status(500, "InternalError", "out of order")));
    world.sync().unwrap_err();
    world.refusals.push(refused());
    world.sync().unwrap_err();
    assert_eq!(world.deployment.condition(PROGRESSING).unwrap().reason, "ReplicaSetCreateError");
    // The condition is there, so the status is not written again.
    world.refusals.push(refused());
    world.sync().unwrap_err();
    let details = StatusDetails {
        causes: vec![StatusCause { reason: "NamespaceTerminating".to_owned(), ..StatusCause::default() }],
        ..StatusDetails::default()
    };
    let going = Status {
        code: 403,
        reason: reason::FORBIDDEN.to_owned(),
        details: Some(details),
        ..Status::default()
    };
    world.refusals.push(("create", ApiError::Status(Box::new(going))));
    assert!(world.sync().unwrap_err().is_namespace_terminating());
    assert_snapshot!(world.transcript);
}

#[test]
fn story_history_beyond_its_limit() {
    let mut d = deployment(1);
    d.spec.revision_history_limit = Some(1);
    let mut world = World::new(d);
    for image in ["web:1", "web:2", "web:3"] {
        world.set_image(image);
        world.settle(1);
    }
    world.transcript.clear();
    // One that is gone already does not matter.
    world.refusals.push(("delete", ApiError::status(404, reason::NOT_FOUND, "not found")));
    world.set_image("web:4");
    world.settle(1);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_scale_down_of_old_pods_refused() {
    let mut world = World::new(deployment(4));
    world.settle(4);
    world.transcript.clear();
    world.set_image("web:2");
    // Upstream swallows this: the sync ends well, and the ReplicaSets' events bring the next.
    world.refusals.push(("update replica set", ApiError::status(409, reason::CONFLICT, "modified")));
    world.sync().unwrap();
    world.settle(4);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_annotations_and_min_ready_seconds_changed() {
    let mut world = World::new(deployment(1));
    world.settle(1);
    world.transcript.clear();
    world.edit("annotate", |d| {
        d.metadata.annotations.insert("team".to_owned(), "a".to_owned());
    });
    world.settle(1);
    world.edit("take the annotation off, be ready for 5 s", |d| {
        d.metadata.annotations.remove("team");
        d.spec.min_ready_seconds = 5;
    });
    world.settle(1);
    assert_eq!(world.set("web:1").metadata.annotations["team"], "a");
    assert_snapshot!(world.transcript);
}

#[test]
fn story_deleted() {
    let mut world = World::new(deployment(2));
    world.settle(2);
    world.transcript.clear();
    world.edit("delete, and scale to 5", |d| {
        d.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
        d.spec.replicas = Some(5);
    });
    world.settle(2);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_no_selector() {
    let mut d = deployment(2);
    d.spec.selector = Some(kcm_api::LabelSelector::default());
    let mut world = World::new(d);
    world.sync().unwrap();
    world.sync().unwrap();
    world.edit("change it", |_| {});
    world.refusals.push(("update status", ApiError::status(500, "InternalError", "out of order")));
    world.sync().unwrap();
    assert_snapshot!(world.transcript);
}

/// US-9.9, kept as upstream has it: a ReplicaSet that had the right size already keeps the size that was noted on
/// it, every sync takes that for a change of size, and no rollout starts until the size really changes.
#[test]
fn story_size_noted_wrongly_holds_a_rollout_up() {
    let mut d = deployment(2);
    set_strategy(&mut d, IntOrString::Int(0), IntOrString::Int(1));
    let mut world = World::new(d);
    world.settle(2);
    world.edit("pause, and scale to 3", |d| {
        d.spec.paused = true;
        d.spec.replicas = Some(3);
    });
    world.sync().unwrap();
    world.edit("scale to 2 by hand, before anybody looks", |d| d.spec.replicas = Some(2));
    let name = world.sets.keys().next().unwrap().clone();
    world.sets.get_mut(&name).unwrap().spec.replicas = Some(2);
    world.settle(2);
    world.transcript.clear();
    world.edit("resume, with a new image", |d| {
        d.spec.paused = false;
        d.spec.template = template("web:2");
    });
    world.settle(2);
    assert_eq!(world.sets.len(), 1);
    world.edit("scale to 4", |d| d.spec.replicas = Some(4));
    world.settle(4);
    assert_eq!(world.sets.len(), 2);
    assert_snapshot!(world.transcript);
}

#[test]
fn story_strategy_nobody_knows() {
    let mut d = deployment(2);
    d.spec.strategy.type_ = "BlueGreen".to_owned();
    let mut world = World::new(d);
    let error = world.sync().unwrap_err();
    assert_eq!(error.to_string(), "unexpected deployment strategy type: BlueGreen");
}
