//! Containers.

use std::{cmp::Ordering, collections::BTreeSet};

use kcm_api::quantity::{Number, Quantity};
use serde_json::Value;

use super::{
    names,
    path::{Errors, Path},
    probe,
    read::{entries, get, given, integer, list, map, text},
    security_context::security_context,
};
use crate::json::semantically_equal;

/// Properties of a pod that its containers refer to.
struct PodContext<'a> {
    volumes: &'a BTreeSet<&'a str>,
    /// Field of the spec that contains the container.
    field: &'static str,
}

/// Fields that an ephemeral container must not have, in upstream's order.
const NOT_EPHEMERAL: [&str; 8] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// Validates all containers of a pod spec.
pub(super) fn containers<'a>(
    spec: &'a Value,
    path: &Path<'_>,
    volumes: &'a BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    let mut names = BTreeSet::new();
    if list(spec, "containers").is_empty() {
        errors.required(&path.child("containers"), "");
    }
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        let path = path.child(field);
        let context = PodContext { volumes, field };
        for (index, value) in list(spec, field).iter().enumerate() {
            let path = path.index(index);
            container(value, &path, &context, errors);
            let name = text(value, "name");
            if !name.is_empty() && !names.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
            if field == "ephemeralContainers" {
                ephemeral(value, spec, &path, errors);
            }
        }
    }
    host_ports(spec, path, errors);
}

/// Validates what an ephemeral container must not have.
///
/// Upstream counterpart: `validateEphemeralContainers`.
fn ephemeral(container: &Value, spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    const DETAIL: &str = "cannot be set for an Ephemeral Container";
    let target = text(container, "targetContainerName");
    let others = ["containers", "initContainers"].into_iter().flat_map(|field| list(spec, field));
    if !target.is_empty() && !others.into_iter().any(|other| text(other, "name") == target) {
        errors.not_found(&path.child("targetContainerName"), target);
    }
    for field in NOT_EPHEMERAL {
        if !semantically_equal(container.get(field), None) {
            errors.forbidden(&path.child(field), DETAIL);
        }
    }
    let mounts = path.child("volumeMounts");
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        for field in ["subPath", "subPathExpr"] {
            if !text(mount, field).is_empty() {
                errors.forbidden(&mounts.index(index).child(field), DETAIL);
            }
        }
    }
}

fn container(container: &Value, path: &Path<'_>, context: &PodContext<'_>, errors: &mut Errors) {
    let (name, name_path) = (text(container, "name"), path.child("name"));
    if name.is_empty() {
        errors.required(&name_path, "");
    } else {
        errors.rule(&name_path, name, names::dns_label);
    }
    let (image, image_path) = (text(container, "image"), path.child("image"));
    if image.is_empty() {
        errors.required(&image_path, "");
    } else if image.trim() != image {
        errors.invalid(&image_path, image, "must not have leading or trailing whitespace");
    }
    let policy = text(container, "terminationMessagePolicy");
    errors.one_of(&path.child("terminationMessagePolicy"), policy, &["FallbackToLogsOnError", "File"]);
    ports(list(container, "ports"), &path.child("ports"), errors);
    environment(container, path, errors);
    mounts(container, path, context.volumes, errors);
    let policy = text(container, "imagePullPolicy");
    errors.one_of(&path.child("imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    resources(get(container, "resources"), &path.child("resources"), errors);
    security_context(get(container, "securityContext"), &path.child("securityContext"), errors);
    let restarts = text(container, "restartPolicy") == "Always";
    if context.field == "ephemeralContainers" {
        // Probes are not allowed.
    } else if context.field == "initContainers" && !restarts {
        for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
            if given(container, field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&path.child(field), detail);
            }
        }
    } else {
        probe::probes(container, path, errors);
    }
}

fn ports(ports: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.rule(&path.child("name"), name, names::port_name);
            if !seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        }
        match integer(port, "containerPort").unwrap_or(0) {
            0 => errors.required(&path.child("containerPort"), ""),
            number => errors.in_range(&path.child("containerPort"), Some(number), 1, 65535),
        }
        let host = integer(port, "hostPort").filter(|number| *number != 0);
        errors.in_range(&path.child("hostPort"), host, 1, 65535);
        errors.one_of(&path.child("protocol"), text(port, "protocol"), &["SCTP", "TCP", "UDP"]);
    }
}

/// Rejects duplicate host ports among the containers of a pod.
fn host_ports(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (containers, mut seen) = (path.child("containers"), BTreeSet::new());
    for (index, container) in list(spec, "containers").iter().enumerate() {
        let container_path = containers.index(index);
        let ports = container_path.child("ports");
        for (index, port) in list(container, "ports").iter().enumerate() {
            let Some(number) = integer(port, "hostPort").filter(|number| *number != 0) else { continue };
            let shown = format!("{}/{}/{number}", text(port, "protocol"), text(port, "hostIP"));
            if !seen.insert(shown.clone()) {
                errors.duplicate(&ports.index(index).child("hostPort"), shown);
            }
        }
    }
}

