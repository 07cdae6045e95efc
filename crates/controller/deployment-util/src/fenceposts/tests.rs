use proptest::prelude::*;

use super::*;
use crate::fixtures::{count, deployment, percent, recreate, rolling};

/// `TestResolveFenceposts`. Upstream does not name the cases.
#[test]
fn resolve_fenceposts_upstream_cases() {
    struct Case {
        name: &'static str,
        max_surge: Option<&'static str>,
        max_unavailable: Option<&'static str>,
        desired: i32,
        expected: Option<(i32, i32)>,
    }
    let cases = [
        Case {
            name: "0% and 0% of 0 replicas",
            max_surge: Some("0%"),
            max_unavailable: Some("0%"),
            desired: 0,
            expected: Some((0, 1)),
        },
        Case {
            name: "39% and 39%",
            max_surge: Some("39%"),
            max_unavailable: Some("39%"),
            desired: 10,
            expected: Some((4, 3)),
        },
        Case {
            name: "invalid surge",
            max_surge: Some("oops"),
            max_unavailable: Some("39%"),
            desired: 10,
            expected: None,
        },
        Case {
            name: "invalid unavailability",
            max_surge: Some("55%"),
            max_unavailable: Some("urg"),
            desired: 10,
            expected: None,
        },
        Case {
            name: "no surge and 39%",
            max_surge: None,
            max_unavailable: Some("39%"),
            desired: 10,
            expected: Some((0, 3)),
        },
        Case {
            name: "39% and no unavailability",
            max_surge: Some("39%"),
            max_unavailable: None,
            desired: 10,
            expected: Some((4, 0)),
        },
        Case { name: "neither", max_surge: None, max_unavailable: None, desired: 10, expected: Some((0, 1)) },
    ];
    let value = |text: &str| IntOrString::String(text.to_owned());
    for case in cases {
        let (surge, unavailable) = (case.max_surge.map(value), case.max_unavailable.map(value));
        let resolved = resolve_fenceposts(surge.as_ref(), unavailable.as_ref(), case.desired);
        assert_eq!(resolved.ok(), case.expected, "{}", case.name);
    }
}

mod new_rs_new_replicas {
    use super::{super::new_rs_new_replicas, *};

    /// `TestNewRSNewReplicas`. The only other ReplicaSet has 5 replicas, and the new one is not in the total.
    #[test]
    fn upstream_cases() {
        struct Case {
            name: &'static str,
            deployment: Deployment,
            new_rs_replicas: i32,
            expected: i32,
        }
        let cases = [
            Case {
                name: "can not scale up - to newRSReplicas",
                deployment: rolling(1, count(1), count(1)),
                new_rs_replicas: 5,
                expected: 5,
            },
            Case {
                name: "scale up - to depReplicas",
                deployment: rolling(6, count(10), count(1)),
                new_rs_replicas: 2,
                expected: 6,
            },
            Case {
                name: "recreate - to depReplicas",
                deployment: recreate(3),
                new_rs_replicas: 1,
                expected: 3,
            },
        ];
        for Case { name, deployment, new_rs_replicas, expected } in cases {
            assert_eq!(new_rs_new_replicas(&deployment, new_rs_replicas, 5), Ok(expected), "{name}");
        }
    }

    #[test]
    fn documented_example() {
        assert_eq!(new_rs_new_replicas(&rolling(10, count(3), count(2)), 3, 11), Ok(5));
    }

    #[test]
    fn unknown_strategy_is_an_error() {
        let mut d = deployment(3);
        d.spec.strategy.type_ = "BlueGreen".to_owned();
        let error = new_rs_new_replicas(&d, 1, 1).unwrap_err();
        assert_eq!(error.to_string(), "deployment type BlueGreen isn't supported");
    }

    #[test]
    fn missing_rolling_update_block_is_an_error() {
        let mut d = deployment(3);
        d.spec.strategy.type_ = ROLLING_UPDATE.to_owned();
        d.spec.strategy.rolling_update = None;
        assert_eq!(new_rs_new_replicas(&d, 1, 1), Err(StrategyError::MissingMaxSurge));
        assert_eq!((max_surge(&d), max_unavailable(&d)), (0, 1));
    }
}

/// `TestMaxUnavailable`.
#[test]
fn max_unavailable_upstream_cases() {
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

/// `TestMinAvailable`.
#[test]
fn min_available_upstream_cases() {
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
fn recreate_is_available_if_all_pods_are() {
    assert_eq!(availability_threshold(&recreate(10)), 10);
}

#[test]
fn max_surge_may_exceed_replicas() {
    assert_eq!(max_surge(&rolling(2, count(10), count(0))), 10);
    assert_eq!(max_surge(&rolling(0, count(3), count(0))), 3);
    assert_eq!(max_surge(&recreate(2)), 0);
}

proptest! {
    /// At least one bound of a rolling update is positive, and `maxUnavailable` is at most `replicas`.
    #[test]
    fn bounds_permit_progress(replicas in 1_i32..10_000, surge in 0_i64..300, unavailable in 0_i64..=100) {
        let d = rolling(replicas, percent(surge), percent(unavailable));
        let (surge, unavailable) = (max_surge(&d), max_unavailable(&d));
        prop_assert!(surge > 0 || unavailable > 0);
        prop_assert!((0..=replicas).contains(&unavailable));
        prop_assert_eq!(min_available(&d), replicas - unavailable);
    }

    /// The new ReplicaSet never shrinks, and exceeds neither `replicas` nor the surge bound.
    #[test]
    fn new_replica_set_grows_within_bounds(
        replicas in 0_i32..500, surge in 0_i32..100, size in 0_i32..500, old in 0_i32..800,
    ) {
        let size = size.min(replicas);
        let d = rolling(replicas, count(surge), count(1));
        let grown = new_rs_new_replicas(&d, size, size + old).unwrap();
        prop_assert!((size..=replicas).contains(&grown));
        prop_assert!(grown == size || grown + old <= replicas + surge);
    }

    #[test]
    fn arbitrary_input_does_not_panic(
        replicas: i32, surge: i32, unavailable: i32, new: i32, total: i32, percentage: i64,
    ) {
        for d in [
            rolling(replicas, count(surge), count(unavailable)),
            rolling(replicas, percent(percentage), percent(percentage)),
        ] {
            let _ = (max_total_replicas(&d), max_unavailable(&d), min_available(&d));
            let _ = new_rs_new_replicas(&d, new, total);
        }
    }
}
