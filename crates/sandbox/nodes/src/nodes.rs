//! Simulated nodes.
//!
//! Nodes and their leases are written once. A kubelet renews its lease every ten seconds; a simulated node does not, so
//! that a settled sandbox writes nothing.

use std::collections::BTreeSet;

use kcm_apiserver::{ApiStatus, Object, Resource};
use serde_json::{Value, json};

use crate::api::{Api, field};

/// Prefix of the container runtime version of a simulated node.
const RUNTIME: &str = "sandbox://";

/// Creates `count` nodes named `sim-node-0` and so on. Existing nodes are kept. Returns the names of all simulated
/// nodes, including nodes that an earlier process has stored.
pub(crate) fn create(api: &Api, count: usize) -> Result<BTreeSet<String>, ApiStatus> {
    let stored = api.list(Resource::NODES, "");
    let stored = stored
        .iter()
        .filter(|node| field(node.value(), "/status/nodeInfo/containerRuntimeVersion").starts_with(RUNTIME));
    let mut names: BTreeSet<String> = stored.map(|node| node.name().to_owned()).collect();
    for number in 0..count {
        let name = format!("sim-node-{number}");
        match api.create(Resource::NODES, "", node(&name)) {
            Ok(created) => {
                api.patch_status(&created, &json!({ "status": status(api, &name, number) }))?;
                create_lease(api, &created)?;
            }
            Err(error) if error.is_already_exists() => {}
            Err(error) => return Err(error),
        }
        names.insert(name);
    }
    Ok(names)
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "labels": { "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
        },
    })
}

/// Creates the node lease that `kubectl describe node` shows.
fn create_lease(api: &Api, node: &Object) -> Result<(), ApiStatus> {
    let lease = json!({
        "metadata": {
            "name": node.name(),
            "ownerReferences": [
                { "apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.uid() },
            ],
        },
        "spec": { "holderIdentity": node.name(), "leaseDurationSeconds": 40, "renewTime": api.micro_time() },
    });
    match api.create(Resource::LEASES, "kube-node-lease", lease) {
        Err(error) if !error.is_already_exists() => Err(error),
        _ => Ok(()),
    }
}

fn status(api: &Api, name: &str, number: usize) -> Value {
    let now = api.now();
    let resources = json!({ "cpu": "64", "memory": "256Gi", "pods": "1000000" });
    json!({
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "the simulated kubelet is ready",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }],
        "addresses": [
            { "type": "InternalIP", "address": format!("10.0.{}.{}", number / 250, 1 + number % 250) },
            { "type": "Hostname", "address": name },
        ],
        "nodeInfo": {
            "kubeletVersion": "sandbox", "osImage": "simulated", "kernelVersion": "", "containerRuntimeVersion": RUNTIME,
            "architecture": "amd64", "operatingSystem": "linux", "bootID": "", "machineID": "", "systemUUID": "",
            "kubeProxyVersion": "",
        },
    })
}
