use std::thread;

use kcm_clock::{FakeClock, Timestamp};
use proptest::prelude::*;

use super::*;

const RS: &str = "shop/web-1";

fn expectations() -> (FakeClock, ControllerExpectations<&'static str>) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let expectations = ControllerExpectations::new(Arc::new(clock.clone()));
    (clock, expectations)
}

#[test]
fn satisfied_without_expectations() {
    let (_clock, expectations) = expectations();
    assert!(expectations.satisfied(&RS));
    assert_eq!(expectations.get(&RS), None);
}

#[test]
fn satisfied_after_all_creations() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 2);
    assert!(!expectations.satisfied(&RS));
    expectations.creation_observed(&RS);
    assert!(!expectations.satisfied(&RS));
    expectations.creation_observed(&RS);
    assert!(expectations.satisfied(&RS));
    assert_eq!(expectations.get(&RS), Some((0, 0)), "the note is kept");
}

#[test]
fn satisfied_after_all_deletions() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, 1);
    expectations.creation_observed(&RS);
    assert!(!expectations.satisfied(&RS), "a creation is no deletion");
    expectations.deletion_observed(&RS);
    assert!(expectations.satisfied(&RS));
}

#[test]
fn keys_are_independent() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&"a", 1);
    expectations.expect_creations(&"b", 1);
    expectations.creation_observed(&"a");
    assert!(expectations.satisfied(&"a"));
    assert!(!expectations.satisfied(&"b"));
    assert_eq!(expectations.records.len(), 2);
}

#[test]
fn observation_without_expectations_has_no_effect() {
    let (_clock, expectations) = expectations();
    expectations.creation_observed(&RS);
    expectations.deletion_observed(&RS);
    expectations.lower(&RS, 3, 3);
    expectations.raise(&RS, 3, 3);
    assert_eq!(expectations.get(&RS), None);
    assert!(expectations.records.is_empty());
}

/// Upstream: TestControllerExpectations, negative allowed.
#[test]
fn controller_expectations_negative() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 1);
    expectations.lower(&RS, 3, 2);
    assert_eq!(expectations.get(&RS), Some((-2, -2)));
    assert!(expectations.satisfied(&RS));
    expectations.raise(&RS, 3, 0);
    assert_eq!(expectations.get(&RS), Some((1, -2)));
    assert!(!expectations.satisfied(&RS));
}

#[test]
fn new_expectations_replace_unfulfilled_ones() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, 4);
    expectations.expect_creations(&RS, 2);
    assert_eq!(expectations.get(&RS), Some((2, 0)));
    expectations.lower(&RS, 7, 7);
    expectations.expect_deletions(&RS, 3);
    assert_eq!(expectations.get(&RS), Some((0, 3)));
}

/// Upstream: TestControllerExpectations, TTL expiry.
#[test]
fn controller_expectations_expire() {
    let (clock, expectations) = expectations();
    expectations.expect_creations(&RS, 1);
    clock.step(EXPECTATIONS_TIMEOUT);
    assert!(!expectations.satisfied(&RS), "five minutes are not more than five minutes");
    clock.step(Duration::from_nanos(1));
    assert!(expectations.satisfied(&RS));
    assert_eq!(expectations.get(&RS), Some((1, 0)), "expired expectations are kept");

    expectations.expect_creations(&RS, 1);
    assert!(!expectations.satisfied(&RS), "new expectations have not expired");
}

#[test]
fn lowering_and_raising_do_not_renew() {
    let (clock, expectations) = expectations();
    expectations.expect_creations(&RS, 2);
    clock.step(Duration::from_secs(299));
    expectations.creation_observed(&RS);
    expectations.raise(&RS, 1, 0);
    clock.step(Duration::from_secs(2));
    assert!(expectations.satisfied(&RS));
}

