//! Table of the served resources, one row per resource.

use std::{cmp::Ordering, fmt, sync::LazyLock};

use parking_lot::RwLock;

use crate::{
    Subresource,
    selectable_field::SelectableField,
    stored_kind::{self, StoredKind},
    strategy::{self, Strategy},
};

/// A resource: a built-in one, identified by its storage version, or a custom one.
///
/// The value is an index. Built-in resources have constants. A custom resource gets its index when a
/// CustomResourceDefinition is first established; the index is valid in the whole process and is never released, so the
/// number of distinct custom resources in a process is limited to about 65,000.
///
/// Upstream counterpart: `schema.GroupVersionResource`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Resource(u16);

/// Row of the table.
pub(crate) struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    /// Names of groups of resources, such as `all`.
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) subresources: &'static [Subresource],
    pub(crate) api_version: &'static str,
    /// JSON text up to `apiVersion`: `{"kind":…,"apiVersion":…`.
    pub(crate) type_header: &'static str,
    /// Other group-versions that serve the same objects.
    pub(crate) served_versions: &'static [ServedVersion],
    /// Rules of the kind.
    pub(crate) strategy: &'static dyn Strategy,
    /// Set for kinds that are only stored.
    pub(crate) stored: Option<&'static StoredKind>,
}

/// Group-version other than the storage version in which stored objects are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServedVersion {
    /// `events.k8s.io/v1`. The storage version is core/v1.
    EventsV1,
    /// `autoscaling/v1`. The storage version is autoscaling/v2.
    AutoscalingV1,
}

impl ServedVersion {
    pub(crate) const fn group(self) -> &'static str {
        match self {
            Self::EventsV1 => "events.k8s.io",
            Self::AutoscalingV1 => "autoscaling",
        }
    }

    pub(crate) const fn version(self) -> &'static str {
        match self {
            Self::EventsV1 | Self::AutoscalingV1 => "v1",
        }
    }

    pub(crate) const fn api_version(self) -> &'static str {
        match self {
            Self::EventsV1 => "events.k8s.io/v1",
            Self::AutoscalingV1 => "autoscaling/v1",
        }
    }
}