fn environment(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    let env = path.child("env");
    for (index, variable) in list(container, "env").iter().enumerate() {
        let path = env.index(index);
        let name = text(variable, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else {
            errors.rule(&path.child("name"), name, names::variable_name);
        }
        if let Some(source) = given(variable, "valueFrom") {
            let has_value = !text(variable, "value").is_empty();
            value_from(source, has_value, &path.child("valueFrom"), errors);
        }
    }
    let env_from = path.child("envFrom");
    for (index, source) in list(container, "envFrom").iter().enumerate() {
        let path = env_from.index(index);
        let sources = ["configMapRef", "secretRef"];
        let given: Vec<&&str> = sources.iter().filter(|name| given(source, name).is_some()).collect();
        for name in &given {
            errors.present(&path.child(name).child("name"), text(get(source, name), "name"));
        }
        match given.len() {
            0 => errors.invalid(&path, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(&path, "", "may not have more than one field specified at a time"),
        }
    }
}

fn value_from(source: &Value, has_value: bool, path: &Path<'_>, errors: &mut Errors) {
    let sources = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
    let given: Vec<&&str> = sources.iter().filter(|name| given(source, name).is_some()).collect();
    for name in &given {
        let (reference, path) = (get(source, name), path.child(name));
        match **name {
            "fieldRef" => errors.present(&path.child("fieldPath"), text(reference, "fieldPath")),
            "resourceFieldRef" => errors.present(&path.child("resource"), text(reference, "resource")),
            "configMapKeyRef" | "secretKeyRef" => {
                errors.present(&path.child("name"), text(reference, "name"));
                let key = text(reference, "key");
                if key.is_empty() {
                    errors.required(&path.child("key"), "");
                } else {
                    errors.rule(&path.child("key"), key, names::config_key);
                }
            }
            _ => {}
        }
    }
    match given.len() {
        0 => {
            let detail =
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`";
            errors.invalid(path, "", detail);
        }
        _ if has_value => errors.invalid(path, "", "may not be specified when `value` is not empty"),
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
}

fn mounts(container: &Value, path: &Path<'_>, volumes: &BTreeSet<&str>, errors: &mut Errors) {
    let (path, mut seen) = (path.child("volumeMounts"), BTreeSet::new());
    for (index, mount) in list(container, "volumeMounts").iter().enumerate() {
        let path = path.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.required(&path.child("name"), "");
        } else if !volumes.contains(name) {
            errors.not_found(&path.child("name"), name);
        }
        let at = text(mount, "mountPath");
        if at.is_empty() {
            errors.required(&path.child("mountPath"), "");
        } else if !seen.insert(at) {
            errors.invalid(&path.child("mountPath"), at, "must be unique");
        }
        for field in ["subPath", "subPathExpr"] {
            let sub_path = text(mount, field);
            if sub_path.starts_with('/') {
                errors.invalid(&path.child(field), sub_path, "must be a relative path");
            }
            if sub_path.split('/').any(|part| part == "..") {
                errors.invalid(&path.child(field), sub_path, "must not contain '..'");
            }
        }
        if !text(mount, "subPath").is_empty() && !text(mount, "subPathExpr").is_empty() {
            let expression = text(mount, "subPathExpr");
            let detail = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&path.child("subPathExpr"), expression, detail);
        }
    }
}

/// Validates resource requests and limits.
pub(super) fn resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (limits_path, requests_path) = (path.child("limits"), path.child("requests"));
    let limits = map(resources, "limits");
    for (path, field) in [(&limits_path, "limits"), (&requests_path, "requests")] {
        for (name, quantity) in entries(resources, field) {
            let path = path.key(name);
            errors.rule(&path, name, names::qualified_name);
            let standard = ["cpu", "memory", "ephemeral-storage"];
            if !name.contains('/') && !standard.contains(&name.as_str()) && !name.starts_with("hugepages-") {
                errors.invalid(&path, name.as_str(), "must be a standard resource for containers");
            }
            if amount(quantity).is_some_and(|number| number.negative) {
                errors.invalid(&path, quantity.clone(), "must be greater than or equal to 0");
            }
        }
    }
    for (name, request) in entries(resources, "requests") {
        let Some(limit) = limits.and_then(|limits| limits.get(name)) else { continue };
        let (Some(asked), Some(allowed)) = (amount(request), amount(limit)) else { continue };
        let detail = if !is_overcommit_allowed(name) && compare(&asked, &allowed) != Ordering::Equal {
            format!("must be equal to {name} limit of {}", limit.as_str().unwrap_or_default())
        } else if compare(&asked, &allowed) == Ordering::Greater {
            format!("must be less than or equal to {name} limit of {}", limit.as_str().unwrap_or_default())
        } else {
            continue;
        };
        errors.invalid(&requests_path, request.clone(), detail);
    }
}

/// `true` if the resource can be overcommitted, so that the request may be below the limit.
fn is_overcommit_allowed(name: &str) -> bool {
    !name.starts_with("hugepages-") && (!name.contains('/') || name.contains("kubernetes.io/"))
}

fn amount(quantity: &Value) -> Option<Number> {
    quantity.as_str()?.parse::<Quantity>().ok().map(|quantity| quantity.number())
}

fn compare(a: &Number, b: &Number) -> Ordering {
    let sign = |number: &Number| match (number.digits.is_empty(), number.negative) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    };
    // Neither has leading zeros, so more digits before the decimal point mean a larger number.
    let magnitude = |number: &Number| number.digits.len() as i64 + number.exponent;
    let larger = || magnitude(a).cmp(&magnitude(b)).then_with(|| a.digits.cmp(&b.digits));
    sign(a).cmp(&sign(b)).then_with(|| if a.negative { larger().reverse() } else { larger() })
}
