use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    annotations::MAX_REPLICAS,
    fixtures::{count, replica_set, rolling},
    sort,
};

fn sized(size: i32, max: Option<&str>) -> ReplicaSet {
    let mut set = replica_set("rs", size);
    set.metadata.annotations.extend(max.map(|text| (MAX_REPLICAS.to_owned(), text.to_owned())));
    set
}

fn rollout(replicas: i32, surge: i32, status: i32) -> Deployment {
    let mut d = rolling(replicas, count(surge), count(1));
    d.status.replicas = status;
    d
}

/// `TestGetReplicaSetFraction`, all nine. The annotation that "is missing" was removed by somebody else.
#[test]
fn get_replica_set_fraction_all_cases_as_upstream() {
    let cases = [
        ("empty deployment always scales to 0", rollout(0, 0, 0), sized(10, None), -10),
        (
            "unsynced deployment does not scale when max-replicas annotation is missing",
            rollout(10, 0, 0),
            sized(5, None),
            0,
        ),
        (
            "unsynced deployment does not scale when max-replicas annotation is incorrectly set to 0",
            rollout(10, 0, 0),
            sized(5, Some("0")),
            0,
        ),
        (
            "scale up by 1/5 when max-replicas annotation is missing",
            rollout(120, 0, 100),
            sized(50, None),
            10,
        ),
        (
            "scale up by 1/5 when max-replicas annotation is incorrectly set to 0",
            rollout(120, 0, 100),
            sized(50, Some("0")),
            10,
        ),
        (
            "scale up by 1/5 should increase RS replicas by 1/5",
            rollout(120, 0, 0),
            sized(50, Some("100")),
            10,
        ),
        (
            "scale up with maxSurge by 1/5 should increase RS replicas approximately by 1/5",
            rollout(120, 10, 0),
            sized(50, Some("110")),
            9,
        ),
        ("scale down by 1/6 should decrease RS replicas by 1/6", rollout(10, 0, 0), sized(6, Some("12")), -1),
        (
            "scale down with maxSurge by 1/6 should decrease RS replicas approximately by 1/6",
            rollout(100, 10, 0),
            sized(50, Some("130")),
            -8,
        ),
    ];
    for (name, d, set, fraction) in cases {
        assert_eq!(replica_set_fraction(&set, &d), fraction, "{name}");
    }
}

#[test]
fn proportion_of_nothing_or_with_nothing_left_is_zero() {
    let d = rollout(20, 0, 10);
    assert_eq!(replica_set_proportion(&sized(0, Some("10")), &d, 10, 0), 0);
    assert_eq!(replica_set_proportion(&sized(5, Some("10")), &d, 0, 0), 0);
    assert_eq!(replica_set_proportion(&sized(5, Some("10")), &d, 5, 5), 0);
    assert_eq!(replica_set_proportion(&sized(5, Some("10")), &d, 10, 7), 3, "no more than is left");
}

#[test]
fn product_beyond_i32_wraps_as_upstream() {
    // 70,000 × 70,000 is 605,032,704 modulo 2³².
    assert_eq!(replica_set_fraction(&sized(70_000, Some("70000")), &rollout(70_000, 0, 0)), 8643 - 70_000);
}

#[test]
fn rounding_takes_halves_away_from_zero() {
    assert_eq!(round_half_away_from_zero(2.5), 3);
    assert_eq!(round_half_away_from_zero(-2.5), -3);
    assert_eq!(round_half_away_from_zero(2.4), 2);
    assert_eq!(round_half_away_from_zero(f64::from(i32::MAX)), i32::MAX);
    assert_eq!(round_half_away_from_zero(f64::from(i32::MIN)), i32::MIN);
}

