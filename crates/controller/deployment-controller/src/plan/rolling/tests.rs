use kcm_api::{Deployment, IntOrString};

use super::*;
use crate::{
    plan::{Action, PlannedAction},
    testing::{decide, deployment, replica_set, set_strategy, view_of},
};

fn rollout(replicas: i32, max_surge: i32, max_unavailable: i32) -> Deployment {
    let mut d = deployment(replicas);
    set_strategy(&mut d, IntOrString::Int(max_surge), IntOrString::Int(max_unavailable));
    d
}

fn new_rs(replicas: i32, available: i32) -> Arc<ReplicaSet> {
    Arc::new(replica_set("new", "any", 2, replicas, available))
}

fn old_rs(replicas: i32, available: i32) -> Arc<ReplicaSet> {
    Arc::new(replica_set("old", "any", 1, replicas, available))
}

fn split(new: &Arc<ReplicaSet>, old: Arc<ReplicaSet>) -> ReplicaSetSplit {
    ReplicaSetSplit { new: Some(Arc::clone(new)), old: vec![old] }
}

/// Returns the size and the reason of the last update of a ReplicaSet.
fn last_update(actions: &[PlannedAction]) -> Option<(i32, &Reason)> {
    actions.iter().rev().find_map(|planned| match &planned.action {
        Action::UpdateReplicaSet(set) => Some((set.replicas(), planned.reason.as_ref()?)),
        _ => None,
    })
}

fn last_size(actions: &[PlannedAction]) -> Option<i32> {
    last_update(actions).map(|(size, _)| size)
}

mod reconcile_new_replica_set {
    use super::{super::reconcile_new_replica_set, *};

    struct Case {
        name: &'static str,
        max_surge: i32,
        old: i32,
        new: i32,
        /// New size, if the ReplicaSet is scaled.
        expected: Option<i32>,
    }

    fn check(case: &Case) {
        let new = new_rs(case.new, 0);
        let replica_sets = split(&new, old_rs(case.old, 0));
        let view = view_of(rollout(10, case.max_surge, 0));
        let (scaled, actions) = decide(&view, |plan| reconcile_new_replica_set(plan, &replica_sets, &new));
        assert_eq!(scaled.unwrap(), case.expected.is_some(), "{}", case.name);
        assert_eq!(last_size(&actions), case.expected, "{}", case.name);
    }

    /// `TestDeploymentController_reconcileNewReplicaSet`. Upstream does not name the cases.
    #[test]
    fn reconcile_new_replica_set_upstream_cases() {
        let cases = [
            Case { name: "surge 0, old 10, new 0", max_surge: 0, old: 10, new: 0, expected: None },
            Case { name: "surge 2, old 10, new 0", max_surge: 2, old: 10, new: 0, expected: Some(2) },
            Case { name: "surge 2, old 5, new 0", max_surge: 2, old: 5, new: 0, expected: Some(7) },
            Case { name: "surge 2, old 10, new 2", max_surge: 2, old: 10, new: 2, expected: None },
            Case { name: "surge 2, old 2, new 11", max_surge: 2, old: 2, new: 11, expected: Some(10) },
        ];
        cases.iter().for_each(check);
    }

    #[test]
    fn states_its_reason() {
        let reason = |new: i32, old: i32| {
            let new = new_rs(new, 0);
            let replica_sets = split(&new, old_rs(old, 0));
            let view = view_of(rollout(10, 2, 0));
            let (_, actions) = decide(&view, |plan| reconcile_new_replica_set(plan, &replica_sets, &new));
            last_update(&actions).map(|(_, reason)| reason.clone())
        };
        let surge = Reason::SurgeAvailable { replicas: 1, desired: 10, total: 9, max_total: 12 };
        assert_eq!(reason(1, 8), Some(surge));
        assert_eq!(reason(11, 2), Some(Reason::NewReplicaSetTooLarge { replicas: 11, desired: 10 }));
    }
}

mod reconcile_old_replica_sets {
    use super::{super::reconcile_old_replica_sets, *};

    /// Sizes and numbers of available pods.
    struct Case {
        name: &'static str,
        max_unavailable: i32,
        old: (i32, i32),
        new: (i32, i32),
        /// New size of the old ReplicaSet, if it is scaled.
        expected: Option<i32>,
    }

    fn check(case: &Case) {
        let new = new_rs(case.new.0, case.new.1);
        let replica_sets = split(&new, old_rs(case.old.0, case.old.1));
        let view = view_of(rollout(10, 0, case.max_unavailable));
        let (scaled, actions) = decide(&view, |plan| reconcile_old_replica_sets(plan, &replica_sets, &new));
        assert_eq!(scaled.unwrap(), case.expected.is_some(), "{}", case.name);
        assert_eq!(last_size(&actions), case.expected, "{}", case.name);
    }

