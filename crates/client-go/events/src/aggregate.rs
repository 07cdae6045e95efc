//! Many similar events become one.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kcm_api::Time;
use kcm_clock::Clock;

use crate::{
    MAX_CACHE_ENTRIES,
    key::{SameKey, SimilarKey},
    lru::Lru,
    name::Names,
    object::Event,
};

/// With so many different messages, similar events are combined.
const MAX_SIMILAR: usize = 10;

/// After so long without a similar event, counting starts anew.
const WINDOW: Duration = Duration::from_secs(600);

/// Combines events that differ in their message only.
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
    /// Different messages seen; never [`MAX_SIMILAR`] of them, since the one that would be is combined.
    messages: HashSet<Arc<str>>,
    /// When the last similar event came, by the monotonic clock.
    last: Duration,
}

impl Aggregator {
    pub(crate) fn new(clock: Arc<dyn Clock>, names: Arc<Names>) -> Self {
        Self { similar: Lru::new(MAX_CACHE_ENTRIES), clock, names }
    }

    /// Returns `event`, or what it is to be combined to, and what that is counted with.
    pub(crate) fn aggregate(&mut self, event: Event) -> (Event, SameKey) {
        let key = SimilarKey::of(&event);
        if self.is_one_too_many(&key, &event.message) {
            (self.combine(event), SameKey::combined(key))
        } else {
            let same = SameKey::plain(key, &event);
            (event, same)
        }
    }

    fn is_one_too_many(&mut self, key: &SimilarKey, message: &str) -> bool {
        let now = self.clock.monotonic();
        let Some(similar) = self.similar.get_mut(key) else {
            self.similar
                .insert(key.clone(), Similar { messages: HashSet::from([message.into()]), last: now });
            return MAX_SIMILAR <= 1;
        };
        if now.saturating_sub(similar.last) > WINDOW {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.contains(message) {
            return false;
        }
        // Upstream adds this message and then takes out any one, chosen by Go's map order, so that one of the
        // first nine may later be combined and the tenth not. Leaving this one out is one of its outcomes, and
        // the one without chance.
        if similar.messages.len() + 1 >= MAX_SIMILAR {
            return true;
        }
        similar.messages.insert(message.into());
        false
    }

    fn combine(&self, event: Event) -> Event {
        let now = self.clock.now();
        Event {
            name: self.names.generate(&event.regarding.name, now),
            message: format!("(combined from similar events): {}", event.message),
            reported: false,
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
    use crate::{EventType, object::tests::event};

    fn aggregator() -> (FakeClock, Aggregator) {
        let clock = FakeClock::new("2026-01-01T00:00:01.5Z".parse::<Timestamp>().unwrap());
        let names = Arc::new(Names::new(Arc::new(SeededRandom::new(1))));
        (clock.clone(), Aggregator::new(Arc::new(clock), names))
    }

    /// The messages that come out for events whose messages are these numbers.
    fn messages(aggregator: &mut Aggregator, numbers: impl IntoIterator<Item = usize>) -> Vec<String> {
        let numbers = numbers.into_iter();
        numbers.map(|n| aggregator.aggregate(event("Reason", &n.to_string())).0.message).collect()
    }

    #[test]
    fn tenth_different_message_and_each_after_it_is_combined() {
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
    fn message_seen_before_is_not_combined_and_one_that_was_is_again() {
        let (_clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..10);
        assert_eq!(messages(&mut aggregator, [0, 8, 9]), ["0", "8", "(combined from similar events): 9"]);
    }

    #[test]
    fn equal_messages_are_never_combined() {
        let (_clock, mut aggregator) = aggregator();
        assert_eq!(messages(&mut aggregator, [7; 100]), vec!["7"; 100]);
    }

    #[test]
    fn counting_starts_anew_ten_minutes_after_the_last_similar_event() {
        let (clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..9);
        clock.step(WINDOW);
        assert_eq!(messages(&mut aggregator, [9]), ["(combined from similar events): 9"]);
        // The window slides: it is ten minutes since the last one, combined or not.
        clock.step(WINDOW);
        assert_eq!(messages(&mut aggregator, [10]), ["(combined from similar events): 10"]);
        clock.step(WINDOW + Duration::from_nanos(1));
        assert_eq!(messages(&mut aggregator, 11..14), ["11", "12", "13"]);
    }

    #[test]
    fn reasons_types_objects_and_sources_are_counted_apart() {
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
    fn combined_event_has_its_own_name_and_times_and_no_reporter() {
        let (_clock, mut aggregator) = aggregator();
        messages(&mut aggregator, 0..9);
        let (combined, _) = aggregator.aggregate(event("ScalingReplicaSet", "Scaled down"));
        assert_eq!(combined.message, "Scaled down");
        let (combined, _) = aggregator.aggregate(event("Reason", "Scaled down"));
        insta::assert_json_snapshot!(combined.to_json());
    }
}
