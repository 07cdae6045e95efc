//! The resources that are served, as a table: one row each.

use std::fmt;

use crate::{
    Subresource,
    registry::strategy::{self, Strategy},
    selector::SelectableField,
};

/// A kind of object that is served, by its storage version. Compare, copy and hash it freely.
///
/// Upstream counterpart: `schema.GroupVersionResource`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(u8);

/// One row of the table.
pub(crate) struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) short_names: &'static [&'static str],
    /// Names for several resources at once, such as `all`.
    pub(crate) categories: &'static [&'static str],
    pub(crate) namespaced: bool,
    pub(crate) subresources: &'static [Subresource],
    pub(crate) api_version: &'static str,
    /// The `{"apiVersion":…,"kind":…` that its JSON begins with.
    pub(crate) type_header: &'static str,
    /// Other group-versions under which the same objects are served.
    pub(crate) faces: &'static [Face],
    /// What is special about the kind.
    pub(crate) strategy: &'static dyn Strategy,
}

/// Another form in which stored objects are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    /// `events.k8s.io/v1`, where core/v1 is what is stored.
    EventsV1,
    /// `autoscaling/v1`, where autoscaling/v2 is what is stored.
    AutoscalingV1,
}

impl Face {
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

/// Defines the constants and the table together, so that no index can be off.
macro_rules! resources {
    ($($(#[$doc:meta])* $name:ident = $group:tt / $version:literal $kind:literal {
        names: $plural:literal, $singular:literal, $short:expr,
        categories: $categories:expr,
        namespaced: $namespaced:literal,
        subresources: $subresources:expr,
        faces: $faces:expr,
        strategy: $strategy:expr $(,)?
    })*) => {
        #[expect(clippy::upper_case_acronyms, non_camel_case_types, reason = "named after the constants")]
        #[repr(u8)]
        enum Index { $($name),* }

        impl Resource {
            $($(#[$doc])* pub const $name: Self = Self(Index::$name as u8);)*
        }

        static TABLE: &[Definition] = &[$(Definition {
            group: $group,
            version: $version,
            kind: $kind,
            plural: $plural,
            singular: $singular,
            short_names: &$short,
            categories: &$categories,
            namespaced: $namespaced,
            subresources: &$subresources,
            api_version: api_version!($group, $version),
            type_header: concat!("{\"apiVersion\":\"", api_version!($group, $version), "\",\"kind\":\"", $kind, "\""),
            faces: &$faces,
            strategy: &$strategy,
        }),*];
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

use Subresource::{Binding, Eviction, Finalize, Log, Scale, Status};

resources! {
    /// `apps/v1` Deployments.
    DEPLOYMENTS = "apps" / "v1" "Deployment" {
        names: "deployments", "deployment", ["deploy"],
        categories: ["all"],
        namespaced: true,
        subresources: [Scale, Status],
        faces: [],
        strategy: strategy::apps::Deployment,
    }
    /// `apps/v1` ReplicaSets.
    REPLICA_SETS = "apps" / "v1" "ReplicaSet" {
        names: "replicasets", "replicaset", ["rs"],
        categories: ["all"],
        namespaced: true,
        subresources: [Scale, Status],
        faces: [],
        strategy: strategy::apps::ReplicaSet,
    }
    /// `v1` Pods.
    PODS = "" / "v1" "Pod" {
        names: "pods", "pod", ["po"],
        categories: ["all"],
        namespaced: true,
        subresources: [Binding, Eviction, Log, Status],
        faces: [],
        strategy: strategy::pod::Pod,
    }
    /// `v1` Events, which are `events.k8s.io/v1` Events too.
    EVENTS = "" / "v1" "Event" {
        names: "events", "event", ["ev"],
        categories: [],
        namespaced: true,
        subresources: [],
        faces: [Face::EventsV1],
        strategy: strategy::core::Event,
    }
    /// `v1` Namespaces.
    NAMESPACES = "" / "v1" "Namespace" {
        names: "namespaces", "namespace", ["ns"],
        categories: [],
        namespaced: false,
        subresources: [Finalize, Status],
        faces: [],
        strategy: strategy::core::Namespace,
    }
    /// `v1` Nodes.
    NODES = "" / "v1" "Node" {
        names: "nodes", "node", ["no"],
        categories: [],
        namespaced: false,
        subresources: [Status],
        faces: [],
        strategy: strategy::core::Node,
    }
    /// `coordination.k8s.io/v1` Leases.
    LEASES = "coordination.k8s.io" / "v1" "Lease" {
        names: "leases", "lease", [],
        categories: [],
        namespaced: true,
        subresources: [],
        faces: [],
        strategy: strategy::core::Lease,
    }
    /// `v1` ConfigMaps.
    CONFIG_MAPS = "" / "v1" "ConfigMap" {
        names: "configmaps", "configmap", ["cm"],
        categories: [],
        namespaced: true,
        subresources: [],
        faces: [],
        strategy: strategy::core::Plain,
    }
    /// `v1` ServiceAccounts.
    SERVICE_ACCOUNTS = "" / "v1" "ServiceAccount" {
        names: "serviceaccounts", "serviceaccount", ["sa"],
        categories: [],
        namespaced: true,
        subresources: [],
        faces: [],
        strategy: strategy::core::ServiceAccount,
    }
    /// `v1` Secrets.
    SECRETS = "" / "v1" "Secret" {
        names: "secrets", "secret", [],
        categories: [],
        namespaced: true,
        subresources: [],
        faces: [],
        strategy: strategy::core::Secret,
    }
    /// `v1` Services. Stored only: nothing routes to a pod.
    SERVICES = "" / "v1" "Service" {
        names: "services", "service", ["svc"],
        categories: ["all"],
        namespaced: true,
        subresources: [Status],
        faces: [],
        strategy: strategy::inert::Service,
    }
    /// `v1` ReplicationControllers.
    REPLICATION_CONTROLLERS = "" / "v1" "ReplicationController" {
        names: "replicationcontrollers", "replicationcontroller", ["rc"],
        categories: ["all"],
        namespaced: true,
        subresources: [Scale, Status],
        faces: [],
        strategy: strategy::core::ReplicationController,
    }
    /// `v1` ResourceQuotas, of which the pod count is enforced.
    RESOURCE_QUOTAS = "" / "v1" "ResourceQuota" {
        names: "resourcequotas", "resourcequota", ["quota"],
        categories: [],
        namespaced: true,
        subresources: [Status],
        faces: [],
        strategy: strategy::inert::ResourceQuota,
    }
    /// `policy/v1` PodDisruptionBudgets, which evictions honour.
    POD_DISRUPTION_BUDGETS = "policy" / "v1" "PodDisruptionBudget" {
        names: "poddisruptionbudgets", "poddisruptionbudget", ["pdb"],
        categories: [],
        namespaced: true,
        subresources: [Status],
        faces: [],
        strategy: strategy::inert::PodDisruptionBudget,
    }
    /// `autoscaling/v2` HorizontalPodAutoscalers, which are `autoscaling/v1` too. Stored only.
    HORIZONTAL_POD_AUTOSCALERS = "autoscaling" / "v2" "HorizontalPodAutoscaler" {
        names: "horizontalpodautoscalers", "horizontalpodautoscaler", ["hpa"],
        categories: ["all"],
        namespaced: true,
        subresources: [Status],
        faces: [Face::AutoscalingV1],
        strategy: strategy::inert::HorizontalPodAutoscaler,
    }
    /// `scheduling.k8s.io/v1` PriorityClasses, which give pods their priority.
    PRIORITY_CLASSES = "scheduling.k8s.io" / "v1" "PriorityClass" {
        names: "priorityclasses", "priorityclass", ["pc"],
        categories: [],
        namespaced: false,
        subresources: [],
        faces: [],
        strategy: strategy::inert::PriorityClass,
    }
}

impl Resource {
    /// Every resource that is served.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..TABLE.len()).map(|index| Self(u8::try_from(index).unwrap_or(u8::MAX)))
    }

    /// The resource with this group (empty for the core group) and plural name, in its storage version.
    pub fn find(group: &str, plural: &str) -> Option<Self> {
        Self::all().find(|resource| resource.group() == group && resource.plural() == plural)
    }

    /// The resource whose objects say this `apiVersion` and `kind`.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<Self> {
        Self::all().find(|resource| resource.kind() == kind && resource.api_version() == api_version)
    }

    pub(crate) fn definition(self) -> &'static Definition {
        // The number comes from this module's constants only.
        &TABLE[self.index()]
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// The API group, empty for the core group.
    pub fn group(self) -> &'static str {
        self.definition().group
    }

    /// The version that is stored.
    pub fn version(self) -> &'static str {
        self.definition().version
    }

    /// Group and version as objects spell them: `apps/v1`, or `v1` for the core group.
    pub fn api_version(self) -> &'static str {
        self.definition().api_version
    }

    /// The kind of its objects.
    pub fn kind(self) -> &'static str {
        self.definition().kind
    }

    /// Its name in paths.
    pub fn plural(self) -> &'static str {
        self.definition().plural
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(self) -> bool {
        self.definition().namespaced
    }

    /// Whether it has such a subresource.
    pub fn has(self, subresource: Subresource) -> bool {
        self.definition().subresources.contains(&subresource)
    }

    pub(crate) fn type_header(self) -> &'static str {
        self.definition().type_header
    }

    pub(crate) fn strategy(self) -> &'static dyn Strategy {
        self.definition().strategy
    }

    /// The name with its group: `deployments.apps`, or `pods` for the core group.
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
    fn resource_looked_up_by_its_own_names_is_itself() {
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
    fn constants_name_their_own_rows() {
        assert_eq!(Resource::PODS.kind(), "Pod");
        assert_eq!(Resource::PRIORITY_CLASSES.kind(), "PriorityClass");
        assert_eq!(Resource::PRIORITY_CLASSES.index() + 1, Resource::all().len());
    }
}