/// Defines the constants together with the table, so that their indexes match.
macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident = $group:tt / $version:literal $kind:literal {
        names: $plural:literal, $singular:literal, $short:expr,
        namespaced: $namespaced:literal,
        $(categories: $categories:expr,)?
        $(subresources: $subresources:expr,)?
        $(served_versions: $served_versions:expr,)?
        strategy: $strategy:expr,
    })*) => {
        #[expect(clippy::upper_case_acronyms, non_camel_case_types, reason = "named after the constants")]
        #[repr(u16)]
        enum Index { $($name),* }

        impl Resource {
            $($(#[$doc])* pub const $name: Self = Self(Index::$name as u16);)*
        }

        static TABLE: &[Definition] = &[$(Definition {
            group: $group,
            version: $version,
            kind: $kind,
            plural: $plural,
            singular: $singular,
            short_names: &$short,
            namespaced: $namespaced,
            $(categories: &$categories,)?
            $(subresources: &$subresources,)?
            $(served_versions: &$served_versions,)?
            api_version: api_version!($group, $version),
            type_header: concat!("{\"kind\":\"", $kind, "\",\"apiVersion\":\"", api_version!($group, $version), "\""),
            strategy: &$strategy,
            ..Definition::CUSTOM
        }),*];
    };
}

impl Definition {
    /// Custom resource, without its names: its CustomResourceDefinition has the rest.
    const CUSTOM: Self = Self {
        group: "",
        version: "",
        kind: "",
        plural: "",
        singular: "",
        short_names: &[],
        categories: &[],
        namespaced: false,
        subresources: &[],
        api_version: "",
        type_header: "",
        served_versions: &[],
        strategy: &strategy::core::Plain,
        stored: None,
    };
}

macro_rules! api_version {
    ("", $version:literal) => {
        $version
    };
    ($group:literal, $version:literal) => {
        concat!($group, "/", $version)
    };
}

use Subresource::{
    Attach, Binding, EphemeralContainers, Eviction, Exec, Finalize, Log, PortForward, Proxy, Resize, Scale,
    Status, Token,
};

resources! {
    /// `apps/v1` Deployments.
    DEPLOYMENTS = "apps" / "v1" "Deployment" {
        names: "deployments", "deployment", ["deploy"],
        namespaced: true,
        categories: ["all"],
        subresources: [Scale, Status],
        strategy: strategy::apps::Deployment,
    }
    /// `apps/v1` ReplicaSets.
    REPLICA_SETS = "apps" / "v1" "ReplicaSet" {
        names: "replicasets", "replicaset", ["rs"],
        namespaced: true,
        categories: ["all"],
        subresources: [Scale, Status],
        strategy: strategy::apps::ReplicaSet,
    }
    /// `v1` Pods.
    PODS = "" / "v1" "Pod" {
        names: "pods", "pod", ["po"],
        namespaced: true,
        categories: ["all"],
        subresources: [
            Attach, Binding, EphemeralContainers, Eviction, Exec, Log, PortForward, Proxy, Resize, Status,
        ],
        strategy: strategy::pod::Pod,
    }
    /// `v1` Events, also served as `events.k8s.io/v1`.
    EVENTS = "" / "v1" "Event" {
        names: "events", "event", ["ev"],
        namespaced: true,
        served_versions: [ServedVersion::EventsV1],
        strategy: strategy::core::Event,
    }
    /// `v1` Namespaces.
    NAMESPACES = "" / "v1" "Namespace" {
        names: "namespaces", "namespace", ["ns"],
        namespaced: false,
        subresources: [Finalize, Status],
        strategy: strategy::core::Namespace,
    }
    /// `v1` Nodes.
    NODES = "" / "v1" "Node" {
        names: "nodes", "node", ["no"],
        namespaced: false,
        subresources: [Status],
        strategy: strategy::core::Node,
    }
    /// `coordination.k8s.io/v1` Leases.
    LEASES = "coordination.k8s.io" / "v1" "Lease" {
        names: "leases", "lease", [],
        namespaced: true,
        strategy: strategy::core::Lease,
    }
    /// `v1` ConfigMaps.
    CONFIG_MAPS = "" / "v1" "ConfigMap" {
        names: "configmaps", "configmap", ["cm"],
        namespaced: true,
        strategy: strategy::core::Plain,
    }
    /// `v1` ServiceAccounts.
    SERVICE_ACCOUNTS = "" / "v1" "ServiceAccount" {
        names: "serviceaccounts", "serviceaccount", ["sa"],
        namespaced: true,
        subresources: [Token],
        strategy: strategy::core::ServiceAccount,
    }
    /// `v1` Secrets.
    SECRETS = "" / "v1" "Secret" {
        names: "secrets", "secret", [],
        namespaced: true,
        strategy: strategy::core::Secret,
    }
    /// `v1` Services. No traffic is routed; their `proxy` subresource reaches the pods that they select.
    SERVICES = "" / "v1" "Service" {
        names: "services", "service", ["svc"],
        namespaced: true,
        categories: ["all"],
        subresources: [Proxy, Status],
        strategy: strategy::stored_only::Service,
    }
    /// `v1` ReplicationControllers.
    REPLICATION_CONTROLLERS = "" / "v1" "ReplicationController" {
        names: "replicationcontrollers", "replicationcontroller", ["rc"],
        namespaced: true,
        categories: ["all"],
        subresources: [Scale, Status],
        strategy: strategy::core::ReplicationController,
    }
    /// `v1` ResourceQuotas.
    RESOURCE_QUOTAS = "" / "v1" "ResourceQuota" {
        names: "resourcequotas", "resourcequota", ["quota"],
        namespaced: true,
        subresources: [Status],
        strategy: strategy::stored_only::ResourceQuota,
    }
    /// `policy/v1` PodDisruptionBudgets, which evictions respect.
    POD_DISRUPTION_BUDGETS = "policy" / "v1" "PodDisruptionBudget" {
        names: "poddisruptionbudgets", "poddisruptionbudget", ["pdb"],
        namespaced: true,
        subresources: [Status],
        strategy: strategy::stored_only::PodDisruptionBudget,
    }
    /// `autoscaling/v2` HorizontalPodAutoscalers, also served as `autoscaling/v1`. They are stored without effect.
    HORIZONTAL_POD_AUTOSCALERS = "autoscaling" / "v2" "HorizontalPodAutoscaler" {
        names: "horizontalpodautoscalers", "horizontalpodautoscaler", ["hpa"],
        namespaced: true,
        categories: ["all"],
        subresources: [Status],
        served_versions: [ServedVersion::AutoscalingV1],
        strategy: strategy::stored_only::HorizontalPodAutoscaler,
    }
    /// `scheduling.k8s.io/v1` PriorityClasses, which set the priority of pods.
    PRIORITY_CLASSES = "scheduling.k8s.io" / "v1" "PriorityClass" {
        names: "priorityclasses", "priorityclass", ["pc"],
        namespaced: false,
        strategy: strategy::stored_only::PriorityClass,
    }
    /// `apiextensions.k8s.io/v1` CustomResourceDefinitions.
    CUSTOM_RESOURCE_DEFINITIONS = "apiextensions.k8s.io" / "v1" "CustomResourceDefinition" {
        names: "customresourcedefinitions", "customresourcedefinition", ["crd", "crds"],
        namespaced: false,
        categories: ["api-extensions"],
        subresources: [Status],
        strategy: strategy::definition::CustomResourceDefinition,
    }
}

/// Built-in resources by index: those of [`TABLE`], then those that are only stored.
static BUILT_IN: LazyLock<Vec<&'static Definition>> =
    LazyLock::new(|| TABLE.iter().chain(stored_kind::definitions()).collect());

/// Custom resources by index, after those of [`BUILT_IN`]. Entries are added only.
static CUSTOM: RwLock<Vec<&'static Definition>> = RwLock::new(Vec::new());

impl Resource {
    /// All built-in resources.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..BUILT_IN.len()).map(Self::from_index)
    }

    pub(crate) fn from_index(index: usize) -> Self {
        Self(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Returns the custom resource with these names. Returns `None` if there are too many custom resources.
    pub(crate) fn custom(group: &str, plural: &str, kind: &str, namespaced: bool) -> Option<Self> {
        let is_same = |known: &&'static Definition| {
            (known.group, known.plural, known.kind, known.namespaced) == (group, plural, kind, namespaced)
        };
        let mut custom = CUSTOM.write();
        let position = custom.iter().position(is_same).unwrap_or_else(|| {
            let leak = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
            let (group, kind, plural) = (leak(group), leak(kind), leak(plural));
            custom.push(Box::leak(Box::new(Definition {
                group,
                kind,
                plural,
                namespaced,
                ..Definition::CUSTOM
            })));
            custom.len() - 1
        });
        u16::try_from(BUILT_IN.len() + position).ok().map(Self)
    }

    /// `true` if the resource is defined by a CustomResourceDefinition.
    pub fn is_custom(self) -> bool {
        self.index() >= BUILT_IN.len()
    }

    /// Returns the built-in resource with this group (empty for the core group) and plural name.
    pub fn find(group: &str, plural: &str) -> Option<Self> {
        Self::all().find(|resource| resource.group() == group && resource.plural() == plural)
    }

    /// Returns the built-in resource with this storage version and kind.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        Self::all().find(|resource| resource.kind() == kind && resource.api_version() == api_version)
    }

    pub(crate) fn definition(self) -> &'static Definition {
        match BUILT_IN.get(self.index()) {
            Some(definition) => definition,
            // `self.0` is always the index of a constant of this module or of a custom resource.
            None => CUSTOM.read().get(self.index() - BUILT_IN.len()).copied().unwrap_or(&TABLE[0]),
        }
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// API group, empty for the core group.
    pub fn group(self) -> &'static str {
        self.definition().group
    }

    /// Storage version, empty for a custom resource: its CustomResourceDefinition has it.
    pub fn version(self) -> &'static str {
        self.definition().version
    }

    /// Group and version as in `apiVersion`: `apps/v1`, or `v1` for the core group. Empty for a custom resource.
    pub fn api_version(self) -> &'static str {
        self.definition().api_version
    }

    /// Kind of the objects.
    pub fn kind(self) -> &'static str {
        self.definition().kind
    }

    /// Plural name, as in paths.
    pub fn plural(self) -> &'static str {
        self.definition().plural
    }

    /// `true` if the objects are namespaced.
    pub fn is_namespaced(self) -> bool {
        self.definition().namespaced
    }

    /// `true` if the built-in resource has this subresource.
    pub fn has(self, subresource: Subresource) -> bool {
        self.definition().subresources.contains(&subresource)
    }

    pub(crate) fn type_header(self) -> &'static str {
        self.definition().type_header
    }

    pub(crate) fn strategy(self) -> &'static dyn Strategy {
        self.definition().strategy
    }

    /// Plural name with its group: `deployments.apps`, or `pods` for the core group.
    pub(crate) fn qualified(self) -> String {
        let Definition { group, plural, .. } = self.definition();
        if group.is_empty() { (*plural).to_owned() } else { format!("{plural}.{group}") }
    }

    pub(crate) fn has_own_selectable_fields(self) -> bool {
        !self.strategy().selectable_fields().is_empty()
    }

    pub(crate) fn selectable_field(self, name: &str) -> Option<&'static SelectableField> {
        const NAME: SelectableField =
            SelectableField { name: "metadata.name", paths: &[&["metadata", "name"]], absent: "" };
        const NAMESPACE: SelectableField =
            SelectableField { name: "metadata.namespace", paths: &[&["metadata", "namespace"]], absent: "" };
        static COMMON: [SelectableField; 2] = [NAME, NAMESPACE];
        let of_every_kind = COMMON.iter().take(if self.is_namespaced() { 2 } else { 1 });
        of_every_kind.chain(self.strategy().selectable_fields()).find(|field| field.name == name)
    }
}

