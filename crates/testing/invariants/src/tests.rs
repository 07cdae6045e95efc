//! One violation of each invariant, change by change.

use serde_json::{Value, json};

use super::*;

mod availability;
mod deadline;
mod recreate;

/// Time at which each test starts.
const START: &str = "2026-01-01T00:00:00Z";

/// Invariants under test, with a clock.
struct InvariantTest {
    invariants: Invariants,
    now: Timestamp,
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

impl InvariantTest {
    fn new() -> Self {
        let mut invariants = Invariants::new();
        invariants.begin_step("s.yaml:7", 0);
        Self { invariants, now: START.parse().unwrap() }
    }

    /// Records a change by another client.
    fn observe(&mut self, object: &Value) {
        self.invariants.observe_change(Change::Applied(object), self.now);
    }

    /// Checks a write of the manager.
    fn check_write(&mut self, verb: &str, object: &Value) {
        let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
        let name = object["metadata"]["name"].as_str().unwrap();
        self.invariants.check_write(
            &write(verb, &resource, name),
            &[Change::Applied(object)],
            Basis::current(self.now),
        );
    }

    /// Checks a write of the manager after a second in which it has observed nothing.
    fn check_delayed(&mut self, verb: &str, object: &Value) {
        let since = self.now;
        self.advance(1);
        let name = object["metadata"]["name"].as_str().unwrap();
        let basis = Basis { since, ..Basis::current(self.now) };
        self.invariants.check_write(&write(verb, "pods", name), &[Change::Applied(object)], basis);
    }

    fn advance(&mut self, seconds: i64) {
        self.now += jiff::SignedDuration::from_secs(seconds);
    }

    fn violated(&self) -> Vec<Invariant> {
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
    let set = json!({
        "kind": "ReplicaSet",
        "metadata": {
            "namespace": "t", "name": name, "uid": name, "generation": 1,
            "annotations": {},
            "ownerReferences": [{"uid": "d", "controller": true}],
        },
        "spec": {"replicas": replicas, "template": template},
        "status": {"replicas": available, "availableReplicas": available, "observedGeneration": 1},
    });
    noted(set, "10", "13")
}

fn recreate() -> Value {
    with(deployment(), &[("/spec/strategy", json!({"type": "Recreate"}))])
}

fn sized(name: &str, replicas: i32, available: i32, generation: i64) -> Value {
    let changes =
        [("/metadata/generation", json!(generation)), ("/status/observedGeneration", json!(generation))];
    with(set(name, replicas, available), &changes)
}

/// A ReplicaSet without pods. Its controller has observed generation 1.
fn unobserved(name: &str, replicas: i32, generation: i64) -> Value {
    with(set(name, replicas, 0), &[("/metadata/generation", json!(generation))])
}

fn noted(set: Value, desired: &str, max: &str) -> Value {
    let annotations = json!({
        "deployment.kubernetes.io/desired-replicas": desired, "deployment.kubernetes.io/max-replicas": max,
    });
    with(set, &[("/metadata/annotations", annotations)])
}

fn pod(name: &str, of: &str, ready: bool) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"namespace": "t", "name": name, "uid": name, "ownerReferences": [{"uid": of, "controller": true}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}]},
    })
}

fn terminating(pod: Value) -> Value {
    with(pod, &[("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))])
}

#[test]
fn rollout_within_its_bounds_is_no_violation() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.check_write("create", &set("old", 10, 0));
    for number in 0..10 {
        test.check_write("create", &pod(&format!("p{number}"), "old", true));
    }
    test.check_write("update", &sized("old", 10, 10, 1));
    test.check_write("create", &set("new", 3, 0));
    test.check_write("update", &sized("old", 8, 10, 2));
    for number in 0..2 {
        test.check_write("delete", &terminating(pod(&format!("p{number}"), "old", true)));
    }
    test.check_write("update", &sized("new", 5, 0, 2));
    assert_eq!(test.violated(), []);
}

#[test]
fn pod_beyond_the_replicas_violates_surplus_pods() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 2, 0));
    for name in ["a", "b"] {
        test.check_write("create", &pod(name, "rs", false));
    }
    assert_eq!(test.violated(), []);
    test.check_write("create", &pod("c", "rs", false));
    assert_eq!(test.violated(), [Invariant::SurplusPods]);
}

