use std::collections::BTreeMap;

use kcm_api::{IntOrString, Time};
use kcm_deployment_util::annotations::MAX_REPLICAS;

use super::*;
use crate::{
    plan::Action,
    testing::{START, decide, deployment, replica_set, set_strategy, view_of},
};

/// A Deployment that is scaled. ReplicaSets are listed from the newest to the oldest.
struct Case {
    name: &'static str,
    /// Size of the Deployment before and after.
    replicas: (i32, i32),
    /// `maxSurge` before and after.
    surge: (i32, i32),
    unavailable: i32,
    /// Size of the new ReplicaSet, if it exists.
    new: Option<i32>,
    /// Sizes of the old ReplicaSets.
    old: &'static [i32],
    /// Sizes of all ReplicaSets afterwards.
    expected: &'static [i32],
    /// ReplicaSets that must not be written.
    unwritten: &'static [usize],
    /// ReplicaSet that was last scaled for another size of the Deployment, and that size.
    scaled_for: Option<(usize, i32)>,
    available: i32,
}

const CASE: Case = Case {
    name: "",
    replicas: (0, 0),
    surge: (0, 0),
    unavailable: 0,
    new: None,
    old: &[],
    expected: &[],
    unwritten: &[],
    scaled_for: None,
    available: 0,
};

fn check(case: &Case) {
    let name = case.name;
    let mut d = deployment(case.replicas.1);
    set_strategy(&mut d, IntOrString::Int(case.surge.1), IntOrString::Int(case.unavailable));
    let sizes: Vec<i32> = case.new.into_iter().chain(case.old.iter().copied()).collect();
    let mut sets = Vec::new();
    for (at, size) in sizes.iter().enumerate() {
        let age = i64::try_from(at).unwrap();
        let mut set = replica_set(&format!("rs-{at}"), "any", 0, *size, case.available);
        set.metadata.creation_timestamp = Some(Time::from_unix(START - age));
        let scaled_for = case.scaled_for.filter(|(position, _)| *position == at);
        let (_, desired) = scaled_for.unwrap_or((at, case.replicas.0));
        set_replicas_annotations(&mut set.metadata.annotations, desired, desired + case.surge.0);
        sets.push(Arc::new(set));
    }
    let mut split = ReplicaSetSplit { new: None, old: sets };
    if case.new.is_some() {
        split.new = Some(split.old.remove(0));
    }
    split.old.reverse();

    let (outcome, actions) = decide(&view_of(d), |plan| scale(plan, &split));
    outcome.unwrap();
    let mut after: BTreeMap<String, i32> =
        split.all().map(|set| (set.metadata.name.to_string(), set.replicas())).collect();
    for planned in &actions {
        if let Action::UpdateReplicaSet(set) = &planned.action {
            after.insert(set.metadata.name.to_string(), set.replicas());
            let written = case.unwritten.iter().all(|at| *set.metadata.name != *format!("rs-{at}"));
            assert!(written, "{name}: {planned}");
        }
    }
    assert_eq!(after.into_values().collect::<Vec<_>>(), case.expected, "{name}");
}

