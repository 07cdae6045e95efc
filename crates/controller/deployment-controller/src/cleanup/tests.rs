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
    let view = View {
        deployment: Arc::new(d),
        replica_sets: Vec::new(),
        running: BTreeSet::new(),
        terminating_replicas: true,
    };
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

/// `TestDeploymentController_cleanupDeployment`, all six; upstream has no names for them.
#[test]
fn cleanup_deployment_all_cases_as_upstream() {
    let mut going = set(1, 0, 0);
    going.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    let cases = [
        ("limit 1, three idle", 1, vec![set(1, 0, 0), set(2, 0, 0), set(3, 0, 0)], 2),
        (
            "limit 0, only one has neither size nor pods",
            0,
            vec![set(1, 0, 0), set(2, 0, 1), set(3, 1, 0), set(4, 1, 1)],
            1,
        ),
        ("limit 0, two idle", 0, vec![set(1, 0, 0), set(2, 0, 0)], 2),
        ("limit 0, two busy", 0, vec![set(1, 1, 1), set(2, 1, 1)], 0),
        ("limit 0, one that is being deleted", 0, vec![going], 0),
        ("no limit", i32::MAX, vec![set(1, 0, 0), set(2, 0, 0), set(3, 0, 0)], 0),
    ];
    for (name, limit, sets, deletions) in cases {
        assert_eq!(deleted(limit, sets).len(), deletions, "{name}");
    }
}

/// `TestDeploymentController_cleanupDeploymentOrder`, all seven: which go of `rs1`, `rs2` and so on, the first
/// created first.
#[test]
fn cleanup_deployment_order_all_cases_as_upstream() {
    // Limit, then revision and size of each.
    type Sets = &'static [(Option<&'static str>, i32)];
    let cases: [(&str, i32, Sets, &[&str]); 7] = [
        ("revisions 1, 2", 1, &[(Some("1"), 0), (Some("2"), 0)], &["rs1"]),
        ("revisions 2, 1", 1, &[(Some("2"), 0), (Some("1"), 0)], &["rs2"]),
        ("revisions 1, none", 1, &[(Some("1"), 0), (None, 0)], &["rs2"]),
        ("revisions none, 2", 1, &[(None, 0), (Some("2"), 0)], &["rs1"]),
        ("rs1 has replicas", 1, &[(Some("1"), 1), (Some("2"), 0), (Some("3"), 0)], &["rs2"]),
        ("rs1 and rs2 have replicas", 1, &[(Some("1"), 1), (Some("2"), 1), (Some("3"), 0)], &[]),
        (
            "revisions 3, 1, 4, 2, limit 2",
            2,
            &[(Some("3"), 0), (Some("1"), 0), (Some("4"), 0), (Some("2"), 0)],
            &["rs2", "rs4"],
        ),
    ];
    for (name, limit, sets, expected) in cases {
        let sets = sets.iter().zip(1..).map(|((revision, size), created)| {
            let mut set = set(created, *size, *size);
            set.metadata.annotations.extend(revision.map(|text| (REVISION.to_owned(), text.to_owned())));
            set
        });
        assert_eq!(deleted(limit, sets.collect()), expected, "{name}");
    }
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
