//! What an object must be like to be stored.
//!
//! Every check names the field, the kind of mistake and what would be right, in upstream's words: people look
//! for these texts. All mistakes of an object are reported together.
//!
//! Expects decoded ([`crate::strict`]) and defaulted ([`crate::defaults`]) objects, with the namespace of the
//! request in them. Nothing here looks at other objects; that is admission.
//!
//! Kinds that this server only stores (DaemonSet, Job and so on) get their metadata checked and no more.
//!
//! Upstream counterpart: `pkg/apis/*/validation`.

use serde_json::Value;

mod container;
mod error;
mod metadata;
mod names;
mod path;
mod plain;
mod pod;
mod probe;
mod read;
mod service;
#[cfg(test)]
mod tests;
mod volume;
mod workload;

pub use error::{Cause, ErrorType, FieldError, aggregate, causes};
use metadata::Naming;
use path::Errors;

/// What is wrong with a new object.
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

/// What is wrong with replacing `old` by `new`.
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

/// What is wrong with replacing `old` by `new` through `/status`.
pub fn update_status(kind: &str, new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    metadata::update(new, old, &mut errors);
    match kind {
        "Deployment" => workload::deployment_status(new, old, &mut errors),
        // A ReplicationController's has no more fields than a ReplicaSet's.
        "ReplicaSet" | "ReplicationController" => workload::replica_set_status(new, &mut errors),
        "Pod" => pod::status(new, &mut errors),
        _ => {}
    }
    errors.0
}

/// What is not wrong with a new object but should be said: the texts of `Warning` headers.
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

/// Whether objects of `kind` are kept; the others are questions, answered and forgotten.
fn is_stored(kind: &str) -> bool {
    !matches!(kind, "Scale" | "Binding" | "Eviction" | "DeleteOptions") && !kind.ends_with("Review")
}

/// What must hold of the object itself, whether it is new or replaces another.
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