/// Built-in resources in the order of the table, then custom resources by name. The order does not depend on indexes of
/// custom resources, which differ from process to process.
impl Ord for Resource {
    fn cmp(&self, other: &Self) -> Ordering {
        if !self.is_custom() || !other.is_custom() {
            return self.0.cmp(&other.0);
        }
        let key = |resource: Self| {
            let Definition { group, plural, kind, namespaced, .. } = resource.definition();
            (*group, *plural, *kind, *namespaced)
        };
        key(*self).cmp(&key(*other))
    }
}

impl PartialOrd for Resource {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.qualified())
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.qualified())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_found_by_name_and_kind() {
        for resource in Resource::all() {
            assert_eq!(Resource::find(resource.group(), resource.plural()), Some(resource));
            assert_eq!(Resource::of_kind(resource.api_version(), resource.kind()), Some(resource));
        }
        assert_eq!(Resource::PODS.api_version(), "v1");
        assert_eq!(Resource::DEPLOYMENTS.api_version(), "apps/v1");
        assert_eq!(Resource::DEPLOYMENTS.to_string(), "deployments.apps");
        assert_eq!(Resource::find("apps", "pods"), None);
    }

    #[test]
    fn constants_match_rows() {
        assert_eq!(Resource::PODS.kind(), "Pod");
        assert_eq!(Resource::PRIORITY_CLASSES.kind(), "PriorityClass");
        assert_eq!(Resource::CUSTOM_RESOURCE_DEFINITIONS.index() + 1, TABLE.len());
        assert!(Resource::all().len() > TABLE.len());
    }

    #[test]
    fn custom_resources_are_ordered_by_name() {
        let custom = |plural| Resource::custom("example.com", plural, "Kind", true).unwrap();
        let (z, a) = (custom("zs"), custom("as"));
        assert!(a < z && Resource::PODS < a && a.is_custom());
        assert_eq!(custom("as"), a);
        assert_eq!((a.to_string().as_str(), a.kind(), a.is_namespaced()), ("as.example.com", "Kind", true));
        assert_ne!(Resource::custom("example.com", "as", "Kind", false), Some(a));
    }
}
