use std::time::Duration;

use kcm_clock::{FakeClock, SeededRandom, Timestamp};

use super::*;
use crate::event::tests::event;

fn correlator() -> (FakeClock, Correlator) {
    let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
    let names = Arc::new(Names::new(Arc::new(SeededRandom::new(1))));
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    (clock, Correlator::new(&shared, names))
}

/// Returns count and message of the event to write for an event with `message`.
fn correlate(correlator: &mut Correlator, message: &str) -> Option<(i32, String)> {
    let correlated = correlator.correlate(event("Reason", message))?;
    assert_eq!(correlated.is_repetition(), correlated.event.count > 1);
    Some((correlated.event.count, correlated.event.message))
}

/// Recorded story r10: nine events, then one combined event that is patched up to a count of 16.
#[test]
fn burst_of_different_events_is_written_as_recorded() {
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

/// Recorded story r06: a creation that is rejected repeatedly.
#[test]
fn repeated_event_is_counted_as_recorded() {
    let (_clock, mut correlator) = correlator();
    let written: Vec<_> = (0..8).filter_map(|_| correlate(&mut correlator, "rejected")).collect();
    assert_eq!(written.iter().map(|(count, _)| *count).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn dropped_events_are_counted_by_the_next_one_written() {
    let (clock, mut correlator) = correlator();
    let passed = (0..40).filter(|_| correlate(&mut correlator, "again").is_some()).count();
    assert_eq!(passed, 25);
    clock.step(Duration::from_secs(300));
    assert_eq!(correlate(&mut correlator, "again"), Some((41, "again".to_owned())));
    assert_eq!(correlate(&mut correlator, "again"), None);
}

#[test]
fn combined_events_keep_the_name_of_the_first() {
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
