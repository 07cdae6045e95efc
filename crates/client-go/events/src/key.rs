//! Keys by which events are correlated. Each key is the one above it and one field more.
//!
//! Upstream's keys are strings. They also contain the reporting controller and instance, which recorders derive from the
//! source.

use std::sync::Arc;

use crate::{event::Event, recorder::EventType};

/// Key of the spam filter: source, object and type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct OriginKey {
    component: Arc<str>,
    kind: Arc<str>,
    namespace: Arc<str>,
    name: Arc<str>,
    uid: Arc<str>,
    api_version: Arc<str>,
    type_: EventType,
}

/// Key of the aggregator: events that differ only in their messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimilarKey {
    origin: OriginKey,
    reason: Arc<str>,
}

/// Key of the deduplicator: events that are counted as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SameKey {
    similar: SimilarKey,
    /// `None` for combined events, which are counted as one whatever their messages are.
    message: Option<Arc<str>>,
}

impl OriginKey {
    pub(crate) fn of(event: &Event) -> Self {
        let regarding = &event.regarding;
        Self {
            component: Arc::clone(&event.component),
            kind: Arc::clone(&regarding.kind),
            namespace: Arc::clone(&regarding.namespace),
            name: Arc::clone(&regarding.name),
            uid: Arc::clone(&regarding.uid),
            api_version: Arc::clone(&regarding.api_version),
            type_: event.type_,
        }
    }
}

impl SimilarKey {
    pub(crate) fn of(event: &Event) -> Self {
        Self { origin: OriginKey::of(event), reason: Arc::clone(&event.reason) }
    }
}

impl SameKey {
    /// Returns the key of an event that is not combined.
    pub(crate) fn plain(similar: SimilarKey, event: &Event) -> Self {
        Self { similar, message: Some(event.message.as_str().into()) }
    }

    /// Returns the key of a combined event.
    pub(crate) fn combined(similar: SimilarKey) -> Self {
        Self { similar, message: None }
    }
}
