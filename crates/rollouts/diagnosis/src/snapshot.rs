//! Objects of the cluster that a diagnosis reads.

use std::sync::Arc;

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
    /// ControllerRevisions of the namespace. Not used for Deployments.
    pub controller_revisions: Known<Vec<Value>>,
    /// Nodes, at least those of the pods. Shared by the snapshots of all namespaces.
    pub nodes: Known<Arc<[Value]>>,
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
            controller_revisions: Known::not_requested("controllerrevisions"),
            nodes: Known::not_requested("nodes"),
            namespace: Known::not_requested("namespaces"),
            lease: Known::not_requested("leases"),
            controllers: Vec::new(),
        }
    }
}

impl Snapshot {
    /// Resources for the diagnosis of a Deployment that were not read.
    pub fn unread(&self) -> Vec<&Unreadable> {
        let lists = [&self.deployments, &self.replica_sets];
        let budgets = [&self.disruption_budgets, &self.autoscalers];
        self.unread_with(&lists, &budgets)
    }

    /// Resources for the diagnosis of a StatefulSet or DaemonSet that were not read.
    pub(crate) fn unread_for_workload(&self) -> Vec<&Unreadable> {
        self.unread_with(&[&self.controller_revisions], &[])
    }

    /// As [`unread`](Self::unread), with the lists `before` and `after` those that all workloads have.
    fn unread_with<'a>(
        &'a self,
        before: &[&'a Known<Vec<Value>>],
        after: &[&'a Known<Vec<Value>>],
    ) -> Vec<&'a Unreadable> {
        let common = [&self.pods, &self.events, &self.quotas, &self.limit_ranges];
        let lists = before.iter().copied().chain(common).chain(after.iter().copied());
        let others = [self.nodes.unread(), self.namespace.unread(), self.lease.unread()];
        lists.filter_map(Known::unread).chain(others.into_iter().flatten()).collect()
    }
}