#[test]
fn age_does_not_depend_on_the_wall_clock() {
    let (clock, expectations) = expectations();
    expectations.expect_creations(&RS, 1);
    clock.set_wall("2030-01-01T00:00:00Z".parse().unwrap());
    assert!(!expectations.satisfied(&RS));
}

#[test]
fn delete_removes_expectations() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 1);
    expectations.delete(&RS);
    assert_eq!(expectations.get(&RS), None);
    assert!(expectations.satisfied(&RS));
}

/// Upstream: TestControllerExpectations, concurrent lowering.
#[test]
fn controller_expectations_concurrent() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 8_000);
    expectations.raise(&RS, 0, 8_000);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..1_000 {
                    expectations.creation_observed(&RS);
                    expectations.deletion_observed(&RS);
                }
            });
        }
    });
    assert_eq!(expectations.get(&RS), Some((0, 0)));
    expectations.lower(&RS, 1, 1);
    assert_eq!(expectations.get(&RS), Some((-1, -1)));
}

#[test]
fn counts_saturate() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, usize::MAX);
    expectations.raise(&RS, 1, i64::MAX);
    assert_eq!(expectations.get(&RS), Some((i64::MAX, i64::MAX)));
    expectations.lower(&RS, i64::MIN, 0);
    assert_eq!(expectations.get(&RS), Some((i64::MAX, i64::MAX)));
}

#[derive(Debug, Clone)]
enum Call {
    ExpectCreations(u8),
    ExpectDeletions(u8),
    Created,
    Deleted,
    Step(u64),
    Delete,
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        (0_u8..4).prop_map(Call::ExpectCreations),
        (0_u8..4).prop_map(Call::ExpectDeletions),
        Just(Call::Created),
        Just(Call::Deleted),
        (0_u64..200).prop_map(Call::Step),
        Just(Call::Delete),
    ]
}

proptest! {
    /// Compares with a model of the expectations of one key.
    #[test]
    fn agrees_with_the_model(calls in prop::collection::vec(call(), 0..60)) {
        let (clock, expectations) = expectations();
        let mut note: Option<(i64, i64, u64)> = None;
        for call in calls {
            match call {
                Call::ExpectCreations(n) => {
                    expectations.expect_creations(&RS, n.into());
                    note = Some((n.into(), 0, 0));
                }
                Call::ExpectDeletions(n) => {
                    expectations.expect_deletions(&RS, n.into());
                    note = Some((0, n.into(), 0));
                }
                Call::Created => {
                    expectations.creation_observed(&RS);
                    note = note.map(|(add, del, age)| (add - 1, del, age));
                }
                Call::Deleted => {
                    expectations.deletion_observed(&RS);
                    note = note.map(|(add, del, age)| (add, del - 1, age));
                }
                Call::Step(seconds) => {
                    clock.step(Duration::from_secs(seconds));
                    note = note.map(|(add, del, age)| (add, del, age + seconds));
                }
                Call::Delete => {
                    expectations.delete(&RS);
                    note = None;
                }
            }
            prop_assert_eq!(expectations.get(&RS), note.map(|(add, del, _)| (add, del)));
            let satisfied = note.is_none_or(|(add, del, age)| (add <= 0 && del <= 0) || age > 300);
            prop_assert_eq!(expectations.satisfied(&RS), satisfied);
        }
    }
}

#[test]
fn answered_creations_need_no_event() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 4);
    expectations.creation_observed(&RS);
    expectations.creation_answered(&RS);
    expectations.creation_answered(&RS);
    expectations.observe_answered_creations(&RS);
    assert_eq!(expectations.get(&RS), Some((2, 0)), "two are not answered");
    expectations.lower(&RS, 1, 0);
    assert_eq!(expectations.unfulfilled(), [RS]);
    expectations.creation_answered(&RS);
    expectations.observe_answered_creations(&RS);
    assert_eq!(expectations.get(&RS), Some((0, 0)));
    assert!(expectations.unfulfilled().is_empty());
}
