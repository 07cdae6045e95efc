//! Decoding of arbitrary bytes: the objects of the API, the texts in them, and refusals.
//!
//! Each property takes the bytes of one input. It must not panic, and must not exhaust the stack or the memory. The tests
//! run it on mutations of `fuzz/seeds`, the targets in `fuzz` run it under libFuzzer.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a test")]
#![cfg_attr(not(test), allow(dead_code, reason = "a target uses one property"))]

use std::fmt::Debug;

use jiff::Timestamp;
use kcm_api::{
    Deployment, IntOrString, LabelSelector, Labels, Lease, MicroTime, PodDecoder, PodTemplate, ReplicaSet,
    ReplicationController, Selector, Status, Time, int_or_string::Round, object_name, protobuf,
    quantity::Quantity,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

#[cfg(test)]
#[path = "../../../../fuzz/mutate.rs"]
mod mutate;

/// An object that decodes encodes to text that decodes to an equal object, with all that was in the input.
pub fn objects(data: &[u8]) {
    if let Some(deployment) = lossless::<Deployment>(data) {
        template(&deployment.spec.template);
        selector(deployment.spec.selector.as_ref());
    }
    if let Some(replica_set) = lossless::<ReplicaSet>(data) {
        template(&replica_set.spec.template);
        selector(replica_set.spec.selector.as_ref());
    }
    lossless::<ReplicationController>(data);
    lossless::<Lease>(data);
}

fn lossless<T: Debug + PartialEq + Serialize + DeserializeOwned>(data: &[u8]) -> Option<T> {
    let object: T = serde_json::from_slice(data).ok()?;
    let text = serde_json::to_string(&object).unwrap();
    let again: T = serde_json::from_str(&text).unwrap();
    assert_eq!(again, object, "decoded from {text}");
    // The template is kept as text, which may be nested too deeply for a value.
    if let (Ok(before), Ok(after)) = (serde_json::from_slice(data), serde_json::from_str(&text)) {
        assert_kept(&before, &after);
    }
    Some(object)
}

/// Asserts that `after` has every value of `before`, apart from what Go does not write, from `managedFields`, which no
/// controller sends back, and from times, which are written in one form.
fn assert_kept(before: &Value, after: &Value) {
    match (before, after) {
        (Value::Object(members), _) => {
            for (key, value) in
                members.iter().filter(|(key, value)| !is_unset(value) && *key != "managedFields")
            {
                let Some(kept) = after.get(key) else { panic!("{key:?}: {value} was lost from {before}") };
                assert_kept(value, kept);
            }
        }
        (Value::Array(items), Value::Array(kept)) => {
            assert_eq!(items.len(), kept.len());
            items.iter().zip(kept).for_each(|(item, kept)| assert_kept(item, kept));
        }
        (Value::String(time), Value::String(kept)) if time != kept => {
            assert_eq!(time.parse::<Time>().unwrap(), kept.parse::<Time>().unwrap());
        }
        _ => assert_eq!(before, after),
    }
}

fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.values().all(is_unset),
        Value::Bool(true) => false,
    }
}

/// A template equals itself, and stays the same but for the label that it is given.
fn template(template: &PodTemplate) {
    let copy = PodTemplate::from_value(&template.to_value()).unwrap_or_default();
    let hash = template.compute_hash(Some(1));
    if !template.to_value().is_null() {
        assert!(copy.equal_ignore_hash(template));
        assert_eq!(copy.compute_hash(Some(1)).ok(), hash.ok());
    }
    assert!(serde_json::from_str::<Value>(&template.spec_json()).is_ok() || template.to_value().is_null());
    if let Ok(labelled) = template.with_label("pod-template-hash", Some("abc")) {
        assert_eq!(labelled.labels().get("pod-template-hash").map(String::as_str), Some("abc"));
        assert!(labelled.equal_ignore_hash(template) || template.to_value().is_null());
    }
}

fn selector(selector: Option<&LabelSelector>) {
    if let Ok(selector) = Selector::new(selector) {
        selector.matches(&Labels::new());
    }
}

/// A pod decodes, or is named in the error.
pub fn pod(data: &[u8]) {
    // Both encodings are decoded, whatever the bytes are meant to be.
    drop(PodDecoder::default().decode_protobuf(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    let decoder = PodDecoder::default();
    let (name, _) = object_name(text);
    match decoder.decode(text) {
        Ok(pod) => {
            // Other fields of a pod are ignored, and may be invalid as values.
            if let Ok(value) = serde_json::from_str::<Value>(text) {
                assert_eq!(decoder.decode_value(&value).unwrap(), pod);
            }
        }
        Err(error) => assert_eq!(error.name, name),
    }
}

/// A quantity, a time and a scaled number that are read are written as text that is read the same.
pub fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(quantity) = text.parse::<Quantity>() {
        assert_eq!(quantity.to_string().parse::<Quantity>().unwrap(), quantity);
    }
    if let Ok(time) = text.parse::<Time>() {
        assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        time.age(Timestamp::UNIX_EPOCH);
    }
    if let Ok(time) = text.parse::<MicroTime>() {
        assert_eq!(time.to_string().parse::<MicroTime>().unwrap(), time);
    }
    let percent = IntOrString::String(text.to_owned());
    for total in [0, 1, 7, i32::MAX] {
        drop(percent.scaled(total, Round::Up));
        drop(percent.scaled(total, Round::Down));
    }
    for valid in [
        kcm_api::selector::is_label_value(text),
        kcm_api::selector::is_qualified_name(text),
        kcm_api::selector::is_dns_subdomain(text),
    ] {
        assert!(!valid || text.len() < 400, "{text:?}");
    }
}

/// A refusal that decodes encodes to text that decodes to an equal refusal.
pub fn status(data: &[u8]) {
    drop(protobuf::open_envelope(data).and_then(Status::decode_protobuf));
    drop(Status::decode_protobuf(data));
    let Ok(status) = serde_json::from_slice::<Status>(data) else { return };
    let text = serde_json::to_string(&status).unwrap();
    assert_eq!(serde_json::from_str::<Status>(&text).unwrap(), status);
}

#[test]
fn decodes_mutated_objects() {
    mutate::check("objects", 1000, objects);
}

#[test]
fn decodes_mutated_pods() {
    mutate::check("pod", 1000, pod);
}

#[test]
fn decodes_mutated_texts() {
    mutate::check("text", 5000, text);
}

#[test]
fn decodes_mutated_refusals() {
    mutate::check("status", 1000, status);
}
