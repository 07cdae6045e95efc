//! Objects of the cluster that a diagnosis reads.

use serde_json::Value;

use crate::{
    controller::ControllerState,
    known::{Known, Unreadable},
};

/// Objects of one namespace, as the API server returned them.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Deployments of the namespace.
    pub deployments: Known<Vec<Value>>,
    /// ReplicaSets of the namespace.
    pub replica_sets: Known<Vec<Value>>,
    /// Pods of the namespace.
    pub pods: Known<Vec<Value>>,
    /// Events of the namespace.
    pub events: Known<Vec<Value>>,
    /// ResourceQuotas of the namespace.
    pub quotas: Known<Vec<Value>>,
    /// LimitRanges of the namespace.
    pub limit_ranges: Known<Vec<Value>>,
    /// PodDisruptionBudgets of the namespace.
    pub disruption_budgets: Known<Vec<Value>>,
    /// HorizontalPodAutoscalers of the namespace.
    pub autoscalers: Known<Vec<Value>>,
    /// Nodes, at least those of the pods.
    pub nodes: Known<Vec<Value>>,
    /// The namespace. `None` if it does not exist.
    pub namespace: Known<Option<Value>>,
    /// Lease of the leader election of kube-controller-manager. `None` if it does not exist.
    pub lease: Known<Option<Value>>,
    /// Queue state of the controllers. Empty if no manager has the endpoint.
    pub controllers: Vec<ControllerState>,
}

impl Default for Snapshot {
    /// Nothing was requested.
    fn default() -> Self {
        Self {
            deployments: Known::not_requested("deployments"),
            replica_sets: Known::not_requested("replicasets"),
            pods: Known::not_requested("pods"),
            events: Known::not_requested("events"),
            quotas: Known::not_requested("resourcequotas"),
            limit_ranges: Known::not_requested("limitranges"),
            disruption_budgets: Known::not_requested("poddisruptionbudgets"),
            autoscalers: Known::not_requested("horizontalpodautoscalers"),
            nodes: Known::not_requested("nodes"),
            namespace: Known::not_requested("namespaces"),
            lease: Known::not_requested("leases"),
            controllers: Vec::new(),
        }
    }
}

impl Snapshot {
    /// Resources that were not read.
    pub fn unread(&self) -> Vec<&Unreadable> {
        let lists = [
            &self.deployments,
            &self.replica_sets,
            &self.pods,
            &self.events,
            &self.quotas,
            &self.limit_ranges,
            &self.disruption_budgets,
            &self.autoscalers,
            &self.nodes,
        ];
        let lists = lists.into_iter().filter_map(Known::unread);
        lists.chain(self.namespace.unread()).chain(self.lease.unread()).collect()
    }
}
