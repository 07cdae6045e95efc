//! Updates of parts of a pod: ephemeral containers and resources.
//!
//! Upstream counterpart: `ValidatePodEphemeralContainersUpdate` and `ValidatePodResize` of `pkg/apis/core/validation`.

use serde_json::{Map, Value};

use super::{
    metadata,
    path::{Errors, Path},
    pod::{SPEC, pod_spec},
    read::{get, given, list, map, text},
};
use crate::{
    field_error::FieldError,
    json::{at, semantically_equal, str_at},
    strategy::pod::qos_class,
};

/// Annotation of pods that a kubelet reads from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Error about a pod that cannot be updated. The field is that of upstream's empty path.
fn refused(detail: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.forbidden(&Path::new("[]"), detail);
    errors.0
}

/// Returns the validation errors of an update of the ephemeral containers of a pod.
pub(crate) fn ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    if at(old, &["metadata", "annotations", MIRROR]).is_some() {
        return refused("static pods do not support ephemeral containers");
    }
    let mut errors = Errors::default();
    metadata::update(new, old, true, &mut errors);
    let (new, old) = (get(new, "spec"), get(old, "spec"));
    pod_spec(new, &SPEC, &mut errors);
    let path = SPEC.child("ephemeralContainers");
    for before in list(old, "ephemeralContainers") {
        let name = text(before, "name");
        let mut same_name = list(new, "ephemeralContainers").iter().rev();
        match same_name.find(|now| text(now, "name") == name) {
            None => errors
                .forbidden(&path, format!("existing ephemeral containers {name:?} may not be removed\n")),
            Some(now) if !semantically_equal(Some(now), Some(before)) => {
                // Upstream appends a diff of Go values.
                errors
                    .forbidden(&path, format!("existing ephemeral containers {name:?} may not be changed\n"));
            }
            Some(_) => {}
        }
    }
    errors.0
}

/// Returns the validation errors of a resize of a pod.
pub(crate) fn resize(new: &Value, old: &Value) -> Vec<FieldError> {
    if at(old, &["metadata", "annotations", MIRROR]).is_some() {
        return refused("static pods cannot be resized");
    }
    if str_at(old, &["spec", "os", "name"]) == "windows" {
        return refused("windows pods cannot be resized");
    }
    let mut errors = Errors::default();
    metadata::update(new, old, true, &mut errors);
    pod_spec(get(new, "spec"), &SPEC, &mut errors);
    let before = match str_at(old, &["status", "qosClass"]) {
        "" => qos_class(old),
        class => class,
    };
    if before != qos_class(new) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&SPEC, str_at(new, &["status", "qosClass"]), detail);
    }
    if !is_supported(old) {
        errors.forbidden(&SPEC, "Pod running on node without support for resize");
    }
    let (new, old) = (get(new, "spec"), get(old, "spec"));
    pod_resources(get(new, "resources"), get(old, "resources"), &mut errors);
    if !has_same_containers(new, old, &mut errors) {
        return errors.0;
    }
    for field in ["initContainers", "containers"] {
        let path = SPEC.child(field);
        for (index, (new, old)) in list(new, field).iter().zip(list(old, field)).enumerate() {
            let (new, old) = (get(new, "resources"), get(old, "resources"));
            not_removed(new, old, &path.index(index).child("resources"), "resource", &mut errors);
        }
    }
    for (new, old) in list(new, "containers").iter().zip(list(old, "containers")) {
        if !changes_only_cpu_and_memory(new, old) {
            errors.forbidden(&SPEC, "only cpu and memory resources are mutable");
        }
    }
    let path = SPEC.child("initContainers");
    for (index, (new, old)) in list(new, "initContainers").iter().zip(list(old, "initContainers")).enumerate()
    {
        let path = path.index(index);
        if !changes_only_cpu_and_memory(new, old) {
            errors
                .forbidden(&path, "only cpu and memory resources for init or sidecar containers are mutable");
        }
        let restarts = |policy: &Value| text(policy, "restartPolicy") == "RestartContainer";
        if text(new, "restartPolicy") != "Always"
            && !semantically_equal(Some(new), Some(old))
            && list(new, "resizePolicy").iter().any(restarts)
        {
            let detail =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            errors.forbidden(&path, detail);
        }
    }
    errors.0
}

/// `true` if no container runs, or if the status of the first running one has `resources`.
fn is_supported(pod: &Value) -> bool {
    let statuses = list(get(pod, "status"), "containerStatuses").iter();
    let mut running = statuses.filter(|status| at(status, &["state", "running"]).is_some());
    running.next().is_none_or(|status| given(status, "resources").is_some())
}

/// Validates a change of resources of the whole pod.
fn pod_resources(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("resources");
    if new.is_null() && !old.is_null() {
        errors.forbidden(&path, "pod-level resources cannot be removed");
        return;
    }
    not_removed(new, old, &path, "pod-level resource", errors);
    if !semantically_equal(Some(&without_cpu_and_memory(new)), Some(&without_cpu_and_memory(old))) {
        errors.forbidden(&SPEC, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Returns `false` after an error about containers that are added, removed, renamed or reordered.
fn has_same_containers(new: &Value, old: &Value, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    for field in ["containers", "initContainers"] {
        let path = SPEC.child(field);
        let (new, old) = (list(new, field), list(old, field));
        if new.len() != old.len() {
            errors.forbidden(&path, format!("{field} may not be added or removed on resize"));
            continue;
        }
        for (index, (new, old)) in new.iter().zip(old).enumerate() {
            if text(new, "name") != text(old, "name") {
                let detail = format!("{field} may not be renamed or reordered on resize");
                errors.forbidden(&path.index(index).child("name"), detail);
            }
        }
    }
    errors.0.len() == before
}

fn not_removed(new: &Value, old: &Value, path: &Path<'_>, what: &str, errors: &mut Errors) {
    for field in ["requests", "limits"] {
        let has = |name| map(new, field).is_some_and(|new| new.contains_key(name));
        if map(old, field).into_iter().flatten().any(|(name, _)| !has(name)) {
            errors.forbidden(&path.child(field), format!("{what} {field} cannot be removed"));
        }
    }
}

fn changes_only_cpu_and_memory(new: &Value, old: &Value) -> bool {
    let same = |field| semantically_equal(new.get(field), old.get(field));
    let (new, old) = (get(new, "resources"), get(old, "resources"));
    same("resizePolicy")
        // As upstream: the claims of the old container must be empty, those of the new one are not compared.
        && list(old, "claims").is_empty()
        && semantically_equal(Some(&without_cpu_and_memory(new)), Some(&without_cpu_and_memory(old)))
}

/// Limits and requests of other resources.
fn without_cpu_and_memory(resources: &Value) -> Value {
    let others = |field: &str| {
        let others: Map<String, Value> = map(resources, field)
            .into_iter()
            .flatten()
            .filter(|(name, _)| !matches!(name.as_str(), "cpu" | "memory"))
            .map(|(name, amount)| (name.clone(), amount.clone()))
            .collect();
        (field.to_owned(), Value::Object(others))
    };
    Value::Object(["limits", "requests"].map(others).into_iter().collect())
}
