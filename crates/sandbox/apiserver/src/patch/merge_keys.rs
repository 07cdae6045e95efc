//! Patch strategies of lists and maps in strategic merges.
//!
//! Lists without an entry are replaced, maps are merged. The table is that of v1.36 for all types that the server
//! decodes. Upstream has it in the tags `patchStrategy` and `patchMergeKey` of its types. The tag `retainKeys` affects
//! only clients that compute patches.

/// Merge strategy of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// List of objects, merged by the value of this key.
    MergeBy(&'static str),
    /// List of scalars, merged as a set.
    Union,
    /// Replaced by the value in the patch.
    Replace,
}

use Strategy::{MergeBy, Replace, Union};

/// Type, field, strategy. Sorted.
const STRATEGIES: &[(&str, &str, Strategy)] = &[
    ("Container", "env", MergeBy("name")),
    ("Container", "ports", MergeBy("containerPort")),
    ("Container", "volumeDevices", MergeBy("devicePath")),
    ("Container", "volumeMounts", MergeBy("mountPath")),
    ("ContainerStatus", "allocatedResourcesStatus", MergeBy("name")),
    ("ContainerStatus", "volumeMounts", MergeBy("mountPath")),
    ("DeploymentStatus", "conditions", MergeBy("type")),
    ("EphemeralContainer", "env", MergeBy("name")),
    ("EphemeralContainer", "ports", MergeBy("containerPort")),
    ("EphemeralContainer", "volumeDevices", MergeBy("devicePath")),
    ("EphemeralContainer", "volumeMounts", MergeBy("mountPath")),
    ("HorizontalPodAutoscalerStatus", "conditions", MergeBy("type")),
    ("NamespaceStatus", "conditions", MergeBy("type")),
    ("NodeSpec", "podCIDRs", Union),
    ("NodeStatus", "addresses", MergeBy("type")),
    ("NodeStatus", "conditions", MergeBy("type")),
    ("ObjectMeta", "finalizers", Union),
    ("ObjectMeta", "ownerReferences", MergeBy("uid")),
    ("PodDisruptionBudgetSpec", "selector", Replace),
    ("PodDisruptionBudgetStatus", "conditions", MergeBy("type")),
    ("PodSpec", "containers", MergeBy("name")),
    ("PodSpec", "ephemeralContainers", MergeBy("name")),
    ("PodSpec", "hostAliases", MergeBy("ip")),
    ("PodSpec", "imagePullSecrets", MergeBy("name")),
    ("PodSpec", "initContainers", MergeBy("name")),
    ("PodSpec", "resourceClaims", MergeBy("name")),
    ("PodSpec", "schedulingGates", MergeBy("name")),
    ("PodSpec", "topologySpreadConstraints", MergeBy("topologyKey")),
    ("PodSpec", "volumes", MergeBy("name")),
    ("PodStatus", "conditions", MergeBy("type")),
    ("PodStatus", "hostIPs", MergeBy("ip")),
    ("PodStatus", "podIPs", MergeBy("ip")),
    ("PodStatus", "resourceClaimStatuses", MergeBy("name")),
    ("ReplicaSetStatus", "conditions", MergeBy("type")),
    ("ReplicationControllerStatus", "conditions", MergeBy("type")),
    ("ServiceAccount", "secrets", MergeBy("name")),
    ("ServiceSpec", "ports", MergeBy("port")),
    ("ServiceStatus", "conditions", MergeBy("type")),
];

/// Returns the strategy of a field of a type. `None` for the default strategy.
pub(super) fn strategy(type_name: &str, field: &str) -> Option<Strategy> {
    let found = STRATEGIES.binary_search_by(|(ty, name, _)| (*ty, *name).cmp(&(type_name, field)));
    found.ok().and_then(|index| STRATEGIES.get(index)).map(|(_, _, strategy)| *strategy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{SCHEMA, Type};

    #[test]
    fn table_is_sorted_and_refers_to_existing_fields() {
        assert!(STRATEGIES.is_sorted_by_key(|(ty, field, _)| (ty, field)));
        for (name, field, strategy) in STRATEGIES {
            let found = SCHEMA.structs_named(name).find_map(|ty| ty.field(field));
            let ty = &found.unwrap_or_else(|| panic!("{name}.{field}")).ty;
            match (strategy, ty) {
                (MergeBy(key), Type::List(element)) => {
                    let Type::Struct(id) = **element else { panic!("{name}.{field}") };
                    assert!(SCHEMA.get(id).field(key).is_some(), "{name}.{field} {key}");
                }
                (Union, Type::List(element)) => assert_eq!(**element, Type::Text),
                (Replace, Type::Struct(_)) => {}
                other => panic!("{name}.{field}: {other:?}"),
            }
        }
    }
}
