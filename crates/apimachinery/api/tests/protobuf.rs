//! Specs of pod templates in protobuf, decoded by the embedded API server.

#![allow(clippy::unwrap_used, reason = "a test fails that way")]

use kcm_api::{
    PodTemplate, hash,
    protobuf::{MessageBuilder, envelope},
};
use serde_json::{Value, json};

#[path = "../src/recorded.rs"]
mod recorded;

/// Sends the spec of a template through protobuf.
fn through_protobuf(template: &Value) -> Value {
    let spec = PodTemplate::from_value(template).unwrap().spec_protobuf().unwrap();
    let mut pod = MessageBuilder::default();
    pod.bytes(2, spec);
    let mut decoded = kcm_apiserver::protobuf::decode(&envelope("v1", "Pod", &pod)).unwrap();
    let mut template = template.clone();
    template["spec"] = decoded["spec"].take();
    template
}

/// Removes unset and empty values, which protobuf does not distinguish. Structs remain: they may be behind a pointer.
fn without_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.values_mut().for_each(without_empty);
            fields.retain(|_, value| !matches!(value, Value::Null) && *value != json!([]));
        }
        Value::Array(items) => items.iter_mut().for_each(without_empty),
        _ => {}
    }
}

#[test]
fn recorded_hashes_are_the_same_from_either_encoding() {
    for recorded::Case { template, collision_count, hash } in recorded::cases() {
        let decoded = through_protobuf(template);
        let (json, protobuf) = (PodTemplate::from_value(template), PodTemplate::from_value(&decoded));
        assert!(json.unwrap().equal_ignore_hash(&protobuf.unwrap()), "{template}\n{decoded}");

        let computed = hash::compute(&decoded, *collision_count).unwrap();
        if computed != *hash {
            // The hash distinguishes empty lists and maps from unset ones.
            let mut template = template.clone();
            without_empty(&mut template);
            assert_eq!(
                computed,
                hash::compute(&template, *collision_count).unwrap(),
                "{template}\n{decoded}"
            );
        }
    }
}
