//! Resources of the types.

use kcm_meta::{ApiResource, JsonDecoder, Kind, StrategicMerge};

use crate::{Deployment, Lease, Pod, PodDecoder, ReplicaSet, ReplicationController};

/// Decoder of [`Deployment`]s and [`ReplicaSet`]s. It has no state.
#[derive(Debug, Clone, Copy, Default)]
pub struct LosslessDecoder;

macro_rules! kinds {
    ($($type:ident = $group:literal / $version:literal $plural:literal, decoder: $decoder:ty;)*) => { $(
        impl Kind for $type {
            type Decoder = $decoder;

            fn resource() -> ApiResource {
                ApiResource::namespaced($group, $version, stringify!($type), $plural)
            }
        }

        impl StrategicMerge for $type {}
    )* };
}

kinds! {
    Deployment = "apps" / "v1" "deployments", decoder: LosslessDecoder;
    ReplicaSet = "apps" / "v1" "replicasets", decoder: LosslessDecoder;
    ReplicationController = "" / "v1" "replicationcontrollers", decoder: JsonDecoder;
    Lease = "coordination.k8s.io" / "v1" "leases", decoder: JsonDecoder;
    Pod = "" / "v1" "pods", decoder: PodDecoder;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{deployment, lease, replica_set, replication_controller};

    #[test]
    fn resources_match_the_constants() {
        let cases = [
            (Deployment::resource(), deployment::API_VERSION, deployment::KIND),
            (ReplicaSet::resource(), replica_set::API_VERSION, replica_set::KIND),
            (
                ReplicationController::resource(),
                replication_controller::API_VERSION,
                replication_controller::KIND,
            ),
            (Lease::resource(), lease::API_VERSION, lease::KIND),
        ];
        for (resource, api_version, kind) in cases {
            assert_eq!((&*resource.api_version(), &*resource.kind), (api_version, kind));
        }
    }
}
