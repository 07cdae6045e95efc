//! A repetition becomes a count.

use kcm_api::Time;
use serde_json::Value;

use crate::{MAX_CACHE_ENTRIES, key::SameKey, lru::Lru, object::Event};

/// Counts how often each event was seen.
///
/// Upstream counterpart: `record.eventLogger`.
#[derive(Debug)]
pub(crate) struct Deduplicator {
    observed: Lru<SameKey, Observed>,
}

/// The first event of its kind, as the server is believed to have it.
#[derive(Debug, Clone)]
struct Observed {
    count: i32,
    first_timestamp: Time,
    name: String,
}

impl Observed {
    fn of(event: &Event) -> Self {
        Self { count: event.count, first_timestamp: event.first_timestamp, name: event.name.clone() }
    }
}

impl Deduplicator {
    pub(crate) fn new() -> Self {
        Self { observed: Lru::new(MAX_CACHE_ENTRIES) }
    }

    /// Makes `event` a repetition of the one seen before under `key`, if there was one: under its name, since
    /// its time, counted on.
    pub(crate) fn observe(&mut self, mut event: Event, key: &SameKey) -> Event {
        match self.observed.get_mut(key) {
            Some(observed) => {
                observed.count = observed.count.saturating_add(1);
                event.name.clone_from(&observed.name);
                event.first_timestamp = observed.first_timestamp;
                event.count = observed.count;
            }
            None => self.observed.insert(key.clone(), Observed::of(&event)),
        }
        event
    }

    /// Takes over what the server has stored, where `answer` says so.
    ///
    /// DEVIATION: upstream files the answer for a combined event under its text, where nothing looks for it;
    /// here it is found the next time.
    pub(crate) fn update_state(&mut self, key: &SameKey, event: &Event, answer: &Value) {
        let mut observed = Observed::of(event);
        if let Some(name) = answer["metadata"]["name"].as_str() {
            name.clone_into(&mut observed.name);
        }
        if let Some(count) = answer["count"].as_i64().and_then(|count| i32::try_from(count).ok()) {
            observed.count = count;
        }
        if let Some(first) = answer["firstTimestamp"].as_str().and_then(|time| time.parse().ok()) {
            observed.first_timestamp = first;
        }
        self.observed.insert(key.clone(), observed);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{key::SimilarKey, object::tests::event};

    fn key(event: &Event) -> SameKey {
        SameKey::plain(SimilarKey::of(event), event)
    }

    fn observe(deduplicator: &mut Deduplicator, event: Event) -> Event {
        let key = key(&event);
        deduplicator.observe(event, &key)
    }

    #[test]
    fn repetition_takes_name_and_first_time_of_the_first_and_counts_on() {
        let mut deduplicator = Deduplicator::new();
        let first = observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!(first, event("Reason", "message"));

        let mut again = event("Reason", "message");
        again.name = "web.2".to_owned();
        again.first_timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        again.last_timestamp = again.first_timestamp;
        for count in 2..5 {
            let repetition = observe(&mut deduplicator, again.clone());
            let expected =
                Event { last_timestamp: again.last_timestamp, count, ..event("Reason", "message") };
            assert_eq!(repetition, expected);
        }
    }

    #[test]
    fn events_that_differ_in_message_reason_or_object_are_counted_apart() {
        let mut deduplicator = Deduplicator::new();
        observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!(observe(&mut deduplicator, event("Reason", "other")).count, 1);
        assert_eq!(observe(&mut deduplicator, event("Other", "message")).count, 1);
        let mut recreated = event("Reason", "message");
        recreated.regarding.uid = "other".into();
        assert_eq!(observe(&mut deduplicator, recreated).count, 1);
        let mut newer = event("Reason", "message");
        newer.regarding.resource_version = "43".to_owned();
        assert_eq!(observe(&mut deduplicator, newer).count, 2, "the version of the object does not matter");
    }

    #[test]
    fn what_the_server_has_stored_is_counted_on_from() {
        let mut deduplicator = Deduplicator::new();
        let first = observe(&mut deduplicator, event("Reason", "message"));
        let key = key(&first);
        let stored = json!({
            "metadata": { "name": "web.renamed" },
            "count": 5,
            "firstTimestamp": "2025-12-31T00:00:00Z",
        });
        deduplicator.update_state(&key, &first, &stored);
        let next = observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!((next.name.as_str(), next.count), ("web.renamed", 6));
        assert_eq!(next.first_timestamp.to_string(), "2025-12-31T00:00:00Z");
    }

    #[test]
    fn answer_that_says_nothing_changes_nothing() {
        let mut deduplicator = Deduplicator::new();
        let first = observe(&mut deduplicator, event("Reason", "message"));
        for answer in [json!(null), json!({ "count": "two", "metadata": [], "firstTimestamp": "soon" })] {
            deduplicator.update_state(&key(&first), &first, &answer);
        }
        let next = observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!(next, Event { count: 2, ..event("Reason", "message") });
    }
}
