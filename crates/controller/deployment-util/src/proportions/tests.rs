use proptest::prelude::*;

use super::*;
use crate::{
    annotations::MAX_REPLICAS,
    fixtures::{count, replica_set, rolling},
    sort,
};

fn sized(size: i32, max_replicas: Option<&str>) -> Arc<ReplicaSet> {
    let mut set = replica_set("rs", size);
    set.metadata.annotations.extend(max_replicas.map(|text| (MAX_REPLICAS.to_owned(), text.to_owned())));
    Arc::new(set)
}

fn rollout(replicas: i32, max_surge: i32, status_replicas: i32) -> Deployment {
    let mut d = rolling(replicas, count(max_surge), count(1));
    d.status.replicas = status_replicas;
    d
}

/// `TestGetReplicaSetFraction`.
#[test]
fn replica_set_fraction_upstream_cases() {
    struct Case {
        name: &'static str,
        replicas: i32,
        max_surge: i32,
        status_replicas: i32,
        size: i32,
        max_replicas: Option<&'static str>,
        fraction: i32,
    }
    let cases = [
        Case {
            name: "empty deployment always scales to 0",
            replicas: 0,
            max_surge: 0,
            status_replicas: 0,
            size: 10,
            max_replicas: None,
            fraction: -10,
        },
        Case {
            name: "unsynced deployment does not scale when max-replicas annotation is missing",
            replicas: 10,
            max_surge: 0,
            status_replicas: 0,
            size: 5,
            max_replicas: None,
            fraction: 0,
        },
        Case {
            name: "unsynced deployment does not scale when max-replicas annotation is incorrectly set to 0",
            replicas: 10,
            max_surge: 0,
            status_replicas: 0,
            size: 5,
            max_replicas: Some("0"),
            fraction: 0,
        },
        Case {
            name: "scale up by 1/5 when max-replicas annotation is missing",
            replicas: 120,
            max_surge: 0,
            status_replicas: 100,
            size: 50,
            max_replicas: None,
            fraction: 10,
        },
        Case {
            name: "scale up by 1/5 when max-replicas annotation is incorrectly set to 0",
            replicas: 120,
            max_surge: 0,
            status_replicas: 100,
            size: 50,
            max_replicas: Some("0"),
            fraction: 10,
        },
        Case {
            name: "scale up by 1/5 should increase RS replicas by 1/5",
            replicas: 120,
            max_surge: 0,
            status_replicas: 0,
            size: 50,
            max_replicas: Some("100"),
            fraction: 10,
        },
        Case {
            name: "scale up with maxSurge by 1/5 should increase RS replicas approximately by 1/5",
            replicas: 120,
            max_surge: 10,
            status_replicas: 0,
            size: 50,
            max_replicas: Some("110"),
            fraction: 9,
        },
        Case {
            name: "scale down by 1/6 should decrease RS replicas by 1/6",
            replicas: 10,
            max_surge: 0,
            status_replicas: 0,
            size: 6,
            max_replicas: Some("12"),
            fraction: -1,
        },
        Case {
            name: "scale down with maxSurge by 1/6 should decrease RS replicas approximately by 1/6",
            replicas: 100,
            max_surge: 10,
            status_replicas: 0,
            size: 50,
            max_replicas: Some("130"),
            fraction: -8,
        },
    ];
    for case in cases {
        let d = rollout(case.replicas, case.max_surge, case.status_replicas);
        let set = sized(case.size, case.max_replicas);
        assert_eq!(replica_set_fraction(&set, &d).0, case.fraction, "{}", case.name);
    }
}

#[test]
fn product_wraps_as_upstream() {
    // 70,000 * 70,000 is 605,032,704 modulo 2^32, and 605,032,704 / 70,000 is 8643.3.
    let fraction = replica_set_fraction(&sized(70_000, Some("70000")), &rollout(70_000, 0, 0));
    assert_eq!(fraction.0, 8643 - 70_000);
}

mod proportion {
    use super::*;

    /// Proportion of a ReplicaSet with `size` of 10 pods.
    fn proportion(size: i32, replicas_to_add: i32, replicas_added: i32) -> i32 {
        let set = sized(size, Some("10"));
        replica_set_proportion(&set, &rollout(20, 0, 10), Wrapping(replicas_to_add), Wrapping(replicas_added))
            .0
    }

    #[test]
    fn is_zero_without_pods_or_change() {
        assert_eq!(proportion(0, 10, 0), 0);
        assert_eq!(proportion(5, 0, 0), 0);
        assert_eq!(proportion(5, 5, 5), 0);
    }

    #[test]
    fn is_limited_to_the_remaining_change() {
        assert_eq!(proportion(5, 10, 7), 3);
    }
}

#[test]
fn halves_are_rounded_away_from_zero() {
    assert_eq!(round_to_i32(2.5), 3);
    assert_eq!(round_to_i32(-2.5), -3);
    assert_eq!(round_to_i32(2.4), 2);
    assert_eq!(round_to_i32(f64::from(i32::MAX)), i32::MAX);
    assert_eq!(round_to_i32(f64::from(i32::MIN)), i32::MIN);
}

mod sizes {
    use super::*;

