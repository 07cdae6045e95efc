//! Known kinds.

use k8s_openapi::{
    api::{
        apps::v1 as apps,
        authentication::v1 as authentication,
        authorization::v1 as authorization,
        autoscaling::{v1 as autoscaling_v1, v2 as autoscaling_v2},
        coordination::v1 as coordination,
        core::v1 as core,
        events::v1 as events,
        policy::v1 as policy,
        scheduling::v1 as scheduling,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    apimachinery::pkg::apis::meta::v1 as meta,
};

use super::{Schema, trace};

macro_rules! kinds {
    ($($api_version:literal $kind:literal $type:ty,)+) => {
        /// Adds all kinds to `schema`.
        pub(super) fn trace_all(schema: &mut Schema) {
            $(
                if let Some(id) = trace::trace::<$type>(schema, $api_version, $kind) {
                    schema.kinds.push(($api_version, $kind, id));
                }
            )+
        }

        /// All kinds.
        #[cfg(test)]
        pub(crate) const ALL: &[(&str, &str)] = &[$(($api_version, $kind)),+];
    };
}

// Newer versions of a kind precede older ones.
kinds! {
    "v1" "Binding" core::Binding,
    "v1" "ConfigMap" core::ConfigMap,
    "v1" "Event" core::Event,
    "v1" "Namespace" core::Namespace,
    "v1" "Node" core::Node,
    "v1" "Pod" core::Pod,
    "v1" "ReplicationController" core::ReplicationController,
    "v1" "ResourceQuota" core::ResourceQuota,
    "v1" "Secret" core::Secret,
    "v1" "Service" core::Service,
    "v1" "ServiceAccount" core::ServiceAccount,
    "v1" "DeleteOptions" meta::DeleteOptions,
    "apiextensions.k8s.io/v1" "CustomResourceDefinition" apiextensions::CustomResourceDefinition,
    "apps/v1" "Deployment" apps::Deployment,
    "apps/v1" "ReplicaSet" apps::ReplicaSet,
    "authentication.k8s.io/v1" "SelfSubjectReview" authentication::SelfSubjectReview,
    "authentication.k8s.io/v1" "TokenReview" authentication::TokenReview,
    "authorization.k8s.io/v1" "SelfSubjectAccessReview" authorization::SelfSubjectAccessReview,
    "authorization.k8s.io/v1" "SubjectAccessReview" authorization::SubjectAccessReview,
    "autoscaling/v2" "HorizontalPodAutoscaler" autoscaling_v2::HorizontalPodAutoscaler,
    "autoscaling/v1" "HorizontalPodAutoscaler" autoscaling_v1::HorizontalPodAutoscaler,
    "autoscaling/v1" "Scale" autoscaling_v1::Scale,
    "coordination.k8s.io/v1" "Lease" coordination::Lease,
    "events.k8s.io/v1" "Event" events::Event,
    "policy/v1" "Eviction" policy::Eviction,
    "policy/v1" "PodDisruptionBudget" policy::PodDisruptionBudget,
    "scheduling.k8s.io/v1" "PriorityClass" scheduling::PriorityClass,
}
