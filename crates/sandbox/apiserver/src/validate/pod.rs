//! Pods and pod templates. Containers and volumes are in separate modules.
//!
//! Upstream counterpart: `pkg/apis/core/validation`, for commonly used fields. Others (affinity terms, Windows, SELinux,
//! sysctls, uncommon volume sources) are stored unchecked.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    container,
    label_selector::label_selector,
    metadata, names,
    path::{Errors, Path},
    read::{entries, get, given, integer, list, map, text},
    security_context::{security_context, sysctls},
    volume,
};

pub(super) const SPEC: Path<'static> = Path::new("spec");

/// Upstream's message about changes of immutable fields of a pod's spec.
const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
    `spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to \
    be set to 1 if it was previously negative)";

/// Validates the template in a workload's spec.
pub(super) fn template(template: &Value, path: &Path<'_>, errors: &mut Errors) {
    metadata::template(get(template, "metadata"), &path.child("metadata"), errors);
    let (spec, path) = (get(template, "spec"), path.child("spec"));
    pod_spec(spec, &path, errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.child("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
}

/// Validates a new pod.
pub(super) fn create(pod: &Value, errors: &mut Errors) {
    let spec = get(pod, "spec");
    pod_spec(spec, &SPEC, errors);
    if !list(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(&SPEC.child("ephemeralContainers"), "cannot be set on create");
    }
}

/// Validates an updated pod.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (get(new, "spec"), get(old, "spec"));
    pod_spec(new, &SPEC, errors);
    if new == old {
        return;
    }
    for field in ["containers", "initContainers"] {
        if list(new, field).len() != list(old, field).len() {
            errors.forbidden(&SPEC.child(field), "pod updates may not add or remove containers");
            return;
        }
    }
    deadline(new, old, errors);
    tolerations_update(new, old, errors);
    let gates = |spec| list(spec, "schedulingGates").iter().map(|gate| text(gate, "name"));
    let before: BTreeSet<&str> = gates(old).collect();
    if let Some(added) = gates(new).find(|gate| !before.contains(gate)) {
        let detail = format!("only deletion is allowed, but found new scheduling gate '{added}'");
        errors.forbidden(&SPEC.child("schedulingGates"), detail);
    }
    let (fixed_new, fixed_old) =
        (without_mutable_fields(new, new, old), without_mutable_fields(old, new, old));
    if fixed_new != fixed_old {
        let mut fields: BTreeSet<&String> = fixed_new.keys().chain(fixed_old.keys()).collect();
        fields.retain(|field| fixed_new.get(*field) != fixed_old.get(*field));
        let fields: Vec<String> = fields.into_iter().map(|field| format!("spec.{field}")).collect();
        // Upstream appends a diff of Go values. Here the names of the changed fields are appended.
        let detail =
            format!("pod updates may not change fields other than {UPDATABLE}\n{}", fields.join(", "));
        errors.forbidden(&SPEC, detail);
    }
}

/// Returns `spec` without the mutable fields, which have separate rules.
fn without_mutable_fields(spec: &Value, new: &Value, old: &Value) -> Map<String, Value> {
    let mut fixed = spec.as_object().cloned().unwrap_or_default();
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fixed.remove(field);
    }
    let grace = |spec| integer(spec, "terminationGracePeriodSeconds");
    if grace(new) == Some(1) && grace(old).is_some_and(|before| before < 0) {
        fixed.remove("terminationGracePeriodSeconds");
    }
    if !list(old, "schedulingGates").is_empty() && only_extends_node_selector(new, old) {
        fixed.remove("nodeSelector");
    }
    for field in ["containers", "initContainers"] {
        for container in fixed.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Value::Object(container) = container {
                container.remove("image");
            }
        }
    }
    fixed
}

/// `true` if the node selector was only extended, as permitted for a gated pod.
fn only_extends_node_selector(new: &Value, old: &Value) -> bool {
    let now = map(new, "nodeSelector");
    entries(old, "nodeSelector").all(|(key, value)| now.and_then(|now| now.get(key)) == Some(value))
}

fn deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("activeDeadlineSeconds");
    match (integer(new, "activeDeadlineSeconds"), integer(old, "activeDeadlineSeconds")) {
        (Some(now), before) => {
            if let Some(before) = before
                && before < now
            {
                errors.invalid(&path, now, "must be less than or equal to previous value");
            }
        }
        (None, Some(_)) => {
            errors.invalid(&path, Value::Null, "must not update from a positive integer to nil value");
        }
        (None, None) => {}
    }
}

fn tolerations_update(new: &Value, old: &Value, errors: &mut Errors) {
    let path = SPEC.child("tolerations");
    let same_but_for_time = |a: &Value, b: &Value| {
        ["key", "operator", "value", "effect"].iter().all(|field| get(a, field) == get(b, field))
    };
    let kept = list(old, "tolerations")
        .iter()
        .all(|before| list(new, "tolerations").iter().any(|now| same_but_for_time(now, before)));
    if !kept {
        errors.forbidden(&path, "existing toleration can not be modified except its tolerationSeconds");
    }
}

/// Validates the spec of a pod or pod template.
pub(super) fn pod_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let volumes = volume::volumes(list(spec, "volumes"), &path.child("volumes"), errors);
    container::containers(spec, path, &volumes, errors);
    errors.one_of(
        &path.child("restartPolicy"),
        text(spec, "restartPolicy"),
        &["Always", "OnFailure", "Never"],
    );
    dns(spec, path, errors);
    metadata::labels(spec, "nodeSelector", path, errors);
    let grace = integer(spec, "terminationGracePeriodSeconds");
    errors.not_negative(&path.child("terminationGracePeriodSeconds"), grace);
    let deadline = integer(spec, "activeDeadlineSeconds");
    errors.in_range(&path.child("activeDeadlineSeconds"), deadline, 1, i64::from(i32::MAX));
    for (field, rule) in [
        ("serviceAccountName", names::dns_subdomain as fn(&str) -> Vec<String>),
        ("nodeName", names::dns_subdomain),
        ("priorityClassName", names::dns_subdomain),
        ("runtimeClassName", names::dns_subdomain),
        ("hostname", names::dns_label),
        ("subdomain", names::dns_label),
    ] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.rule(&path.child(field), name, rule);
        }
    }
    let (context, context_path) = (get(spec, "securityContext"), path.child("securityContext"));
    security_context(context, &context_path, errors);
    sysctls(context, &context_path, errors);
    tolerations(list(spec, "tolerations"), &path.child("tolerations"), errors);
    spread(list(spec, "topologySpreadConstraints"), &path.child("topologySpreadConstraints"), errors);
    gates(spec, path, errors);
}

fn dns(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let policy = text(spec, "dnsPolicy");
    let known = ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"];
    errors.one_of(&path.child("dnsPolicy"), policy, &known);
    if policy == "None" {
        let path = path.child("dnsConfig");
        match given(spec, "dnsConfig") {
            None => errors.required(&path, "must provide `dnsConfig` when `dnsPolicy` is None"),
            Some(config) if list(config, "nameservers").is_empty() => {
                let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
                errors.required(&path.child("nameservers"), detail);
            }
            Some(_) => {}
        }
    }
}

fn tolerations(tolerations: &[Value], path: &Path<'_>, errors: &mut Errors) {
    for (index, toleration) in tolerations.iter().enumerate() {
        let path = path.index(index);
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        let (value, effect) = (text(toleration, "value"), text(toleration, "effect"));
        if !key.is_empty() {
            errors.rule(&path.child("key"), key, names::qualified_name);
        } else if operator != "Exists" {
            let detail =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&path.child("operator"), operator, detail);
        }
        if given(toleration, "tolerationSeconds").is_some() && effect != "NoExecute" {
            let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&path.child("effect"), effect, detail);
        }
        match operator {
            "" | "Equal" => errors.rule(&path.child("value"), value, names::label_value),
            "Exists" if !value.is_empty() => {
                let detail = "value must be empty when `operator` is 'Exists'";
                errors.invalid(&path.child("operator"), toleration.clone(), detail);
            }
            "Exists" => {}
            other => errors.not_supported(&path.child("operator"), other, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            let known = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            errors.one_of(&path.child("effect"), effect, &known);
        }
    }
}

fn spread(constraints: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, constraint) in constraints.iter().enumerate() {
        let path = path.index(index);
        let skew = integer(constraint, "maxSkew").unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&path.child("maxSkew"), skew, "must be greater than zero");
        }
        let (key, otherwise) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if key.is_empty() {
            errors.required(&path.child("topologyKey"), "can not be empty");
        } else {
            errors.rule(&path.child("topologyKey"), key, names::qualified_name);
        }
        let known = ["DoNotSchedule", "ScheduleAnyway"];
        if !known.contains(&otherwise) {
            errors.not_supported(&path.child("whenUnsatisfiable"), otherwise, &known);
        }
        if !seen.insert((key, otherwise)) {
            let pair = format!("{{{key}, {otherwise}}}");
            errors.duplicate(&path.child("{topologyKey, whenUnsatisfiable}"), pair);
        }
        label_selector(get(constraint, "labelSelector"), &path.child("labelSelector"), errors);
    }
}

fn gates(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let readiness = path.child("readinessGates");
    for (index, gate) in list(spec, "readinessGates").iter().enumerate() {
        let path = readiness.index(index);
        errors.rule(&path.child("conditionType"), text(gate, "conditionType"), names::qualified_name);
    }
    let (scheduling, mut seen) = (path.child("schedulingGates"), BTreeSet::new());
    for (index, gate) in list(spec, "schedulingGates").iter().enumerate() {
        let (path, name) = (scheduling.index(index), text(gate, "name"));
        errors.rule(&path, name, names::qualified_name);
        if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
    }
    if !seen.is_empty() && !text(spec, "nodeName").is_empty() {
        errors
            .forbidden(&path.child("nodeName"), "cannot be set until all schedulingGates have been cleared");
    }
}

/// Validates the status of a pod.
pub(super) fn status(new: &Value, errors: &mut Errors) {
    let path = Path::new("status");
    let status = get(new, "status");
    let nominated = text(status, "nominatedNodeName");
    if !nominated.is_empty() {
        errors.rule(&path.child("nominatedNodeName"), nominated, names::dns_subdomain);
    }
    let mut seen = BTreeSet::new();
    for (index, address) in list(status, "podIPs").iter().enumerate() {
        let ip = text(address, "ip");
        if !seen.insert(ip) {
            errors.duplicate(&path.child("podIPs").index(index), json!({"ip": ip}));
        }
    }
}
