//! Probes and lifecycle hooks.

use serde_json::Value;

use super::{
    names,
    path::{Errors, Path},
    read::{get, given, integer, list, text},
};

/// Validates the probes and lifecycle hooks of a container.
pub(super) fn probes(container: &Value, path: &Path<'_>, errors: &mut Errors) {
    if let Some(lifecycle) = given(container, "lifecycle") {
        let path = path.child("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(action) = given(lifecycle, hook) {
                handler(action, &["exec", "httpGet", "tcpSocket", "sleep"], &path.child(hook), errors);
            }
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(value) = given(container, name) else { continue };
        let path = path.child(name);
        probe(value, &path, errors);
        let successes = integer(value, "successThreshold").unwrap_or(0);
        if name != "readinessProbe" && successes != 1 {
            errors.invalid(&path.child("successThreshold"), successes, "must be 1");
        }
        if name == "readinessProbe"
            && let Some(grace) = given(value, "terminationGracePeriodSeconds")
        {
            let path = path.child("terminationGracePeriodSeconds");
            errors.invalid(&path, grace.clone(), "must not be set for readinessProbes");
        }
    }
}

fn probe(probe: &Value, path: &Path<'_>, errors: &mut Errors) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], path, errors);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        errors.not_negative(&path.child(field), integer(probe, field));
    }
    if let Some(grace) = integer(probe, "terminationGracePeriodSeconds").filter(|grace| *grace <= 0) {
        errors.invalid(&path.child("terminationGracePeriodSeconds"), grace, "must be greater than 0");
    }
}

/// Validates the handler of a probe or hook. Exactly one action is required.
fn handler(action: &Value, kinds: &[&str], path: &Path<'_>, errors: &mut Errors) {
    let mut given = kinds.iter().filter(|kind| given(action, kind).is_some());
    let Some(kind) = given.next() else {
        errors.required(path, "must specify a handler type");
        return;
    };
    let (details, kind_path) = (get(action, kind), path.child(kind));
    match *kind {
        "exec" if list(details, "command").is_empty() => errors.required(&kind_path.child("command"), ""),
        "httpGet" => {
            errors.present(&kind_path.child("path"), text(details, "path"));
            port(get(details, "port"), &kind_path.child("port"), errors);
            let scheme = text(details, "scheme");
            if !["HTTP", "HTTPS"].contains(&scheme) {
                errors.not_supported(&kind_path.child("scheme"), scheme, &["HTTP", "HTTPS"]);
            }
        }
        "tcpSocket" => port(get(details, "port"), &kind_path.child("port"), errors),
        "grpc" => {
            errors.in_range(&kind_path.child("port"), Some(integer(details, "port").unwrap_or(0)), 1, 65535);
        }
        _ => {}
    }
    for kind in given {
        errors.forbidden(&path.child(kind), "may not specify more than 1 handler type");
    }
}

/// Validates a port number or port name.
pub(super) fn port(port: &Value, path: &Path<'_>, errors: &mut Errors) {
    match port {
        Value::String(name) => errors.rule(path, name, names::port_name),
        number => errors.in_range(path, Some(number.as_i64().unwrap_or(0)), 1, 65535),
    }
}
