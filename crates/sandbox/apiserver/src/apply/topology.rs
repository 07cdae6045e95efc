//! Topology of fields: the granularity of ownership.
//!
//! Upstream has it in the tags `listType`, `listMapKey`, `mapType` and `structType` of its types, which k8s-openapi lacks.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::set::{field_step, key_step, value_step};
use crate::{
    schema::{Field, Presence, SCHEMA, Struct, StructId, Type},
    structural_schema::{Additional, ListType, Schema, SchemaType},
};

/// Topology of a value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Topology<'s> {
    /// Atomic: the value has one owner.
    Atomic,
    /// Struct: each field has its owners.
    Struct(StructId),
    /// Map: each entry has its owners.
    Map(&'static Type),
    /// List of objects identified by these keys (`listType=map`).
    Items(&'static Type, &'static [&'static str]),
    /// Set of scalars (`listType=set`).
    Values,
    /// Custom resource, or a resource embedded in one: its metadata is typed.
    Object(&'s Schema),
    /// Value below a custom resource.
    Custom(&'s Schema),
    /// Value that no schema describes: maps are divided, lists are atomic.
    Unknown,
}

/// Part of a value.
pub(super) struct Part<'a, 's> {
    pub(super) step: String,
    pub(super) topology: Topology<'s>,
    pub(super) value: &'a Value,
    /// `true` for a field of a struct, `false` for a map entry or list item.
    pub(super) is_field: bool,
}

/// Associative lists: type, field, keys. Sets have no keys. Sorted.
const ASSOCIATIVE_LISTS: &[(&str, &str, &[&str])] = &[
    ("APIServiceStatus", "conditions", &["type"]),
    ("AllocatedDeviceStatus", "conditions", &["type"]),
    ("CSIDriverSpec", "volumeLifecycleModes", &[]),
    ("CSINodeSpec", "drivers", &["name"]),
    ("CertificateSigningRequestStatus", "conditions", &["type"]),
    ("Container", "env", &["name"]),
    ("Container", "ports", &["containerPort", "protocol"]),
    ("Container", "volumeDevices", &["devicePath"]),
    ("Container", "volumeMounts", &["mountPath"]),
    ("ContainerStatus", "allocatedResourcesStatus", &["name"]),
    ("ContainerStatus", "volumeMounts", &["mountPath"]),
    ("DaemonSetStatus", "conditions", &["type"]),
    ("DeploymentStatus", "conditions", &["type"]),
    ("Endpoint", "addresses", &[]),
    ("EphemeralContainer", "env", &["name"]),
    ("EphemeralContainer", "ports", &["containerPort", "protocol"]),
    ("EphemeralContainer", "volumeDevices", &["devicePath"]),
    ("EphemeralContainer", "volumeMounts", &["mountPath"]),
    ("FlowSchemaStatus", "conditions", &["type"]),
    ("HorizontalPodAutoscalerStatus", "conditions", &["type"]),
    ("MutatingAdmissionPolicySpec", "matchConditions", &["name"]),
    ("MutatingWebhook", "matchConditions", &["name"]),
    ("MutatingWebhookConfiguration", "webhooks", &["name"]),
    ("NamespaceStatus", "conditions", &["type"]),
    ("NodeSpec", "podCIDRs", &[]),
    ("NodeStatus", "addresses", &["type"]),
    ("NodeStatus", "conditions", &["type"]),
    ("NonResourcePolicyRule", "nonResourceURLs", &[]),
    ("NonResourcePolicyRule", "verbs", &[]),
    ("ObjectMeta", "finalizers", &[]),
    ("ObjectMeta", "ownerReferences", &["uid"]),
    ("PersistentVolumeClaimStatus", "conditions", &["type"]),
    ("PodDisruptionBudgetStatus", "conditions", &["type"]),
    ("PodSpec", "containers", &["name"]),
    ("PodSpec", "ephemeralContainers", &["name"]),
    ("PodSpec", "hostAliases", &["ip"]),
    ("PodSpec", "imagePullSecrets", &["name"]),
    ("PodSpec", "initContainers", &["name"]),
    ("PodSpec", "resourceClaims", &["name"]),
    ("PodSpec", "schedulingGates", &["name"]),
    ("PodSpec", "topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("PodSpec", "volumes", &["name"]),
    ("PodStatus", "conditions", &["type"]),
    ("PodStatus", "podIPs", &["ip"]),
    ("PodStatus", "resourceClaimStatuses", &["name"]),
    ("PriorityLevelConfigurationStatus", "conditions", &["type"]),
    ("ReplicaSetStatus", "conditions", &["type"]),
    ("ReplicationControllerStatus", "conditions", &["type"]),
    ("ResourceClaimStatus", "devices", &["driver", "device", "pool", "shareID"]),
    ("ResourceClaimStatus", "reservedFor", &["uid"]),
    ("ResourcePolicyRule", "apiGroups", &[]),
    ("ResourcePolicyRule", "namespaces", &[]),
    ("ResourcePolicyRule", "resources", &[]),
    ("ResourcePolicyRule", "verbs", &[]),
    ("ResourceRequirements", "claims", &["name"]),
    ("ServiceAccount", "secrets", &["name"]),
    ("ServiceCIDRStatus", "conditions", &["type"]),
    ("ServiceSpec", "ports", &["port", "protocol"]),
    ("ServiceStatus", "conditions", &["type"]),
    ("StatefulSetStatus", "conditions", &["type"]),
    ("UncountedTerminatedPods", "failed", &[]),
    ("UncountedTerminatedPods", "succeeded", &[]),
    ("ValidatingAdmissionPolicyBindingSpec", "validationActions", &[]),
    ("ValidatingAdmissionPolicySpec", "matchConditions", &["name"]),
    ("ValidatingAdmissionPolicySpec", "variables", &["name"]),
    ("ValidatingAdmissionPolicyStatus", "conditions", &["type"]),
    ("ValidatingWebhook", "matchConditions", &["name"]),
    ("ValidatingWebhookConfiguration", "webhooks", &["name"]),
];

/// Returns the keys of an associative list, none for a set.
pub(crate) fn associative_list(type_name: &str, field: &str) -> Option<&'static [&'static str]> {
    let found = ASSOCIATIVE_LISTS.binary_search_by(|(ty, name, _)| (*ty, *name).cmp(&(type_name, field)));
    found.ok().and_then(|index| ASSOCIATIVE_LISTS.get(index)).map(|(_, _, keys)| *keys)
}

/// Atomic maps.
const ATOMIC_MAPS: &[(&str, &str)] = &[
    ("PodSpec", "nodeSelector"),
    ("ReplicationControllerSpec", "selector"),
    ("Scheduling", "nodeSelector"),
    ("ServiceSpec", "selector"),
];

/// Atomic structs.
const ATOMIC_STRUCTS: &[&str] = &[
    "ConfigMapKeySelector",
    "CrossVersionObjectReference",
    "EndpointAddress",
    "EndpointPort",
    "FileKeySelector",
    "LabelSelector",
    "LocalObjectReference",
    "MatchResources",
    "NamedRuleWithOperations",
    "NodeSelector",
    "NodeSelectorTerm",
    "ObjectFieldSelector",
    "ObjectReference",
    "OwnerReference",
    "ParamKind",
    "ParamRef",
    "ResourceFieldSelector",
    "RoleRef",
    "ScopeSelector",
    "ScopedResourceSelectorRequirement",
    "SecretKeySelector",
    "SecretReference",
    "ServiceBackendPort",
    "Subject",
    "TopologySelectorTerm",
    "TypedLocalObjectReference",
    "Variable",
];

/// Default of the key `protocol`. Both lists with this key are keyed by port and protocol.
fn default_key(key: &str) -> Value {
    if key == "protocol" { Value::from("TCP") } else { Value::Null }
}

/// Topology of a field of a type, or with `None` of an item or entry.
fn topology_of(ty: &'static Type, place: Option<(&Struct, &str)>) -> Topology<'static> {
    match ty {
        Type::Struct(id) if ATOMIC_STRUCTS.contains(&SCHEMA.get(*id).name.as_str()) => Topology::Atomic,
        Type::Struct(id) => Topology::Struct(*id),
        Type::Map(_) if place.is_some_and(|(of, field)| ATOMIC_MAPS.contains(&(of.name.as_str(), field))) => {
            Topology::Atomic
        }
        Type::Map(element) => Topology::Map(element),
        Type::List(element) => {
            let Some((of, field)) = place else { return Topology::Atomic };
            match associative_list(&of.name, field) {
                None => Topology::Atomic,
                Some([]) => Topology::Values,
                Some(keys) => Topology::Items(element, keys),
            }
        }
        _ => Topology::Atomic,
    }
}

/// Topology of a field of a struct.
#[derive(Debug)]
struct FieldTopology {
    topology: Topology<'static>,
    /// `true` if Go writes the field as `null` if it is unset.
    is_null_if_unset: bool,
}

impl FieldTopology {
    /// Topologies of the fields of a struct, in the order of the fields.
    fn all(id: StructId) -> &'static [Self] {
        static ALL: LazyLock<Vec<Vec<FieldTopology>>> = LazyLock::new(|| {
            let field = |owner: &'static Struct, field: &'static Field| FieldTopology {
                topology: topology_of(&field.ty, Some((owner, field.name))),
                is_null_if_unset: owner.name != "ObjectMeta" && is_null_if_unset(field),
            };
            let fields = |owner: &'static Struct| owner.fields.iter().map(|f| field(owner, f)).collect();
            SCHEMA.structs().map(fields).collect()
        });
        ALL.get(id.index()).map_or(&[], Vec::as_slice)
    }

    fn of(id: StructId, name: &str) -> Option<&'static Self> {
        Self::all(id).get(SCHEMA.get(id).position(name)?)
    }
}

/// `true` for a list or map without `omitempty`, and for a time that is no pointer.
fn is_null_if_unset(field: &Field) -> bool {
    match field.ty {
        Type::Time | Type::MicroTime => field.presence != Presence::Given,
        Type::List(_) | Type::Map(_) => field.presence == Presence::Always,
        _ => false,
    }
}

/// Topology of the metadata of every kind.
fn metadata_topology() -> Topology<'static> {
    let any_kind = SCHEMA.kind("v1", "ConfigMap").map(Topology::Struct);
    any_kind.map_or(Topology::Atomic, |kind| kind.member("metadata").0)
}

/// Topology of a value with this schema.
fn custom_topology(schema: &Schema) -> Topology<'_> {
    if schema.is_embedded_resource {
        return Topology::Object(schema);
    }
    match (schema.ty, &schema.list_type) {
        (Some(SchemaType::Object), _) if schema.is_atomic_map => Topology::Atomic,
        (Some(SchemaType::Array), ListType::Atomic) => Topology::Atomic,
        (Some(SchemaType::Object | SchemaType::Array), _) => Topology::Custom(schema),
        (None, _) if schema.preserves_unknown_fields => Topology::Custom(schema),
        _ => Topology::Atomic,
    }
}

impl<'s> Topology<'s> {
    /// `true` if the value has a fixed set of fields.
    pub(super) fn is_struct(self) -> bool {
        match self {
            Self::Struct(_) => true,
            Self::Object(schema) | Self::Custom(schema) => {
                !schema.preserves_unknown_fields
                    && schema.ty == Some(SchemaType::Object)
                    && matches!(schema.additional, Additional::None)
            }
            _ => false,
        }
    }

    /// `true` if each member of an object has its owners.
    pub(super) fn is_divisible_object(self) -> bool {
        matches!(self, Self::Struct(_) | Self::Map(_) | Self::Object(_) | Self::Custom(_) | Self::Unknown)
    }

    /// `true` if the parts of `value` have their owners. `null` has no parts.
    pub(super) fn divides(self, value: &Value) -> bool {
        match value {
            Value::Null => true,
            Value::Object(_) => self.is_divisible_object(),
            Value::Array(_) => self.is_associative_list(),
            _ => false,
        }
    }

    /// Members that Go writes as `null` if they are unset.
    pub(super) fn null_if_unset(self) -> impl Iterator<Item = &'static str> {
        let fields = match self {
            Self::Struct(id) => Some((&SCHEMA.get(id).fields, FieldTopology::all(id))),
            _ => None,
        };
        let fields = fields.into_iter().flat_map(|(fields, known)| fields.iter().zip(known));
        fields.filter(|(_, known)| known.is_null_if_unset).map(|(field, _)| field.name)
    }

    pub(super) fn is_null_if_unset(self, name: &str) -> bool {
        match self {
            Self::Struct(id) => FieldTopology::of(id, name).is_some_and(|field| field.is_null_if_unset),
            _ => false,
        }
    }

    /// `true` if each item of a list has its owners.
    pub(super) fn is_associative_list(self) -> bool {
        match self {
            Self::Items(..) | Self::Values => true,
            Self::Custom(schema) => schema.list_type != ListType::Atomic,
            _ => false,
        }
    }

    /// Topology of the member `name`, and `true` if it is a struct field.
    pub(super) fn member(self, name: &str) -> (Self, bool) {
        match self {
            Self::Object(_) if name == "metadata" => (metadata_topology(), true),
            Self::Object(_) if matches!(name, "apiVersion" | "kind") => (Self::Atomic, true),
            Self::Object(schema) | Self::Custom(schema) => {
                match (schema.properties.get(name), &schema.additional) {
                    (Some(schema), _) => (custom_topology(schema), true),
                    (None, Additional::Schema(schema)) => (custom_topology(schema), false),
                    _ if schema.preserves_unknown_fields => (Self::Unknown, false),
                    (None, Additional::Any) => (Self::Unknown, false),
                    (None, Additional::None) => (Self::Atomic, false),
                }
            }
            Self::Unknown => (Self::Unknown, false),
            Self::Struct(id) => match FieldTopology::of(id, name) {
                Some(field) => (field.topology, true),
                None => (Self::Atomic, false),
            },
            Self::Map(element) => (topology_of(element, None), false),
            _ => (Self::Atomic, false),
        }
    }

    /// Topology of an item.
    pub(super) fn item(self) -> Self {
        match self {
            Self::Items(element, _) => topology_of(element, None),
            Self::Custom(schema) => schema.items.as_deref().map_or(Self::Atomic, custom_topology),
            _ => Self::Atomic,
        }
    }

    /// Path element of an item.
    pub(super) fn item_step(self, item: &Value) -> String {
        match self {
            Self::Items(_, keys) => {
                let keys: BTreeMap<String, Value> = keys
                    .iter()
                    .map(|key| {
                        let given = item.get(*key).filter(|value| !value.is_null());
                        ((*key).to_owned(), given.cloned().unwrap_or_else(|| default_key(key)))
                    })
                    .collect();
                key_step(&keys)
            }
            Self::Custom(schema) => match &schema.list_type {
                ListType::Map(keys) => {
                    let default = |key: &String| schema.items.as_ref()?.properties.get(key)?.default.clone();
                    let value = |key: &String| {
                        let given = item.get(key).filter(|value| !value.is_null()).cloned();
                        (key.clone(), given.or_else(|| default(key)).unwrap_or_default())
                    };
                    key_step(&keys.iter().map(value).collect())
                }
                ListType::Atomic | ListType::Set => value_step(item),
            },
            _ => value_step(item),
        }
    }

    /// Parts of a value. `None` if it is atomic.
    pub(super) fn parts(self, value: &Value) -> Option<Vec<Part<'_, 's>>> {
        match value {
            Value::Object(map) if self.is_divisible_object() => Some(
                map.iter()
                    .map(|(key, value)| {
                        let (topology, is_field) = self.member(key);
                        Part { step: field_step(key), topology, value, is_field }
                    })
                    .collect(),
            ),
            Value::Array(list) if self.is_associative_list() => Some(
                list.iter()
                    .map(|item| Part {
                        step: self.item_step(item),
                        topology: self.item(),
                        value: item,
                        is_field: false,
                    })
                    .collect(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_sorted_and_refer_to_existing_fields() {
        assert!(ASSOCIATIVE_LISTS.is_sorted_by_key(|(ty, field, _)| (ty, field)));
        for (name, field, keys) in ASSOCIATIVE_LISTS {
            let found = SCHEMA.structs_named(name).find_map(|ty| ty.field(field));
            let ty = &found.unwrap_or_else(|| panic!("{name}.{field}")).ty;
            let Type::List(element) = ty else { panic!("{name}.{field}") };
            match **element {
                Type::Struct(id) => {
                    assert!(keys.iter().all(|key| SCHEMA.get(id).field(key).is_some()), "{name}.{field}");
                }
                _ => assert!(keys.is_empty() && **element == Type::Text, "{name}.{field}"),
            }
        }
        for (name, field) in ATOMIC_MAPS {
            let found = SCHEMA.structs_named(name).find_map(|ty| ty.field(field));
            assert!(matches!(found.unwrap().ty, Type::Map(_)), "{name}.{field}");
        }
    }
}
