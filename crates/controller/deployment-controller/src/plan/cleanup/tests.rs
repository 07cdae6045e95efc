use kcm_deployment_util::annotations::REVISION;

use super::*;
use crate::{
    plan::Action,
    testing::{START, decide, deployment, replica_set, view_of},
};

/// Returns the names of the deleted ReplicaSets.
fn deleted(limit: i32, old: Vec<ReplicaSet>) -> Vec<String> {
    let mut d = deployment(1);
    d.spec.revision_history_limit = Some(limit);
    let old: Vec<_> = old.into_iter().map(Arc::new).collect();
    let (outcome, actions) = decide(&view_of(d), |plan| cleanup_deployment(plan, &old));
    outcome.unwrap();
    let limit = usize::try_from(limit).unwrap_or(0);
    let names = actions.iter().map(|planned| match &planned.action {
        Action::DeleteReplicaSet(set) => {
            assert_eq!(planned.reason, Some(Reason::RevisionHistoryLimit { limit }));
            set.metadata.name.to_string()
        }
        other => panic!("{other}"),
    });
    names.collect()
}

/// Returns a ReplicaSet with this size and number of pods.
fn set(created: i64, size: i32, pods: i32) -> ReplicaSet {
    let mut set = replica_set(&format!("rs{created}"), "any", created, size, 0);
    set.status.replicas = pods;
    set
}

/// `TestDeploymentController_cleanupDeployment`. Upstream does not name the cases.
#[test]
fn cleanup_deployment_upstream_cases() {
    let mut terminating = set(1, 0, 0);
    terminating.metadata.deletion_timestamp = Some(kcm_api::Time::from_unix(START));
    struct Case {
        name: &'static str,
        limit: i32,
        sets: Vec<ReplicaSet>,
        deletions: usize,
    }
    let cases = [
        Case {
            name: "limit 1, three idle",
            limit: 1,
            sets: vec![set(1, 0, 0), set(2, 0, 0), set(3, 0, 0)],
            deletions: 2,
        },
        Case {
            name: "limit 0, only one has neither size nor pods",
            limit: 0,
            sets: vec![set(1, 0, 0), set(2, 0, 1), set(3, 1, 0), set(4, 1, 1)],
            deletions: 1,
        },
        Case { name: "limit 0, two idle", limit: 0, sets: vec![set(1, 0, 0), set(2, 0, 0)], deletions: 2 },
        Case { name: "limit 0, two busy", limit: 0, sets: vec![set(1, 1, 1), set(2, 1, 1)], deletions: 0 },
        Case { name: "limit 0, one that is being deleted", limit: 0, sets: vec![terminating], deletions: 0 },
        Case {
            name: "no limit",
            limit: i32::MAX,
            sets: vec![set(1, 0, 0), set(2, 0, 0), set(3, 0, 0)],
            deletions: 0,
        },
    ];
    for case in cases {
        assert_eq!(deleted(case.limit, case.sets).len(), case.deletions, "{}", case.name);
    }
}

mod order {
    use super::*;

    /// Revisions and sizes of the ReplicaSets `rs1`, `rs2`, …, oldest first.
    struct Case {
        name: &'static str,
        limit: i32,
        sets: &'static [(Option<&'static str>, i32)],
        deleted: &'static [&'static str],
    }

    fn check(case: &Case) {
        let sets = case.sets.iter().zip(1..).map(|((revision, size), created)| {
            let mut set = set(created, *size, *size);
            set.metadata.annotations.extend(revision.map(|text| (REVISION.to_owned(), text.to_owned())));
            set
        });
        assert_eq!(deleted(case.limit, sets.collect()), case.deleted, "{}", case.name);
    }

    /// `TestDeploymentController_cleanupDeploymentOrder`.
    #[test]
    fn cleanup_deployment_order_upstream_cases() {
        let cases = [
            Case {
                name: "revisions 1, 2",
                limit: 1,
                sets: &[(Some("1"), 0), (Some("2"), 0)],
                deleted: &["rs1"],
            },
            Case {
                name: "revisions 2, 1",
                limit: 1,
                sets: &[(Some("2"), 0), (Some("1"), 0)],
                deleted: &["rs2"],
            },
            Case {
                name: "revisions 1, none",
                limit: 1,
                sets: &[(Some("1"), 0), (None, 0)],
                deleted: &["rs2"],
            },
            Case {
                name: "revisions none, 2",
                limit: 1,
                sets: &[(None, 0), (Some("2"), 0)],
                deleted: &["rs1"],
            },
            Case {
                name: "rs1 has replicas",
                limit: 1,
                sets: &[(Some("1"), 1), (Some("2"), 0), (Some("3"), 0)],
                deleted: &["rs2"],
            },
            Case {
                name: "rs1 and rs2 have replicas",
                limit: 1,
                sets: &[(Some("1"), 1), (Some("2"), 1), (Some("3"), 0)],
                deleted: &[],
            },
            Case {
                name: "revisions 3, 1, 4, 2, limit 2",
                limit: 2,
                sets: &[(Some("3"), 0), (Some("1"), 0), (Some("4"), 0), (Some("2"), 0)],
                deleted: &["rs2", "rs4"],
            },
        ];
        cases.iter().for_each(check);
    }
}

#[test]
fn negative_limit_keeps_none() {
    assert_eq!(deleted(-3, vec![set(1, 0, 0)]), ["rs1"]);
}

#[test]
fn unobserved_change_is_kept() {
    let mut unobserved = set(1, 0, 0);
    unobserved.metadata.generation = 2;
    assert!(deleted(0, vec![unobserved]).is_empty());
}
