use std::collections::BTreeSet;

use kcm_deployment_util::annotations::REVISION;

use super::*;
use crate::{
    Action, View,
    testing::{START, decide, deployment, replica_set},
};

fn deleted(limit: i32, old: Vec<ReplicaSet>) -> Vec<String> {
    let mut d = deployment(1);
    d.spec.revision_history_limit = Some(limit);
    let view = View { deployment: Arc::new(d), replica_sets: Vec::new(), running: BTreeSet::new() };
    let old: Vec<_> = old.into_iter().map(Arc::new).collect();
    let (outcome, actions) = decide(&view, |pass| cleanup_deployment(pass, &old));
    outcome.unwrap();
    let names = actions.iter().map(|planned| match &planned.action {
        Action::DeleteReplicaSet(set) => set.metadata.name.to_string(),
        other => panic!("{other}"),
    });
    names.collect()
}

/// A ReplicaSet that wants `size` pods and has `actual`.
fn set(created: i64, size: i32, actual: i32) -> ReplicaSet {
    let mut set = replica_set(&format!("rs{created}"), "any", created, size, 0);
    set.status.replicas = actual;
    set
}

/// `TestDeploymentController_cleanupDeployment`, all six.
#[test]
fn cleanup_deployment_all_cases_as_upstream() {
    let count = |limit, sets: Vec<ReplicaSet>| deleted(limit, sets).len();
    assert_eq!(count(1, vec![set(1, 0, 0), set(2, 0, 0), set(3, 0, 0)]), 2);
    assert_eq!(count(0, vec![set(1, 0, 0), set(2, 0, 1), set(3, 1, 0), set(4, 1, 1)]), 1, "only idle ones");
    assert_eq!(count(0, vec![set(1, 0, 0), set(2, 0, 0)]), 2);
    assert_eq!(count(0, vec![set(1, 1, 1), set(2, 1, 1)]), 0, "none is idle");
    let mut going = set(1, 0, 0);
    going.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    assert_eq!(count(0, vec![going]), 0, "being deleted already");
    assert_eq!(count(i32::MAX, vec![set(1, 0, 0), set(2, 0, 0)]), 0, "no limit");
}

/// `TestDeploymentController_cleanupDeploymentOrder`, all seven.
#[test]
fn cleanup_deployment_order_all_cases_as_upstream() {
    let of = |limit, sets: &[(Option<&str>, i32)]| {
        let sets = sets.iter().zip(1..).map(|((revision, size), created)| {
            let mut set = set(created, *size, *size);
            set.metadata.annotations.extend(revision.map(|text| (REVISION.to_owned(), text.to_owned())));
            set
        });
        deleted(limit, sets.collect())
    };
    assert_eq!(of(1, &[(Some("1"), 0), (Some("2"), 0)]), ["rs1"]);
    assert_eq!(of(1, &[(Some("2"), 0), (Some("1"), 0)]), ["rs2"]);
    assert_eq!(of(1, &[(Some("1"), 0), (None, 0)]), ["rs2"]);
    assert_eq!(of(1, &[(None, 0), (Some("2"), 0)]), ["rs1"]);
    assert_eq!(of(1, &[(Some("1"), 1), (Some("2"), 0), (Some("3"), 0)]), ["rs2"], "spared, not replaced");
    assert!(of(1, &[(Some("1"), 1), (Some("2"), 1), (Some("3"), 0)]).is_empty());
    assert_eq!(of(2, &[(Some("3"), 0), (Some("1"), 0), (Some("4"), 0), (Some("2"), 0)]), ["rs2", "rs4"]);
}

#[test]
fn cleanup_with_a_limit_below_zero_keeps_none_and_does_not_panic() {
    assert_eq!(deleted(-3, vec![set(1, 0, 0)]), ["rs1"]);
}

#[test]
fn cleanup_spares_a_set_that_nobody_has_looked_at_since_its_change() {
    let mut behind = set(1, 0, 0);
    behind.metadata.generation = 2;
    assert!(deleted(0, vec![behind]).is_empty());
}
