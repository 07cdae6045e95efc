//! One violation of each invariant, change by change.

use serde_json::{Value, json};

use super::*;

/// Invariants under test, with a clock.
struct World {
    invariants: Invariants,
    now: Timestamp,
}

fn world() -> World {
    let mut invariants = Invariants::new();
    invariants.begin_step("s.yaml:7", 0);
    World { invariants, now: "2026-01-01T00:00:00Z".parse().unwrap() }
}

fn write(verb: &str, resource: &str, name: &str) -> Entry {
    Entry {
        verb: verb.to_owned(),
        resource: resource.to_owned(),
        namespace: "t".to_owned(),
        name: name.to_owned(),
        code: if verb == "create" { 201 } else { 200 },
        ..Entry::default()
    }
}

impl World {
    fn others(&mut self, object: &Value) {
        self.invariants.others(Change::Is(object), self.now);
    }

    fn manager(&mut self, verb: &str, object: &Value) {
        let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let name = object["metadata"]["name"].as_str().unwrap();
        self.invariants.manager(
            &write(verb, &resource, name),
            &[Change::Is(object)],
            Basis::current(self.now),
        );
    }

    fn later(&mut self, seconds: i64) {
        self.now += jiff::SignedDuration::from_secs(seconds);
    }

    fn broken(&self) -> Vec<Invariant> {
        self.invariants.violations().iter().map(|violation| violation.invariant).collect()
    }
}

fn with(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    object
}

/// 10 replicas, at most 13, at least 8 available.
fn deployment() -> Value {
    json!({
        "kind": "Deployment",
        "metadata": {"namespace": "t", "name": "web", "uid": "d", "generation": 1, "annotations": {}},
        "spec": {
            "replicas": 10,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "new"}]}},
        },
        "status": {"observedGeneration": 1},
    })
}

fn set(name: &str, replicas: i32, available: i32) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "web", "pod-template-hash": name}},
        "spec": {"containers": [{"name": "c", "image": name}]},
    });
    json!({
        "kind": "ReplicaSet",
        "metadata": {
            "namespace": "t", "name": name, "uid": name, "generation": 1,
            "annotations": {"deployment.kubernetes.io/desired-replicas": "10"},
            "ownerReferences": [{"uid": "d", "controller": true}],
        },
        "spec": {"replicas": replicas, "template": template},
        "status": {"replicas": available, "availableReplicas": available, "observedGeneration": 1},
    })
}

fn sized(name: &str, replicas: i32, available: i32, generation: i64) -> Value {
    let changes =
        [("/metadata/generation", json!(generation)), ("/status/observedGeneration", json!(generation))];
    with(set(name, replicas, available), &changes)
}

fn pod(name: &str, of: &str, ready: bool) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"namespace": "t", "name": name, "uid": name, "ownerReferences": [{"uid": of, "controller": true}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    })
}

fn going(pod: Value) -> Value {
    with(pod, &[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))])
}

#[test]
fn rollout_within_its_bounds_is_no_violation() {
    let mut world = world();
    world.others(&deployment());
    world.manager("create", &set("old", 10, 0));
    for number in 0..10 {
        world.manager("create", &pod(&format!("p{number}"), "old", true));
    }
    world.manager("update", &sized("old", 10, 10, 1));
    world.manager("create", &set("new", 3, 0));
    world.manager("update", &sized("old", 8, 10, 2));
    for number in 0..2 {
        world.manager("delete", &going(pod(&format!("p{number}"), "old", true)));
    }
    world.manager("update", &sized("new", 5, 0, 2));
    assert_eq!(world.broken(), []);
}

#[test]
fn pod_beyond_the_replicas_violates_surplus_pods() {
    let mut world = world();
    world.others(&set("rs", 2, 0));
    for name in ["a", "b"] {
        world.manager("create", &pod(name, "rs", false));
    }
    assert_eq!(world.broken(), []);
    world.manager("create", &pod("c", "rs", false));
    assert_eq!(world.broken(), [Invariant::SurplusPods]);
}