#[test]
fn finished_and_terminating_pods_are_not_counted() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 1, 0));
    test.check_write("create", &pod("a", "rs", false));
    test.observe(&with(pod("a", "rs", false), &[("/status/phase", json!("Failed"))]));
    test.check_write("create", &pod("b", "rs", false));
    test.observe(&terminating(pod("b", "rs", false)));
    test.check_write("create", &pod("c", "rs", false));
    assert_eq!(test.violated(), []);
}

#[test]
fn pod_for_superseded_replicas_is_allowed_until_the_change_is_observed() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 1, 0));
    let smaller = with(set("rs", 0, 0), &[("/metadata/generation", json!(2))]);
    test.observe(&smaller);
    test.check_write("create", &pod("a", "rs", false));
    assert_eq!(test.violated(), []);
    test.observe(&with(smaller, &[("/status/observedGeneration", json!(2))]));
    test.check_write("create", &pod("b", "rs", false));
    assert_eq!(test.violated(), [Invariant::SurplusPods]);
}

#[test]
fn replica_sets_above_the_surge_violate_surplus_replicas() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.check_write("create", &set("old", 10, 10));
    test.check_write("create", &set("new", 3, 0));
    assert_eq!(test.violated(), []);
    test.check_write("update", &sized("new", 4, 0, 2));
    assert_eq!(test.violated(), [Invariant::SurplusReplicas]);
}

#[test]
fn superseded_surge_is_allowed_until_the_change_is_observed() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.check_write("create", &set("old", 10, 10));
    let down = with(deployment(), &[("/metadata/generation", json!(2)), ("/spec/replicas", json!(1))]);
    test.observe(&down);
    test.check_write("create", &set("new", 3, 0));
    assert_eq!(test.violated(), []);
    test.observe(&with(down, &[("/status/observedGeneration", json!(2))]));
    test.check_write("update", &noted(sized("new", 4, 0, 2), "1", "2"));
    assert_eq!(test.violated(), [Invariant::SurplusReplicas]);
}

#[test]
fn annotations_of_another_size_violate_noted_sizes() {
    for (desired, max, expected) in [
        ("10", "13", vec![]),
        ("10", "12", vec![Invariant::NotedSizes]),
        ("9", "13", vec![Invariant::NotedSizes]),
    ] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.check_write("create", &noted(set("new", 3, 0), desired, max));
        assert_eq!(test.violated(), expected, "{desired}, {max}");
    }
    let mut test = InvariantTest::new();
    test.observe(&with(deployment(), &[("/spec/replicas", json!(0))]));
    test.observe(&set("rs", 1, 0));
    let labelled = |set| with(set, &[("/metadata/labels", json!({"a": "b"}))]);
    test.check_write("update", &labelled(sized("rs", 1, 0, 2)));
    test.check_write("update", &noted(labelled(sized("rs", 0, 0, 3)), "0", "0"));
    assert_eq!(test.violated(), []);
    test.observe(&sized("rs", 1, 0, 4));
    test.check_write("update", &sized("rs", 0, 0, 5));
    assert_eq!(test.violated(), [Invariant::NotedSizes], "the size of the Deployment was 10 before");
}