/// `TestScale`.
#[test]
fn scale_upstream_cases() {
    let cases = [
        Case {
            name: "normal scaling event: 10 -> 12",
            replicas: (10, 12),
            new: Some(10),
            expected: &[12],
            ..CASE
        },
        Case {
            name: "normal scaling event: 10 -> 5",
            replicas: (10, 5),
            new: Some(10),
            expected: &[5],
            ..CASE
        },
        Case {
            name: "proportional scaling: 5 -> 10",
            replicas: (5, 10),
            new: Some(2),
            old: &[3],
            expected: &[4, 6],
            ..CASE
        },
        Case {
            name: "proportional scaling: 5 -> 3",
            replicas: (5, 3),
            new: Some(2),
            old: &[3],
            expected: &[1, 2],
            ..CASE
        },
        Case {
            name: "proportional scaling: 9 -> 4",
            replicas: (9, 4),
            new: Some(8),
            old: &[1],
            expected: &[4, 0],
            ..CASE
        },
        Case {
            name: "proportional scaling: 7 -> 10",
            replicas: (7, 10),
            new: Some(2),
            old: &[3, 2],
            expected: &[3, 4, 3],
            ..CASE
        },
        Case {
            name: "proportional scaling: 13 -> 8",
            replicas: (13, 8),
            new: Some(2),
            old: &[8, 3],
            expected: &[1, 5, 2],
            ..CASE
        },
        Case {
            name: "leftover distribution: 3 -> 4",
            replicas: (3, 4),
            new: Some(1),
            old: &[1, 1],
            expected: &[2, 1, 1],
            ..CASE
        },
        Case {
            name: "leftover distribution: 3 -> 2",
            replicas: (3, 2),
            new: Some(1),
            old: &[1, 1],
            expected: &[1, 1, 0],
            ..CASE
        },
        Case {
            name: "proportional scaling (no new rs): 4 -> 5",
            replicas: (4, 5),
            old: &[2, 2],
            expected: &[3, 2],
            ..CASE
        },
        Case {
            name: "proportional scaling: 6 -> 0",
            replicas: (6, 0),
            new: Some(3),
            old: &[2, 1],
            expected: &[0, 0, 0],
            ..CASE
        },
        Case {
            name: "proportional scaling: 0 -> 6",
            replicas: (0, 6),
            new: Some(0),
            old: &[0, 0],
            expected: &[6, 0, 0],
            unwritten: &[1, 2],
            ..CASE
        },
        Case {
            name: "failed rs update",
            replicas: (5, 5),
            new: Some(2),
            old: &[1, 1],
            expected: &[2, 2, 1],
            unwritten: &[0, 2],
            scaled_for: Some((1, 3)),
            ..CASE
        },
        Case {
            name: "deployment with surge pods",
            replicas: (10, 20),
            surge: (2, 2),
            new: Some(6),
            old: &[6],
            expected: &[11, 11],
            ..CASE
        },
        Case {
            name: "change both surge and size",
            replicas: (10, 50),
            surge: (3, 6),
            new: Some(5),
            old: &[8],
            expected: &[22, 34],
            ..CASE
        },
        Case {
            name: "change both size and template",
            replicas: (10, 14),
            old: &[7, 3],
            expected: &[10, 4],
            ..CASE
        },
        Case {
            name: "saturated but broken new replica set does not affect old pods",
            replicas: (2, 2),
            surge: (1, 1),
            unavailable: 1,
            new: Some(2),
            old: &[1],
            expected: &[2, 1],
            unwritten: &[0, 1],
            ..CASE
        },
    ];
    cases.iter().for_each(check);
}

/// US-9.9: the annotations of a single ReplicaSet of the desired size are not updated.
#[test]
fn annotations_of_single_set_remain() {
    check(&Case {
        name: "annotations",
        replicas: (3, 5),
        new: Some(5),
        expected: &[5],
        unwritten: &[0],
        ..CASE
    });
}

#[test]
fn saturated_new_set_scales_the_others_to_zero() {
    let split = ReplicaSetSplit {
        new: Some(Arc::new({
            let mut set = replica_set("new", "any", 9, 3, 3);
            set_replicas_annotations(&mut set.metadata.annotations, 3, 4);
            set
        })),
        old: vec![Arc::new(replica_set("a", "any", 1, 2, 2)), Arc::new(replica_set("b", "any", 2, 1, 1))],
    };
    let (_, actions) = decide(&view_of(deployment(3)), |plan| scale(plan, &split));
    let updates: Vec<_> = actions
        .iter()
        .filter_map(|planned| match &planned.action {
            Action::UpdateReplicaSet(set) => {
                Some((&*set.metadata.name, set.replicas(), planned.reason.clone()?))
            }
            _ => None,
        })
        .collect();
    let reason = Reason::NewReplicaSetSaturated { desired: 3 };
    assert_eq!(updates, [("b", 0, reason.clone()), ("a", 0, reason)], "newest first");
}

#[test]
fn invalid_annotations_are_reported() {
    let mut invalid = replica_set("a", "any", 1, 2, 2);
    invalid.metadata.annotations.insert(MAX_REPLICAS.to_owned(), "x".to_owned());
    let new = Some(Arc::new(replica_set("new", "any", 2, 2, 2)));
    let split = ReplicaSetSplit { new, old: vec![Arc::new(invalid.clone())] };
    let view = view_of(deployment(10));
    let mut plan = PlanBuilder::new(&view, &[], Time::from_unix(START).timestamp());
    scale(&mut plan, &split).unwrap();
    let (_, notices) = plan.into_parts();
    assert_eq!(notices, [Notice::InvalidAnnotation(max_replicas(&invalid).unwrap_err())]);
}
