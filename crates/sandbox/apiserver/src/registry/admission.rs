//! Admission: checks and defaults that depend on other objects.
//!
//! Upstream counterpart: the admission plugins NamespaceLifecycle, ServiceAccount, DefaultTolerationSeconds and Priority.
//! For ResourceQuota, see [`quota`](super::quota).

use serde_json::{Value, json};

use crate::{
    ApiStatus, Object, Resource,
    json::{at, list_at, map_at_mut, set, str_at},
    store::State,
};

/// Namespaces that must not be deleted.
pub(super) const IMMORTAL_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];

/// Rejects creation in a namespace that does not exist or is terminating.
pub(super) fn namespace_lifecycle(
    state: &State,
    resource: Resource,
    namespace: &str,
    name: &str,
) -> Result<(), ApiStatus> {
    if !resource.is_namespaced() {
        return Ok(());
    }
    let Some(found) = state.get(Resource::NAMESPACES, namespace) else {
        return Err(ApiStatus::not_found(Resource::NAMESPACES, namespace));
    };
    if !found.is_deleting() {
        return Ok(());
    }
    let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
    let message = format!("namespace {namespace} is being terminated");
    Err(ApiStatus::forbidden(resource, name, why).with_cause(
        "NamespaceTerminating",
        message,
        "metadata.namespace",
    ))
}

/// Sets the fields of a new pod that upstream's admission plugins set.
///
/// `requested_name` is the pod's name or name prefix.
///
/// DEVIATION: no token volume is mounted, and the ServiceAccount need not exist.
pub(super) fn admit_pod(state: &State, requested_name: &str, pod: &mut Value) -> Result<(), ApiStatus> {
    if str_at(pod, &["spec", "serviceAccountName"]).is_empty() {
        set(pod, &["spec", "serviceAccountName"], "default");
        set(pod, &["spec", "serviceAccount"], "default");
    }
    add_tolerations(pod);
    set_priority(state, requested_name, pod)
}

/// Sets missing fields of an updated pod, as upstream's admission plugins.
pub(super) fn admit_pod_update(pod: &mut Value, old: &Object) {
    add_tolerations(pod);
    for field in ["priority", "preemptionPolicy"] {
        if at(pod, &["spec", field]).is_none() {
            crate::json::copy(pod, old.value(), &["spec", field]);
        }
    }
}

fn add_tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerations = list_at(pod, &["spec", "tolerations"]);
        let tolerated = tolerations.iter().any(|toleration| {
            let key_matches =
                matches!(str_at(toleration, &["key"]), given if given == key || given.is_empty());
            key_matches && matches!(str_at(toleration, &["effect"]), "" | "NoExecute")
        });
        if tolerated {
            continue;
        }
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        match map_at_mut(pod, &["spec"]).entry("tolerations").or_insert_with(|| json!([])) {
            Value::Array(tolerations) => tolerations.push(toleration),
            other => *other = json!([toleration]),
        }
    }
}

fn set_priority(state: &State, requested_name: &str, pod: &mut Value) -> Result<(), ApiStatus> {
    let name = str_at(pod, &["spec", "priorityClassName"]);
    let (value, policy) = match name {
        "" => match state.iter(Resource::PRIORITY_CLASSES, "").find(|class| is_global_default(class)) {
            Some(class) => {
                let (priority, name) = (priority_of(&class), class.name().to_owned());
                set(pod, &["spec", "priorityClassName"], name);
                priority
            }
            None => (json!(0), json!("PreemptLowerPriority")),
        },
        "system-node-critical" => (json!(2_000_001_000), json!("PreemptLowerPriority")),
        "system-cluster-critical" => (json!(2_000_000_000), json!("PreemptLowerPriority")),
        name => match state.get(Resource::PRIORITY_CLASSES, name) {
            Some(class) => priority_of(&class),
            None => {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(ApiStatus::forbidden(Resource::PODS, requested_name, why));
            }
        },
    };
    set(pod, &["spec", "priority"], value);
    if at(pod, &["spec", "preemptionPolicy"]).is_none() {
        set(pod, &["spec", "preemptionPolicy"], policy);
    }
    Ok(())
}

fn is_global_default(class: &Object) -> bool {
    crate::json::bool_at(class.value(), &["globalDefault"])
}

fn priority_of(class: &Object) -> (Value, Value) {
    let member = |name| class.value().get(name).cloned();
    (member("value").unwrap_or(json!(0)), member("preemptionPolicy").unwrap_or(json!("PreemptLowerPriority")))
}
