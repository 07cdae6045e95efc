//! Defaulting of unset fields.
//!
//! Upstream counterpart: `SetDefaults_*` in `pkg/apis/*/v1/defaults.go`, and conversions that act like defaults (the
//! deprecated `serviceAccount`, a Secret's `stringData`).
//!
//! Objects are defaulted after every decoding and merge, before they are compared. Defaulting is idempotent, so `kubectl
//! apply` of an unchanged file changes nothing. Defaults that depend on other objects (a Service's cluster IP, a pod's
//! service account and tolerations) belong to admission.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

mod image;
mod pod;
mod quantity;
mod service;
#[cfg(test)]
mod tests;
mod volume;

/// Fields of an object.
type Fields = Map<String, Value>;

/// Sets the defaults of an object of `kind`, in all its versions.
///
/// The object must be decoded by [`crate::strict`]. Fields of an unexpected type are not changed.
pub fn apply(kind: &str, object: &mut Value) {
    let Value::Object(object) = object else { return };
    match kind {
        "Deployment" => workload(object, deployment),
        "ReplicaSet" => workload(object, replica_set),
        "Pod" => pod::pod(object),
        "ReplicationController" => replication_controller(object),
        "HorizontalPodAutoscaler" => make(object, "spec", horizontal_pod_autoscaler),
        "Namespace" => namespace(object),
        "Node" => node(object),
        "Service" => service::service(object),
        "Secret" => secret(object),
        "CustomResourceDefinition" => with(object, "spec", definition),
        "PriorityClass" => set(object, "preemptionPolicy", "PreemptLowerPriority"),
        _ => {}
    }
}

/// Sets the defaults of a pod template.
pub(crate) fn pod_template(template: &mut Fields) {
    make(template, "spec", pod::pod_spec);
}

/// Sets the defaults of `spec` and of its pod template.
fn workload(object: &mut Fields, defaults: fn(&mut Fields)) {
    make(object, "spec", |spec| {
        defaults(spec);
        pod::template(spec);
    });
}

fn deployment(spec: &mut Fields) {
    set(spec, "replicas", 1);
    make(spec, "strategy", |strategy| {
        set(strategy, "type", "RollingUpdate");
        if is(strategy, "type", "RollingUpdate") {
            make(strategy, "rollingUpdate", |rolling| {
                set_pointer(rolling, "maxUnavailable", "25%");
                set_pointer(rolling, "maxSurge", "25%");
            });
        }
    });
    set(spec, "revisionHistoryLimit", 10);
    set(spec, "progressDeadlineSeconds", 600);
}

fn replica_set(spec: &mut Fields) {
    set(spec, "replicas", 1);
}

fn replication_controller(object: &mut Fields) {
    let labels = object
        .get("spec")
        .and_then(|spec| spec.pointer("/template/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned();
    if let Some(labels) = labels.clone() {
        make(object, "metadata", |metadata| set(metadata, "labels", labels));
    }
    make(object, "spec", |spec| {
        if let Some(labels) = labels {
            set(spec, "selector", labels);
        }
        set(spec, "replicas", 1);
        pod::template(spec);
    });
}

fn horizontal_pod_autoscaler(spec: &mut Map<String, Value>) {
    set(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        let target = json!({"type": "Utilization", "averageUtilization": 80});
        let metric = json!({"type": "Resource", "resource": {"name": "cpu", "target": target}});
        spec.insert("metrics".to_owned(), json!([metric]));
    }
}

fn namespace(object: &mut Fields) {
    make(object, "metadata", |metadata| {
        let name = metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !name.is_empty() {
            make(metadata, "labels", |labels| {
                labels.insert("kubernetes.io/metadata.name".to_owned(), Value::String(name));
            });
        }
    });
    make(object, "status", |status| set(status, "phase", "Active"));
}

fn node(object: &mut Fields) {
    // A conversion of upstream.
    with(object, "spec", |spec| {
        if let Some(range) = spec.get("podCIDR").filter(|range| *range != "").cloned() {
            set(spec, "podCIDRs", json!([range]));
        } else if let Some(range) = spec.get("podCIDRs").and_then(|ranges| ranges.get(0)).cloned() {
            set(spec, "podCIDR", range);
        }
    });
    with(object, "status", |status| {
        if let Some(capacity) = status.get("capacity").cloned() {
            set(status, "allocatable", capacity);
        }
    });
}

fn secret(object: &mut Fields) {
    set(object, "type", "Opaque");
    if let Some(Value::Object(texts)) = object.remove("stringData") {
        make(object, "data", |data| {
            for (key, text) in texts {
                data.insert(key, Value::String(STANDARD.encode(text.as_str().unwrap_or_default())));
            }
        });
    }
}

/// Sets the defaults of the spec of a CustomResourceDefinition.
fn definition(spec: &mut Fields) {
    with(spec, "names", |names| {
        let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !kind.is_empty() {
            set(names, "singular", kind.to_lowercase());
            set(names, "listKind", format!("{kind}List"));
        }
    });
    make(spec, "conversion", |conversion| {
        set(conversion, "strategy", "None");
        with(conversion, "webhook", |webhook| {
            with(webhook, "clientConfig", |config| {
                with(config, "service", |service| set_pointer(service, "port", 443));
            });
        });
    });
}

/// Sets a field that is absent or `""`, which Go does not distinguish for values.
fn set(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(|value| value.is_null() || value.as_str() == Some("")) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Sets a field that is absent. `""` is a value, as behind a pointer in Go.
fn set_pointer(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// `true` if the field has this string value.
fn is(fields: &Fields, name: &str, text: &str) -> bool {
    fields.get(name).and_then(Value::as_str) == Some(text)
}

/// Modifies the struct `name`, which is created if it is absent.
fn make(fields: &mut Fields, name: &str, change: impl FnOnce(&mut Fields)) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), Value::Object(Fields::new()));
    }
    with(fields, name, change);
}

/// Modifies the struct `name` if it is present.
fn with(fields: &mut Fields, name: &str, change: impl FnOnce(&mut Fields)) {
    if let Some(Value::Object(fields)) = fields.get_mut(name) {
        change(fields);
    }
}

/// Modifies each struct in the list `name`.
fn each(fields: &mut Fields, name: &str, mut change: impl FnMut(&mut Fields)) {
    if let Some(Value::Array(elements)) = fields.get_mut(name) {
        elements.iter_mut().filter_map(Value::as_object_mut).for_each(&mut change);
    }
}
