//! Keys by which events are ordered and correlated. Each key contains the one above it.
//!
//! Upstream's keys are strings. They also contain the reporting controller and instance, which recorders derive from the
//! source. The keys here are hashes of 128 bits, because the correlator keeps thousands of them.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{event::Event, object_reference::ObjectReference};

/// Hash whose collisions are improbable: of 10,000 keys, two are equal with a probability of 10⁻³¹.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint(u128);

impl Fingerprint {
    pub(crate) fn of(value: impl Hash) -> Self {
        let half = |number: u8| {
            let mut hasher = DefaultHasher::new();
            (number, &value).hash(&mut hasher);
            u128::from(hasher.finish())
        };
        Self(half(0) << 64 | half(1))
    }
}

/// Key of an object. The writer writes the events about one object one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RegardingKey(Fingerprint);

/// Key of the spam filter: object, source and type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct OriginKey(Fingerprint);

/// Key of the aggregator: events that differ only in their messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SimilarKey(Fingerprint);

/// Key of the deduplicator: events that are counted as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SameKey(Fingerprint);

impl RegardingKey {
    pub(crate) fn of(regarding: &ObjectReference) -> Self {
        let ObjectReference { api_version, kind, namespace, name, uid, resource_version: _ } = regarding;
        Self(Fingerprint::of((api_version, kind, namespace, name, uid)))
    }
}

impl OriginKey {
    pub(crate) fn of(event: &Event) -> Self {
        Self(Fingerprint::of((RegardingKey::of(&event.regarding), &event.component, event.type_)))
    }
}

impl SimilarKey {
    pub(crate) fn of(event: &Event) -> Self {
        Self(Fingerprint::of((OriginKey::of(event), &event.reason)))
    }
}

impl SameKey {
    pub(crate) fn plain(similar: SimilarKey, event: &Event) -> Self {
        Self(Fingerprint::of((similar, Some(&event.message))))
    }

    pub(crate) fn combined(similar: SimilarKey) -> Self {
        Self(Fingerprint::of((similar, None::<&String>)))
    }
}
