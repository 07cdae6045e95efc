use std::collections::{BTreeMap, BTreeSet};

use kcm_api::{IntOrString, Time};

use super::*;
use crate::{
    Action, View,
    testing::{START, decide, deployment, replica_set, set_strategy},
};

/// One case of `TestScale`. Sizes go from the newest ReplicaSet to the oldest.
struct Case {
    name: &'static str,
    /// The Deployment's size before and after, and likewise its surge.
    replicas: (i32, i32),
    surge: (i32, i32),
    unavailable: i32,
    new: Option<i32>,
    old: &'static [i32],
    expected: &'static [i32],
    /// Which are written, where that is not all that change.
    unwritten: &'static [usize],
    /// A ReplicaSet that was noted for another size than the others.
    noted: Option<(usize, i32)>,
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
    noted: None,
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
        let (_, noted) = case.noted.filter(|(which, _)| *which == at).unwrap_or((at, case.replicas.0));
        set_replicas_annotations(&mut set.metadata.annotations, noted, noted + case.surge.0);
        sets.push(Arc::new(set));
    }
    let mut roles = ReplicaSetSplit { new: None, old: sets };
    if case.new.is_some() {
        roles.new = Some(roles.old.remove(0));
    }
    roles.old.reverse();

    let view = View {
        deployment: Arc::new(d),
        replica_sets: Vec::new(),
        running: BTreeSet::new(),
        terminating_replicas: true,
    };
    let (outcome, actions) = decide(&view, |pass| scale(pass, &roles));
    outcome.unwrap();
    let mut after: BTreeMap<String, i32> =
        roles.all().map(|set| (set.metadata.name.to_string(), set.replicas())).collect();
    for planned in &actions {
        if let Action::UpdateReplicaSet(set) = &planned.action {
            after.insert(set.metadata.name.to_string(), set.replicas());
            let written = case.unwritten.iter().all(|at| *set.metadata.name != *format!("rs-{at}"));
            assert!(written, "{name}: {planned}");
        }
    }
    assert_eq!(after.into_values().collect::<Vec<_>>(), case.expected, "{name}");
}

/// `TestScale`, all seventeen.
#[test]
fn scale_all_cases_as_upstream() {
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
            noted: Some((1, 3)),
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

/// US-9.9: a size that is right already leaves its notes out of date, unless it is one of several.
#[test]
fn scale_of_a_single_set_of_the_right_size_leaves_its_notes() {
    check(&Case { name: "notes", replicas: (3, 5), new: Some(5), expected: &[5], unwritten: &[0], ..CASE });
}

#[test]
fn scale_with_a_saturated_new_set_takes_the_rest_down_from_the_newest() {
    let roles = ReplicaSetSplit {
        new: Some(Arc::new({
            let mut set = replica_set("new", "any", 9, 3, 3);
            set_replicas_annotations(&mut set.metadata.annotations, 3, 4);
            set
        })),
        old: vec![Arc::new(replica_set("a", "any", 1, 2, 2)), Arc::new(replica_set("b", "any", 2, 1, 1))],
    };
    let view = View {
        deployment: Arc::new(deployment(3)),
        replica_sets: Vec::new(),
        running: BTreeSet::new(),
        terminating_replicas: true,
    };
    let (_, actions) = decide(&view, |pass| scale(pass, &roles));
    let updates: Vec<String> = actions.iter().map(|planned| planned.action.to_string()).collect();
    assert_eq!(
        updates.iter().filter(|text| text.starts_with("update")).collect::<Vec<_>>(),
        ["update replica set b to 0 replicas", "update replica set a to 0 replicas"]
    );
}
