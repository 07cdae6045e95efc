//! Validation.
//!
//! Errors have upstream's fields, types and messages, because users search for them. All errors of an object are
//! reported together.
//!
//! Objects must be decoded ([`crate::strict`]) and defaulted ([`crate::defaults`]) and contain the namespace of the
//! request. Checks that depend on other objects belong to admission.
//!
//! Upstream counterpart: `pkg/apis/*/validation`.

use serde_json::Value;

mod container;
mod definition;
#[cfg(feature = "cel")]
mod definition_rules;
mod definition_schema;
mod label_selector;
mod metadata;
pub(crate) mod names;
pub(crate) mod path;
mod plain;
mod pod;
mod pod_parts;
mod probe;
mod read;
mod security_context;
mod service;
mod stored;
#[cfg(test)]
mod tests;
mod volume;
mod webhooks;
mod workload;

pub use crate::field_error::{ErrorType, FieldError, aggregate};
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
    metadata::create(object, &Naming::of(kind), &mut errors);
    match kind {
        "Pod" => pod::create(object, &mut errors),
        "CustomResourceDefinition" => definition::create(object, &mut errors),
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
    metadata::update(new, old, true, &mut errors);
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
        "PriorityClass" => plain::priority_class_immutable(new, old, &mut errors),
        "CustomResourceDefinition" => definition::update(new, old, &mut errors),
        _ => {}
    }
    errors.0
}

pub(crate) use stored::{NameRule, approval_unchanged, content as stored, metadata as stored_metadata};

/// Returns the errors in the metadata of a new custom resource.
pub(crate) fn custom_metadata(object: &Value, is_namespaced: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let naming = Naming { is_namespaced, rule: names::dns_subdomain, is_built_in: false };
    metadata::create(object, &naming, &mut errors);
    errors.0
}

/// Returns the errors in the metadata of an updated custom resource, or if `is_built_in` of another object.
pub(crate) fn metadata_update(new: &Value, old: &Value, is_built_in: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::update(new, old, is_built_in, &mut errors);
    errors.0
}

/// Returns the errors in the metadata of a resource that is embedded in a custom resource.
pub(crate) fn embedded_metadata(object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::common(read::get(object, "metadata"), &path::Path::new("metadata"), &mut errors);
    errors.0
}

/// Returns the validation errors of an update from `old` to `new` through `/status`.
pub fn update_status(kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::update(new, old, true, &mut errors);
    match kind {
        "Namespace" => plain::namespace_phase(new, &mut errors),
        "Deployment" => workload::deployment_status(new, old, &mut errors),
        // The status of a ReplicationController has the same fields as that of a ReplicaSet.
        "ReplicaSet" | "ReplicationController" => workload::replica_set_status(new, &mut errors),
        "Pod" => pod::status(new, &mut errors),
        _ => {}
    }
    errors.0
}

pub(crate) use pod_parts::{ephemeral_containers, resize};

/// Validates the spec of an object on create and update.
fn content(kind: &str, object: &Value, errors: &mut Errors) {
    match kind {
        "Deployment" => workload::deployment(object, errors),
        "ReplicaSet" => workload::replica_set(object, errors),
        "ReplicationController" => workload::replication_controller(object, errors),
        "Service" => service::service(object, errors),
        "ConfigMap" => plain::config_map(object, errors),
        "Secret" => plain::secret(object, errors),
        "Lease" => plain::lease(object, errors),
        "Event" => plain::event(object, errors),
        _ => {}
    }
}
