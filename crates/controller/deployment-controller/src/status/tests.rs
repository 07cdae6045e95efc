use std::{collections::BTreeSet, sync::Arc};

use kcm_api::{Deployment, DeploymentStatus};

use super::*;
use crate::{
    Action, View,
    testing::{decide, deployment, replica_set},
};

/// The status written for a Deployment of one ReplicaSet with two terminating pods, if one is written.
fn written(deployment: Deployment, terminating_replicas: bool) -> Option<DeploymentStatus> {
    let mut set = replica_set("web-1", "image:1", 0, 3, 3);
    set.status.terminating_replicas = Some(2);
    let roles = ReplicaSetSplit { new: Some(Arc::new(set)), old: Vec::new() };
    let view = View {
        deployment: Arc::new(deployment),
        replica_sets: Vec::new(),
        running: BTreeSet::new(),
        terminating_replicas,
    };
    let (outcome, actions) = decide(&view, |pass| sync_deployment_status(pass, &roles, WaitsFor::Nothing));
    outcome.unwrap();
    match actions.as_slice() {
        [] => None,
        [planned] => match &planned.action {
            Action::UpdateDeploymentStatus(deployment) => Some(deployment.status.clone()),
            other => panic!("{other}"),
        },
        more => panic!("{more:?}"),
    }
}

mod terminating_replicas {
    use super::*;

    #[test]
    fn are_counted_with_the_gate_on() {
        assert_eq!(written(deployment(3), true).unwrap().terminating_replicas, Some(2));
    }

    #[test]
    fn are_not_set_with_the_gate_off() {
        assert_eq!(written(deployment(3), false).unwrap().terminating_replicas, None);
    }

    #[test]
    fn are_cleared_when_the_gate_is_switched_off() {
        let mut before = deployment(3);
        before.status = written(deployment(3), true).unwrap();
        let after = written(before.clone(), false).unwrap();
        assert_eq!(after, DeploymentStatus { terminating_replicas: None, ..before.status.clone() });
        before.status = after;
        assert_eq!(written(before, false), None, "written once");
    }
}
