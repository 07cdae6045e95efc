//! Objects of the cluster that a diagnosis reads.

use serde::Serialize;
use serde_json::Value;

/// Objects of one namespace, as the API server returned them.
///
/// Lists that could not be read are empty, and named in [`unreadable`](Self::unreadable).
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Deployments of the namespace.
    pub deployments: Vec<Value>,
    /// ReplicaSets of the namespace.
    pub replica_sets: Vec<Value>,
    /// Pods of the namespace.
    pub pods: Vec<Value>,
    /// Events of the namespace.
    pub events: Vec<Value>,
    /// ResourceQuotas of the namespace.
    pub quotas: Vec<Value>,
    /// LimitRanges of the namespace.
    pub limit_ranges: Vec<Value>,
    /// PodDisruptionBudgets of the namespace.
    pub disruption_budgets: Vec<Value>,
    /// HorizontalPodAutoscalers of the namespace.
    pub autoscalers: Vec<Value>,
    /// Nodes, at least those of the pods.
    pub nodes: Vec<Value>,
    /// Lease of the leader election of kube-controller-manager.
    pub lease: Option<Value>,
    /// Resources that could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// Resource that the caller could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Unreadable {
    /// Plural name of the resource, such as `nodes`.
    pub resource: String,
    /// Error of the request.
    pub reason: String,
}
