//! ReplicaSets.

use std::sync::Arc;

use crate::{LabelSelector, ObjectMeta, PodTemplate, Time};

/// Group and version of ReplicaSets.
pub const API_VERSION: &str = crate::deployment::API_VERSION;

/// The kind of a [`ReplicaSet`].
pub const KIND: &str = "ReplicaSet";

lossless! {
    /// A ReplicaSet, whole: what is not known here is kept in the `extra` of the place it came in.
    pub struct ReplicaSet {
        /// Always `apps/v1`, or empty in a list's items.
        pub api_version: String = "apiVersion",
        /// Always `ReplicaSet`, or empty in a list's items.
        pub kind: String = "kind",
        /// Name, labels, owners and so on.
        pub metadata: ObjectMeta = "metadata" always,
        /// What is wanted.
        pub spec: ReplicaSetSpec = "spec" always,
        /// What was last seen.
        pub status: ReplicaSetStatus = "status" always,
    }
}

lossless! {
    /// What is wanted of a ReplicaSet.
    pub struct ReplicaSetSpec {
        /// How many pods. The server fills in 1.
        pub replicas: Option<i32> = "replicas",
        /// How long a pod must have been ready to count as available, in seconds.
        pub min_ready_seconds: i32 = "minReadySeconds",
        /// Which pods belong to it.
        pub selector: Option<LabelSelector> = "selector",
        /// What its pods look like.
        pub template: PodTemplate = "template" always,
    }
}

lossless! {
    /// What was last seen of a ReplicaSet.
    pub struct ReplicaSetStatus {
        /// Pods that are neither finished nor terminating.
        pub replicas: i32 = "replicas" always,
        /// Of those, the ones that carry all the template's labels.
        pub fully_labeled_replicas: i32 = "fullyLabeledReplicas",
        /// Pods that are ready.
        pub ready_replicas: i32 = "readyReplicas",
        /// Pods that have been ready long enough.
        pub available_replicas: i32 = "availableReplicas",
        /// Pods that are on their way out.
        pub terminating_replicas: Option<i32> = "terminatingReplicas",
        /// The generation of the spec that this status follows from.
        pub observed_generation: i64 = "observedGeneration",
        /// The latest observations.
        pub conditions: Vec<ReplicaSetCondition> = "conditions",
    }
}

lossless! {
    /// One observation about a ReplicaSet.
    pub struct ReplicaSetCondition {
        /// `ReplicaFailure`.
        pub type_: String = "type" always,
        /// `True`, `False` or `Unknown`.
        pub status: String = "status" always,
        /// When the status last changed.
        pub last_transition_time: Option<Time> = "lastTransitionTime",
        /// Why, for machines.
        pub reason: String = "reason",
        /// Why, for people.
        pub message: String = "message",
    }
}

impl ReplicaSet {
    /// How many pods are wanted.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// The UID.
    pub fn uid(&self) -> &Arc<str> {
        &self.metadata.uid
    }

    /// The condition of type `type_`.
    pub fn condition(&self, type_: &str) -> Option<&ReplicaSetCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replica_set_without_replicas_wants_one() {
        let mut set = ReplicaSet::default();
        assert_eq!(set.replicas(), 1);
        set.spec.replicas = Some(0);
        assert_eq!(set.replicas(), 0);
    }

    #[test]
    fn status_always_states_replicas() {
        // Go marks this one field as never left out.
        assert_eq!(serde_json::to_value(ReplicaSetStatus::default()).unwrap(), json!({"replicas": 0}));
    }

    #[test]
    fn condition_is_found_by_type() {
        let set: ReplicaSet = serde_json::from_value(json!({"status": {"conditions": [
            {"type": "ReplicaFailure", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z"},
        ]}}))
        .unwrap();
        let condition = set.condition("ReplicaFailure").unwrap();
        assert_eq!(condition.last_transition_time, Some("2026-01-02T03:04:05Z".parse().unwrap()));
        assert_eq!(set.condition("Available"), None);
    }
}
