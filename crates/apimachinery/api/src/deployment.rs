//! Deployments.

use crate::{IntOrString, LabelSelector, ObjectMeta, PodTemplate, Time};

/// Group and version of Deployments and ReplicaSets.
pub const API_VERSION: &str = "apps/v1";

/// Kind of a [`Deployment`].
pub const KIND: &str = "Deployment";

lossless! {
    /// A Deployment. Unknown fields are kept in the `extra` of their parent.
    pub struct Deployment {
        /// `apps/v1`. Empty in items of a list.
        pub api_version: String = "apiVersion",
        /// `Deployment`. Empty in items of a list.
        pub kind: String = "kind",
        /// Metadata.
        pub metadata: ObjectMeta = "metadata" always,
        /// Desired state.
        pub spec: DeploymentSpec = "spec" always,
        /// Observed state.
        pub status: DeploymentStatus = "status" always,
    }
}

lossless! {
    /// Desired state of a Deployment.
    pub struct DeploymentSpec {
        /// Desired number of pods. The API server sets 1 by default.
        pub replicas: Option<i32> = "replicas",
        /// Selector of the pods and ReplicaSets.
        pub selector: Option<LabelSelector> = "selector",
        /// Template of the pods.
        pub template: PodTemplate = "template" always,
        /// Strategy to replace old pods.
        pub strategy: DeploymentStrategy = "strategy",
        /// Time for which a pod must be ready to be available, in seconds.
        pub min_ready_seconds: i32 = "minReadySeconds",
        /// Number of old ReplicaSets to keep. The API server sets 10 by default.
        pub revision_history_limit: Option<i32> = "revisionHistoryLimit",
        /// `true` if changes of the template are not rolled out.
        pub paused: bool = "paused",
        /// Time without progress after which the rollout has failed, in seconds. The API server sets 600 by default.
        pub progress_deadline_seconds: Option<i32> = "progressDeadlineSeconds",
    }
}

lossless! {
    /// Strategy to replace old pods.
    pub struct DeploymentStrategy {
        /// `RollingUpdate` or `Recreate`.
        pub type_: String = "type",
        /// Parameters of `RollingUpdate`.
        pub rolling_update: Option<RollingUpdate> = "rollingUpdate",
    }
}

impl crate::lossless::Unset for DeploymentStrategy {
    fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

lossless! {
    /// Parameters of a rolling update.
    pub struct RollingUpdate {
        /// Maximum number of pods that can be unavailable, of the desired number.
        pub max_unavailable: Option<IntOrString> = "maxUnavailable",
        /// Maximum number of pods above the desired number.
        pub max_surge: Option<IntOrString> = "maxSurge",
    }
}

lossless! {
    /// Observed state of a Deployment.
    pub struct DeploymentStatus {
        /// Generation of the spec that the status was computed from.
        pub observed_generation: i64 = "observedGeneration",
        /// Number of pods that are neither finished nor terminating.
        pub replicas: i32 = "replicas",
        /// Number of those pods that have the current template.
        pub updated_replicas: i32 = "updatedReplicas",
        /// Number of ready pods.
        pub ready_replicas: i32 = "readyReplicas",
        /// Number of pods that have been ready for `minReadySeconds`.
        pub available_replicas: i32 = "availableReplicas",
        /// Number of pods that are missing to the desired number of available pods.
        pub unavailable_replicas: i32 = "unavailableReplicas",
        /// Number of terminating pods.
        pub terminating_replicas: Option<i32> = "terminatingReplicas",
        /// Conditions.
        pub conditions: Vec<DeploymentCondition> = "conditions",
        /// Number of hash collisions: the name of a new ReplicaSet existed with another template.
        pub collision_count: Option<i32> = "collisionCount",
    }
}

lossless! {
    /// Condition of a Deployment.
    pub struct DeploymentCondition {
        /// `Available`, `Progressing` or `ReplicaFailure`.
        pub type_: String = "type" always,
        /// `True`, `False` or `Unknown`.
        pub status: String = "status" always,
        /// Time of the last update of the condition.
        pub last_update_time: Option<Time> = "lastUpdateTime",
        /// Time of the last change of the status.
        pub last_transition_time: Option<Time> = "lastTransitionTime",
        /// Reason for the last transition, in CamelCase.
        pub reason: String = "reason",
        /// Description of the last transition.
        pub message: String = "message",
    }
}

impl Deployment {
    /// Returns the desired number of pods.
    pub fn replicas(&self) -> i32 {
        self.spec.replicas.unwrap_or(1)
    }

    /// Returns the condition of type `type_`.
    pub fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.status.condition(type_)
    }
}

impl DeploymentStatus {
    /// Returns the condition of type `type_`.
    pub fn condition(&self, type_: &str) -> Option<&DeploymentCondition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_default_to_one() {
        let mut deployment = Deployment::default();
        assert_eq!(deployment.replicas(), 1);
        deployment.spec.replicas = Some(0);
        assert_eq!(deployment.replicas(), 0);
    }

    #[test]
    fn status_omits_zero_but_not_pointers_to_zero() {
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
    fn wrong_type_is_an_error() {
        for json in
            [r#"{"spec": {"replicas": "3"}}"#, r#"{"spec": []}"#, "[]", r#"{"spec": {"template": 5}}"#]
        {
            assert!(serde_json::from_str::<Deployment>(json).is_err(), "{json}");
        }
    }
}