#[test]
fn conditions_agree_with_the_numbers_of_the_status() {
    let status = |deployment: Value, numbers: [i32; 3], available: bool, reason: &str| {
        let [replicas, updated, of_available] = numbers;
        let status = json!({
            "observedGeneration": 1, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": of_available,
            "conditions": [
                {"type": "Available", "status": if available { "True" } else { "False" }},
                {"type": "Progressing", "status": "True", "reason": reason},
            ],
        });
        with(deployment, &[("/status", status)])
    };
    let complete = ([10, 10, 10], true, "NewReplicaSetAvailable");
    let updating = ([13, 3, 8], true, "ReplicaSetUpdated");
    let cases = [
        (deployment(), updating, complete, true),
        (deployment(), complete, updating, true),
        (deployment(), complete, ([10, 10, 9], true, "NewReplicaSetAvailable"), true),
        (deployment(), updating, ([11, 10, 10], true, "NewReplicaSetAvailable"), false),
        (deployment(), updating, ([10, 9, 10], true, "NewReplicaSetAvailable"), false),
        (deployment(), complete, ([10, 10, 9], true, "ReplicaSetUpdated"), false),
        (deployment(), updating, ([13, 3, 7], true, "ReplicaSetUpdated"), false),
        (deployment(), updating, ([13, 3, 8], false, "ReplicaSetUpdated"), false),
        (recreate(), updating, ([9, 9, 9], true, "ReplicaSetUpdated"), false),
        (recreate(), updating, ([9, 9, 9], false, "ReplicaSetUpdated"), true),
    ];
    for (deployment, before, after, agrees) in cases {
        let mut test = InvariantTest::new();
        test.observe(&status(deployment.clone(), before.0, before.1, before.2));
        test.check_write("update", &status(deployment, after.0, after.1, after.2));
        let expected: &[Invariant] = if agrees { &[] } else { &[Invariant::Conditions] };
        assert_eq!(test.violated(), expected, "{before:?} to {after:?}");
    }
}

#[test]
fn deletion_below_the_replicas_violates_needed_pods() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 2, 0));
    for name in ["a", "b", "c"] {
        test.observe(&pod(name, "rs", true));
    }
    test.check_write("delete", &terminating(pod("a", "rs", true)));
    assert_eq!(test.violated(), []);
    test.check_write("delete", &terminating(pod("b", "rs", true)));
    assert_eq!(test.violated(), [Invariant::NeededPods]);
}

#[test]
fn deletion_of_a_ready_pod_before_an_unready_one_violates_needed_pods() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 1, 0));
    test.observe(&pod("a", "rs", true));
    test.observe(&pod("b", "rs", false));
    test.check_write("delete", &terminating(pod("a", "rs", true)));
    assert_eq!(test.violated(), [Invariant::NeededPods]);
}

#[test]
fn deletion_shortly_after_the_loss_of_another_pod_is_allowed() {
    for (seconds, expected) in [(0, vec![]), (1, vec![Invariant::NeededPods])] {
        let mut test = InvariantTest::new();
        test.observe(&set("rs", 1, 0));
        test.observe(&pod("a", "rs", true));
        test.observe(&pod("b", "rs", true));
        test.observe(&with(pod("a", "rs", true), &[("/status/phase", json!("Failed"))]));
        test.advance(seconds);
        test.check_write("delete", &terminating(pod("b", "rs", true)));
        assert_eq!(test.violated(), expected, "{seconds} s later");
    }
}

#[test]
fn object_with_two_controllers_is_a_violation_of_any_writer() {
    let two = json!([{"uid": "d", "controller": true}, {"uid": "e", "controller": true}]);
    let twice = with(set("rs", 1, 0), &[("/metadata/ownerReferences", two.clone())]);
    let mut test = InvariantTest::new();
    test.observe(&twice);
    assert_eq!(test.violated(), [Invariant::TwoControllers]);
    test.check_write("patch", &with(pod("p", "rs", true), &[("/metadata/ownerReferences", two)]));
    assert_eq!(test.violated(), [Invariant::TwoControllers; 2]);
}

#[test]
fn change_of_the_controller_violates_two_controllers() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 1, 0));
    let other = json!([{"uid": "e", "controller": true}]);
    test.check_write("patch", &with(set("rs", 1, 0), &[("/metadata/ownerReferences", other)]));
    assert_eq!(test.violated(), [Invariant::TwoControllers]);
}

fn revised(object: Value, revision: &str) -> Value {
    let mut object = object;
    object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!(revision);
    object
}

#[test]
fn decreased_or_removed_revision_violates_revisions() {
    for decreased in [revised(deployment(), "2"), deployment()] {
        let mut test = InvariantTest::new();
        test.observe(&revised(deployment(), "3"));
        test.check_write("update", &revised(deployment(), "4"));
        assert_eq!(test.violated(), []);
        test.check_write("update", &decreased);
        assert_eq!(test.violated(), [Invariant::Revisions]);
    }
    let mut test = InvariantTest::new();
    test.observe(&revised(set("rs", 1, 0), "3"));
    test.check_write("update", &revised(set("rs", 1, 0), "2"));
    assert_eq!(test.violated(), [Invariant::Revisions]);
}