    /// A Deployment that is scaled during a rollout. Sizes are listed from the newest ReplicaSet to the oldest.
    struct Case {
        from: i32,
        to: i32,
        old_max_surge: i32,
        max_surge: i32,
        sizes: &'static [i32],
        expected: &'static [i32],
    }

    fn check(case: &Case) {
        let d = rollout(case.to, case.max_surge, case.from);
        let max_replicas = (case.from + case.old_max_surge).to_string();
        let mut created = 1000;
        let mut sets: Vec<Arc<ReplicaSet>> = Vec::new();
        for (position, size) in case.sizes.iter().enumerate() {
            let mut set = sized(*size, Some(&max_replicas));
            let metadata = &mut Arc::make_mut(&mut set).metadata;
            metadata.creation_timestamp = Some(kcm_api::Time::from_unix(created));
            metadata.name = format!("rs-{position}").into();
            created -= 1;
            sets.push(set);
        }
        let replicas_to_add = case.to + case.max_surge - sets.iter().map(|set| set.replicas()).sum::<i32>();
        if replicas_to_add > 0 {
            sets.sort_by(|a, b| sort::size_newer_order(a, b));
        } else {
            sets.sort_by(|a, b| sort::size_older_order(a, b));
        }
        let sizes = proportional_sizes(&d, &sets, replicas_to_add);
        let mut by_name: Vec<_> = sets.iter().map(|set| set.metadata.name.to_string()).zip(sizes).collect();
        by_name.sort();
        let sizes: Vec<_> = by_name.into_iter().map(|(_, size)| size).collect();
        assert_eq!(sizes, case.expected, "{} -> {}", case.from, case.to);
    }

    const CASE: Case = Case { from: 0, to: 0, old_max_surge: 0, max_surge: 0, sizes: &[], expected: &[] };

    /// Sizes of the proportional cases of `TestScale`.
    #[test]
    fn upstream_cases() {
        let cases = [
            Case { from: 5, to: 10, sizes: &[2, 3], expected: &[4, 6], ..CASE },
            Case { from: 5, to: 3, sizes: &[2, 3], expected: &[1, 2], ..CASE },
            Case { from: 9, to: 4, sizes: &[8, 1], expected: &[4, 0], ..CASE },
            Case { from: 7, to: 10, sizes: &[2, 3, 2], expected: &[3, 4, 3], ..CASE },
            Case { from: 13, to: 8, sizes: &[2, 8, 3], expected: &[1, 5, 2], ..CASE },
            Case { from: 3, to: 4, sizes: &[1, 1, 1], expected: &[2, 1, 1], ..CASE },
            Case { from: 3, to: 2, sizes: &[1, 1, 1], expected: &[1, 1, 0], ..CASE },
            Case { from: 4, to: 5, sizes: &[2, 2], expected: &[3, 2], ..CASE },
            Case { from: 10, to: 14, sizes: &[7, 3], expected: &[10, 4], ..CASE },
            Case { from: 10, to: 20, old_max_surge: 2, max_surge: 2, sizes: &[6, 6], expected: &[11, 11] },
            Case { from: 10, to: 50, old_max_surge: 3, max_surge: 6, sizes: &[5, 8], expected: &[22, 34] },
        ];
        cases.iter().for_each(check);
    }

    #[test]
    fn documented_example() {
        check(&Case {
            from: 10,
            to: 30,
            old_max_surge: 3,
            max_surge: 3,
            sizes: &[8, 5],
            expected: &[20, 13],
        });
    }
}

proptest! {
    #[test]
    fn changes_add_up(
        sizes in prop::collection::vec(1_i32..500, 1..8),
        replicas in 1_i32..3000,
        max_replicas in 0_i32..3000,
        max_surge in 0_i32..50,
    ) {
        let total: i32 = sizes.iter().sum();
        let d = rollout(replicas, max_surge, total);
        let replicas_to_add = replicas + max_surge - total;
        // A smaller annotation would let a ReplicaSet grow while others shrink.
        let max_replicas =
            if replicas_to_add < 0 { max_replicas.max(replicas + max_surge) } else { max_replicas };
        let sets: Vec<_> = sizes.iter().map(|size| sized(*size, Some(&max_replicas.to_string()))).collect();
        let new = proportional_sizes(&d, &sets, replicas_to_add);
        prop_assert!(new.iter().all(|size| *size >= 0), "{new:?}");
        let sum: i32 = new.iter().sum();
        if replicas_to_add >= 0 {
            prop_assert_eq!(sum, replicas + max_surge);
        } else {
            // The first ReplicaSet cannot shrink below 0.
            prop_assert!(sum >= replicas + max_surge && sum <= total, "{} of {}", sum, replicas + max_surge);
        }
    }

    #[test]
    fn arbitrary_input_does_not_panic(
        sizes in prop::collection::vec(any::<i32>(), 0..5),
        replicas: i32,
        max_replicas: i32,
        max_surge: i32,
        status_replicas: i32,
        replicas_to_add: i32,
    ) {
        let d = rollout(replicas, max_surge, status_replicas);
        let sets: Vec<_> = sizes.iter().map(|size| sized(*size, Some(&max_replicas.to_string()))).collect();
        prop_assert_eq!(proportional_sizes(&d, &sets, replicas_to_add).len(), sets.len());
    }
}