#[test]
fn finished_and_terminating_pods_are_not_counted() {
    let mut world = world();
    world.others(&set("rs", 1, 0));
    world.manager("create", &pod("a", "rs", false));
    world.others(&with(pod("a", "rs", false), &[("/status/phase", json!("Failed"))]));
    world.manager("create", &pod("b", "rs", false));
    world.others(&going(pod("b", "rs", false)));
    world.manager("create", &pod("c", "rs", false));
    assert_eq!(world.broken(), []);
}

#[test]
fn pod_for_superseded_replicas_is_allowed_until_the_change_is_observed() {
    let mut world = world();
    world.others(&set("rs", 1, 0));
    let smaller = with(set("rs", 0, 0), &[("/metadata/generation", json!(2))]);
    world.others(&smaller);
    world.manager("create", &pod("a", "rs", false));
    assert_eq!(world.broken(), []);
    world.others(&with(smaller, &[("/status/observedGeneration", json!(2))]));
    world.manager("create", &pod("b", "rs", false));
    assert_eq!(world.broken(), [Invariant::SurplusPods]);
}

#[test]
fn replica_sets_above_the_surge_violate_surplus_replicas() {
    let mut world = world();
    world.others(&deployment());
    world.manager("create", &set("old", 10, 10));
    world.manager("create", &set("new", 3, 0));
    assert_eq!(world.broken(), []);
    world.manager("update", &sized("new", 4, 0, 2));
    assert_eq!(world.broken(), [Invariant::SurplusReplicas]);
}

#[test]
fn superseded_surge_is_allowed_until_the_change_is_observed() {
    let mut world = world();
    world.others(&deployment());
    world.manager("create", &set("old", 10, 10));
    let down = with(deployment(), &[("/metadata/generation", json!(2)), ("/spec/replicas", json!(1))]);
    world.others(&down);
    world.manager("create", &set("new", 3, 0));
    assert_eq!(world.broken(), []);
    world.others(&with(down, &[("/status/observedGeneration", json!(2))]));
    world.manager("update", &sized("new", 4, 0, 2));
    assert_eq!(world.broken(), [Invariant::SurplusReplicas]);
}

#[test]
fn deletion_below_the_replicas_violates_needed_pods() {
    let mut world = world();
    world.others(&set("rs", 2, 0));
    for name in ["a", "b", "c"] {
        world.others(&pod(name, "rs", true));
    }
    world.manager("delete", &going(pod("a", "rs", true)));
    assert_eq!(world.broken(), []);
    world.manager("delete", &going(pod("b", "rs", true)));
    assert_eq!(world.broken(), [Invariant::NeededPods]);
}

#[test]
fn deletion_of_a_ready_pod_before_an_unready_one_violates_needed_pods() {
    let mut world = world();
    world.others(&set("rs", 1, 0));
    world.others(&pod("a", "rs", true));
    world.others(&pod("b", "rs", false));
    world.manager("delete", &going(pod("a", "rs", true)));
    assert_eq!(world.broken(), [Invariant::NeededPods]);
}

#[test]
fn deletion_shortly_after_the_loss_of_another_pod_is_allowed() {
    for (seconds, expected) in [(0, vec![]), (1, vec![Invariant::NeededPods])] {
        let mut world = world();
        world.others(&set("rs", 1, 0));
        world.others(&pod("a", "rs", true));
        world.others(&pod("b", "rs", true));
        world.others(&with(pod("a", "rs", true), &[("/status/phase", json!("Failed"))]));
        world.later(seconds);
        world.manager("delete", &going(pod("b", "rs", true)));
        assert_eq!(world.broken(), expected, "{seconds} s later");
    }
}