/// The sizes of `TestScale`'s proportional cases, each with its surge; the sets from newest to oldest.
#[test]
fn proportional_sizes_of_scale_all_cases_as_upstream() {
    let of = |before: i32, after: i32, surge: (i32, i32), sizes: &[i32]| {
        let d = rollout(after, surge.1, before);
        let note = (before + surge.0).to_string();
        let mut sets: Vec<Arc<ReplicaSet>> = sizes
            .iter()
            .enumerate()
            .map(|(i, size)| {
                let mut set = sized(*size, Some(&note));
                // The first is the newest.
                set.metadata.creation_timestamp =
                    Some(kcm_api::Time::from_unix(1000 - i64::try_from(i).unwrap()));
                set.metadata.name = format!("rs-{i}").into();
                Arc::new(set)
            })
            .filter(|set| set.replicas() > 0)
            .collect();
        let to_add = after + surge.1 - sets.iter().map(|set| set.replicas()).sum::<i32>();
        if to_add > 0 {
            sets.sort_by(|a, b| sort::size_newer_order(a, b));
        } else {
            sets.sort_by(|a, b| sort::size_older_order(a, b));
        }
        let new = proportional_sizes(&d, sets.iter().map(|set| &**set), to_add);
        let mut by_name: Vec<_> = sets.iter().map(|set| set.metadata.name.to_string()).zip(new).collect();
        by_name.sort();
        by_name.into_iter().map(|(_, size)| size).collect::<Vec<_>>()
    };
    assert_eq!(of(5, 10, (0, 0), &[2, 3]), [4, 6]);
    assert_eq!(of(5, 3, (0, 0), &[2, 3]), [1, 2]);
    assert_eq!(of(9, 4, (0, 0), &[8, 1]), [4, 0]);
    assert_eq!(of(7, 10, (0, 0), &[2, 3, 2]), [3, 4, 3]);
    assert_eq!(of(13, 8, (0, 0), &[2, 8, 3]), [1, 5, 2]);
    assert_eq!(of(3, 4, (0, 0), &[1, 1, 1]), [2, 1, 1]);
    assert_eq!(of(3, 2, (0, 0), &[1, 1, 1]), [1, 1, 0]);
    assert_eq!(of(4, 5, (0, 0), &[2, 2]), [3, 2]);
    assert_eq!(of(10, 20, (2, 2), &[6, 6]), [11, 11]);
    assert_eq!(of(10, 50, (3, 6), &[5, 8]), [22, 34]);
    assert_eq!(of(10, 14, (0, 0), &[7, 3]), [10, 4]);
}

proptest! {
    /// All that is to be added is added, and all that is to go goes as far as there is something to take.
    #[test]
    fn proportional_sizes_add_up(
        sizes in prop::collection::vec(1_i32..500, 1..8), after in 1_i32..3000, noted in 0_i32..3000, surge in 0_i32..50,
    ) {
        let total: i32 = sizes.iter().sum();
        let d = rollout(after, surge, total);
        let to_add = after + surge - total;
        // A ReplicaSet that shrinks was noted with a larger size: a smaller one would make it grow.
        let noted = if to_add < 0 { noted.max(after + surge) } else { noted };
        let sets: Vec<_> = sizes.iter().map(|size| sized(*size, Some(&noted.to_string()))).collect();
        let new = proportional_sizes(&d, &sets, to_add);
        prop_assert!(new.iter().all(|size| *size >= 0), "{new:?}");
        let sum: i32 = new.iter().sum();
        if to_add >= 0 {
            prop_assert_eq!(sum, after + surge);
        } else {
            // The first cannot give more than it has.
            prop_assert!(sum >= after + surge && sum <= total, "{} of {}", sum, after + surge);
        }
    }

    /// No numbers, however absurd, end in a panic.
    #[test]
    fn proportional_sizes_of_anything_do_not_panic(
        sizes in prop::collection::vec(any::<i32>(), 0..5), after: i32, noted: i32, surge: i32, status: i32, to_add: i32,
    ) {
        let d = rollout(after, surge, status);
        let sets: Vec<_> = sizes.iter().map(|size| sized(*size, Some(&noted.to_string()))).collect();
        prop_assert_eq!(proportional_sizes(&d, &sets, to_add).len(), sets.len());
    }
}
