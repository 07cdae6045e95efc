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
    View { deployment: Arc::new(d), replica_sets: Vec::new(), running: BTreeSet::new() }
}

/// The size that the last write of a ReplicaSet gave it.
fn last_size(actions: &[PlannedAction]) -> Option<i32> {
    actions.iter().rev().find_map(|planned| match &planned.action {
        Action::UpdateReplicaSet(set) => Some(set.replicas()),
        _ => None,
    })
}

/// `TestDeploymentController_reconcileNewReplicaSet`, all five.
#[test]
fn reconcile_new_replica_set_all_cases_as_upstream() {
    let of = |surge, old, new| {
        let new = Arc::new(replica_set("new", "any", 2, new, 0));
        let old = vec![Arc::new(replica_set("old", "any", 1, old, 0))];
        let roles = Roles { new: Some(Arc::clone(&new)), old };
        let view = view(rollout(10, surge, 0));
        let (scaled, actions) = decide(&view, |pass| reconcile_new_replica_set(pass, &roles, &new));
        assert_eq!(scaled.unwrap(), last_size(&actions).is_some());
        last_size(&actions)
    };
    assert_eq!(of(0, 10, 0), None, "no surge, no room");
    assert_eq!(of(2, 10, 0), Some(2));
    assert_eq!(of(2, 5, 0), Some(7));
    assert_eq!(of(2, 10, 2), None, "the surge is used up");
    assert_eq!(of(2, 2, 11), Some(10), "more than wanted");
}

/// `TestDeploymentController_reconcileOldReplicaSets`, all five.
#[test]
fn reconcile_old_replica_sets_all_cases_as_upstream() {
    let of = |unavailable, old, new, ready_old, ready_new| {
        let new = Arc::new(replica_set("new", "any", 2, new, ready_new));
        let old = vec![Arc::new(replica_set("old", "any", 1, old, ready_old))];
        let roles = Roles { new: Some(Arc::clone(&new)), old };
        let view = view(rollout(10, 0, unavailable));
        let (scaled, actions) = decide(&view, |pass| reconcile_old_replica_sets(pass, &roles, &new));
        assert_eq!(scaled.unwrap(), last_size(&actions).is_some());
        last_size(&actions)
    };
    assert_eq!(of(0, 10, 0, 10, 0), Some(9), "both fenceposts zero");
    assert_eq!(of(2, 10, 0, 10, 0), Some(8));
    assert_eq!(of(2, 10, 0, 8, 0), Some(8), "unhealthy ones");
    assert_eq!(of(2, 10, 0, 9, 0), Some(8), "one unhealthy, one healthy");
    assert_eq!(of(2, 8, 2, 8, 0), None, "new ones that are not available use up what may be missing");
}

/// `TestDeploymentController_cleanupUnhealthyReplicas`, all four.
#[test]
fn cleanup_unhealthy_replicas_all_cases_as_upstream() {
    let of = |ready, limit| {
        let old = vec![Arc::new(replica_set("old", "any", 1, 10, ready))];
        let view = view(rollout(10, 2, 2));
        let (count, _) = decide(&view, |pass| cleanup_unhealthy_replicas(pass, &mut old.clone(), limit));
        count.unwrap()
    };
    assert_eq!(of(8, 1), 1);
    assert_eq!(of(8, 3), 2);
    assert_eq!(of(8, 0), 0);
    assert_eq!(of(10, 3), 0);
}

/// `TestDeploymentController_scaleDownOldReplicaSetsForRollingUpdate`, all five.
#[test]
fn scale_down_old_replica_sets_for_rolling_update_all_cases_as_upstream() {
    let of = |unavailable, ready, old| {
        let new = Arc::new(replica_set("new", "any", 2, 0, 0));
        let old = vec![Arc::new(replica_set("old", "any", 1, old, ready))];
        let d = rollout(10, 0, unavailable);
        let at_least = 10 - max_unavailable(&d);
        let view = view(d);
        let (count, actions) = decide(&view, |pass| scale_down_old_replica_sets(pass, &old, &new, at_least));
        assert_eq!(count.unwrap() > 0, last_size(&actions).is_some());
        last_size(&actions)
    };
    assert_eq!(of(0, 10, 10), Some(9), "both fenceposts zero");
    assert_eq!(of(2, 10, 10), Some(8));
    assert_eq!(of(2, 8, 10), None);
    assert_eq!(of(2, 10, 0), None);
    assert_eq!(of(2, 1, 10), None);
}

#[test]
fn old_set_with_more_available_pods_than_it_is_to_have_takes_no_step_and_fails_nothing() {
    let new = Arc::new(replica_set("new", "any", 2, 5, 5));
    let old = Arc::new(replica_set("old", "any", 1, 4, 9));
    let roles = Roles { new: Some(Arc::clone(&new)), old: vec![Arc::clone(&old)] };
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
    let roles = Roles { new: Some(Arc::clone(&new)), old };
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
