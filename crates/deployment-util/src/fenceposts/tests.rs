use proptest::prelude::*;

use super::*;
use crate::fixtures::{count, deployment, percent, recreate, replica_set, rolling};

/// `TestResolveFenceposts`, all six.
#[test]
fn resolve_fenceposts_all_cases_as_upstream() {
    let of = |surge: Option<&str>, unavailable: Option<&str>, desired| {
        let value = |text: &str| IntOrString::String(text.to_owned());
        resolve_fenceposts(surge.map(value).as_ref(), unavailable.map(value).as_ref(), desired).ok()
    };
    assert_eq!(of(Some("0%"), Some("0%"), 0), Some((0, 1)));
    assert_eq!(of(Some("39%"), Some("39%"), 10), Some((4, 3)));
    assert_eq!(of(Some("oops"), Some("39%"), 10), None);
    assert_eq!(of(Some("55%"), Some("urg"), 10), None);
    assert_eq!(of(None, Some("39%"), 10), Some((0, 3)));
    assert_eq!(of(Some("39%"), None, 10), Some((4, 0)));
    assert_eq!(of(None, None, 10), Some((0, 1)));
}

/// `TestNewRSNewReplicas`, all three: the other ReplicaSet has five pods.
#[test]
fn new_rs_new_replicas_all_cases_as_upstream() {
    let of = |d: &Deployment, size| {
        let (new, other) = (replica_set("new", size), replica_set("other", 5));
        new_rs_new_replicas(d, [&new, &other], &new)
    };
    assert_eq!(of(&rolling(1, count(1), count(0)), 5), Ok(5), "can not scale up: to all replicas");
    assert_eq!(of(&rolling(6, count(10), count(0)), 2), Ok(6), "scale up: to all replicas");
    assert_eq!(of(&recreate(3), 1), Ok(3), "recreate: to its size");
}

#[test]
fn new_rs_new_replicas_with_a_strategy_nobody_knows_or_no_surge_is_an_error() {
    let new = replica_set("new", 1);
    let mut d = deployment(3);
    d.spec.strategy.type_ = "BlueGreen".to_owned();
    let error = new_rs_new_replicas(&d, [&new], &new).unwrap_err();
    assert_eq!(error.to_string(), "deployment type BlueGreen isn't supported");
    d.spec.strategy.type_ = ROLLING_UPDATE.to_owned();
    d.spec.strategy.rolling_update = None;
    assert_eq!(new_rs_new_replicas(&d, [&new], &new), Err(StrategyError::NoSurge));
    assert_eq!((max_surge(&d), max_unavailable(&d)), (0, 1));
}

/// `TestMaxUnavailable`, all eight.
#[test]
fn max_unavailable_all_cases_as_upstream() {
    let of = |replicas, unavailable| max_unavailable(&rolling(replicas, count(1), unavailable));
    assert_eq!(of(10, count(5)), 5, "less than replicas");
    assert_eq!(of(10, count(10)), 10, "equal to replicas");
    assert_eq!(of(5, count(10)), 5, "greater than replicas");
    assert_eq!(of(0, count(10)), 0, "replicas is 0");
    assert_eq!(max_unavailable(&recreate(5)), 0, "with Recreate");
    assert_eq!(of(10, percent(50)), 5, "percentage, less than replicas");
    assert_eq!(of(10, percent(100)), 10, "percentage, equal to replicas");
    assert_eq!(of(5, percent(100)), 5, "percentage, greater than replicas");
}

/// `TestMinAvailable`, all eight.
#[test]
fn min_available_all_cases_as_upstream() {
    let of = |replicas, unavailable| min_available(&rolling(replicas, count(1), unavailable));
    assert_eq!(of(10, count(5)), 5, "less than replicas");
    assert_eq!(of(10, count(10)), 0, "equal to replicas");
    assert_eq!(of(5, count(10)), 0, "greater than replicas");
    assert_eq!(of(0, count(10)), 0, "replicas is 0");
    assert_eq!(min_available(&recreate(10)), 0, "with Recreate");
    assert_eq!(of(10, percent(60)), 4, "percentage, less than replicas");
    assert_eq!(of(10, percent(100)), 0, "percentage, equal to replicas");
    assert_eq!(of(5, percent(100)), 0, "percentage, greater than replicas");
}

#[test]
fn max_surge_is_not_capped_and_resolved_for_no_replicas_too() {
    assert_eq!(max_surge(&rolling(2, count(10), count(0))), 10);
    assert_eq!(max_surge(&rolling(0, count(3), count(0))), 3);
    assert_eq!(max_surge(&recreate(2)), 0);
}

proptest! {
    /// A rolling update can always move, and never asks for more missing pods than are wanted.
    #[test]
    fn bounds_of_a_rolling_update_leave_room(replicas in 1_i32..10_000, surge in 0_i64..300, missing in 0_i64..=100) {
        let d = rolling(replicas, percent(surge), percent(missing));
        let (up, down) = (max_surge(&d), max_unavailable(&d));
        prop_assert!(up > 0 || down > 0);
        prop_assert!((0..=replicas).contains(&down));
        prop_assert_eq!(min_available(&d), replicas - down);
    }

    /// The new ReplicaSet never grows past the size wanted, nor all together past the surge; it never shrinks.
    #[test]
    fn new_replica_set_grows_within_bounds(
        replicas in 0_i32..500, surge in 0_i32..100, size in 0_i32..500, others in 0_i32..800,
    ) {
        let size = size.min(replicas);
        let d = rolling(replicas, count(surge), count(1));
        let (new, old) = (replica_set("new", size), replica_set("old", others));
        let grown = new_rs_new_replicas(&d, [&new, &old], &new).unwrap();
        prop_assert!((size..=replicas).contains(&grown));
        prop_assert!(grown == size || grown + others <= replicas + surge);
    }

    /// No numbers, however absurd, end in a panic.
    #[test]
    fn bounds_of_anything_do_not_panic(replicas: i32, surge: i32, missing: i32, a: i32, b: i32, share: i64) {
        for d in [rolling(replicas, count(surge), count(missing)), rolling(replicas, percent(share), percent(share))] {
            let (new, old) = (replica_set("new", a), replica_set("old", b));
            let _ = (max_surge(&d), max_unavailable(&d), min_available(&d));
            let _ = new_rs_new_replicas(&d, [&new, &old], &new);
        }
    }
}
