//! Validation.
//!
//! Errors have upstream's fields, types and messages, because users search for them. All errors of an object are
//! reported together.
//!
//! Objects must be decoded ([`crate::strict`]) and defaulted ([`crate::defaults`]) and contain the namespace of the
//! request. Checks that depend on other objects belong to admission.
//!
//! Of kinds without controller (DaemonSet, Job etc.) only the metadata is validated.
//!
//! Upstream counterpart: `pkg/apis/*/validation`.

use serde_json::Value;

mod container;
mod error;
mod label_selector;
mod metadata;
mod names;
mod path;
mod plain;
mod pod;
mod probe;
mod read;
mod security_context;
mod service;
#[cfg(test)]
mod tests;
mod volume;
mod workload;

pub use error::{ErrorType, FieldError, StatusCause, aggregate, causes};
use metadata::Naming;
use path::Errors;

/// Returns the validation errors of a new object.
///
/// ```
/// # use {kcm_apiserver::validate, serde_json::json};
/// let config = json!({"metadata": {"name": "Web_1", "namespace": "default"}});
/// let errors = validate::create("ConfigMap", &config);
/// assert!(errors[0].to_string().starts_with(r#"metadata.name: Invalid value: "Web_1": a lowercase RFC 1123"#));
/// ```
pub fn create(kind: &str, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    match kind {
        "Scale" | "Binding" | "Eviction" => {}
        _ if is_stored(kind) => metadata::create(object, &Naming::of(kind), &mut errors),
        _ => return Vec::new(),
    }
    match kind {
        "Pod" => pod::create(object, &mut errors),
        _ => content(kind, object, &mut errors),
    }
    errors.0
}

/// Returns the validation errors of an update from `old` to `new`.
pub fn update(kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if kind == "Lease" {
        plain::lease_version(new, &mut errors);
    }
    if is_stored(kind) {
        metadata::update(new, old, &mut errors);
    }
    content(kind, new, &mut errors);
    match kind {
        "Deployment" | "ReplicaSet" => workload::selector_immutable(new, old, &mut errors),
        "Pod" => pod::update(new, old, &mut errors),
        "Service" => service::update(new, old, &mut errors),
        "Secret" => {
            plain::secret_type(new, old, &mut errors);
            plain::immutable_data(new, old, &mut errors);
        }
        "ConfigMap" => plain::immutable_data(new, old, &mut errors),
        _ => {}
    }
    errors.0
}

/// Returns the validation errors of an update from `old` to `new` through `/status`.
pub fn update_status(kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::update(new, old, &mut errors);
    match kind {
        "Deployment" => workload::deployment_status(new, old, &mut errors),
        // The status of a ReplicationController has the same fields as that of a ReplicaSet.
        "ReplicaSet" | "ReplicationController" => workload::replica_set_status(new, &mut errors),
        "Pod" => pod::status(new, &mut errors),
        _ => {}
    }
    errors.0
}

/// Returns the warnings about a valid new object, for `Warning` headers.
pub fn create_warnings(kind: &str, object: &Value) -> Vec<String> {
    let name = read::text(read::get(object, "metadata"), "name");
    if !matches!(kind, "Deployment" | "ReplicaSet" | "ReplicationController" | "Pod") || name.is_empty() {
        return Vec::new();
    }
    match names::dns_label(name) {
        wrong if wrong.is_empty() => Vec::new(),
        wrong => vec![format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a \
             DNS label is recommended: [{}]",
            wrong.join(" ")
        )],
    }
}

/// `true` if objects of `kind` are stored. Others are virtual resources such as reviews.
fn is_stored(kind: &str) -> bool {
    !matches!(kind, "Scale" | "Binding" | "Eviction" | "DeleteOptions") && !kind.ends_with("Review")
}

/// Validates the spec of an object on create and update.
fn content(kind: &str, object: &Value, errors: &mut Errors) {
    match kind {
        "Deployment" => workload::deployment(object, errors),
        "ReplicaSet" => workload::replica_set(object, errors),
        "ReplicationController" => workload::replication_controller(object, errors),
        "Scale" => workload::scale(object, errors),
        "Binding" => pod::binding(object, errors),
        "Service" => service::service(object, errors),
        "ConfigMap" => plain::config_map(object, errors),
        "Secret" => plain::secret(object, errors),
        "Lease" => plain::lease(object, errors),
        "Event" => plain::event(object, errors),
        _ => {}
    }
}
