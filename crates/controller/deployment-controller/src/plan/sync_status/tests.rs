use std::sync::Arc;

use kcm_api::{
    Deployment,
    condition_status::{FALSE, TRUE},
    condition_type::AVAILABLE,
};

use super::*;
use crate::{
    plan::Action,
    testing::{decide, deployment, replica_set, set_recreate, view_of},
    view::View,
};

/// Returns the status that is written, if any, and its changes. The only ReplicaSet has 3 pods, of which `available` are
/// available, and 2 terminating ones.
fn written(
    deployment: Deployment,
    available: i32,
    terminating_replicas: bool,
) -> Option<(DeploymentStatus, Vec<StatusChange>)> {
    let mut set = replica_set("web-1", "image:1", 0, 3, available);
    set.status.terminating_replicas = Some(2);
    let replica_sets = ReplicaSetSplit { new: Some(Arc::new(set)), old: Vec::new() };
    let view = View { terminating_replicas, ..view_of(deployment) };
    let (outcome, mut actions) =
        decide(&view, |plan| sync_deployment_status(plan, &replica_sets, BlockedOn::Nothing));
    outcome.unwrap();
    assert!(actions.len() <= 1, "{actions:?}");
    let planned = actions.pop()?;
    match (planned.action, planned.reason) {
        (Action::UpdateDeploymentStatus(deployment), Some(Reason::StatusChanged(changes))) => {
            Some((deployment.status.clone(), changes))
        }
        other => panic!("{other:?}"),
    }
}

mod terminating_replicas {
    use super::*;

    fn status(deployment: Deployment, gate: bool) -> Option<DeploymentStatus> {
        written(deployment, 3, gate).map(|(status, _)| status)
    }

    #[test]
    fn are_counted_with_the_gate_on() {
        assert_eq!(status(deployment(3), true).unwrap().terminating_replicas, Some(2));
    }

    #[test]
    fn are_not_set_with_the_gate_off() {
        assert_eq!(status(deployment(3), false).unwrap().terminating_replicas, None);
    }

    #[test]
    fn are_cleared_when_the_gate_is_switched_off() {
        let mut before = deployment(3);
        before.status = status(deployment(3), true).unwrap();
        let (after, changes) = written(before.clone(), 3, false).unwrap();
        assert_eq!(after, DeploymentStatus { terminating_replicas: None, ..before.status.clone() });
        let change = StatusChange::Number { field: "terminatingReplicas", from: Some(2), to: None };
        assert_eq!(changes, [change]);
        before.status = after;
        assert_eq!(status(before, false), None, "written once");
    }
}

/// With `maxUnavailable: 25%` of 3 replicas, which is 0, all pods must be available. A Recreate requires all, too.
#[test]
fn available_condition_requires_the_threshold() {
    let mut recreate = deployment(3);
    set_recreate(&mut recreate);
    for d in [deployment(3), recreate] {
        for (available, expected) in [(3, TRUE), (2, FALSE)] {
            let (status, _) = written(d.clone(), available, true).unwrap();
            assert_eq!(status.condition(AVAILABLE).unwrap().status, expected, "{available}");
        }
    }
}
