use std::sync::Arc;

use kcm_api::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{object_reference::ObjectReference, recorder::EventType};

/// Namespace of events about objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Event as it is written. It serializes as an event of `core/v1`.
///
/// Upstream counterpart: `v1.Event`, with the fields that recorders set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Name of the event.
    pub name: String,
    /// Object that the event is about.
    pub regarding: ObjectReference,
    /// Type.
    pub type_: EventType,
    /// Reason, such as `ScalingReplicaSet`.
    pub reason: Arc<str>,
    /// Text for users.
    pub message: String,
    /// Component that reports the event: value of `source.component`.
    pub component: Arc<str>,
    /// `true` if the event combines similar ones. Upstream does not set `reportingComponent` in those (US-2.3).
    pub is_combined: bool,
    /// Number of occurrences.
    pub count: i32,
    /// Time of the first occurrence.
    pub first_timestamp: Time,
    /// Time of the last occurrence.
    pub last_timestamp: Time,
}

impl Event {
    /// Returns the namespace: that of the object, or `default`.
    pub fn namespace(&self) -> &str {
        if self.regarding.namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.regarding.namespace }
    }

    /// Returns the value of `reportingComponent`.
    pub fn reporting_component(&self) -> &str {
        if self.is_combined { "" } else { &self.component }
    }

    /// Returns the strategic merge patch that updates the stored event to this one.
    ///
    /// Upstream computes it as the difference to this event without count, message and last timestamp, so it contains
    /// those of the three fields that are set.
    pub fn patch(&self) -> EventPatch<'_> {
        EventPatch { count: self.count, last_timestamp: self.last_timestamp, message: &self.message }
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { name, regarding, type_, reason, message, component, is_combined: _, count, .. } = self;
        Fields {
            api_version: "v1",
            kind: "Event",
            metadata: Metadata { name, namespace: self.namespace() },
            involved_object: regarding,
            reason,
            message,
            source: Source { component },
            first_timestamp: self.first_timestamp,
            last_timestamp: self.last_timestamp,
            count: *count,
            type_: type_.as_str(),
            event_time: None,
            reporting_component: self.reporting_component(),
            reporting_instance: "",
        }
        .serialize(serializer)
    }
}

/// Fields of an event of `core/v1`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Fields<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    involved_object: &'a ObjectReference,
    reason: &'a str,
    message: &'a str,
    source: Source<'a>,
    first_timestamp: Time,
    last_timestamp: Time,
    count: i32,
    #[serde(rename = "type")]
    type_: &'a str,
    event_time: Option<Time>,
    reporting_component: &'a str,
    reporting_instance: &'a str,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

#[derive(Serialize)]
struct Source<'a> {
    component: &'a str,
}

/// Strategic merge patch of an [`Event`] that repeats a stored one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventPatch<'a> {
    count: i32,
    last_timestamp: Time,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

/// Fields of a stored event that its next repetition uses. A field that the response does not contain is that of the
/// event that was sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredEvent {
    /// Name.
    pub name: Option<String>,
    /// Number of occurrences.
    pub count: Option<i32>,
    /// Time of the first occurrence.
    pub first_timestamp: Option<Time>,
}

impl<'de> Deserialize<'de> for StoredEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Stored {
            metadata: Option<StoredMetadata>,
            count: Option<i32>,
            first_timestamp: Option<Time>,
        }

        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct StoredMetadata {
            name: Option<String>,
        }

        let Stored { metadata, count, first_timestamp } = Stored::deserialize(deserializer)?;
        Ok(Self { name: metadata.and_then(|metadata| metadata.name), count, first_timestamp })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Returns an event about the Deployment `web` at the start of 2026.
    pub(crate) fn event(reason: &str, message: &str) -> Event {
        let time = "2026-01-01T00:00:00Z".parse().unwrap();
        Event {
            name: "web.1".to_owned(),
            regarding: ObjectReference {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                namespace: "shop".into(),
                name: "web".into(),
                uid: "0b1c".into(),
                resource_version: "42".to_owned(),
            },
            type_: EventType::Normal,
            reason: reason.into(),
            message: message.to_owned(),
            component: "deployment-controller".into(),
            is_combined: false,
            count: 1,
            first_timestamp: time,
            last_timestamp: time,
        }
    }

    /// Returns JSON with sorted keys.
    pub(crate) fn to_json(value: &impl Serialize) -> serde_json::Value {
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn json_is_a_core_v1_event() {
        let event = event("ScalingReplicaSet", "Scaled up replica set web-1 from 0 to 3");
        insta::assert_json_snapshot!(to_json(&event));
    }

    #[test]
    fn namespace_is_default_for_cluster_scoped_objects() {
        let mut event = event("LeaderElection", "a became leader");
        event.regarding = ObjectReference { kind: "Node".into(), name: "n1".into(), ..Default::default() };
        let json = to_json(&event);
        assert_eq!(json["metadata"]["namespace"], "default");
        assert_eq!(json["involvedObject"], json!({ "kind": "Node", "name": "n1" }));
    }

    #[test]
    fn patch_contains_count_last_timestamp_and_message() {
        let mut event = event("FailedCreate", "quota exceeded");
        event.count = 3;
        event.last_timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        insta::assert_json_snapshot!(event.patch(), @r#"
        {
          "count": 3,
          "lastTimestamp": "2026-01-01T00:10:00Z",
          "message": "quota exceeded"
        }
        "#);
        event.message.clear();
        assert_eq!(to_json(&event.patch()).get("message"), None);
    }

    #[test]
    fn stored_event_has_the_fields_of_the_response() {
        let stored = |json| serde_json::from_value::<StoredEvent>(json).unwrap();
        let complete = stored(json!({
            "metadata": { "name": "web.1", "namespace": "shop" },
            "count": 5,
            "firstTimestamp": "2025-12-31T00:00:00Z",
            "type": "Normal",
        }));
        let expected = StoredEvent {
            name: Some("web.1".to_owned()),
            count: Some(5),
            first_timestamp: Some("2025-12-31T00:00:00Z".parse().unwrap()),
        };
        assert_eq!(complete, expected);
        let metadata_only = stored(json!({ "metadata": { "name": "web.1" } }));
        assert_eq!(metadata_only, StoredEvent { name: expected.name, ..Default::default() });
        let unset = json!({ "metadata": null, "count": null, "firstTimestamp": null });
        assert_eq!(stored(unset), StoredEvent::default());
    }
}
