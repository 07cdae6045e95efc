//! How a strategic merge treats each list, and the few maps that are not merged.
//!
//! What is not in the table is replaced (lists) or merged (maps). The table is that of v1.36, for every type
//! this server decodes; upstream has it in the `patchStrategy` and `patchMergeKey` tags of its types. What the
//! tags call `retainKeys` concerns only those who compute patches.

/// How a field of a patch meets the field of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Lists of objects: those with the same value of this field are the same.
    MergeBy(&'static str),
    /// Lists of texts and numbers: the union.
    Union,
    /// What the patch says, and nothing else.
    Replace,
}

use Strategy::{MergeBy, Replace, Union};

/// Type, field, strategy; sorted.
const STRATEGIES: &[(&str, &str, Strategy)] = &[
    ("Container", "env", MergeBy("name")),
    ("Container", "ports", MergeBy("containerPort")),
    ("Container", "volumeDevices", MergeBy("devicePath")),
    ("Container", "volumeMounts", MergeBy("mountPath")),
    ("ContainerStatus", "allocatedResourcesStatus", MergeBy("name")),
    ("ContainerStatus", "volumeMounts", MergeBy("mountPath")),
    ("DaemonSetStatus", "conditions", MergeBy("type")),
    ("DeploymentStatus", "conditions", MergeBy("type")),
    ("EphemeralContainer", "env", MergeBy("name")),
    ("EphemeralContainer", "ports", MergeBy("containerPort")),
    ("EphemeralContainer", "volumeDevices", MergeBy("devicePath")),
    ("EphemeralContainer", "volumeMounts", MergeBy("mountPath")),
    ("HorizontalPodAutoscalerStatus", "conditions", MergeBy("type")),
    ("JobStatus", "conditions", MergeBy("type")),
    ("NamespaceStatus", "conditions", MergeBy("type")),
    ("NodeSpec", "podCIDRs", Union),
    ("NodeStatus", "addresses", MergeBy("type")),
    ("NodeStatus", "conditions", MergeBy("type")),
    ("ObjectMeta", "finalizers", Union),
    ("ObjectMeta", "ownerReferences", MergeBy("uid")),
    ("PersistentVolumeClaimStatus", "conditions", MergeBy("type")),
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
    ("StatefulSetStatus", "conditions", MergeBy("type")),
];

/// The strategy for a field of a type; none where the table has nothing to say.
pub(super) fn strategy(type_name: &str, field: &str) -> Option<Strategy> {
    let found = STRATEGIES.binary_search_by(|(ty, name, _)| (*ty, *name).cmp(&(type_name, field)));
    found.ok().and_then(|index| STRATEGIES.get(index)).map(|(_, _, strategy)| *strategy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{SCHEMA, Type};

    #[test]
    fn table_is_sorted_and_speaks_of_fields_that_exist() {
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
