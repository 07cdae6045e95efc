use std::sync::Arc;

use kcm_api::Time;
use serde_json::{Map, Value, json};

use crate::{object_reference::ObjectReference, recorder::EventType};

/// Namespace of events about objects without a namespace.
const DEFAULT_NAMESPACE: &str = "default";

/// Event as it is written.
///
/// Upstream counterpart: `v1.Event`, with the fields that recorders set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) regarding: ObjectReference,
    pub(crate) type_: EventType,
    pub(crate) reason: Arc<str>,
    pub(crate) message: String,
    /// Value of `source.component`.
    pub(crate) component: Arc<str>,
    /// If `true`, `reportingComponent` is set as well. Upstream does not set it in combined events (US-2.3).
    pub(crate) reported: bool,
    /// Number of occurrences.
    pub(crate) count: i32,
    pub(crate) first_timestamp: Time,
    pub(crate) last_timestamp: Time,
}

impl Event {
    pub(crate) fn namespace(&self) -> &str {
        if self.regarding.namespace.is_empty() { DEFAULT_NAMESPACE } else { &self.regarding.namespace }
    }

    /// Returns the JSON of the event in core/v1.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": { "name": self.name, "namespace": self.namespace() },
            "involvedObject": reference(&self.regarding),
            "reason": &*self.reason,
            "message": self.message,
            "source": { "component": &*self.component },
            "firstTimestamp": self.first_timestamp,
            "lastTimestamp": self.last_timestamp,
            "count": self.count,
            "type": self.type_.as_str(),
            "eventTime": null,
            "reportingComponent": if self.reported { &*self.component } else { "" },
            "reportingInstance": "",
        })
    }

    /// Returns the strategic merge patch that updates the stored event to this one.
    ///
    /// Upstream computes it as the difference to this event without count, message and last timestamp, so it contains
    /// those of the three fields that are set.
    pub(crate) fn to_patch(&self) -> Value {
        let mut patch = json!({ "count": self.count, "lastTimestamp": self.last_timestamp });
        if !self.message.is_empty() {
            patch["message"] = self.message.clone().into();
        }
        patch
    }
}

/// Returns the JSON of an object reference. Empty fields are omitted.
fn reference(regarding: &ObjectReference) -> Value {
    let fields: [(&str, &str); 6] = [
        ("kind", &regarding.kind),
        ("namespace", &regarding.namespace),
        ("name", &regarding.name),
        ("uid", &regarding.uid),
        ("apiVersion", &regarding.api_version),
        ("resourceVersion", &regarding.resource_version),
    ];
    let set = fields.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(set.map(|(name, value)| (name.to_owned(), value.into())).collect::<Map<_, _>>())
}

#[cfg(test)]
pub(crate) mod tests {
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
            reported: true,
            count: 1,
            first_timestamp: time,
            last_timestamp: time,
        }
    }

    #[test]
    fn json_is_a_core_v1_event() {
        let event = event("ScalingReplicaSet", "Scaled up replica set web-1 from 0 to 3");
        insta::assert_json_snapshot!(event.to_json());
    }

    #[test]
    fn namespace_is_default_for_cluster_scoped_objects() {
        let mut event = event("LeaderElection", "a became leader");
        event.regarding = ObjectReference { kind: "Node".into(), name: "n1".into(), ..Default::default() };
        let json = event.to_json();
        assert_eq!(json["metadata"]["namespace"], "default");
        assert_eq!(json["involvedObject"], json!({ "kind": "Node", "name": "n1" }));
    }

    #[test]
    fn patch_contains_count_last_timestamp_and_message() {
        let mut event = event("FailedCreate", "quota exceeded");
        event.count = 3;
        event.last_timestamp = "2026-01-01T00:10:00Z".parse().unwrap();
        insta::assert_json_snapshot!(event.to_patch(), @r#"
        {
          "count": 3,
          "lastTimestamp": "2026-01-01T00:10:00Z",
          "message": "quota exceeded"
        }
        "#);
        event.message.clear();
        assert_eq!(event.to_patch().get("message"), None);
    }
}
