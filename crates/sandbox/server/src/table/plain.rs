//! Kinds whose cells are field values.

use std::collections::BTreeSet;

use kcm_apiserver::json::{at, bool_at, i64_at, list_at, str_at};
use serde_json::Value;

use super::{
    AGE, Column, NAME, Printer,
    age::{age, since},
    or_none,
    workload::{labels, name},
};

const TYPE: Column = Column::text("Type", "Type of the object.");

pub(super) const EVENT: Printer = Printer {
    columns: &[
        Column::text("Last Seen", "Time since the last occurrence."),
        Column::text("Type", "Type of the event: Normal or Warning."),
        Column::text("Reason", "Machine-readable reason of the event."),
        Column::text("Object", "Object that the event is about."),
        Column::text("Subobject", "Part of the object that the event is about.").wide(),
        Column::text("Source", "Component that reported the event.").wide(),
        Column::text("Message", "Description of the event."),
        Column::text("First Seen", "Time since the first occurrence.").wide(),
        Column::count("Count", "Number of occurrences.").wide(),
        Column { priority: 1, ..NAME },
    ],
    row: |event, now| {
        let time = |field: &str| str_at(event, &[field]);
        let first =
            if time("firstTimestamp").is_empty() { time("eventTime") } else { time("firstTimestamp") };
        let series = at(event, &["series"]).filter(|series| !series.is_null());
        let (last, count) = match series {
            Some(series) => (str_at(series, &["lastObservedTime"]), i64_at(series, &["count"]).unwrap_or(0)),
            // A single event in the newer format has neither a last time nor a count.
            None => {
                let last = if time("lastTimestamp").is_empty() { first } else { time("lastTimestamp") };
                (last, i64_at(event, &["count"]).filter(|count| *count != 0).unwrap_or(1))
            }
        };
        let (kind, about) = (
            str_at(event, &["involvedObject", "kind"]).to_lowercase(),
            str_at(event, &["involvedObject", "name"]),
        );
        let about = if about.is_empty() { kind } else { format!("{kind}/{about}") };
        vec![
            Value::from(since(last, now)),
            Value::from(str_at(event, &["type"])),
            Value::from(str_at(event, &["reason"])),
            Value::from(about),
            Value::from(str_at(event, &["involvedObject", "fieldPath"])),
            Value::from(source(event)),
            Value::from(str_at(event, &["message"]).trim()),
            Value::from(since(first, now)),
            Value::from(count),
            name(event),
        ]
    },
};

/// Returns the reporter of an event.
fn source(event: &Value) -> String {
    let (component, host) = match str_at(event, &["source", "component"]) {
        "" => (str_at(event, &["reportingComponent"]), str_at(event, &["reportingInstance"])),
        component => (component, str_at(event, &["source", "host"])),
    };
    if host.is_empty() { component.to_owned() } else { format!("{component}, {host}") }
}

pub(super) const NAMESPACE: Printer = Printer {
    columns: &[NAME, Column::text("Status", "Phase of the namespace: Active or Terminating."), AGE],
    row: |object, now| {
        vec![name(object), Value::from(str_at(object, &["status", "phase"])), age(object, now)]
    },
};

pub(super) const NODE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Status", "Readiness and schedulability of the node."),
        Column::text("Roles", "Roles of the node."),
        AGE,
        Column::text("Version", "Version of the kubelet."),
        Column::text("Internal-IP", "Address within the cluster.").wide(),
        Column::text("External-IP", "Address outside the cluster.").wide(),
        Column::text("OS-Image", "Operating system of the node.").wide(),
        Column::text("Kernel-Version", "Kernel version of the node.").wide(),
        Column::text("Container-Runtime", "Container runtime of the node.").wide(),
    ],
    row: |node, now| {
        let info = |field: &str| str_at(node, &["status", "nodeInfo", field]);
        let or_unknown = |text: &str| Value::from(if text.is_empty() { "<unknown>" } else { text });
        vec![
            name(node),
            Value::from(node_status(node)),
            or_none(&roles(node)),
            age(node, now),
            Value::from(info("kubeletVersion")),
            or_none(address(node, "InternalIP")),
            or_none(address(node, "ExternalIP")),
            or_unknown(info("osImage")),
            or_unknown(info("kernelVersion")),
            or_unknown(info("containerRuntimeVersion")),
        ]
    },
};

