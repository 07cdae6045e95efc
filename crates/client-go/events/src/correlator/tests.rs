use std::time::Duration;

use kcm_clock::{FakeClock, SeededRandom, Timestamp};

use super::*;
use crate::object::tests::event;

fn correlator() -> (FakeClock, Correlator) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let names = Arc::new(Names::new(Arc::new(SeededRandom::new(1))));
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    (clock, Correlator::new(&shared, names))
}

/// What is written for an event: its count and message, if anything.
fn correlate(correlator: &mut Correlator, message: &str) -> Option<(i32, String)> {
    let correlated = correlator.correlate(event("Reason", message))?;
    assert_eq!(correlated.is_repetition(), correlated.event.count > 1);
    Some((correlated.event.count, correlated.event.message))
}

#[test]
fn burst_of_520_different_events_is_written_as_upstream_was_recorded_to() {
    // The recorded story r10: nine plain events, one combined, and 15 patches of it up to a count of 16.
    let (_clock, mut correlator) = correlator();
    let written: Vec<_> =
        (0..520).filter_map(|n| correlate(&mut correlator, &format!("Created pod: rs-{n}"))).collect();
    assert_eq!(written.len(), 25);
    for (n, (count, message)) in written.iter().enumerate() {
        if n < 9 {
            assert_eq!((*count, message.as_str()), (1, format!("Created pod: rs-{n}").as_str()));
        } else {
            let combined = format!("(combined from similar events): Created pod: rs-{n}");
            assert_eq!((*count, message), (i32::try_from(n - 8).unwrap(), &combined));
        }
    }
}

#[test]
fn one_event_repeated_is_created_once_and_then_counted() {
    // The recorded story r06: a creation that keeps being refused.
    let (_clock, mut correlator) = correlator();
    let written: Vec<_> = (0..8).filter_map(|_| correlate(&mut correlator, "refused")).collect();
    assert_eq!(written.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn events_that_the_filter_drops_are_counted_by_the_next_that_passes() {
    let (clock, mut correlator) = correlator();
    let passed = (0..40).filter(|_| correlate(&mut correlator, "again").is_some()).count();
    assert_eq!(passed, 25);
    clock.step(Duration::from_secs(300));
    assert_eq!(correlate(&mut correlator, "again"), Some((41, "again".to_owned())));
    assert_eq!(correlate(&mut correlator, "again"), None);
}

#[test]
fn combined_events_after_a_quiet_time_go_on_under_the_first_ones_name() {
    let (clock, mut correlator) = correlator();
    let name = |correlator: &mut Correlator, message: &str| {
        correlator.correlate(event("Reason", message)).map(|correlated| correlated.event.name)
    };
    for n in 0..9 {
        name(&mut correlator, &n.to_string());
    }
    let combined = name(&mut correlator, "ninth");
    assert!(combined.is_some());
    clock.step(Duration::from_secs(60));
    assert_eq!(name(&mut correlator, "tenth"), combined);
}
