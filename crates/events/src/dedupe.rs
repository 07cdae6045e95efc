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
