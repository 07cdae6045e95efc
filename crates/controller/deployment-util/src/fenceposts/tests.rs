use proptest::prelude::*;

use super::*;
use crate::fixtures::{count, deployment, percent, recreate, replica_set, rolling};

/// `TestResolveFenceposts`, all seven; upstream only numbers them.
#[test]
fn resolve_fenceposts_all_cases_as_upstream() {
    let value = |text: &str| IntOrString::String(text.to_owned());
    let cases = [
        ("0% and 0% of no replicas", Some("0%"), Some("0%"), 0, Some((0, 1))),
        ("39% and 39%", Some("39%"), Some("39%"), 10, Some((4, 3))),
        ("a surge that is no number", Some("oops"), Some("39%"), 10, None),
        ("an unavailability that is no number", Some("55%"), Some("urg"), 10, None),
        ("no surge and 39%", None, Some("39%"), 10, Some((0, 3))),
        ("39% and no unavailability", Some("39%"), None, 10, Some((4, 0))),
        ("neither", None, None, 10, Some((0, 1))),
    ];
    for (name, surge, unavailable, desired, expected) in cases {
        let (surge, unavailable) = (surge.map(value), unavailable.map(value));
        let resolved = resolve_fenceposts(surge.as_ref(), unavailable.as_ref(), desired);
        assert_eq!(resolved.ok(), expected, "{name}");
    }
}

/// `TestNewRSNewReplicas`, all three: the other ReplicaSet has five pods.
#[test]
fn new_rs_new_replicas_all_cases_as_upstream() {
    let cases = [
        ("can not scale up - to newRSReplicas", rolling(1, count(1), count(1)), 5, 5),
        ("scale up - to depReplicas", rolling(6, count(10), count(1)), 2, 6),
        ("recreate - to depReplicas", recreate(3), 1, 3),
    ];
    for (name, d, size, expected) in cases {
        let (new, other) = (replica_set("new", size), replica_set("other", 5));
        assert_eq!(new_rs_new_replicas(&d, [&other], &new), Ok(expected), "{name}");
    }
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
    let of = |replicas, unavailable| rolling(replicas, count(1), unavailable);
    let cases = [
        ("maxUnavailable less than replicas", of(10, count(5)), 5),
        ("maxUnavailable equal replicas", of(10, count(10)), 10),
        ("maxUnavailable greater than replicas", of(5, count(10)), 5),
        ("maxUnavailable with replicas is 0", of(0, count(10)), 0),
        ("maxUnavailable with Recreate deployment strategy", recreate(1), 0),
        ("maxUnavailable less than replicas with percents", of(10, percent(50)), 5),
        ("maxUnavailable equal replicas with percents", of(10, percent(100)), 10),
        ("maxUnavailable greater than replicas with percents", of(5, percent(100)), 5),
    ];
    for (name, d, expected) in cases {
        assert_eq!(max_unavailable(&d), expected, "{name}");
    }
}

/// `TestMinAvailable`, all eight.
#[test]
fn min_available_all_cases_as_upstream() {
    let of = |replicas, unavailable| rolling(replicas, count(1), unavailable);
    let cases = [
        ("replicas greater than maxUnavailable", of(10, count(5)), 5),
        ("replicas equal maxUnavailable", of(10, count(10)), 0),
        ("replicas less than maxUnavailable", of(5, count(10)), 0),
        ("replicas is 0", of(0, count(10)), 0),
        ("minAvailable with Recreate deployment strategy", recreate(10), 0),
        ("replicas greater than maxUnavailable with percents", of(10, percent(60)), 4),
        ("replicas equal maxUnavailable with percents", of(10, percent(100)), 0),
        ("replicas less than maxUnavailable with percents", of(5, percent(100)), 0),
    ];
    for (name, d, expected) in cases {
        assert_eq!(min_available(&d), expected, "{name}");
    }
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