#[test]
fn new_replica_set_without_the_highest_revision_violates_revisions() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.check_write("create", &revised(set("a", 0, 0), "1"));
    test.check_write("create", &revised(set("b", 0, 0), "2"));
    assert_eq!(test.violated(), []);
    test.check_write("create", &revised(set("c", 0, 0), "2"));
    assert_eq!(test.violated(), [Invariant::Revisions]);
}

#[test]
fn decreased_collision_count_violates_collisions() {
    let mut test = InvariantTest::new();
    test.observe(&with(deployment(), &[("/status/collisionCount", json!(2))]));
    test.check_write("update", &with(deployment(), &[("/status/collisionCount", json!(1))]));
    assert_eq!(test.violated(), [Invariant::Collisions]);
}

#[test]
fn invalid_observed_generation_violates_observed_generation() {
    let observed = |object: Value, generation: i64| {
        with(object, &[("/metadata/generation", json!(5)), ("/status/observedGeneration", json!(generation))])
    };
    for object in [deployment(), set("rs", 1, 0)] {
        for wrong in [6, 3] {
            let mut test = InvariantTest::new();
            test.observe(&observed(object.clone(), 4));
            test.check_write("update", &observed(object.clone(), 5));
            test.observe(&observed(object.clone(), 4));
            assert_eq!(test.violated(), []);
            test.check_write("update", &observed(object.clone(), wrong));
            assert_eq!(test.violated(), [Invariant::ObservedGeneration], "{wrong}");
        }
    }
}

#[test]
fn write_without_a_change_violates_idle_write() {
    let mut test = InvariantTest::new();
    test.invariants.check_write(&write("update", "deployments", "web"), &[], Basis::current(test.now));
    assert_eq!(test.violated(), [Invariant::IdleWrite]);
    let refused = Entry { code: 409, ..write("update", "deployments", "web") };
    test.invariants.check_write(&refused, &[], Basis::current(test.now));
    test.invariants.check_write(&write("patch", "events", "e"), &[], Basis::current(test.now));
    assert_eq!(test.violated(), [Invariant::IdleWrite], "failed writes and events are ignored");
}

#[test]
fn second_replica_set_for_a_template_violates_created_twice() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.check_write("create", &set("a", 1, 0));
    let again = with(set("b", 1, 0), &[("/spec/template", set("a", 1, 0)["spec"]["template"].clone())]);
    test.check_write("create", &again);
    assert_eq!(test.violated(), [Invariant::CreatedTwice]);
}

#[test]
fn repeated_create_violates_created_twice_unless_the_owner_differs() {
    let mut test = InvariantTest::new();
    test.observe(&set("a", 1, 0));
    let again = |object| Entry { code: 409, body: Some(object), ..write("create", "replicasets", "a") };
    let foreign = with(set("a", 1, 0), &[("/metadata/ownerReferences", json!([{"uid": "other"}]))]);
    test.invariants.check_write(&again(foreign), &[], Basis::current(test.now));
    assert_eq!(test.violated(), [], "a hash collision");
    test.invariants.check_write(&again(set("a", 1, 0)), &[], Basis::current(test.now));
    assert_eq!(test.violated(), [Invariant::CreatedTwice]);
}

#[test]
fn deletion_of_a_used_or_foreign_replica_set_violates_deleted_in_use() {
    let newest =
        |object: Value| with(object, &[("/spec/template", deployment()["spec"]["template"].clone())]);
    let foreign = with(set("rs", 0, 0), &[("/metadata/ownerReferences", json!([]))]);
    for wrong in [set("rs", 1, 0), set("rs", 0, 1), newest(set("rs", 0, 0)), unobserved("rs", 0, 2), foreign]
    {
        let mut test = InvariantTest::new();
        test.observe(&with(deployment(), &[("/spec/revisionHistoryLimit", json!(0))]));
        test.observe(&wrong);
        test.invariants.check_write(
            &write("delete", "replicasets", "rs"),
            &[Change::Deleted(&wrong)],
            Basis::current(test.now),
        );
        assert_eq!(test.violated(), [Invariant::DeletedInUse], "{wrong}");
    }
}