#[test]
fn rolling_update_below_the_minimum_violates_availability() {
    let mut world = world();
    world.others(&deployment());
    world.others(&set("old", 10, 10));
    world.manager("create", &set("new", 3, 0));
    world.manager("update", &sized("old", 8, 10, 2));
    assert_eq!(world.broken(), []);
    world.manager("update", &sized("old", 7, 10, 3));
    assert_eq!(world.broken(), [Invariant::Availability]);
}

#[test]
fn unavailable_replicas_may_be_scaled_down() {
    let mut world = world();
    world.others(&deployment());
    world.others(&set("old", 10, 8));
    world.manager("update", &sized("old", 8, 8, 2));
    assert_eq!(world.broken(), []);
}

#[test]
fn replica_lost_shortly_before_may_be_scaled_down() {
    let mut world = world();
    world.others(&deployment());
    world.others(&set("old", 8, 8));
    world.others(&set("old", 8, 7));
    world.manager("update", &sized("old", 7, 7, 2));
    assert_eq!(world.broken(), []);
}

#[test]
fn proportional_scaling_has_no_minimum() {
    let mut world = world();
    world.others(&deployment());
    world.others(&set("old", 10, 10));
    let mut smaller = sized("old", 5, 10, 2);
    smaller["metadata"]["annotations"] = json!({"deployment.kubernetes.io/desired-replicas": "5"});
    world.manager("update", &smaller);
    assert_eq!(world.broken(), []);
}

/// The new ReplicaSet was scaled down from 6 to 3 proportionally, and its status has 5 available pods.
#[test]
fn surplus_pods_in_the_status_count_as_available() {
    for (to, expected) in [(6, vec![]), (2, vec![Invariant::Availability])] {
        let mut world = world();
        world.others(&deployment());
        world.others(&set("new", 3, 5));
        world.others(&set("old", 7, 7));
        world.manager("update", &sized("old", to, 7, 2));
        assert_eq!(world.broken(), expected, "scaled down to {to}");
    }
}

#[test]
fn loss_of_availability_by_the_kubelet_is_no_violation() {
    for (seconds, expected) in [(0, vec![]), (1, vec![Invariant::Availability])] {
        let mut world = world();
        world.others(&deployment());
        world.others(&set("old", 10, 10));
        world.others(&set("new", 3, 3));
        // Three pods fail; the controller observes it later.
        world.others(&set("new", 3, 0));
        assert_eq!(world.broken(), []);
        world.later(seconds);
        world.manager("update", &sized("old", 7, 10, 2));
        assert_eq!(world.broken(), expected, "{seconds} s later");
    }
}

#[test]
fn new_pods_beside_old_ones_violate_recreate_overlap() {
    let mut world = world();
    let recreate = with(deployment(), &[("/spec/strategy", json!({"type": "Recreate"}))]);
    world.others(&recreate);
    world.others(&set("old", 0, 0));
    world.others(&going(pod("p", "old", true)));
    world.manager("create", &set("new", 10, 0));
    assert_eq!(world.broken(), [Invariant::RecreateOverlap]);
    world.invariants.others(Change::Gone(&going(pod("p", "old", true))), world.now);
    world.manager("create", &set("newer", 0, 0));
    assert_eq!(world.broken(), [Invariant::RecreateOverlap], "no pods are requested");
}

#[test]
fn object_with_two_controllers_is_a_violation_of_any_writer() {
    let two = json!([{"uid": "d", "controller": true}, {"uid": "e", "controller": true}]);
    let twice = with(set("rs", 1, 0), &[("/metadata/ownerReferences", two.clone())]);
    let mut world = world();
    world.others(&twice);
    assert_eq!(world.broken(), [Invariant::TwoControllers]);
    world.manager("patch", &with(pod("p", "rs", true), &[("/metadata/ownerReferences", two)]));
    assert_eq!(world.broken(), [Invariant::TwoControllers; 2]);
}

