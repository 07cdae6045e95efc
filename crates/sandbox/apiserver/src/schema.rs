//! Schema of the API types, including Go's encoding rules.
//!
//! The schema is data (`types.txt`), with what JSON schemas lack: protobuf numbers, pointers, always-written fields.
//!
//! Decoding ([`crate::strict`], [`crate::protobuf`]) and strategic merges ([`crate::patch`]) are driven by this schema.

use std::{collections::BTreeMap, sync::LazyLock};

#[cfg(test)]
pub(crate) mod arbitrary;
pub(crate) mod ordered;
#[cfg(test)]
mod tests;
mod types;

/// Known kinds. Newer versions of a kind precede older ones.
pub const KINDS: &[(&str, &str)] = &[
    ("v1", "Binding"),
    ("v1", "ConfigMap"),
    ("v1", "Endpoints"),
    ("v1", "Event"),
    ("v1", "LimitRange"),
    ("v1", "Namespace"),
    ("v1", "Node"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Pod"),
    ("v1", "PodTemplate"),
    ("v1", "ReplicationController"),
    ("v1", "ResourceQuota"),
    ("v1", "Secret"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "DeleteOptions"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "MutatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("apiregistration.k8s.io/v1", "APIService"),
    ("apps/v1", "ControllerRevision"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
    ("authentication.k8s.io/v1", "SelfSubjectReview"),
    ("authentication.k8s.io/v1", "TokenRequest"),
    ("authentication.k8s.io/v1", "TokenReview"),
    ("authorization.k8s.io/v1", "LocalSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectAccessReview"),
    ("authorization.k8s.io/v1", "SelfSubjectRulesReview"),
    ("authorization.k8s.io/v1", "SubjectAccessReview"),
    ("autoscaling/v2", "HorizontalPodAutoscaler"),
    ("autoscaling/v1", "HorizontalPodAutoscaler"),
    ("autoscaling/v1", "Scale"),
    ("batch/v1", "CronJob"),
    ("batch/v1", "Job"),
    ("certificates.k8s.io/v1", "CertificateSigningRequest"),
    ("coordination.k8s.io/v1", "Lease"),
    ("discovery.k8s.io/v1", "EndpointSlice"),
    ("events.k8s.io/v1", "Event"),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"),
    ("networking.k8s.io/v1", "IPAddress"),
    ("networking.k8s.io/v1", "Ingress"),
    ("networking.k8s.io/v1", "IngressClass"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("networking.k8s.io/v1", "ServiceCIDR"),
    ("node.k8s.io/v1", "RuntimeClass"),
    ("policy/v1", "Eviction"),
    ("policy/v1", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("resource.k8s.io/v1", "DeviceClass"),
    ("resource.k8s.io/v1", "ResourceClaim"),
    ("resource.k8s.io/v1", "ResourceClaimTemplate"),
    ("resource.k8s.io/v1", "ResourceSlice"),
    ("scheduling.k8s.io/v1", "PriorityClass"),
    ("storage.k8s.io/v1", "CSIDriver"),
    ("storage.k8s.io/v1", "CSINode"),
    ("storage.k8s.io/v1", "CSIStorageCapacity"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("storage.k8s.io/v1", "VolumeAttachment"),
    ("storage.k8s.io/v1", "VolumeAttributesClass"),
];

/// Kinds that are only written, with their types in the package [`DOCUMENT_TYPES`].
const DOCUMENTS: &[&str] = &[
    "APIGroup",
    "APIGroupDiscoveryList",
    "APIGroupList",
    "APIResourceList",
    "APIVersions",
    "PartialObjectMetadata",
    "Status",
    "Table",
];

/// Package of the types of [`DOCUMENTS`].
const DOCUMENT_TYPES: &str = "documents";

/// Index of a struct in a [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StructId(u16);

impl StructId {
    /// Position in the schema.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Type of a field, by its JSON representation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Type {
    Bool,
    Int32,
    Int64,
    Text,
    /// Base64 string.
    Bytes,
    /// Time in whole seconds.
    Time,
    /// Time with six fractional digits.
    MicroTime,
    Quantity,
    IntOrString,
    /// Arbitrary JSON: `RawExtension`, `FieldsV1`.
    Any,
    List(Box<Self>),
    /// Map with string keys.
    Map(Box<Self>),
    Struct(StructId),
}

/// Condition under which Go writes a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Presence {
    /// If it is not zero or empty (`omitempty` on a value).
    #[default]
    NotEmpty,
    /// If it is set, even to zero (a pointer).
    Given,
    /// Always (no `omitempty`, or a struct value, which `omitempty` does not affect).
    Always,
}

/// Field of a [`Struct`].
#[derive(Debug, Clone)]
pub struct Field {
    /// JSON name.
    pub name: &'static str,
    pub ty: Type,
    pub presence: Presence,
    /// Name of its Go type if that is a named string, such as `RestartPolicy`.
    pub go_name: Option<&'static str>,
    /// Position in the Go struct.
    pub rank: usize,
}

/// Meaning of a protobuf field number.
#[derive(Debug, Clone)]
pub enum Wire {
    /// Field with this index.
    Field(usize),
    /// Message embedded in Go, with its name. Its fields belong to the enclosing struct.
    Inline(&'static str, BTreeMap<u32, Self>),
}

/// Struct type.
#[derive(Debug)]
pub struct Struct {
    /// Package: group and version such as `core/v1`, or `meta/v1`.
    pub package: String,
    /// Name without package.
    pub name: String,
    /// Fields sorted by `order`.
    pub fields: Vec<Field>,
    /// Fields by protobuf number, which is the order in which they are encoded.
    pub wire: BTreeMap<u32, Wire>,
}

/// Order of a struct's fields: by length, then by name. Lookups mostly compare lengths.
fn order(name: &str) -> (usize, &str) {
    (name.len(), name)
}

/// Returns the index of the field `name`.
fn find(fields: &[Field], name: &str) -> Option<usize> {
    fields.binary_search_by(|field| order(field.name).cmp(&order(name))).ok()
}

impl Struct {
    /// Returns the index of the field `name` in `fields`.
    pub fn position(&self, name: &str) -> Option<usize> {
        find(&self.fields, name)
    }

    /// Returns the field `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).and_then(|position| self.fields.get(position))
    }

    /// Formats the type as Go does: last element of the package, and the name.
    pub fn go_type(&self) -> String {
        format!("{}.{}", self.go_package(), self.name)
    }

    fn go_package(&self) -> &str {
        self.package.rsplit('/').next().unwrap_or(&self.package)
    }
}

/// All known kinds and their types.
#[derive(Debug, Default)]
pub struct Schema {
    structs: Vec<Struct>,
    kinds: Vec<(&'static str, &'static str, StructId)>,
    documents: Vec<(&'static str, StructId)>,
}

/// The schema. Built on first use in about 1 ms.
pub static SCHEMA: LazyLock<Schema> = LazyLock::new(types::read);

impl Schema {
    /// Returns the type with this ID.
    pub fn get(&self, id: StructId) -> &Struct {
        // IDs are created only together with their type.
        &self.structs[id.index()]
    }

    /// All types, in the order of their indexes.
    pub(crate) fn structs(&self) -> impl Iterator<Item = &Struct> {
        self.structs.iter()
    }

    /// Returns the kind in `api_version`. `DeleteOptions` exists in every group.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<StructId> {
        self.kinds
            .iter()
            .find(|(version, name, _)| *name == kind && (*version == api_version || kind == "DeleteOptions"))
            .map(|(_, _, id)| *id)
    }

    /// Returns the type of a document that is only written.
    pub fn document(&self, kind: &str) -> Option<StructId> {
        self.documents.iter().find(|(name, _)| *name == kind).map(|(_, id)| *id)
    }

    /// Returns the newest version of the kind.
    pub fn kind_in_any_version(&self, kind: &str) -> Option<StructId> {
        self.kinds.iter().find(|(_, name, _)| *name == kind).map(|(_, _, id)| *id)
    }

    /// Returns the types of this name in all packages.
    pub fn structs_named(&self, name: &str) -> impl Iterator<Item = &Struct> {
        self.structs.iter().filter(move |known| known.name == name)
    }

    /// Formats `ty` as in Go's error messages.
    pub fn go_type(&self, ty: &Type, within: &Struct, field: &Field) -> String {
        match ty {
            Type::Bool => "bool".to_owned(),
            Type::Int32 => "int32".to_owned(),
            Type::Int64 => "int64".to_owned(),
            Type::Text => match field.go_name {
                Some(name) if name.contains('.') => name.to_owned(),
                Some(name) => format!("{}.{name}", within.go_package()),
                None => "string".to_owned(),
            },
            Type::Bytes => "[]uint8".to_owned(),
            Type::Time => "v1.Time".to_owned(),
            Type::MicroTime => "v1.MicroTime".to_owned(),
            Type::Quantity => "resource.Quantity".to_owned(),
            Type::IntOrString => "intstr.IntOrString".to_owned(),
            Type::Any => "interface {}".to_owned(),
            Type::List(element) => format!("[]{}", self.go_type(element, within, field)),
            Type::Map(element) if **element == Type::Quantity => "v1.ResourceList".to_owned(),
            Type::Map(element) => format!("map[string]{}", self.go_type(element, within, field)),
            Type::Struct(id) => self.get(*id).go_type(),
        }
    }
}
