//! Paths.

use std::sync::Arc;

use super::{component_status, query::percent_decode};
use crate::{ApiStatus, Resource, Subresource, custom::CustomResources, kind::Kind, resource::ServedVersion};

/// Endpoint of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Route {
    /// `/`
    Root,
    /// `/ui`
    Page,
    /// Below `/ui/`, `/debug/` and `/openapi/`.
    Extension,
    /// `/version`
    Version,
    /// `/healthz`, `/livez` or `/readyz`, with these checks.
    Health(&'static str, &'static [&'static str]),
    /// One of these checks.
    HealthCheck,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/{group}`
    Group(String),
    /// `/api/v1` and `/apis/{group}/{version}`. Contains the group-version.
    GroupVersion(String),
    /// Resource, object or subresource.
    Object(Target),
    /// Virtual resource, which is processed without being stored.
    Review(Review),
    /// ComponentStatuses, or the one with this name.
    ComponentStatus(Option<String>),
    /// No part of the API.
    Unknown,
}

/// Resource, object or subresource.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) kind: Kind,
    pub(super) served_version: Option<ServedVersion>,
    /// `""` for all namespaces and for cluster-scoped resources.
    pub(super) namespace: String,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<Subresource>,
}

impl Target {
    /// Group and version of the request.
    pub(super) fn api_version(&self) -> &str {
        match self.served_version {
            Some(served_version) => served_version.api_version(),
            None => self.kind.api_version(),
        }
    }

    pub(super) fn resource(&self) -> Resource {
        self.kind.resource
    }

    /// `true` for a connection to a pod or a Service.
    pub(super) fn is_connection(&self) -> bool {
        self.subresource.is_some_and(|part| part.connect_options(self.kind.name()).is_some())
    }

    /// `true` for a connection whose request is upgraded to streams.
    pub(super) fn is_stream(&self) -> bool {
        self.subresource.is_some_and(Subresource::is_stream)
    }

    /// Name of the object, or `""`.
    pub(super) fn name(&self) -> &str {
        self.name.as_deref().unwrap_or_default()
    }
}

/// Virtual resource, which is processed without being stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Review {
    pub(super) kind: ReviewKind,
    pub(super) namespace: String,
}

/// Kind of a virtual resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewKind {
    SelfSubjectAccess,
    SelfSubjectRules,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubject,
    Token,
    /// Assigns a pod to a node.
    Binding,
}

impl ReviewKind {
    pub(super) const ALL: [Self; 7] = [
        Self::SelfSubjectAccess,
        Self::SelfSubjectRules,
        Self::SubjectAccess,
        Self::LocalSubjectAccess,
        Self::SelfSubject,
        Self::Token,
        Self::Binding,
    ];

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::SelfSubjectAccess
            | Self::SelfSubjectRules
            | Self::SubjectAccess
            | Self::LocalSubjectAccess => "authorization.k8s.io/v1",
            Self::SelfSubject | Self::Token => "authentication.k8s.io/v1",
            Self::Binding => "v1",
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::SelfSubjectAccess => "SelfSubjectAccessReview",
            Self::SelfSubjectRules => "SelfSubjectRulesReview",
            Self::SubjectAccess => "SubjectAccessReview",
            Self::LocalSubjectAccess => "LocalSubjectAccessReview",
            Self::SelfSubject => "SelfSubjectReview",
            Self::Token => "TokenReview",
            Self::Binding => "Binding",
        }
    }

    pub(super) const fn plural(self) -> &'static str {
        match self {
            Self::SelfSubjectAccess => "selfsubjectaccessreviews",
            Self::SelfSubjectRules => "selfsubjectrulesreviews",
            Self::SubjectAccess => "subjectaccessreviews",
            Self::LocalSubjectAccess => "localsubjectaccessreviews",
            Self::SelfSubject => "selfsubjectreviews",
            Self::Token => "tokenreviews",
            Self::Binding => "bindings",
        }
    }

    pub(super) const fn is_namespaced(self) -> bool {
        matches!(self, Self::LocalSubjectAccess | Self::Binding)
    }
}

/// Paths of health checks, and the names of the checks.
const HEALTH: [(&str, &[&str]); 3] = [
    ("healthz", &["ping", "log", "etcd"]),
    ("livez", &["ping", "log", "etcd"]),
    ("readyz", &["ping", "log", "etcd", "etcd-readiness", "informer-sync", "shutdown"]),
];

impl Route {
    /// Parses a path. `custom` is called for paths that are not of a built-in resource.
    pub(super) fn parse(
        path: &str,
        custom: impl FnOnce() -> Arc<CustomResources>,
    ) -> Result<Self, ApiStatus> {
        let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty()).map(percent_decode).collect();
        let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
        match parts.as_slice() {
            [] => Ok(Self::Root),
            ["ui"] => Ok(Self::Page),
            ["ui" | "debug" | "openapi", _, ..] => Ok(Self::Extension),
            ["version"] => Ok(Self::Version),
            [name, rest @ ..] if HEALTH.iter().any(|(known, _)| known == name) => {
                Ok(parse_health(path, name, rest))
            }
            ["api"] => Ok(Self::CoreVersions),
            ["apis"] => Ok(Self::Groups),
            ["apis", group] => Ok(Self::Group((*group).to_owned())),
            ["api", version] => Ok(Self::GroupVersion((*version).to_owned())),
            ["apis", group, version] => Ok(Self::GroupVersion(format!("{group}/{version}"))),
            ["api", version, rest @ ..] => parse_in_group_version("", version, rest, custom),
            ["apis", group, version, rest @ ..] => parse_in_group_version(group, version, rest, custom),
            _ => Ok(Self::Unknown),
        }
    }

    /// `true` if a [program](super::Program) may serve the path.
    pub(super) fn is_of_program(&self) -> bool {
        match self {
            Self::Root | Self::Page | Self::Extension => true,
            Self::Object(target) => target.is_connection(),
            _ => false,
        }
    }
}

/// Parses a path of health checks. A slash at its end is not ignored, as upstream.
fn parse_health(path: &str, name: &str, rest: &[&str]) -> Route {
    match (HEALTH.iter().find(|(known, _)| *known == name), rest) {
        (Some((name, checks)), []) if !path.ends_with('/') => Route::Health(name, checks),
        (Some((_, checks)), [check]) if checks.contains(check) => Route::HealthCheck,
        _ => Route::Unknown,
    }
}

/// Response to an unknown path. Upstream responds with a Status in its own groups only.
fn unknown(group: &str) -> Result<Route, ApiStatus> {
    if is_built_in(group) { Err(ApiStatus::unknown_path()) } else { Ok(Route::Unknown) }
}

/// `true` if a built-in resource is in the group.
pub(super) fn is_built_in(group: &str) -> bool {
    let reviews =
        ReviewKind::ALL.iter().map(|kind| kind.api_version().split_once('/').map_or("", |(group, _)| group));
    Resource::all().map(Resource::group).chain(reviews).any(|known| known == group)
        || Resource::all().any(|resource| {
            resource.definition().served_versions.iter().any(|version| version.group() == group)
        })
}

/// Parses a path below a group-version.
fn parse_in_group_version(
    group: &str,
    version: &str,
    path: &[&str],
    custom: impl FnOnce() -> Arc<CustomResources>,
) -> Result<Route, ApiStatus> {
    let (namespace, path) = match path {
        // The namespace object or its content.
        ["namespaces", namespace, plural, rest @ ..] if !is_part_of_namespace(plural) || !rest.is_empty() => {
            (Some(*namespace), path.get(2..).unwrap_or_default())
        }
        _ => (None, path),
    };
    let Some((plural, rest)) = path.split_first() else { return unknown(group) };

    if (group, version, namespace, *plural) == ("", "v1", None, component_status::PLURAL) && rest.len() <= 1 {
        return Ok(Route::ComponentStatus(rest.first().map(|name| (*name).to_owned())));
    }

    let review = ReviewKind::ALL
        .into_iter()
        .find(|kind| kind.plural() == *plural && kind.api_version() == api_version(group, version).as_str());
    if let Some(kind) = review {
        if !rest.is_empty() || kind.is_namespaced() != namespace.is_some() {
            return unknown(group);
        }
        return Ok(Route::Review(Review { kind, namespace: namespace.unwrap_or_default().to_owned() }));
    }

    let (kind, served_version) = match find(group, version, plural) {
        Some((resource, served_version)) => (resource.into(), served_version),
        None => match find_custom(&custom(), group, version, plural) {
            Some(kind) => (kind, None),
            None => return unknown(group),
        },
    };
    let resource = kind.resource;
    let lacks_namespace = !rest.is_empty() && namespace.is_none();
    if if resource.is_namespaced() { lacks_namespace } else { namespace.is_some() } {
        return unknown(group);
    }
    let (name, subresource) = match rest {
        [] => (None, None),
        [name] => (Some(*name), None),
        [name, "proxy", ..] if kind.has(Subresource::Proxy) => (Some(*name), Some(Subresource::Proxy)),
        [name, part @ ..] => {
            let known = Subresource::ALL.into_iter().find(|known| part == [known.name()] && kind.has(*known));
            match known {
                Some(known) => (Some(*name), Some(known)),
                // As upstream, although the object may exist.
                None if resource.is_custom() => return Err(ApiStatus::not_found(resource, name)),
                None => return Err(ApiStatus::unknown_path()),
            }
        }
    };
    Ok(Route::Object(Target {
        kind,
        served_version,
        namespace: namespace.unwrap_or_default().to_owned(),
        name: name.map(str::to_owned),
        subresource,
    }))
}

fn is_part_of_namespace(name: &str) -> bool {
    let parts = Resource::NAMESPACES.definition().subresources;
    parts.iter().any(|part| part.name() == name)
}

fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn find(group: &str, version: &str, plural: &str) -> Option<(Resource, Option<ServedVersion>)> {
    Resource::all().filter(|resource| resource.plural() == plural).find_map(|resource| {
        if (resource.group(), resource.version()) == (group, version) {
            return Some((resource, None));
        }
        let served_versions = resource.definition().served_versions;
        let served_version = served_versions
            .iter()
            .find(|served_version| (served_version.group(), served_version.version()) == (group, version))?;
        Some((resource, Some(*served_version)))
    })
}

fn find_custom(custom: &CustomResources, group: &str, version: &str, plural: &str) -> Option<Kind> {
    Some(custom.find(group, plural)?.version(version)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StatusReason;

    fn parse(path: &str) -> Result<Route, ApiStatus> {
        Route::parse(path, Arc::default)
    }

    fn target(path: &str) -> Target {
        match parse(path) {
            Ok(Route::Object(target)) => target,
            other => panic!("{path}: {other:?}"),
        }
    }

    #[test]
    fn object_paths_are_parsed() {
        let scale = target("/apis/apps/v1/namespaces/a/deployments/web/scale");
        assert_eq!(scale.resource(), Resource::DEPLOYMENTS);
        assert_eq!((scale.namespace.as_str(), scale.name()), ("a", "web"));
        assert_eq!(scale.subresource, Some(Subresource::Scale));
        assert_eq!(target("/api/v1/pods").name, None);
        assert_eq!(target("/api/v1/namespaces/a").resource(), Resource::NAMESPACES);
        let proxy = target("/api/v1/namespaces/a/services/https:web:http/proxy/a/b");
        assert_eq!((proxy.name(), proxy.subresource), ("https:web:http", Some(Subresource::Proxy)));
        assert_eq!(target("/api/v1/namespaces/a/finalize").subresource, Some(Subresource::Finalize));
        assert_eq!(target("/api/v1/namespaces/a/pods/status").name(), "status");
        assert_eq!(target("/apis/events.k8s.io/v1/events").served_version, Some(ServedVersion::EventsV1));
        assert_eq!(
            target("/apis/autoscaling/v1/horizontalpodautoscalers").served_version,
            Some(ServedVersion::AutoscalingV1)
        );
        assert_eq!(target("/apis/autoscaling/v2/horizontalpodautoscalers").served_version, None);
    }

    #[test]
    fn unknown_paths_are_not_found() {
        for path in [
            "/api/v2/pods",
            "/api/v1/foos",
            "/apis/apps/v1/namespaces/a/pods",
            "/api/v1/pods/web",
            "/api/v1/namespaces/a/nodes",
            "/api/v1/namespaces/a/pods/web/scale",
            "/api/v1/namespaces/a/pods/web/status/x",
            "/api/v1/namespaces/a/pods/web/exec/x",
            "/apis/authorization.k8s.io/v1/localsubjectaccessreviews",
        ] {
            assert_eq!(parse(path).unwrap_err().reason, StatusReason::NotFound, "{path}");
        }
        for path in
            ["/foo", "/apis/example.com/v1/foos", "/apis/example.com/v1/namespaces/a/foos/b", "/livez/foo"]
        {
            assert_eq!(parse(path), Ok(Route::Unknown), "{path}");
        }
    }
}