#[test]
fn change_of_the_controller_violates_two_controllers() {
    let mut world = world();
    world.others(&set("rs", 1, 0));
    let other = json!([{"uid": "e", "controller": true}]);
    world.manager("patch", &with(set("rs", 1, 0), &[("/metadata/ownerReferences", other)]));
    assert_eq!(world.broken(), [Invariant::TwoControllers]);
}

fn revised(object: Value, revision: &str) -> Value {
    let mut object = object;
    object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!(revision);
    object
}

#[test]
fn decreased_or_removed_revision_violates_revisions() {
    for fallen in [revised(deployment(), "2"), deployment()] {
        let mut world = world();
        world.others(&revised(deployment(), "3"));
        world.manager("update", &revised(deployment(), "4"));
        assert_eq!(world.broken(), []);
        world.manager("update", &fallen);
        assert_eq!(world.broken(), [Invariant::Revisions]);
    }
    let mut world = world();
    world.others(&revised(set("rs", 1, 0), "3"));
    world.manager("update", &revised(set("rs", 1, 0), "2"));
    assert_eq!(world.broken(), [Invariant::Revisions]);
}

#[test]
fn new_replica_set_without_the_highest_revision_violates_revisions() {
    let mut world = world();
    world.others(&deployment());
    world.manager("create", &revised(set("a", 0, 0), "1"));
    world.manager("create", &revised(set("b", 0, 0), "2"));
    assert_eq!(world.broken(), []);
    world.manager("create", &revised(set("c", 0, 0), "2"));
    assert_eq!(world.broken(), [Invariant::Revisions]);
}

#[test]
fn decreased_collision_count_violates_collisions() {
    let mut world = world();
    world.others(&with(deployment(), &[("/status/collisionCount", json!(2))]));
    world.manager("update", &with(deployment(), &[("/status/collisionCount", json!(1))]));
    assert_eq!(world.broken(), [Invariant::Collisions]);
}

#[test]
fn invalid_observed_generation_violates_observed_generation() {
    let observed = |object: Value, generation: i64| {
        with(object, &[("/metadata/generation", json!(5)), ("/status/observedGeneration", json!(generation))])
    };
    for object in [deployment(), set("rs", 1, 0)] {
        for wrong in [6, 3] {
            let mut world = world();
            world.others(&observed(object.clone(), 4));
            world.manager("update", &observed(object.clone(), 5));
            world.others(&observed(object.clone(), 4));
            assert_eq!(world.broken(), []);
            world.manager("update", &observed(object.clone(), wrong));
            assert_eq!(world.broken(), [Invariant::ObservedGeneration], "{wrong}");
        }
    }
}

#[test]
fn write_without_a_change_violates_idle_write() {
    let mut world = world();
    world.invariants.manager(&write("update", "deployments", "web"), &[], Basis::current(world.now));
    assert_eq!(world.broken(), [Invariant::IdleWrite]);
    let refused = Entry { code: 409, ..write("update", "deployments", "web") };
    world.invariants.manager(&refused, &[], Basis::current(world.now));
    world.invariants.manager(&write("patch", "events", "e"), &[], Basis::current(world.now));
    assert_eq!(world.broken(), [Invariant::IdleWrite], "failed writes and events are ignored");
}

#[test]
fn second_replica_set_for_a_template_violates_created_twice() {
    let mut world = world();
    world.others(&deployment());
    world.manager("create", &set("a", 1, 0));
    let again = with(set("b", 1, 0), &[("/spec/template", set("a", 1, 0)["spec"]["template"].clone())]);
    world.manager("create", &again);
    assert_eq!(world.broken(), [Invariant::CreatedTwice]);
}

#[test]
fn repeated_create_violates_created_twice_unless_the_owner_differs() {
    let mut world = world();
    world.others(&set("a", 1, 0));
    let again = |object| Entry { code: 409, body: Some(object), ..write("create", "replicasets", "a") };
    let stranger = with(set("a", 1, 0), &[("/metadata/ownerReferences", json!([{"uid": "other"}]))]);
    world.invariants.manager(&again(stranger), &[], Basis::current(world.now));
    assert_eq!(world.broken(), [], "a hash collision");
    world.invariants.manager(&again(set("a", 1, 0)), &[], Basis::current(world.now));
    assert_eq!(world.broken(), [Invariant::CreatedTwice]);
}

