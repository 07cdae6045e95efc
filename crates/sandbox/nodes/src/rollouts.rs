//! Objects that a diagnosis of a rollout reads, from the embedded API server.

use kcm_apiserver::{ApiServer, ListOptions, Resource};
use kcm_rollouts::{Known, Snapshot};
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
    let found = server.get(Resource::NAMESPACES, "", namespace).ok();
    let read = |group: &str, plural: &str| Known::Read(namespaced(group, plural));
    Snapshot {
        deployments: read("apps", "deployments"),
        replica_sets: read("apps", "replicasets"),
        pods: read("", "pods"),
        events: read("", "events"),
        quotas: read("", "resourcequotas"),
        limit_ranges: read("", "limitranges"),
        disruption_budgets: read("policy", "poddisruptionbudgets"),
        autoscalers: read("autoscaling", "horizontalpodautoscalers"),
        nodes: Known::Read(list(Resource::NODES, None).into()),
        namespace: Known::Read(found.map(|namespace| namespace.value().clone())),
        lease: Known::Read(lease.map(|lease| lease.value().clone())),
        ..Snapshot::default()
    }
}