/// A Deployment with a new ReplicaSet and three old ones, of which the manager deletes some.
#[test]
fn deletion_of_history_within_its_limit_violates_deleted_in_use() {
    for (limit, deletions, expected) in [
        (0, 3, vec![]),
        (1, 2, vec![]),
        (1, 3, vec![Invariant::DeletedInUse]),
        (3, 1, vec![Invariant::DeletedInUse]),
    ] {
        let mut test = InvariantTest::new();
        test.observe(&with(deployment(), &[("/spec/revisionHistoryLimit", json!(limit))]));
        test.observe(&set("new", 10, 10));
        let old = ["a", "b", "c"].map(|name| set(name, 0, 0));
        old.iter().for_each(|set| test.observe(set));
        for deleted in old.iter().take(deletions) {
            let name = deleted["metadata"]["name"].as_str().unwrap();
            let write = write("delete", "replicasets", name);
            test.invariants.check_write(&write, &[Change::Deleted(deleted)], Basis::current(test.now));
        }
        assert_eq!(test.violated(), expected, "{deletions} deletions, limit {limit}");
    }
}

#[test]
fn deletion_of_an_orphan_violates_deleted_in_use() {
    let mut test = InvariantTest::new();
    let orphan = with(pod("p", "rs", true), &[("/metadata/ownerReferences", json!([]))]);
    test.observe(&orphan);
    test.check_write("delete", &terminating(orphan));
    assert_eq!(test.violated(), [Invariant::DeletedInUse]);
}

#[test]
fn endless_writes_violate_effort_once() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    let mut count = 0;
    while test.violated().is_empty() && count < 1000 {
        count += 1;
        test.check_write("update", &with(deployment(), &[("/status/replicas", json!(count))]));
    }
    assert_eq!((test.violated(), count), (vec![Invariant::Effort], 25));
    test.check_write("update", &deployment());
    assert_eq!(test.violated(), [Invariant::Effort]);
    test.observe(&deployment());
    for replicas in 0..24 {
        test.check_write("update", &with(deployment(), &[("/status/replicas", json!(replicas))]));
    }
    assert_eq!(test.violated(), [Invariant::Effort]);
}

#[test]
fn syncs_without_reason_violate_effort() {
    let mut test = InvariantTest::new();
    test.invariants.begin_step("s.yaml:1", 0);
    for _ in 0..10 {
        test.observe(&deployment());
    }
    test.invariants.begin_step("s.yaml:2", 60);
    assert_eq!(test.violated(), [], "60 syncs for 10 changes");
    test.observe(&deployment());
    test.invariants.end_step(60 + 35);
    assert_eq!(test.violated(), []);
    test.invariants.end_step(95 + 33);
    assert_eq!(test.violated(), [Invariant::Effort], "33 syncs without a reason");
}

#[test]
fn write_after_settling_violates_silence() {
    let mut test = InvariantTest::new();
    test.invariants.report_unsettled(Some(&write("update", "deployments", "web")));
    test.invariants.report_unsettled(None);
    assert_eq!(test.violated(), [Invariant::Silence; 2]);
}

#[test]
fn violation_has_all_details() {
    let mut test = InvariantTest::new();
    test.observe(&set("rs", 0, 0));
    let created = pod("p", "rs", false);
    let entry = Entry {
        name: String::new(),
        body: Some(json!({"metadata": {"generateName": "rs-"}})),
        ..write("create", "pods", "")
    };
    test.invariants.check_write(&entry, &[Change::Applied(&created)], Basis::current(test.now));
    let text = test.invariants.violations()[0].to_string();
    assert_eq!(
        text,
        "s.yaml:7: SurplusPods is violated: replicaset t/rs: 1 pods, but 0 replicas; by create pods rs- (201)"
    );
}
