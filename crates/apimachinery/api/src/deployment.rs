//! Deployments.

use std::sync::Arc;

use crate::{IntOrString, LabelSelector, ObjectMeta, PodTemplate, Time};

/// Group and version of Deployments and ReplicaSets.
pub const API_VERSION: &str = "apps/v1";

/// The kind of a [`Deployment`].
pub const KIND: &str = "Deployment";

lossless! {
    /// A Deployment, whole: what is not known here is kept in the `extra` of the place it came in.
    pub struct Deployment {
        /// Always `apps/v1`, or empty in a list's items.
        pub api_version: String = "apiVersion",
        /// Always `Deployment`, or empty in a list's items.
        pub kind: String = "kind",
        /// Name, labels, owners and so on.
        pub metadata: ObjectMeta = "metadata" always,
        /// What is wanted.
        pub spec: DeploymentSpec = "spec" always,
        /// What was last seen.
        pub status: DeploymentStatus = "status" always,
    }
}

lossless! {
    /// What is wanted of a Deployment.
    pub struct DeploymentSpec {
        /// How many pods. The server fills in 1.
        pub replicas: Option<i32> = "replicas",
        /// Which pods and ReplicaSets belong to it.
        pub selector: Option<LabelSelector> = "selector",
        /// What its pods look like.
        pub template: PodTemplate = "template" always,
        /// How old pods give way to new ones.
        pub strategy: DeploymentStrategy = "strategy",
        /// How long a pod must have been ready to count as available, in seconds.
        pub min_ready_seconds: i32 = "minReadySeconds",
        /// How many old ReplicaSets to keep. The server fills in 10.
        pub revision_history_limit: Option<i32> = "revisionHistoryLimit",
        /// Whether a changed template waits.
        pub paused: bool = "paused",
        /// How long without progress until the rollout counts as stuck, in seconds. The server fills in 600.
        pub progress_deadline_seconds: Option<i32> = "progressDeadlineSeconds",
    }
}

lossless! {
    /// How old pods give way to new ones.
    pub struct DeploymentStrategy {
        /// `RollingUpdate` or `Recreate`.
        pub type_: String = "type",
        /// Bounds for `RollingUpdate`.
        pub rolling_update: Option<RollingUpdate> = "rollingUpdate",
    }
}

impl crate::lossless::Unset for DeploymentStrategy {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

lossless! {
    /// Bounds of a rolling update.
    pub struct RollingUpdate {
        /// How many of the wanted pods may be missing.
        pub max_unavailable: Option<IntOrString> = "maxUnavailable",
        /// How many pods more than wanted there may be.
        pub max_surge: Option<IntOrString> = "maxSurge",
    }
}

lossless! {
    /// What was last seen of a Deployment.
    pub struct DeploymentStatus {
        /// The generation of the spec that this status follows from.
        pub observed_generation: i64 = "observedGeneration",
        /// Pods that are neither finished nor terminating.
        pub replicas: i32 = "replicas",
        /// Of those, the ones with the wanted template.
        pub updated_replicas: i32 = "updatedReplicas",
        /// Pods that are ready.
        pub ready_replicas: i32 = "readyReplicas",
        /// Pods that have been ready long enough.
        pub available_replicas: i32 = "availableReplicas",
        /// Pods that are still missing.
        pub unavailable_replicas: i32 = "unavailableReplicas",
        /// Pods that are on their way out.
        pub terminating_replicas: Option<i32> = "terminatingReplicas",
        /// The latest observations.
        pub conditions: Vec<DeploymentCondition> = "conditions",
        /// How often a ReplicaSet name was taken by another's template.
        pub collision_count: Option<i32> = "collisionCount",
    }
}

lossless! {
    /// One observation about a Deployment.
    pub struct DeploymentCondition {
        /// `Available`, `Progressing` or `ReplicaFailure`.
        pub type_: String = "type" always,
        /// `True`, `False` or `Unknown`.
        pub status: String = "status" always,
        /// When this was last written.
        pub last_update_time: Option<Time> = "lastUpdateTime",
        /// When the status last changed.
        pub last_transition_time: Option<Time> = "lastTransitionTime",
        /// Why, for machines.
        pub reason: String = "reason",
        /// Why, for people.
        pub message: String = "message",
    }
}

impl Deployment {
    /// How many pods are wanted.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// The UID.
    pub fn uid(&self) -> &Arc<str> {
        &self.metadata.uid
    }

    /// The condition of type `type_`.
    pub fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.status.condition(type_)
    }
}

impl DeploymentStatus {
    /// The condition of type `type_`.
    pub fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn deployment_without_replicas_wants_one() {
        let mut deployment = Deployment::default();
        assert_eq!(deployment.replicas(), 1);
        deployment.spec.replicas = Some(0);
        assert_eq!(deployment.replicas(), 0);
    }

    #[test]
    fn status_leaves_out_what_go_leaves_out_and_keeps_pointers_to_zero() {
        let status = DeploymentStatus {
            replicas: 3,
            terminating_replicas: Some(0),
            collision_count: Some(0),
            ..DeploymentStatus::default()
        };
        assert_eq!(
            serde_json::to_value(&status).unwrap(),
            json!({"replicas": 3, "terminatingReplicas": 0, "collisionCount": 0})
        );
    }

    #[test]
    fn condition_is_found_by_type() {
        let status: DeploymentStatus = serde_json::from_value(json!({"conditions": [
            {"type": "Available", "status": "True"},
            {"type": "Progressing", "status": "False", "reason": "x", "lastUpdateTime": null},
        ]}))
        .unwrap();
        assert_eq!(status.condition("Progressing").map(|c| c.reason.as_str()), Some("x"));
        assert_eq!(status.condition("ReplicaFailure"), None);
    }

    #[test]
    fn deployment_of_the_wrong_shape_is_an_error() {
        for json in
            [r#"{"spec": {"replicas": "3"}}"#, r#"{"spec": []}"#, "[]", r#"{"spec": {"template": 5}}"#]
        {
            assert!(serde_json::from_str::<Deployment>(json).is_err(), "{json}");
        }
    }
}
