//! Services.

use serde_json::Value;

use super::{Fields, each, is, make, set, set_pointer};

/// Sets the defaults of a Service, except allocated fields: cluster IPs, IP families, node ports.
pub(super) fn service(object: &mut Fields) {
    make(object, "spec", |spec| {
        set(spec, "sessionAffinity", "None");
        if is(spec, "sessionAffinity", "None") {
            spec.remove("sessionAffinityConfig");
        } else if is(spec, "sessionAffinity", "ClientIP") {
            make(spec, "sessionAffinityConfig", |config| {
                make(config, "clientIP", |client| set(client, "timeoutSeconds", 10_800));
            });
        }
        set(spec, "type", "ClusterIP");
        each(spec, "ports", |port| {
            set(port, "protocol", "TCP");
            target_port(port);
        });
        let is_load_balancer = is(spec, "type", "LoadBalancer");
        let has_node_ports = is_load_balancer || is(spec, "type", "NodePort");
        let has_external_ips =
            spec.get("externalIPs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
        if has_node_ports || is(spec, "type", "ClusterIP") && has_external_ips {
            set(spec, "externalTrafficPolicy", "Cluster");
        }
        if has_node_ports || is(spec, "type", "ClusterIP") {
            set_pointer(spec, "internalTrafficPolicy", "Cluster");
        }
        if is_load_balancer {
            set(spec, "allocateLoadBalancerNodePorts", true);
        }
    });
}

/// Sets `targetPort` to `port` if it is absent.
fn target_port(port: &mut Fields) {
    let is_unset = match port.get("targetPort") {
        None | Some(Value::Null) => true,
        Some(Value::String(name)) => name.is_empty(),
        Some(number) => number.as_i64() == Some(0),
    };
    if let Some(number) = port.get("port").filter(|_| is_unset).cloned() {
        port.insert("targetPort".to_owned(), number);
    }
}