    /// `TestDeploymentController_reconcileOldReplicaSets`. Upstream does not name the cases.
    #[test]
    fn reconcile_old_replica_sets_upstream_cases() {
        let cases = [
            Case {
                name: "both fenceposts zero",
                max_unavailable: 0,
                old: (10, 10),
                new: (0, 0),
                expected: Some(9),
            },
            Case {
                name: "unavailable 2, all old ones ready",
                max_unavailable: 2,
                old: (10, 10),
                new: (0, 0),
                expected: Some(8),
            },
            Case {
                name: "unavailable 2, two old ones unhealthy",
                max_unavailable: 2,
                old: (10, 8),
                new: (0, 0),
                expected: Some(8),
            },
            Case {
                name: "unavailable 2, one old one unhealthy",
                max_unavailable: 2,
                old: (10, 9),
                new: (0, 0),
                expected: Some(8),
            },
            Case {
                name: "unavailable 2, two new ones unhealthy",
                max_unavailable: 2,
                old: (8, 8),
                new: (2, 0),
                expected: None,
            },
        ];
        cases.iter().for_each(check);
    }

    #[test]
    fn documented_example() {
        check(&Case { name: "example", max_unavailable: 2, old: (8, 8), new: (5, 2), expected: Some(6) });
    }

    /// US-4.9: the second step starts from the object that the first one returned.
    #[test]
    fn scales_twice_from_the_returned_object() {
        let new = new_rs(0, 0);
        let replica_sets = split(&new, old_rs(10, 9));
        let view = view_of(rollout(10, 0, 2));
        let (_, actions) = decide(&view, |plan| reconcile_old_replica_sets(plan, &replica_sets, &new));
        let updates: Vec<_> = actions
            .iter()
            .filter_map(|planned| match &planned.action {
                Action::UpdateReplicaSet(set) => Some((set.replicas(), planned.reason.clone()?)),
                _ => None,
            })
            .collect();
        let expected = [
            (9, Reason::UnhealthyReplicas { unavailable: 1, max_scaled_down: 2 }),
            (8, Reason::AvailabilityExceeded { available: 9, min_available: 8 }),
        ];
        assert_eq!(updates, expected);
    }

    #[test]
    fn ignores_invalid_scale_down() {
        let new = new_rs(5, 5);
        let old = old_rs(4, 9);
        let replica_sets = split(&new, Arc::clone(&old));
        let view = view_of(rollout(5, 1, 1));
        let (error, _) =
            decide(&view, |plan| cleanup_unhealthy_replicas(plan, &mut [Arc::clone(&old)], Wrapping(3)));
        let text =
            "when cleaning up unhealthy replicas, got invalid request to scale down default/old 4 -> 9";
        assert_eq!(error.unwrap_err().to_string(), text);
        let (scaled, actions) = decide(&view, |plan| reconcile_old_replica_sets(plan, &replica_sets, &new));
        assert!(!scaled.unwrap() && actions.is_empty());
    }
}

/// `TestDeploymentController_cleanupUnhealthyReplicas`. Upstream does not name the cases.
#[test]
fn cleanup_unhealthy_replicas_upstream_cases() {
    struct Case {
        name: &'static str,
        available: i32,
        max_scaled_down: i32,
        expected: i32,
    }
    let cases = [
        Case { name: "8 of 10 ready, at most 1", available: 8, max_scaled_down: 1, expected: 1 },
        Case { name: "8 of 10 ready, at most 3", available: 8, max_scaled_down: 3, expected: 2 },
        Case { name: "8 of 10 ready, at most 0", available: 8, max_scaled_down: 0, expected: 0 },
        Case { name: "all ready, at most 3", available: 10, max_scaled_down: 3, expected: 0 },
    ];
    for case in cases {
        let old = vec![old_rs(10, case.available)];
        let view = view_of(rollout(10, 2, 2));
        let max_scaled_down = Wrapping(case.max_scaled_down);
        let (count, _) =
            decide(&view, |plan| cleanup_unhealthy_replicas(plan, &mut old.clone(), max_scaled_down));
        assert_eq!(count.unwrap().0, case.expected, "{}", case.name);
    }
}

/// `TestDeploymentController_scaleDownOldReplicaSetsForRollingUpdate`. Upstream does not name the cases.
#[test]
fn scale_down_old_replica_sets_upstream_cases() {
    struct Case {
        name: &'static str,
        max_unavailable: i32,
        replicas: i32,
        available: i32,
        /// New size, if the ReplicaSet is scaled.
        expected: Option<i32>,
    }
    let cases = [
        Case {
            name: "unavailable 0, all 10 ready",
            max_unavailable: 0,
            replicas: 10,
            available: 10,
            expected: Some(9),
        },
        Case {
            name: "unavailable 2, all 10 ready",
            max_unavailable: 2,
            replicas: 10,
            available: 10,
            expected: Some(8),
        },
        Case {
            name: "unavailable 2, 8 of 10 ready",
            max_unavailable: 2,
            replicas: 10,
            available: 8,
            expected: None,
        },
        Case {
            name: "unavailable 2, old without replicas",
            max_unavailable: 2,
            replicas: 0,
            available: 10,
            expected: None,
        },
        Case {
            name: "unavailable 2, 1 of 10 ready",
            max_unavailable: 2,
            replicas: 10,
            available: 1,
            expected: None,
        },
    ];
    for case in cases {
        let (new, old) = (new_rs(0, 0), vec![old_rs(case.replicas, case.available)]);
        let d = rollout(10, 0, case.max_unavailable);
        let min_available = Wrapping(min_available(&d));
        let (count, actions) =
            decide(&view_of(d), |plan| scale_down_old_replica_sets(plan, &old, &new, min_available));
        assert_eq!(count.unwrap().0 > 0, case.expected.is_some(), "{}", case.name);
        assert_eq!(last_size(&actions), case.expected, "{}", case.name);
    }
}
