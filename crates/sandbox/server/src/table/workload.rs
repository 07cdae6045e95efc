//! Deployments, ReplicaSets and other workloads.

use jiff::Timestamp;
use kcm_apiserver::json::{at, i64_at, list_at, str_at};
use serde_json::{Map, Value};

use super::{AGE, Column, NAME, Printer, age::age, or_none};

const CONTAINERS: Column = Column::text("Containers", "Names of the containers of each pod.").wide();
const IMAGES: Column = Column::text("Images", "Images of the containers of each pod.").wide();
const SELECTOR: Column = Column::text("Selector", "Labels of the selected pods.").wide();
const DESIRED: Column = Column::count("Desired", "Desired number of pods.");
const CURRENT: Column = Column::count("Current", "Number of pods.");
const READY: Column = Column::count("Ready", "Number of ready pods.");

pub(super) const DEPLOYMENT: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Ready", "Number of ready pods and of desired pods."),
        Column::text("Up-to-date", "Number of pods of the current template."),
        Column::text("Available", "Number of available pods."),
        AGE,
        CONTAINERS,
        IMAGES,
        SELECTOR,
    ],
    row: |object, now| {
        let ready = ready_of_desired(object);
        let mut row = vec![name(object), ready];
        row.extend([count(object, "updatedReplicas"), count(object, "availableReplicas"), age(object, now)]);
        row.extend(containers_and_images(object));
        row.push(Value::from(selector(at(object, &["spec", "selector"]))));
        row
    },
};

pub(super) const REPLICA_SET: Printer = Printer {
    columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
    row: replica_set,
};

pub(super) const REPLICATION_CONTROLLER: Printer = Printer {
    columns: &[NAME, DESIRED, CURRENT, READY, AGE, CONTAINERS, IMAGES, SELECTOR],
    row: replica_set,
};

fn replica_set(object: &Value, now: Timestamp) -> Vec<Value> {
    let mut row =
        vec![name(object), desired(object), count(object, "replicas"), count(object, "readyReplicas")];
    row.push(age(object, now));
    row.extend(containers_and_images(object));
    row.push(or_none(&selector(at(object, &["spec", "selector"]))));
    row
}

/// Returns the object's name.
pub(super) fn name(object: &Value) -> Value {
    Value::from(str_at(object, &["metadata", "name"]))
}

fn desired(object: &Value) -> Value {
    Value::from(i64_at(object, &["spec", "replicas"]).unwrap_or(0))
}

fn count(object: &Value, field: &str) -> Value {
    Value::from(i64_at(object, &["status", field]).unwrap_or(0))
}

fn ready_of_desired(object: &Value) -> Value {
    Value::from(format!("{}/{}", count(object, "readyReplicas"), desired(object)))
}

fn containers_and_images(object: &Value) -> [Value; 2] {
    let containers = list_at(object, &["spec", "template", "spec", "containers"]);
    ["name", "image"].map(|field| {
        let texts: Vec<&str> = containers.iter().map(|container| str_at(container, &[field])).collect();
        Value::from(texts.join(","))
    })
}

/// Formats a selector in the syntax of `-l`, sorted by key. Also accepts a plain map.
pub(super) fn selector(selector: Option<&Value>) -> String {
    let Some(Value::Object(fields)) = selector else { return String::new() };
    if !fields.contains_key("matchLabels") && !fields.contains_key("matchExpressions") {
        return labels(Some(fields));
    }
    let mut terms: Vec<(&str, String)> = Vec::new();
    for (key, value) in fields.get("matchLabels").and_then(Value::as_object).into_iter().flatten() {
        terms.push((key, format!("{key}={}", value.as_str().unwrap_or_default())));
    }
    for expression in fields.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        let key = str_at(expression, &["key"]);
        let mut values: Vec<&str> =
            list_at(expression, &["values"]).iter().filter_map(Value::as_str).collect();
        values.sort_unstable();
        let values = values.join(",");
        terms.push((
            key,
            match str_at(expression, &["operator"]) {
                "In" => format!("{key} in ({values})"),
                "NotIn" => format!("{key} notin ({values})"),
                "DoesNotExist" => format!("!{key}"),
                _ => key.to_owned(),
            },
        ));
    }
    terms.sort_by_key(|(key, _)| *key);
    terms.into_iter().map(|(_, term)| term).collect::<Vec<_>>().join(",")
}

/// Formats labels as `k=v,l=w`.
pub(super) fn labels(labels: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    pairs.join(",")
}
