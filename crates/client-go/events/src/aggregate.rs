use std::{sync::Arc, time::Duration};

use kcm_api::Time;
use kcm_clock::Clock;

use crate::{
    event::Event,
    key::{Fingerprint, SameKey, SimilarKey},
    lru::{Lru, MAX_CACHE_ENTRIES},
    name::Names,
};

/// Number of different messages from which on similar events are combined.
const MAX_SIMILAR: usize = 10;

/// Time after the last similar event at which the messages are counted from zero again.
const WINDOW: Duration = Duration::from_secs(600);

/// Combines events that differ only in their messages.
///
/// Upstream counterpart: `record.EventAggregator`.
#[derive(Debug)]
pub(crate) struct Aggregator {
    similar: Lru<SimilarKey, Similar>,
    clock: Arc<dyn Clock>,
    names: Arc<Names>,
}

#[derive(Debug)]
struct Similar {
    /// Different messages, less than [`MAX_SIMILAR`]. Messages of combined events are not added.
    /// At most [`MAX_SIMILAR`].
    messages: Vec<Fingerprint>,
    /// Monotonic time of the last similar event.
    last: Duration,
}

impl Aggregator {
    pub(crate) fn new(clock: Arc<dyn Clock>, names: Arc<Names>) -> Self {
        Self { similar: Lru::new(MAX_CACHE_ENTRIES), clock, names }
    }

    /// Returns `event` or the event that it is combined into, with its key for the deduplicator.
    pub(crate) fn aggregate(&mut self, event: Event) -> (Event, SameKey) {
        let key = SimilarKey::of(&event);
        if self.exceeds_limit(&key, &event.message) {
            (self.combine(event), SameKey::combined(key))
        } else {
            let same = SameKey::plain(key, &event);
            (event, same)
        }
    }

    fn exceeds_limit(&mut self, key: &SimilarKey, message: &str) -> bool {
        let now = self.clock.monotonic();
        let message = Fingerprint::of(message);
        let Some(similar) = self.similar.get_mut(key) else {
            let messages = vec![message];
            self.similar.insert(*key, Similar { messages, last: now });
            return false;
        };
        if now.saturating_sub(similar.last) > WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.contains(&message) {
            return false;
        }
        // Upstream adds the message and then removes an arbitrary one, so that later one of the first nine messages may be
        // combined instead. Not adding it is one of the possible results.
        if similar.messages.len() + 1 >= MAX_SIMILAR {
            return true;
        }
        similar.messages.push(message);
        false
    }

    fn combine(&self, event: Event) -> Event {
        let now = self.clock.now();
        Event {
            name: self.names.generate(&event.regarding.name, now),
            message: format!("(combined from similar events): {}", event.message),
            is_combined: true,
            count: 1,
            first_timestamp: Time::new(now),
            last_timestamp: Time::new(now),
            ..event
        }
    }
}

#[cfg(test)]
mod tests {
    use kcm_clock::{FakeClock, SeededRandom, Timestamp};

    use super::*;
    use crate::{
        event::tests::{event, to_json},
        recorder::EventType,
    };

    fn aggregator() -> (FakeClock, Aggregator) {
        let clock = FakeClock::new("2026-01-01T00:00:01.5Z".parse::<Timestamp>().unwrap());
        let names = Arc::new(Names::new(Arc::new(SeededRandom::new(1))));
        (clock.clone(), Aggregator::new(Arc::new(clock), names))
    }

    /// Aggregates events with these numbers as messages. Returns the resulting messages.
    fn messages(aggregator: &mut Aggregator, numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
        let numbers = numbers.into_iter();
        numbers.map(|n| aggregator.aggregate(event("Reason", &n.to_string())).0.message).collect()
    }

    #[test]
    fn events_are_combined_from_the_tenth_message_on() {
        let (_clock, mut aggregator) = aggregator();
        assert_eq!(messages(&mut aggregator, 0..9), ["0", "1", "2", "3", "4", "5", "6", "7", "8"]);
        assert_eq!(
            messages(&mut aggregator, 9..12),
            [
                "(combined from similar events): 9",
                "(combined from similar events): 10",
                "(combined from similar events): 11"
            ]
        );
    }

    #[test]
    fn messages_before_the_tenth_are_not_combined_when_repeated() {
        let (_clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..10);
        assert_eq!(messages(&mut aggregator, [0, 8, 9]), ["0", "8", "(combined from similar events): 9"]);
    }

    #[test]
    fn equal_messages_are_not_combined() {
        let (_clock, mut aggregator) = aggregator();
        assert_eq!(messages(&mut aggregator, [7; 100]), vec!["7"; 100]);
    }

    #[test]
    fn limit_is_reset_ten_minutes_after_the_last_similar_event() {
        let (clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..9);
        clock.step(WINDOW);
        assert_eq!(messages(&mut aggregator, [9]), ["(combined from similar events): 9"]);
        // A combined event starts the window again.
        clock.step(WINDOW);
        assert_eq!(messages(&mut aggregator, [10]), ["(combined from similar events): 10"]);
        clock.step(WINDOW + Duration::from_nanos(1));
        assert_eq!(messages(&mut aggregator, 11..14), ["11", "12", "13"]);
    }

    #[test]
    fn limit_applies_per_reason_type_object_and_source() {
        let (_clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..9);
        let changes: [fn(&mut Event); 4] = [
            |event| event.reason = "Other".into(),
            |event| event.type_ = EventType::Warning,
            |event| event.regarding.uid = "other".into(),
            |event| event.component = "other".into(),
        ];
        for change in changes {
            let mut event = event("Reason", "ninth");
            change(&mut event);
            assert_eq!(aggregator.aggregate(event).0.message, "ninth");
        }
        let mut newer = event("Reason", "ninth");
        newer.regarding.resource_version = "43".to_owned();
        assert_eq!(aggregator.aggregate(newer).0.message, "(combined from similar events): ninth");
    }

    #[test]
    fn combined_event_has_a_new_name_and_no_reporter() {
        let (_clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..9);
        let (combined, _) = aggregator.aggregate(event("ScalingReplicaSet", "Scaled down"));
        assert_eq!(combined.message, "Scaled down");
        let (combined, _) = aggregator.aggregate(event("Reason", "Scaled down"));
        insta::assert_json_snapshot!(to_json(&combined));
    }
}
