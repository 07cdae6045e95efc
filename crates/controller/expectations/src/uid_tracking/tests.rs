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
fn uid_expectations_count_only_expected_keys_and_each_once() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/b"]);
    assert_eq!(expectations.get(&RS), Some((0, 2)));
    expectations.deletion_observed(&RS, &"shop/c");
    assert_eq!(expectations.get(&RS), Some((0, 2)));
    // Marked, marked again, gone.
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
fn deletion_expected_of_another_key_does_not_count() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    expectations.expect_deletions(&"shop/web-2", ["shop/b"]);
    expectations.deletion_observed(&RS, &"shop/b");
    assert!(!expectations.satisfied(&RS));
    assert!(!expectations.satisfied(&"shop/web-2"));
}

#[test]
fn deletion_named_twice_is_waited_for_once() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/a"]);
    assert_eq!(expectations.get(&RS), Some((0, 1)));
}

#[test]
fn no_deletions_expected_is_satisfied() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, []);
    assert_eq!(expectations.get(&RS), Some((0, 0)));
    assert!(expectations.satisfied(&RS));
}

#[test]
fn new_deletions_replace_those_not_seen() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/b"]);
    expectations.expect_deletions(&RS, ["shop/c"]);
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), Some((0, 1)));
    expectations.deletion_observed(&RS, &"shop/c");
    assert!(expectations.satisfied(&RS));
}

#[test]
fn leftover_deletions_seen_after_creations_were_expected_count_below_zero() {
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
fn deletion_that_failed_is_counted_off_as_if_it_was_seen() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a", "shop/b"]);
    expectations.deletion_observed(&RS, &"shop/a");
    expectations.deletion_observed(&RS, &"shop/b");
    assert!(expectations.satisfied(&RS));
}

#[test]
fn creations_that_were_never_sent_are_counted_off_at_once() {
    let (_clock, expectations) = expectations();
    expectations.expect_creations(&RS, 10);
    expectations.lower(&RS, 10, 0);
    assert!(expectations.satisfied(&RS));
}

#[test]
fn observations_without_a_note_leave_none() {
    let (_clock, expectations) = expectations();
    expectations.creation_observed(&RS);
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), None);
    assert_eq!(expectations.pending_deletions(&RS), [""; 0]);
}

#[test]
fn key_deleted_forgets_counts_and_deletions() {
    let (_clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    expectations.delete(&RS);
    assert_eq!(expectations.get(&RS), None);
    assert!(expectations.satisfied(&RS));

    // The same name again: what the old one waited for says nothing about the new one.
    expectations.expect_creations(&RS, 1);
    expectations.deletion_observed(&RS, &"shop/a");
    assert_eq!(expectations.get(&RS), Some((1, 0)));
    expectations.delete(&"never heard of");
}

#[test]
fn deletions_not_seen_for_five_minutes_are_given_up() {
    let (clock, expectations) = expectations();
    expectations.expect_deletions(&RS, ["shop/a"]);
    clock.step(Duration::from_secs(300));
    assert!(!expectations.satisfied(&RS));
    clock.step(Duration::from_secs(1));
    assert!(expectations.satisfied(&RS));
}

#[test]
fn deletions_seen_by_many_threads_count_once_each() {
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