#[test]
fn deletion_of_a_used_or_foreign_replica_set_violates_deleted_in_use() {
    let newest =
        |object: Value| with(object, &[("/spec/template", deployment()["spec"]["template"].clone())]);
    let stranger = with(set("rs", 0, 0), &[("/metadata/ownerReferences", json!([]))]);
    for wrong in [set("rs", 1, 0), set("rs", 0, 1), newest(set("rs", 0, 0)), stranger] {
        let mut world = world();
        world.others(&deployment());
        world.others(&wrong);
        world.invariants.manager(
            &write("delete", "replicasets", "rs"),
            &[Change::Gone(&wrong)],
            Basis::current(world.now),
        );
        assert_eq!(world.broken(), [Invariant::DeletedInUse], "{wrong}");
    }
    let mut world = world();
    world.others(&deployment());
    let idle = set("rs", 0, 0);
    world.others(&idle);
    world.invariants.manager(
        &write("delete", "replicasets", "rs"),
        &[Change::Gone(&idle)],
        Basis::current(world.now),
    );
    assert_eq!(world.broken(), []);
}

#[test]
fn deletion_of_an_orphan_violates_deleted_in_use() {
    let mut world = world();
    let orphan = with(pod("p", "rs", true), &[("/metadata/ownerReferences", json!([]))]);
    world.others(&orphan);
    world.manager("delete", &going(orphan));
    assert_eq!(world.broken(), [Invariant::DeletedInUse]);
}

#[test]
fn endless_writes_violate_effort_once() {
    let mut world = world();
    world.others(&deployment());
    let mut count = 0;
    while world.broken().is_empty() && count < 1000 {
        count += 1;
        world.manager("update", &with(deployment(), &[("/status/replicas", json!(count))]));
    }
    assert_eq!((world.broken(), count), (vec![Invariant::Effort], 25));
    world.manager("update", &deployment());
    assert_eq!(world.broken(), [Invariant::Effort]);
    world.others(&deployment());
    for replicas in 0..24 {
        world.manager("update", &with(deployment(), &[("/status/replicas", json!(replicas))]));
    }
    assert_eq!(world.broken(), [Invariant::Effort]);
}

#[test]
fn syncs_without_reason_violate_effort() {
    let mut world = world();
    world.invariants.begin_step("s.yaml:1", 0);
    for _ in 0..10 {
        world.others(&deployment());
    }
    world.invariants.begin_step("s.yaml:2", 60);
    assert_eq!(world.broken(), [], "60 syncs for 10 changes");
    world.others(&deployment());
    world.invariants.end_step(60 + 35);
    assert_eq!(world.broken(), []);
    world.invariants.end_step(95 + 33);
    assert_eq!(world.broken(), [Invariant::Effort], "33 syncs without a reason");
}

#[test]
fn write_after_settling_violates_silence() {
    let mut world = world();
    world.invariants.unsettled(Some(&write("update", "deployments", "web")));
    world.invariants.unsettled(None);
    assert_eq!(world.broken(), [Invariant::Silence; 2]);
}

#[test]
fn violation_has_all_details() {
    let mut world = world();
    world.others(&set("rs", 0, 0));
    let created = pod("p", "rs", false);
    let entry = Entry {
        name: String::new(),
        body: Some(json!({"metadata": {"generateName": "rs-"}})),
        ..write("create", "pods", "")
    };
    world.invariants.manager(&entry, &[Change::Is(&created)], Basis::current(world.now));
    let text = world.invariants.violations()[0].to_string();
    assert_eq!(
        text,
        "s.yaml:7: SurplusPods is violated: replicaset t/rs: 1 pods, but 0 replicas; by create pods rs- (201)"
    );
}
