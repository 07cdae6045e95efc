//! Objects that a diagnosis of a rollout reads, from the embedded API server.

use kcm_apiserver::{ApiServer, ListOptions, Resource};
use kcm_rollouts::Snapshot;
use serde_json::Value;

/// Reads the objects of `namespace` and the nodes for [`kcm_rollouts::diagnose`].
pub fn rollout_snapshot(server: &ApiServer, namespace: &str) -> Snapshot {
    let list = |resource: Resource, namespace: Option<&str>| -> Vec<Value> {
        let list = server.list(resource, namespace, &ListOptions::default());
        list.map(|list| list.items.iter().map(|object| object.value().clone()).collect()).unwrap_or_default()
    };
    let namespaced = |group: &str, plural: &str| {
        server.resource(group, plural).map(|resource| list(resource, Some(namespace))).unwrap_or_default()
    };
    let lease = server.resource("coordination.k8s.io", "leases");
    let lease = lease.and_then(|leases| server.get(leases, "kube-system", "kube-controller-manager").ok());
    Snapshot {
        deployments: namespaced("apps", "deployments"),
        replica_sets: namespaced("apps", "replicasets"),
        pods: namespaced("", "pods"),
        events: namespaced("", "events"),
        quotas: namespaced("", "resourcequotas"),
        limit_ranges: namespaced("", "limitranges"),
        disruption_budgets: namespaced("policy", "poddisruptionbudgets"),
        autoscalers: namespaced("autoscaling", "horizontalpodautoscalers"),
        nodes: list(Resource::NODES, None),
        lease: lease.map(|lease| lease.value().clone()),
        unreadable: Vec::new(),
    }
}
