//! Violations of `recreate-overlap` and `recreate-old-pods`.

use super::*;

#[test]
fn new_pods_beside_old_ones_violate_recreate_overlap() {
    let mut test = InvariantTest::new();
    test.observe(&recreate());
    test.observe(&set("old", 0, 0));
    test.observe(&terminating(pod("p", "old", true)));
    test.check_write("create", &noted(set("new", 10, 0), "10", "10"));
    assert_eq!(test.violated(), [Invariant::RecreateOverlap]);
    test.invariants.observe_change(Change::Deleted(&terminating(pod("p", "old", true))), test.now);
    test.check_write("create", &noted(set("newer", 0, 0), "10", "10"));
    assert_eq!(test.violated(), [Invariant::RecreateOverlap], "no pods are requested");
}

#[test]
fn recreate_overlap_does_not_apply_to_a_sync_that_scales() {
    let violated = vec![Invariant::RecreateOverlap];
    for (replicas, desired, expected) in [(5, "5", vec![]), (5, "10", violated.clone()), (0, "5", violated)] {
        let mut test = InvariantTest::new();
        test.observe(&recreate());
        test.observe(&set("old", 0, 0));
        test.observe(&terminating(pod("p", "old", true)));
        test.observe(&noted(set("new", replicas, 0), desired, desired));
        test.check_write("update", &noted(sized("new", 10, 0, 2), "10", "10"));
        assert_eq!(test.violated(), expected, "{replicas} replicas, scaled for {desired}");
    }
}

/// The old ReplicaSet is scaled to 0, the new one is created, and a pod of the old one follows.
#[derive(Debug, Clone)]
struct OldPodCase {
    deployment: Value,
    /// `false` if a user scales the old ReplicaSet to 0.
    by_manager: bool,
    /// `true` if a user scales the old ReplicaSet up in the end.
    scaled_up_again: bool,
    is_violation: bool,
}

#[test]
fn old_pod_after_new_ones_violates_recreate_old_pods() {
    let case =
        OldPodCase { deployment: recreate(), by_manager: true, scaled_up_again: false, is_violation: true };
    let by_user = OldPodCase { by_manager: false, is_violation: false, ..case.clone() };
    let scaled_up_again = OldPodCase { scaled_up_again: true, is_violation: false, ..case.clone() };
    let rolling_update = OldPodCase { deployment: deployment(), is_violation: false, ..case.clone() };
    for case in [case, by_user, scaled_up_again, rolling_update] {
        let mut test = InvariantTest::new();
        test.observe(&case.deployment);
        test.observe(&set("old", 10, 0));
        let max = if case.deployment == recreate() { "10" } else { "13" };
        let empty = noted(unobserved("old", 0, 2), "10", max);
        match case.by_manager {
            true => test.check_write("update", &empty),
            false => test.observe(&empty),
        }
        test.check_write("create", &noted(set("new", 10, 0), "10", max));
        if case.scaled_up_again {
            test.observe(&sized("old", 1, 0, 3));
        }
        assert_eq!(test.violated(), [], "{case:?}");
        // The ReplicaSet controller may not have observed the scale-down.
        test.check_delayed("create", &pod("p", "old", false));
        let expected: &[Invariant] = if case.is_violation { &[Invariant::RecreateOldPods] } else { &[] };
        assert_eq!(test.violated(), expected, "{case:?}");
    }
}

#[test]
fn old_pod_before_new_ones_is_no_violation() {
    let mut test = InvariantTest::new();
    test.observe(&recreate());
    test.observe(&set("old", 10, 0));
    test.check_write("update", &noted(unobserved("old", 0, 2), "10", "10"));
    test.check_delayed("create", &pod("p", "old", false));
    assert_eq!(test.violated(), []);
}

#[test]
fn old_pod_after_those_of_a_rolling_update_is_no_violation() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.observe(&set("old", 10, 0));
    test.check_write("update", &unobserved("old", 0, 2));
    test.check_write("create", &set("new", 10, 0));
    test.observe(&with(
        deployment(),
        &[
            ("/spec/strategy", json!({"type": "Recreate"})),
            ("/metadata/generation", json!(2)),
            ("/status/observedGeneration", json!(2)),
        ],
    ));
    test.advance(1);
    test.check_delayed("create", &pod("p", "old", false));
    assert_eq!(test.violated(), []);
}
