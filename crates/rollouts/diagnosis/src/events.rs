//! Events of objects.

use std::collections::HashMap;

use kcm_clock::Timestamp;
use serde_json::Value;

use crate::json::{number, text, time};

/// Events of a namespace, by UID of their objects.
#[derive(Debug, Default)]
pub(crate) struct Events<'a> {
    by_object: HashMap<&'a str, Vec<Event<'a>>>,
}

/// Event about an object, with its repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Event<'a> {
    pub(crate) is_warning: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
    /// Component that reported it, such as `kubelet`.
    pub(crate) component: &'a str,
    /// Part of the object, such as `spec.containers{app}`.
    field_path: &'a str,
    pub(crate) count: i64,
    /// Time of the first occurrence.
    pub(crate) first: Option<Timestamp>,
    /// Time of the last repetition.
    pub(crate) at: Option<Timestamp>,
}

/// Time of the last repetition of an event of the API.
pub fn last_time(event: &Value) -> Option<Timestamp> {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    times.iter().find_map(|field| time(event, field))
}

impl<'a> Event<'a> {
    fn new(event: &'a Value) -> Self {
        let at = last_time(event);
        let component = match text(event, "/reportingComponent") {
            "" => text(event, "/source/component"),
            component => component,
        };
        Self {
            is_warning: event["type"] == "Warning",
            reason: text(event, "/reason"),
            message: text(event, "/message").trim(),
            component,
            field_path: text(event, "/involvedObject/fieldPath"),
            count: number(event, "/series/count").or_else(|| number(event, "/count")).unwrap_or(1).max(1),
            first: ["/firstTimestamp", "/eventTime"].iter().find_map(|field| time(event, field)).or(at),
            at,
        }
    }

    /// `true` if the event is about this container. Events without a part are about all.
    pub(crate) fn is_about(&self, container: &str) -> bool {
        let named = self.field_path.split_once('{').and_then(|(_, rest)| rest.strip_suffix('}'));
        named.is_none_or(|named| named == container)
    }
}

impl<'a> Events<'a> {
    pub(crate) fn new(events: &'a [Value]) -> Self {
        let mut by_object: HashMap<&str, Vec<Event<'_>>> = HashMap::new();
        for event in events {
            by_object.entry(text(event, "/involvedObject/uid")).or_default().push(Event::new(event));
        }
        Self { by_object }
    }

    /// Events of the object.
    pub(crate) fn of(&self, object: &Value) -> &[Event<'a>] {
        self.by_object.get(text(object, "/metadata/uid")).map_or(&[], Vec::as_slice)
    }

    /// Newest event of the object with one of these reasons.
    pub(crate) fn newest(&self, object: &Value, reasons: &[&str]) -> Option<Event<'a>> {
        self.of(object)
            .iter()
            .filter(|event| reasons.contains(&event.reason))
            .max_by_key(|event| event.at)
            .copied()
    }
}
