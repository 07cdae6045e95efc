//! What makes two events the same, similar, or at least of the same origin.
//!
//! Each key is the one above it and one field more. Upstream joins the fields to one text, and with them the
//! reporting controller and instance, which for a recorder's events say nothing that the source does not.

use std::sync::Arc;

use crate::{EventType, object::Event};

/// Events of one origin: what the spam filter counts together.
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

/// Similar events, which differ in their message: what the aggregator counts together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SimilarKey {
    origin: OriginKey,
    reason: Arc<str>,
}

/// Events that are counted as one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SameKey {
    similar: SimilarKey,
    /// `None` for the event that similar ones were combined to, whatever it says.
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
    /// The key of an event that stands for itself.
    pub(crate) fn plain(similar: SimilarKey, event: &Event) -> Self {
        Self { similar, message: Some(event.message.as_str().into()) }
    }

    /// The key of the event that similar ones were combined to.
    pub(crate) fn combined(similar: SimilarKey) -> Self {
        Self { similar, message: None }
    }
}
