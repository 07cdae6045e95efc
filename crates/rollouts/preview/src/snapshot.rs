//! Objects of the cluster that a preview starts from.

use std::collections::HashSet;

use kcm_api::{LabelSelector, Labels, Selector};
use kcm_clock::Timestamp;
use kcm_rollouts::Unreadable;
use serde_json::Value;

use crate::json::{controller, is_terminating, text};

/// Objects of the cluster around one Deployment, as the API server returned them.
///
/// Lists that the caller could not read are empty, and named in [`unreadable`](Self::unreadable).
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Time at which the objects were read.
    pub taken: Timestamp,
    /// Namespace of the Deployment.
    pub namespace: String,
    /// Name of the Deployment.
    pub name: String,
    /// `true` if the namespace is being deleted.
    pub is_terminating: bool,
    /// `true` if the pods run in a sandbox, whose image tags and annotations have an effect.
    pub is_sandbox: bool,
    /// The Deployment. `None` if it does not exist.
    pub deployment: Option<Value>,
    /// ReplicaSets of the namespace.
    pub replica_sets: Vec<Value>,
    /// Pods of the namespace. Those of other owners may be reduced by [`usage_of_pod`](crate::usage_of_pod).
    pub pods: Vec<Value>,
    /// Events of refused requests of the ReplicaSets. Other events have no effect.
    pub events: Vec<Value>,
    /// Pods of other namespaces. Only their resource requests are used.
    pub other_pods: Vec<Value>,
    /// Nodes.
    pub nodes: Vec<Value>,
    /// ResourceQuotas of the namespace.
    pub quotas: Vec<Value>,
    /// LimitRanges of the namespace.
    pub limit_ranges: Vec<Value>,
    /// PodDisruptionBudgets of the namespace.
    pub disruption_budgets: Vec<Value>,
    /// HorizontalPodAutoscalers of the namespace.
    pub autoscalers: Vec<Value>,
    /// Resources that could not be read, with the reason.
    pub unreadable: Vec<Unreadable>,
}

impl Snapshot {
    /// ReplicaSets that the Deployment controls or may adopt.
    pub(crate) fn own_replica_sets(&self) -> Vec<&Value> {
        let Some(deployment) = &self.deployment else { return Vec::new() };
        let uid = text(deployment, "/metadata/uid");
        let selector = serde_json::from_value::<LabelSelector>(deployment["spec"]["selector"].clone()).ok();
        let selector = selector.and_then(|selector| Selector::new(Some(&selector)).ok());
        let is_adopted = |set: &Value| {
            let labels =
                serde_json::from_value::<Labels>(set["metadata"]["labels"].clone()).unwrap_or_default();
            !is_terminating(set) && selector.as_ref().is_some_and(|selector| selector.matches(&labels))
        };
        let own = |set: &&Value| controller(set).map_or_else(|| is_adopted(set), |owner| owner == uid);
        self.replica_sets.iter().filter(own).collect()
    }

    /// Pods of those ReplicaSets, and the other pods of the namespace.
    pub(crate) fn split_pods(&self) -> (Vec<&Value>, Vec<&Value>) {
        let sets = self.own_replica_sets();
        let uids: HashSet<&str> = sets.iter().map(|set| text(set, "/metadata/uid")).collect();
        self.pods.iter().partition(|pod| controller(pod).is_some_and(|owner| uids.contains(owner)))
    }
}
