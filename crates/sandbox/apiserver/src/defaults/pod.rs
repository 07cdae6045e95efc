//! Pods and pod templates.

use serde_json::Value;

use super::{
    Fields, each,
    image::pull_policy,
    make,
    quantity::round_up,
    set, set_pointer,
    volume::{self, field_ref},
    with,
};

/// Sets the defaults of the template in `spec`, if present.
pub(super) fn template(spec: &mut Fields) {
    with(spec, "template", super::pod_template);
}

/// Sets the defaults of a Pod: those of a template, and resource requests.
pub(super) fn pod(object: &mut Fields) {
    make(object, "spec", |spec| {
        pod_spec(spec);
        set(spec, "enableServiceLinks", true);
        let host_network = spec.get("hostNetwork") == Some(&Value::Bool(true));
        for containers in ["initContainers", "containers"] {
            each(spec, containers, |container| {
                with(container, "resources", request_what_is_limited);
                if host_network {
                    each(container, "ports", host_port);
                }
            });
        }
    });
}

pub(super) fn pod_spec(spec: &mut Fields) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    make(spec, "securityContext", |_| ());
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "schedulerName", "default-scheduler");
    service_account(spec);
    with(spec, "overhead", round_up);
    each(spec, "volumes", volume::volume);
    for containers in ["initContainers", "containers", "ephemeralContainers"] {
        each(spec, containers, container);
    }
}

/// Sets `serviceAccountName` and its deprecated alias `serviceAccount` to the same value.
fn service_account(spec: &mut Fields) {
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|field| spec.get(*field).and_then(Value::as_str).filter(|name| !name.is_empty()))
        .map(Value::from);
    if let Some(name) = name {
        spec.insert("serviceAccountName".to_owned(), name.clone());
        spec.insert("serviceAccount".to_owned(), name);
    }
}

fn container(container: &mut Fields) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = pull_policy(image);
    set(container, "imagePullPolicy", policy);
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    make(container, "resources", |resources| {
        with(resources, "limits", round_up);
        with(resources, "requests", round_up);
    });
    each(container, "ports", |port| set(port, "protocol", "TCP"));
    each(container, "env", |variable| {
        with(variable, "valueFrom", |source| with(source, "fieldRef", field_ref));
    });
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        with(container, name, probe);
    }
    with(container, "lifecycle", |lifecycle| {
        for hook in ["postStart", "preStop"] {
            with(lifecycle, hook, |hook| with(hook, "httpGet", http_get));
        }
    });
}

fn probe(probe: &mut Fields) {
    set(probe, "timeoutSeconds", 1);
    set(probe, "periodSeconds", 10);
    set(probe, "successThreshold", 1);
    set(probe, "failureThreshold", 3);
    with(probe, "httpGet", http_get);
    with(probe, "grpc", |grpc| set_pointer(grpc, "service", ""));
}

fn http_get(action: &mut Fields) {
    set(action, "path", "/");
    set(action, "scheme", "HTTP");
}

/// Sets `hostPort` of container ports to `containerPort` in the host network.
fn host_port(port: &mut Fields) {
    let is_unset = port.get("hostPort").is_none_or(|port| port.as_i64() == Some(0));
    if let Some(number) = port.get("containerPort").filter(|_| is_unset).cloned() {
        port.insert("hostPort".to_owned(), number);
    }
}

fn request_what_is_limited(resources: &mut Fields) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else { return };
    if limits.is_empty() {
        return;
    }
    make(resources, "requests", |requests| {
        for (name, limit) in limits {
            requests.entry(name).or_insert(limit);
        }
    });
}
