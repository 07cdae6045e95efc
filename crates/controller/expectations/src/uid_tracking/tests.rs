use std::{thread, time::Duration};

use kcm_clock::{FakeClock, Timestamp};

use super::*;

const RS: &str = "shop/web-1";

fn expectations() -> (FakeClock, UidTrackingExpectations<&'static str, &'static str>) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let expectations = UidTrackingExpectations::new(Arc::new(clock.clone()));
    (clock, expectations)
}

/// Upstream: TestUIDExpectations, only expected keys count.
#[test]
fn uid_expectations_count_each_expected_key_once() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/b"]);
    assert_eq!(expectations.get(&RS), Some((0, 2)));
    expectations.deletion_observed(&RS, &"shop/c");
    assert_eq!(expectations.get(&RS), Some((0, 2)));
    // Two updates and the final event.
    for _ in 0..3 {
        expectations.deletion_observed(&RS, &"shop/a");
    }
    assert_eq!(expectations.get(&RS), Some((0, 1)));
    assert!(!expectations.satisfied(&RS));
    assert_eq!(expectations.pending_deletions(&RS), ["shop/b"]);
    expectations.deletion_observed(&RS, &"shop/b");
    assert!(expectations.satisfied(&RS));
}

#[test]
fn deletion_of_another_key_is_not_counted() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    expectations.expect_deletions(&"shop/web-2", ["shop/b"]);
    expectations.deletion_observed(&RS, &"shop/b");
    assert!(!expectations.satisfied(&RS));
    assert!(!expectations.satisfied(&"shop/web-2"));
}

#[test]
fn duplicate_deletion_is_expected_once() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/a"]);
    assert_eq!(expectations.get(&RS), Some((0, 1)));
}

#[test]
fn satisfied_without_deletions() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, []);
    assert_eq!(expectations.get(&RS), Some((0, 0)));
    assert!(expectations.satisfied(&RS));
}

#[test]
fn new_deletions_replace_unobserved_ones() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/b"]);
    expectations.expect_deletions(&RS, ["shop/c"]);
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), Some((0, 1)));
    expectations.deletion_observed(&RS, &"shop/c");
    assert!(expectations.satisfied(&RS));
}

#[test]
fn old_deletions_make_the_count_negative() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    expectations.expect_creations(&RS, 1);
    assert_eq!(expectations.get(&RS), Some((1, 0)));
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), Some((1, -1)));
    expectations.creation_observed(&RS);
    assert!(expectations.satisfied(&RS));
}

#[test]
fn failed_deletion_is_lowered() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/b"]);
    expectations.deletion_observed(&RS, &"shop/a");
    expectations.deletion_observed(&RS, &"shop/b");
    assert!(expectations.satisfied(&RS));
}

#[test]
fn skipped_creations_are_lowered() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 10);
    expectations.lower(&RS, 10, 0);
    assert!(expectations.satisfied(&RS));
}

#[test]
fn observations_without_expectations_have_no_effect() {
    let (_clock, expectations) = expectations();
    expectations.creation_observed(&RS);
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), None);
    assert_eq!(expectations.pending_deletions(&RS), [""; 0]);
}

#[test]
fn delete_removes_counts_and_deletions() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    expectations.delete(&RS);
    assert_eq!(expectations.get(&RS), None);
    assert!(expectations.satisfied(&RS));

    // A new object with the same key.
    expectations.expect_creations(&RS, 1);
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), Some((1, 0)));
    expectations.delete(&"never heard of");
}

#[test]
fn deletions_expire() {
    let (clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    clock.step(Duration::from_secs(300));
    assert!(!expectations.satisfied(&RS));
    clock.step(Duration::from_secs(1));
    assert!(expectations.satisfied(&RS));
}

#[test]
fn concurrent_deletions_are_counted_once() {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let expectations = UidTrackingExpectations::new(Arc::new(clock));
    for _ in 0..20 {
        expectations.expect_deletions(&RS, 0..500);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for pod in 0..500 {
                        expectations.deletion_observed(&RS, &pod);
                    }
                });
            }
        });
        assert_eq!(expectations.get(&RS), Some((0, 0)));
    }
}
