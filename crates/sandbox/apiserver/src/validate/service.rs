//! Services.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    metadata, names,
    path::{Errors, Path},
    probe,
    read::{get, integer, list, text, texts},
};

const SPEC: Path<'static> = Path::new("spec");

/// Validates the spec of a Service.
pub(super) fn service(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    let kind = text(spec, "type");
    let is_headless = text(spec, "clusterIP") == "None";
    if list(spec, "ports").is_empty() && !is_headless && kind != "ExternalName" {
        errors.required(&SPEC.child("ports"), "");
    }
    if kind == "LoadBalancer" && is_headless {
        let detail = "may not be set to 'None' for LoadBalancer services";
        errors.invalid(&SPEC.child("clusterIPs").index(0), "None", detail);
    }
    if kind == "NodePort" && is_headless {
        let detail = "may not be set to 'None' for NodePort services";
        errors.invalid(&SPEC.child("clusterIPs").index(0), "None", detail);
    }
    if kind == "ExternalName" {
        let (path, name) = (SPEC.child("externalName"), text(spec, "externalName"));
        if name.is_empty() {
            errors.required(&path, "");
        } else {
            errors.rule(&path, name.strip_suffix('.').unwrap_or(name), names::dns_subdomain);
        }
    }
    ports(list(spec, "ports"), errors);
    metadata::labels(spec, "selector", &SPEC, errors);
    let affinity = text(spec, "sessionAffinity");
    errors.one_of(&SPEC.child("sessionAffinity"), affinity, &["ClientIP", "None"]);
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    errors.one_of(&SPEC.child("type"), kind, &kinds);
}

fn ports(ports: &[Value], errors: &mut Errors) {
    let path = SPEC.child("ports");
    let (mut seen, mut names_seen) = (BTreeSet::new(), BTreeSet::new());
    for (index, port) in ports.iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            errors.rule(&path.child("name"), name, names::dns_label);
            if !names_seen.insert(name) {
                errors.duplicate(&path.child("name"), name);
            }
        } else if ports.len() > 1 {
            errors.required(&path.child("name"), "");
        }
        let number = integer(port, "port").unwrap_or(0);
        errors.in_range(&path.child("port"), Some(number), 1, 65535);
        let protocol = text(port, "protocol");
        errors.one_of(&path.child("protocol"), protocol, &["SCTP", "TCP", "UDP"]);
        probe::port(get(port, "targetPort"), &path.child("targetPort"), errors);
        if !seen.insert((number, protocol)) {
            errors.duplicate(&path, json!({"port": number, "protocol": protocol}));
        }
    }
}

/// Rejects a change of a cluster IP that is set.
pub(super) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (get(new, "spec"), get(old, "spec"));
    let had_address = text(old, "type") != "ExternalName" && !text(old, "clusterIP").is_empty();
    let has_address = text(new, "type") != "ExternalName";
    if had_address && has_address && text(new, "clusterIP") != text(old, "clusterIP") {
        let addresses: Vec<&str> = texts(new, "clusterIPs").collect();
        let detail = "may not change once set";
        errors.invalid(&SPEC.child("clusterIPs").index(0), json!(addresses), detail);
    }
}
