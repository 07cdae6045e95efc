//! Events in protobuf.

use kcm_api::{
    Time,
    protobuf::{MessageBuilder, envelope},
};
use serde_json::{Map, Value};

/// Type of a field.
enum Kind {
    Text,
    Int32,
    Time,
    Message(&'static [Field]),
}

struct Field {
    name: &'static str,
    number: u32,
    kind: Kind,
}

const fn field(name: &'static str, number: u32, kind: Kind) -> Field {
    Field { name, number, kind }
}

/// Fields of `Event` of `core/v1` that recorders set.
const EVENT: &[Field] = &[
    field("metadata", 1, Kind::Message(METADATA)),
    field("involvedObject", 2, Kind::Message(REFERENCE)),
    field("reason", 3, Kind::Text),
    field("message", 4, Kind::Text),
    field("source", 5, Kind::Message(&[field("component", 1, Kind::Text)])),
    field("firstTimestamp", 6, Kind::Time),
    field("lastTimestamp", 7, Kind::Time),
    field("count", 8, Kind::Int32),
    field("type", 9, Kind::Text),
    field("eventTime", 10, Kind::Time),
    field("reportingComponent", 14, Kind::Text),
    field("reportingInstance", 15, Kind::Text),
];

const METADATA: &[Field] = &[field("name", 1, Kind::Text), field("namespace", 3, Kind::Text)];

const REFERENCE: &[Field] = &[
    field("kind", 1, Kind::Text),
    field("namespace", 2, Kind::Text),
    field("name", 3, Kind::Text),
    field("uid", 4, Kind::Text),
    field("apiVersion", 5, Kind::Text),
    field("resourceVersion", 6, Kind::Text),
];

/// Encodes an event with its envelope. Returns `None` if it has a field that recorders do not set, or a value of another
/// type.
pub(super) fn encode(event: &Value) -> Option<Vec<u8>> {
    let mut event = event.as_object()?.clone();
    if event.remove("apiVersion")? != "v1" || event.remove("kind")? != "Event" {
        return None;
    }
    Some(envelope("v1", "Event", message(&event, EVENT)?))
}

#[expect(clippy::cast_sign_loss, reason = "negative numbers have the sign bit set")]
fn message(object: &Map<String, Value>, fields: &[Field]) -> Option<MessageBuilder> {
    let mut message = MessageBuilder::default();
    for (name, value) in object {
        let Field { number, kind, .. } = fields.iter().find(|field| field.name == name)?;
        match (kind, value) {
            (_, Value::Null) => {}
            (Kind::Text, Value::String(text)) => {
                message.bytes(*number, text);
            }
            (Kind::Int32, Value::Number(value)) => {
                let value = i32::try_from(value.as_i64()?).ok()?;
                message.varint(*number, i64::from(value) as u64);
            }
            (Kind::Time, Value::String(text)) => {
                let mut time = MessageBuilder::default();
                time.varint(1, text.parse::<Time>().ok()?.unix() as u64);
                message.bytes(*number, &time);
            }
            (Kind::Message(fields), Value::Object(object)) => {
                message.bytes(*number, self::message(object, fields)?);
            }
            _ => return None,
        }
    }
    Some(message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn event_is_the_same_in_protobuf() {
        let event = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "shop"},
            "involvedObject": {"kind": "Deployment", "namespace": "shop", "name": "web", "uid": "u",
                               "apiVersion": "apps/v1", "resourceVersion": "42"},
            "reason": "ScalingReplicaSet", "message": "Scaled up", "source": {"component": "deployment-controller"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:10:00Z", "count": 3,
            "type": "Normal", "reportingComponent": "deployment-controller",
        });
        let mut sent = event.clone();
        sent["eventTime"] = json!(null);
        assert_eq!(kcm_apiserver::protobuf::decode(&encode(&sent).unwrap()).unwrap(), event);
    }

    #[test]
    fn other_fields_and_types_are_not_encoded() {
        let event = |field: &str, value: Value| {
            let mut event = json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"}});
            event[field] = value;
            encode(&event)
        };
        assert!(event("reason", json!("R")).is_some());
        for (field, value) in [
            ("action", json!("a")),
            ("metadata", json!({"labels": {}})),
            ("count", json!("two")),
            ("count", json!(1_i64 << 40)),
            ("firstTimestamp", json!("soon")),
            ("kind", json!("Pod")),
        ] {
            assert_eq!(event(field, value.clone()), None, "{field}: {value}");
        }
        assert_eq!(encode(&json!({"count": 1})), None);
    }
}