fn node_status(node: &Value) -> String {
    let ready = list_at(node, &["status", "conditions"])
        .iter()
        .find(|condition| str_at(condition, &["type"]) == "Ready")
        .map(|condition| str_at(condition, &["status"]) == "True");
    let status = match ready {
        Some(true) => "Ready",
        Some(false) => "NotReady",
        None => "Unknown",
    };
    let cordoned = if bool_at(node, &["spec", "unschedulable"]) { ",SchedulingDisabled" } else { "" };
    format!("{status}{cordoned}")
}

fn roles(node: &Value) -> String {
    let labels = at(node, &["metadata", "labels"]).and_then(Value::as_object);
    let roles: BTreeSet<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    roles.into_iter().collect::<Vec<_>>().join(",")
}

fn address<'a>(node: &'a Value, kind: &str) -> &'a str {
    list_at(node, &["status", "addresses"])
        .iter()
        .find(|address| str_at(address, &["type"]) == kind)
        .map_or("", |address| str_at(address, &["address"]))
}

pub(super) const LEASE: Printer = Printer {
    columns: &[NAME, Column::text("Holder", "Holder of the lease."), AGE],
    row: |object, now| {
        vec![name(object), Value::from(str_at(object, &["spec", "holderIdentity"])), age(object, now)]
    },
};

const DATA: Column = Column::text("Data", "Number of entries.");

pub(super) const CONFIG_MAP: Printer = Printer {
    columns: &[NAME, DATA, AGE],
    row: |object, now| {
        let entries = size(object, "data") + size(object, "binaryData");
        vec![name(object), Value::from(entries), age(object, now)]
    },
};

pub(super) const SECRET: Printer = Printer {
    columns: &[NAME, TYPE, DATA, AGE],
    row: |object, now| {
        let kind = Value::from(str_at(object, &["type"]));
        vec![name(object), kind, Value::from(size(object, "data")), age(object, now)]
    },
};

fn size(object: &Value, field: &str) -> usize {
    at(object, &[field]).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

pub(super) const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        TYPE,
        Column::text("Cluster-IP", "Address within the cluster."),
        Column::text("External-IP", "Addresses outside the cluster."),
        Column::text("Port(s)", "Ports of the service."),
        AGE,
        Column::text("Selector", "Labels of the selected pods.").wide(),
    ],
    row: |service, now| {
        let selector = at(service, &["spec", "selector"]).and_then(Value::as_object);
        vec![
            name(service),
            Value::from(str_at(service, &["spec", "type"])),
            or_none(str_at(service, &["spec", "clusterIP"])),
            Value::from(external(service)),
            or_none(&ports(service)),
            age(service, now),
            or_none(&labels(selector)),
        ]
    },
};

fn external(service: &Value) -> String {
    let mut addresses: Vec<&str> = Vec::new();
    let kind = str_at(service, &["spec", "type"]);
    if kind == "ExternalName" {
        return str_at(service, &["spec", "externalName"]).to_owned();
    }
    if kind == "LoadBalancer" {
        for ingress in list_at(service, &["status", "loadBalancer", "ingress"]) {
            let ip = str_at(ingress, &["ip"]);
            addresses.push(if ip.is_empty() { str_at(ingress, &["hostname"]) } else { ip });
        }
    }
    addresses.extend(list_at(service, &["spec", "externalIPs"]).iter().filter_map(Value::as_str));
    match addresses.as_slice() {
        [] if kind == "LoadBalancer" => "<pending>".to_owned(),
        [] => "<none>".to_owned(),
        addresses => addresses.join(","),
    }
}

fn ports(service: &Value) -> String {
    let ports = list_at(service, &["spec", "ports"]).iter().map(|port| {
        let (number, protocol) = (i64_at(port, &["port"]).unwrap_or(0), str_at(port, &["protocol"]));
        match i64_at(port, &["nodePort"]).unwrap_or(0) {
            0 => format!("{number}/{protocol}"),
            node_port => format!("{number}:{node_port}/{protocol}"),
        }
    });
    ports.collect::<Vec<_>>().join(",")
}

/// Any other kind.
pub(super) const OTHER: Printer =
    Printer { columns: &[NAME, AGE], row: |object, now| vec![name(object), age(object, now)] };
