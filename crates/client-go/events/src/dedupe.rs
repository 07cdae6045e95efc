use kcm_api::Time;

use crate::{
    event::{Event, StoredEvent},
    key::SameKey,
    lru::{Lru, MAX_CACHE_ENTRIES},
};

/// Counts repeated events.
///
/// Upstream counterpart: `record.eventLogger`.
#[derive(Debug)]
pub(crate) struct Deduplicator {
    observed: Lru<SameKey, Observed>,
}

/// Event as stored by the API server, as far as known.
#[derive(Debug, Clone)]
struct Observed {
    count: i32,
    first_timestamp: Time,
    name: Box<str>,
}

impl Observed {
    fn of(event: &Event) -> Self {
        Self { count: event.count, first_timestamp: event.first_timestamp, name: event.name.as_str().into() }
    }
}

impl Deduplicator {
    pub(crate) fn new() -> Self {
        Self { observed: Lru::new(MAX_CACHE_ENTRIES) }
    }

    /// Records `event`. If an event with `key` was recorded before, the returned event has its name, its first timestamp,
    /// and its count plus one.
    pub(crate) fn observe(&mut self, mut event: Event, key: &SameKey) -> Event {
        match self.observed.get_mut(key) {
            Some(observed) => {
                observed.count = observed.count.saturating_add(1);
                event.name = observed.name.to_string();
                event.first_timestamp = observed.first_timestamp;
                event.count = observed.count;
            }
            None => self.observed.insert(*key, Observed::of(&event)),
        }
        event
    }

    /// Updates the recorded event to the one that the API server has `stored`. Fields that are missing there are kept.
    ///
    /// DEVIATION: upstream records a combined event with a key that contains its message, and does not find it again.
    pub(crate) fn update_state(&mut self, key: &SameKey, event: &Event, stored: StoredEvent) {
        let StoredEvent { name, count, first_timestamp } = stored;
        let sent = Observed::of(event);
        let observed = Observed {
            count: count.unwrap_or(sent.count),
            first_timestamp: first_timestamp.unwrap_or(sent.first_timestamp),
            name: name.map_or(sent.name, String::into_boxed_str),
        };
        self.observed.insert(*key, observed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::tests::event, key::SimilarKey};

    fn key(event: &Event) -> SameKey {
        SameKey::plain(SimilarKey::of(event), event)
    }

    fn observe(deduplicator: &mut Deduplicator, event: Event) -> Event {
        let key = key(&event);
        deduplicator.observe(event, &key)
    }

    #[test]
    fn repetition_has_name_and_first_timestamp_of_the_first_event() {
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
    fn events_are_counted_per_message_reason_and_object() {
        let mut deduplicator = Deduplicator::new();
        observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!(observe(&mut deduplicator, event("Reason", "other")).count, 1);
        assert_eq!(observe(&mut deduplicator, event("Other", "message")).count, 1);
        let mut recreated = event("Reason", "message");
        recreated.regarding.uid = "other".into();
        assert_eq!(observe(&mut deduplicator, recreated).count, 1);
        let mut newer = event("Reason", "message");
        newer.regarding.resource_version = "43".to_owned();
        assert_eq!(observe(&mut deduplicator, newer).count, 2, "independent of the resource version");
    }

    #[test]
    fn count_continues_from_the_stored_event() {
        let mut deduplicator = Deduplicator::new();
        let first = observe(&mut deduplicator, event("Reason", "message"));
        let key = key(&first);
        let stored = StoredEvent {
            name: Some("web.renamed".to_owned()),
            count: Some(5),
            first_timestamp: Some("2025-12-31T00:00:00Z".parse().unwrap()),
        };
        deduplicator.update_state(&key, &first, stored);
        let next = observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!((next.name.as_str(), next.count), ("web.renamed", 6));
        assert_eq!(next.first_timestamp.to_string(), "2025-12-31T00:00:00Z");
    }

    #[test]
    fn fields_that_the_response_does_not_contain_are_kept() {
        let mut deduplicator = Deduplicator::new();
        let first = observe(&mut deduplicator, event("Reason", "message"));
        deduplicator.update_state(&key(&first), &first, StoredEvent::default());
        let next = observe(&mut deduplicator, event("Reason", "message"));
        assert_eq!(next, Event { count: 2, ..event("Reason", "message") });
    }
}
