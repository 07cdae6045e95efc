//! Events in protobuf.

use kcm_api::{
    Time,
    protobuf::{MessageBuilder, envelope},
};
use kcm_events::{Event, ObjectReference};

/// Encodes an event with its envelope.
pub(super) fn encode(event: &Event) -> Vec<u8> {
    let mut metadata = MessageBuilder::default();
    metadata.bytes(1, &event.name).bytes(3, event.namespace());
    let mut source = MessageBuilder::default();
    source.bytes(1, &*event.component);
    let mut message = MessageBuilder::default();
    message
        .bytes(1, metadata)
        .bytes(2, reference(&event.regarding))
        .bytes(3, &*event.reason)
        .bytes(4, &event.message)
        .bytes(5, source)
        .bytes(6, time(event.first_timestamp))
        .bytes(7, time(event.last_timestamp))
        .varint(8, sign_extended(event.count.into()))
        .bytes(9, event.type_.as_str())
        .bytes(14, event.reporting_component());
    envelope("v1", "Event", message)
}

fn reference(regarding: &ObjectReference) -> MessageBuilder {
    let ObjectReference { api_version, kind, namespace, name, uid, resource_version } = regarding;
    let mut message = MessageBuilder::default();
    let fields = [&**kind, &**namespace, &**name, &**uid, &**api_version, &**resource_version];
    for (number, field) in (1..).zip(fields) {
        if !field.is_empty() {
            message.bytes(number, field);
        }
    }
    message
}

fn time(time: Time) -> MessageBuilder {
    let mut message = MessageBuilder::default();
    message.varint(1, sign_extended(time.unix()));
    message
}

#[expect(clippy::cast_sign_loss, reason = "negative numbers have the sign bit set")]
const fn sign_extended(number: i64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::{super::tests::event, *};

    /// Decodes the protobuf of an event.
    fn decoded(event: &Event) -> Value {
        kcm_apiserver::protobuf::decode(&encode(event)).unwrap()
    }

    /// Returns the JSON of an event without empty fields.
    fn json(event: &Event) -> Value {
        let mut json = serde_json::to_value(event).unwrap();
        let fields = json.as_object_mut().unwrap();
        fields.retain(|_, value| !value.is_null() && value != "");
        json
    }

    #[test]
    fn event_is_the_same_in_protobuf() {
        let event = event();
        assert_eq!(decoded(&event), json(&event));
        assert_eq!(decoded(&event)["involvedObject"]["resourceVersion"], "42");
    }

    #[test]
    fn combined_event_of_a_cluster_scoped_object_is_the_same_in_protobuf() {
        let regarding = ObjectReference { kind: "Node".into(), name: "n1".into(), ..Default::default() };
        let event = Event { regarding, is_combined: true, component: Arc::from("test"), ..event() };
        assert_eq!(decoded(&event), json(&event));
        assert_eq!(decoded(&event)["involvedObject"], json!({ "kind": "Node", "name": "n1" }));
    }
}
