use std::collections::BTreeSet;

use kcm_api::{Deployment, IntOrString};

use super::*;
use crate::{
    Action, PlannedAction, View,
    testing::{decide, deployment, replica_set, set_strategy},
};

fn rollout(replicas: i32, surge: i32, unavailable: i32) -> Deployment {
    let mut d = deployment(replicas);
    set_strategy(&mut d, IntOrString::Int(surge), IntOrString::Int(unavailable));
    d
}

fn view(d: Deployment) -> View {
    View {
        deployment: Arc::new(d),
        replica_sets: Vec::new(),
        running: BTreeSet::new(),
        terminating_replicas: true,
    }
}

/// The size that the last write of a ReplicaSet gave it.
fn last_size(actions: &[PlannedAction]) -> Option<i32> {
    actions.iter().rev().find_map(|planned| match &planned.action {
        Action::UpdateReplicaSet(set) => Some(set.replicas()),
        _ => None,
    })
}

/// `TestDeploymentController_reconcileNewReplicaSet`, all five; upstream only numbers them.
#[test]
fn reconcile_new_replica_set_all_cases_as_upstream() {
    let cases = [
        ("surge 0, old 10, new 0: no room", 0, 10, 0, None),
        ("surge 2, old 10, new 0", 2, 10, 0, Some(2)),
        ("surge 2, old 5, new 0", 2, 5, 0, Some(7)),
        ("surge 2, old 10, new 2: the surge is used up", 2, 10, 2, None),
        ("surge 2, old 2, new 11: more than wanted", 2, 2, 11, Some(10)),
    ];
    for (name, surge, old, new, expected) in cases {
        let new = Arc::new(replica_set("new", "any", 2, new, 0));
        let old = vec![Arc::new(replica_set("old", "any", 1, old, 0))];
        let roles = ReplicaSetSplit { new: Some(Arc::clone(&new)), old };
        let view = view(rollout(10, surge, 0));
        let (scaled, actions) = decide(&view, |pass| reconcile_new_replica_set(pass, &roles, &new));
        assert_eq!(scaled.unwrap(), expected.is_some(), "{name}");
        assert_eq!(last_size(&actions), expected, "{name}");
    }
}

/// `TestDeploymentController_reconcileOldReplicaSets`, all five; upstream only numbers them.
#[test]
fn reconcile_old_replica_sets_all_cases_as_upstream() {
    // Unavailable, old, new, ready of the old, ready of the new.
    let cases = [
        ("both fenceposts zero", (0, 10, 0, 10, 0), Some(9)),
        ("unavailable 2, all old ones ready", (2, 10, 0, 10, 0), Some(8)),
        ("unavailable 2, two old ones unhealthy", (2, 10, 0, 8, 0), Some(8)),
        ("unavailable 2, one old one unhealthy", (2, 10, 0, 9, 0), Some(8)),
        ("unavailable new ones use up what may be missing", (2, 8, 2, 8, 0), None),
    ];
    for (name, (unavailable, old, new, ready_old, ready_new), expected) in cases {
        let new = Arc::new(replica_set("new", "any", 2, new, ready_new));
        let old = vec![Arc::new(replica_set("old", "any", 1, old, ready_old))];
        let roles = ReplicaSetSplit { new: Some(Arc::clone(&new)), old };
        let view = view(rollout(10, 0, unavailable));
        let (scaled, actions) = decide(&view, |pass| reconcile_old_replica_sets(pass, &roles, &new));
        assert_eq!(scaled.unwrap(), expected.is_some(), "{name}");
        assert_eq!(last_size(&actions), expected, "{name}");
    }
}

/// `TestDeploymentController_cleanupUnhealthyReplicas`, all four; upstream only numbers them.
#[test]
fn cleanup_unhealthy_replicas_all_cases_as_upstream() {
    let cases = [
        ("8 of 10 ready, at most 1", 8, 1, 1),
        ("8 of 10 ready, at most 3", 8, 3, 2),
        ("8 of 10 ready, at most 0", 8, 0, 0),
        ("all ready, at most 3", 10, 3, 0),
    ];
    for (name, ready, limit, expected) in cases {
        let old = vec![Arc::new(replica_set("old", "any", 1, 10, ready))];
        let view = view(rollout(10, 2, 2));
        let (count, _) = decide(&view, |pass| cleanup_unhealthy_replicas(pass, &mut old.clone(), limit));
        assert_eq!(count.unwrap(), expected, "{name}");
    }
}

/// `TestDeploymentController_scaleDownOldReplicaSetsForRollingUpdate`, all five; upstream only numbers them.
#[test]
fn scale_down_old_replica_sets_for_rolling_update_all_cases_as_upstream() {
    let cases = [
        ("unavailable 0, all 10 ready", 0, 10, 10, Some(9)),
        ("unavailable 2, all 10 ready", 2, 10, 10, Some(8)),
        ("unavailable 2, 8 of 10 ready", 2, 8, 10, None),
        ("unavailable 2, none wanted of the old", 2, 10, 0, None),
        ("unavailable 2, 1 of 10 ready", 2, 1, 10, None),
    ];
    for (name, unavailable, ready, old, expected) in cases {
        let new = Arc::new(replica_set("new", "any", 2, 0, 0));
        let old = vec![Arc::new(replica_set("old", "any", 1, old, ready))];
        let d = rollout(10, 0, unavailable);
        let at_least = min_available(&d);
        let view = view(d);
        let (count, actions) = decide(&view, |pass| scale_down_old_replica_sets(pass, &old, &new, at_least));
        assert_eq!(count.unwrap() > 0, expected.is_some(), "{name}");
        assert_eq!(last_size(&actions), expected, "{name}");
    }
}

#[test]
fn old_set_with_more_available_pods_than_it_is_to_have_takes_no_step_and_fails_nothing() {
    let new = Arc::new(replica_set("new", "any", 2, 5, 5));
    let old = Arc::new(replica_set("old", "any", 1, 4, 9));
    let roles = ReplicaSetSplit { new: Some(Arc::clone(&new)), old: vec![Arc::clone(&old)] };
    let view = view(rollout(5, 1, 1));
    let (error, _) = decide(&view, |pass| cleanup_unhealthy_replicas(pass, &mut [Arc::clone(&old)], 3));
    let text = "when cleaning up unhealthy replicas, got invalid request to scale down default/old 4 -> 9";
    assert_eq!(error.unwrap_err().to_string(), text);
    let (scaled, actions) = decide(&view, |pass| reconcile_old_replica_sets(pass, &roles, &new));
    assert!(!scaled.unwrap() && actions.is_empty());
}

/// US-4.9: what cleaning up has written is what scaling down builds on.
#[test]
fn old_set_that_shrinks_twice_shrinks_from_what_the_server_answered() {
    let new = Arc::new(replica_set("new", "any", 2, 0, 0));
    let old = vec![Arc::new(replica_set("old", "any", 1, 10, 9))];
    let roles = ReplicaSetSplit { new: Some(Arc::clone(&new)), old };
    let view = view(rollout(10, 0, 2));
    let (_, actions) = decide(&view, |pass| reconcile_old_replica_sets(pass, &roles, &new));
    let texts: Vec<String> = actions.iter().map(|planned| planned.action.to_string()).collect();
    assert_eq!(
        texts,
        [
            "update replica set old to 9 replicas",
            "event Normal ScalingReplicaSet: Scaled down replica set old from 10 to 9",
            "update replica set old to 8 replicas",
            "event Normal ScalingReplicaSet: Scaled down replica set old from 9 to 8",
        ]
    );
}
