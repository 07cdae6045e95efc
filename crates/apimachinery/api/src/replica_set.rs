//! ReplicaSets.

use crate::{LabelSelector, ObjectMeta, PodTemplate, Time};

/// Group and version of ReplicaSets.
pub const API_VERSION: &str = crate::deployment::API_VERSION;

/// Kind of a [`ReplicaSet`].
pub const KIND: &str = "ReplicaSet";

lossless! {
    /// A ReplicaSet. Unknown fields are kept in the `extra` of their parent.
    pub struct ReplicaSet {
        /// `apps/v1`. Empty in items of a list.
        pub api_version: String = "apiVersion",
        /// `ReplicaSet`. Empty in items of a list.
        pub kind: String = "kind",
        /// Metadata.
        pub metadata: ObjectMeta = "metadata" always,
        /// Desired state.
        pub spec: ReplicaSetSpec = "spec" always,
        /// Observed state.
        pub status: ReplicaSetStatus = "status" always,
    }
}

lossless! {
    /// Desired state of a ReplicaSet.
    pub struct ReplicaSetSpec {
        /// Desired number of pods. The API server sets 1 by default.
        pub replicas: Option<i32> = "replicas",
        /// Time for which a pod must be ready to be available, in seconds.
        pub min_ready_seconds: i32 = "minReadySeconds",
        /// Selector of the pods.
        pub selector: Option<LabelSelector> = "selector",
        /// Template of the pods.
        pub template: PodTemplate = "template" always,
    }
}

lossless! {
    /// Observed state of a ReplicaSet.
    pub struct ReplicaSetStatus {
        /// Number of pods that are neither finished nor terminating.
        pub replicas: i32 = "replicas" always,
        /// Number of those pods that have all labels of the template.
        pub fully_labeled_replicas: i32 = "fullyLabeledReplicas",
        /// Number of ready pods.
        pub ready_replicas: i32 = "readyReplicas",
        /// Number of pods that have been ready for `minReadySeconds`.
        pub available_replicas: i32 = "availableReplicas",
        /// Number of terminating pods.
        pub terminating_replicas: Option<i32> = "terminatingReplicas",
        /// Generation of the spec that the status was computed from.
        pub observed_generation: i64 = "observedGeneration",
        /// Conditions.
        pub conditions: Vec<ReplicaSetCondition> = "conditions",
    }
}

lossless! {
    /// Condition of a ReplicaSet.
    pub struct ReplicaSetCondition {
        /// `ReplicaFailure`.
        pub type_: String = "type" always,
        /// `True`, `False` or `Unknown`.
        pub status: String = "status" always,
        /// Time of the last change of the status.
        pub last_transition_time: Option<Time> = "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        pub reason: String = "reason",
        /// Description of the last transition.
        pub message: String = "message",
    }
}

impl ReplicaSet {
    /// Returns the desired number of pods.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Returns the condition of type `type_`.
    pub fn condition(&self, type_: &str) -> Option<&ReplicaSetCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_default_to_one() {
        let mut set = ReplicaSet::default();
        assert_eq!(set.replicas(), 1);
        set.spec.replicas = Some(0);
        assert_eq!(set.replicas(), 0);
    }

    #[test]
    fn status_always_contains_replicas() {
        // The only field of the status without `omitempty` in Go.
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
