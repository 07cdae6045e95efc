//! Violations of `availability`.

use super::*;

#[test]
fn rolling_update_below_the_minimum_violates_availability() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.observe(&set("old", 10, 10));
    test.check_write("create", &set("new", 3, 0));
    test.check_write("update", &sized("old", 8, 10, 2));
    assert_eq!(test.violated(), []);
    test.check_write("update", &sized("old", 7, 10, 3));
    assert_eq!(test.violated(), [Invariant::Availability]);
}

#[test]
fn replica_set_counts_with_its_former_pods_until_its_next_status() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.observe(&set("old", 10, 10));
    test.check_write("create", &set("new", 3, 0));
    let not_observed =
        |replicas, generation| with(set("old", replicas, 10), &[("/metadata/generation", json!(generation))]);
    test.check_write("update", &not_observed(8, 2));
    // The cleanup has ended at another ReplicaSet.
    test.observe(&set("older", 2, 0));
    test.check_write("update", &unobserved("older", 1, 2));
    test.check_write("update", &not_observed(7, 3));
    assert_eq!(test.violated(), []);
    test.observe(&set("older", 1, 0));
    test.advance(1);
    test.check_write("update", &not_observed(6, 4));
    assert_eq!(test.violated(), [Invariant::Availability], "nothing else was cleaned up");
}

#[test]
fn unavailable_replicas_may_be_scaled_down() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.observe(&set("old", 10, 8));
    test.check_write("update", &sized("old", 8, 8, 2));
    assert_eq!(test.violated(), []);
}

#[test]
fn replica_lost_shortly_before_may_be_scaled_down() {
    let mut test = InvariantTest::new();
    test.observe(&deployment());
    test.observe(&set("old", 8, 8));
    test.observe(&set("old", 8, 7));
    test.check_write("update", &sized("old", 7, 7, 2));
    assert_eq!(test.violated(), []);
}

/// The Deployment has 10 replicas, at most 13 of them with the surge, and 8 must be available.
#[test]
fn proportional_scaling_has_no_minimum_if_there_are_too_many_replicas() {
    for (of_new, expected) in [(6, vec![]), (5, vec![Invariant::Availability])] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&noted(set("old", 8, 8), "12", "13"));
        test.observe(&noted(set("new", of_new, 0), "12", "13"));
        test.check_write("update", &noted(sized("old", 7, 8, 2), "10", "13"));
        assert_eq!(test.violated(), expected, "the new ReplicaSet has {of_new} replicas");
    }
}

#[test]
fn proportional_scaling_has_no_minimum_if_more_replicas_were_allowed() {
    for (max, expected) in [("15", vec![]), ("13", vec![Invariant::Availability])] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&noted(set("old", 8, 8), "12", "13"));
        test.observe(&noted(set("new", 5, 0), "12", max));
        test.check_write("update", &noted(sized("old", 7, 8, 2), "10", "13"));
        assert_eq!(test.violated(), expected, "at most {max} replicas");
    }
}

/// The Deployment was scaled from 20 to 10, so 12 of 25 replicas are removed.
#[test]
fn proportional_scaling_removes_at_most_the_surplus_if_no_replica_set_grows() {
    for (to, max, expected) in
        [(5, "25", vec![]), (4, "25", vec![Invariant::Availability]), (4, "12", vec![])]
    {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&noted(set("old", 17, 17), "20", "25"));
        test.observe(&noted(set("new", 8, 0), "20", max));
        test.check_write("update", &noted(sized("old", to, 17, 2), "10", "13"));
        assert_eq!(test.violated(), expected, "to {to}, at most {max} replicas");
    }
}

/// The controller may not have observed that another ReplicaSet is gone.
#[test]
fn proportional_scaling_follows_from_a_replica_set_that_was_just_deleted() {
    for (seconds, expected) in [(0, vec![]), (1, vec![Invariant::Availability])] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&set("old", 8, 8));
        let other = noted(set("other", 6, 0), "12", "13");
        test.observe(&other);
        test.invariants.observe_change(Change::Deleted(&other), test.now);
        test.advance(seconds);
        test.check_write("update", &sized("old", 7, 8, 2));
        assert_eq!(test.violated(), expected, "{seconds} s later");
    }
}

/// A ReplicaSet that was adopted after the Deployment was scaled still has the annotation of the former size.
#[test]
fn proportional_scaling_follows_from_the_size_noted_in_any_replica_set() {
    let never_scaled = with(set("adopted", 6, 0), &[("/metadata/annotations", json!({}))]);
    for (adopted, expected) in [
        (noted(set("adopted", 6, 0), "12", "13"), vec![]),
        (noted(set("adopted", 6, 0), "10", "13"), vec![Invariant::Availability]),
        (never_scaled, vec![Invariant::Availability]),
    ] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&set("old", 8, 8));
        test.observe(&adopted);
        test.check_write("update", &sized("old", 7, 8, 2));
        assert_eq!(
            test.violated(),
            expected,
            "the other ReplicaSet has {}",
            adopted["metadata"]["annotations"]
        );
    }
}

/// The new ReplicaSet was scaled down from 6 to 3 proportionally, and its status has 5 available pods.
#[test]
fn surplus_pods_in_the_status_count_as_available() {
    for (to, expected) in [(6, vec![]), (2, vec![Invariant::Availability])] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&set("new", 3, 5));
        test.observe(&set("old", 7, 7));
        test.check_write("update", &sized("old", to, 7, 2));
        assert_eq!(test.violated(), expected, "scaled down to {to}");
    }
}

#[test]
fn loss_of_availability_by_the_kubelet_is_no_violation() {
    for (seconds, expected) in [(0, vec![]), (1, vec![Invariant::Availability])] {
        let mut test = InvariantTest::new();
        test.observe(&deployment());
        test.observe(&set("old", 10, 10));
        test.observe(&set("new", 3, 3));
        // Three pods fail; the controller observes it later.
        test.observe(&set("new", 3, 0));
        assert_eq!(test.violated(), []);
        test.advance(seconds);
        test.check_write("update", &sized("old", 7, 10, 2));
        assert_eq!(test.violated(), expected, "{seconds} s later");
    }
}
