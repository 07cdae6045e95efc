//! Discovery and version documents. They are built anew when the custom resources change.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    component_status,
    media::negotiate_discovery,
    response::{self, ApiResponse, json_bytes},
    route::ReviewKind,
};
use crate::{
    ApiStatus, Resource, Subresource,
    custom::{CustomResource, CustomResources, CustomVersion, priority},
    resource::Definition,
};

/// Resource in discovery.
#[derive(Debug)]
pub struct ServedResource {
    /// Plural name.
    pub plural: &'static str,
    singular: String,
    /// Kind of the objects.
    pub kind: &'static str,
    /// `true` if the objects are namespaced.
    pub namespaced: bool,
    /// Verbs.
    pub verbs: &'static [&'static str],
    short_names: Vec<String>,
    categories: Vec<String>,
    subresources: Vec<SubresourceEntry>,
    /// Group, version and kind of the stored objects, such as `apps/v1/Deployment`. `None` for reviews.
    storage: Option<String>,
    /// Schema in the definition of a custom resource.
    pub schema: Option<Arc<Value>>,
}

/// Subresource in discovery.
#[derive(Debug)]
struct SubresourceEntry {
    name: &'static str,
    group: &'static str,
    version: String,
    kind: &'static str,
    verbs: &'static [&'static str],
}

/// Group-version and its resources.
#[derive(Debug)]
pub struct GroupVersion {
    /// Group, empty for the core group.
    pub group: &'static str,
    /// Version.
    pub version: String,
    /// Resources by plural name.
    pub entries: Vec<ServedResource>,
}

impl GroupVersion {
    /// Group and version as in `apiVersion`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// Serialized document with its entity tag.
#[derive(Debug, Clone)]
pub struct Document {
    content_type: HeaderValue,
    bytes: Bytes,
    etag: HeaderValue,
}

impl Document {
    /// Serializes a document.
    pub fn new(value: &Value) -> Self {
        Self::with_type(value, HeaderValue::from_static("application/json"))
    }

    fn with_type(value: &Value, content_type: HeaderValue) -> Self {
        Self::of_bytes(json_bytes(value), content_type)
    }

    /// Creates a document of its text.
    pub fn of_bytes(bytes: Bytes, content_type: HeaderValue) -> Self {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let etag = HeaderValue::try_from(format!("\"{:016X}\"", hasher.finish()));
        Self { content_type, bytes, etag: etag.unwrap_or(HeaderValue::from_static("\"\"")) }
    }

    /// Hash of the text, in quotes.
    pub fn etag(&self) -> &HeaderValue {
        &self.etag
    }

    /// Returns the document, or 304 if the client has it.
    pub fn response(&self, headers: &HeaderMap) -> ApiResponse {
        let known = headers.get(header::IF_NONE_MATCH) == Some(&self.etag);
        let (code, bytes) = if known {
            (StatusCode::NOT_MODIFIED, Bytes::new())
        } else {
            (StatusCode::OK, self.bytes.clone())
        };
        let mut response = response::json_text(code, bytes);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        headers.insert(header::ETAG, self.etag.clone());
        headers.insert(header::VARY, HeaderValue::from_static("Accept"));
        response
    }
}

/// All documents.
#[derive(Debug)]
pub(crate) struct Documents {
    root: Document,
    version: Document,
    core_versions: Document,
    groups: Document,
    /// By core group (`true` or `false`) and version of aggregated discovery.
    aggregated: BTreeMap<(bool, &'static str), Document>,
    group: BTreeMap<String, Document>,
    resources: BTreeMap<String, Document>,
    pub(crate) all: Arc<[GroupVersion]>,
}

impl Documents {
    /// Builds the documents of a server with this version and these custom resources.
    pub(crate) fn new(version: &str, custom: &CustomResources) -> Self {
        let all = group_versions(custom);
        let mut by_group: Vec<(&'static str, Vec<&GroupVersion>)> = Vec::new();
        for group_version in &all {
            match by_group.iter_mut().find(|(group, _)| *group == group_version.group) {
                Some((_, versions)) => versions.push(group_version),
                None => by_group.push((group_version.group, vec![group_version])),
            }
        }
        let groups: Vec<Value> = by_group
            .iter()
            .filter(|(group, _)| !group.is_empty())
            .map(|(group, versions)| api_group(group, versions))
            .collect();

        let mut aggregated = BTreeMap::new();
        for core in [true, false] {
            let items: Vec<Value> = by_group
                .iter()
                .filter(|(group, _)| group.is_empty() == core)
                .map(|(group, versions)| group_discovery(group, versions))
                .collect();
            for version in ["v2", "v2beta1"] {
                let list = json!({
                    "kind": "APIGroupDiscoveryList",
                    "apiVersion": format!("apidiscovery.k8s.io/{version}"),
                    "metadata": {},
                    "items": items,
                });
                let content_type = match version {
                    "v2" => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
                    _ => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
                };
                let document = Document::with_type(&list, HeaderValue::from_static(content_type));
                aggregated.insert((core, version), document);
            }
        }
        Self {
            root: Document::new(&json!({"paths": root_paths(&all)})),
            version: Document::of_bytes(version_text(version), HeaderValue::from_static("application/json")),
            core_versions: Document::new(&json!({
                "kind": "APIVersions",
                "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}],
            })),
            group: groups
                .iter()
                .map(|group| {
                    let mut document = group.clone();
                    document["kind"] = json!("APIGroup");
                    document["apiVersion"] = json!("v1");
                    (group["name"].as_str().unwrap_or_default().to_owned(), Document::new(&document))
                })
                .collect(),
            groups: Document::new(&json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})),
            aggregated,
            resources: all
                .iter()
                .map(|version| (version.api_version(), Document::new(&resource_list(version))))
                .collect(),
            all: all.into(),
        }
    }

    pub(super) fn root(&self, headers: &HeaderMap) -> ApiResponse {
        self.root.response(headers)
    }

    pub(super) fn version(&self, headers: &HeaderMap) -> ApiResponse {
        self.version.response(headers)
    }

    /// Response for `/api` or `/apis`: aggregated discovery if the client accepts it.
    pub(super) fn discovery(
        &self,
        core: bool,
        accept: &str,
        headers: &HeaderMap,
    ) -> Result<ApiResponse, ApiStatus> {
        let plain = if core { &self.core_versions } else { &self.groups };
        let document = negotiate_discovery(accept)?.and_then(|version| self.aggregated.get(&(core, version)));
        Ok(document.unwrap_or(plain).response(headers))
    }

    pub(super) fn group(&self, group: &str, headers: &HeaderMap) -> Option<ApiResponse> {
        Some(self.group.get(group)?.response(headers))
    }

    pub(super) fn resources(&self, api_version: &str, headers: &HeaderMap) -> Option<ApiResponse> {
        Some(self.resources.get(api_version)?.response(headers))
    }
}

const ALL_VERBS: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Returns all group-versions, the preferred version of each group first.
fn group_versions(custom: &CustomResources) -> Vec<GroupVersion> {
    let mut all: Vec<GroupVersion> = Vec::new();
    let mut add = |group: &'static str, version: &str, entry: ServedResource| match all
        .iter_mut()
        .find(|known| (known.group, known.version.as_str()) == (group, version))
    {
        Some(known) => known.entries.push(entry),
        None => all.push(GroupVersion { group, version: version.to_owned(), entries: vec![entry] }),
    };
    // The core group comes first, as in `kubectl api-resources`.
    let mut resources: Vec<Resource> = Resource::all().collect();
    resources.sort_by_key(|resource| !resource.group().is_empty());
    for resource in resources {
        let definition = resource.definition();
        add(definition.group, definition.version, entry(definition, definition.group, definition.version));
        for served_version in definition.served_versions {
            add(
                served_version.group(),
                served_version.version(),
                entry(definition, served_version.group(), served_version.version()),
            );
        }
    }
    for review in ReviewKind::ALL {
        let (group, version) = review.api_version().split_once('/').unwrap_or(("", review.api_version()));
        let entry = ServedResource {
            plural: review.plural(),
            singular: review.kind().to_lowercase(),
            kind: review.kind(),
            namespaced: review.is_namespaced(),
            verbs: &["create"],
            short_names: Vec::new(),
            categories: Vec::new(),
            subresources: Vec::new(),
            storage: None,
            schema: None,
        };
        add(group, version, entry);
    }
    let component_status = ServedResource {
        plural: component_status::PLURAL,
        singular: component_status::SINGULAR.to_owned(),
        kind: component_status::KIND,
        namespaced: false,
        verbs: &["get", "list"],
        short_names: vec![component_status::SHORT_NAME.to_owned()],
        categories: Vec::new(),
        subresources: Vec::new(),
        storage: None,
        schema: None,
    };
    add("", "v1", component_status);
    let mut versions: Vec<_> =
        custom.iter().flat_map(|custom| custom.versions.iter().map(move |v| (custom, v))).collect();
    versions.sort_by_key(|(custom, version)| {
        (custom.resource.group(), std::cmp::Reverse(priority(&version.version)))
    });
    for (custom, version) in versions {
        add(custom.resource.group(), &version.version, custom_entry(custom, version));
    }
    for version in &mut all {
        version.entries.sort_by_key(|entry| entry.plural);
    }
    all
}

fn custom_entry(custom: &CustomResource, version: &Arc<CustomVersion>) -> ServedResource {
    let group = custom.resource.group();
    let status =
        (Subresource::Status, group, version.version.as_str(), custom.resource.kind(), version.has_status);
    let scale = (Subresource::Scale, "autoscaling", "v1", "Scale", version.scale.is_some());
    let parts = [status, scale].into_iter().filter(|(.., served)| *served);
    ServedResource {
        plural: custom.resource.plural(),
        singular: custom.names.singular.clone(),
        kind: custom.resource.kind(),
        namespaced: custom.resource.is_namespaced(),
        verbs: ALL_VERBS,
        short_names: custom.names.short_names.clone(),
        categories: custom.names.categories.clone(),
        subresources: parts
            .map(|(part, group, version, kind, _)| SubresourceEntry {
                name: part.name(),
                group,
                version: version.to_owned(),
                kind,
                verbs: &["get", "patch", "update"],
            })
            .collect(),
        storage: Some(format!("{}/{}", version.storage_api_version(), custom.resource.kind())),
        schema: Some(Arc::clone(&version.definition_schema)),
    }
}

/// Verbs of the subresource `proxy`.
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

fn entry(definition: &'static Definition, group: &'static str, version: &'static str) -> ServedResource {
    let part = |part: &Subresource| {
        let (group, version, kind, verbs): (_, _, _, &'static [&'static str]) = match part {
            Subresource::Approval
            | Subresource::EphemeralContainers
            | Subresource::Resize
            | Subresource::Status => (group, version, definition.kind, &["get", "patch", "update"]),
            Subresource::Scale => ("autoscaling", "v1", "Scale", &["get", "patch", "update"]),
            Subresource::Binding => ("", "v1", "Binding", &["create"]),
            // `kubectl drain` requires this group and version.
            Subresource::Eviction => ("policy", "v1", "Eviction", &["create"]),
            Subresource::Finalize => (group, version, definition.kind, &["update"]),
            Subresource::Log => (group, version, definition.kind, &["get"]),
            Subresource::Attach | Subresource::Exec | Subresource::PortForward | Subresource::Proxy => {
                let verbs = if part.is_stream() { &["create", "get"] } else { PROXY_VERBS };
                (group, version, part.connect_options(definition.kind).unwrap_or_default(), verbs)
            }
            Subresource::Token => ("authentication.k8s.io", "v1", "TokenRequest", &["create"]),
        };
        SubresourceEntry { name: part.name(), group, version: version.to_owned(), kind, verbs }
    };
    ServedResource {
        plural: definition.plural,
        singular: definition.singular.to_owned(),
        kind: definition.kind,
        namespaced: definition.namespaced,
        verbs: ALL_VERBS,
        short_names: definition.short_names.iter().map(|name| (*name).to_owned()).collect(),
        categories: definition.categories.iter().map(|name| (*name).to_owned()).collect(),
        subresources: definition.subresources.iter().map(part).collect(),
        storage: Some(format!("{}/{}/{}", definition.group, definition.version, definition.kind)),
        schema: None,
    }
}

fn add_names(value: &mut Value, entry: &ServedResource) {
    for (key, names) in [("shortNames", &entry.short_names), ("categories", &entry.categories)] {
        if !names.is_empty() {
            value[key] = json!(names);
        }
    }
}

fn group_discovery(group: &str, versions: &[&GroupVersion]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| {
            let resources: Vec<Value> = version
                .entries
                .iter()
                .map(|entry| {
                    let mut resource = json!({
                        "resource": entry.plural,
                        "responseKind": {"group": version.group, "version": version.version, "kind": entry.kind},
                        "scope": if entry.namespaced { "Namespaced" } else { "Cluster" },
                        "singularResource": entry.singular,
                        "verbs": entry.verbs,
                    });
                    add_names(&mut resource, entry);
                    if !entry.subresources.is_empty() {
                        resource["subresources"] = entry
                            .subresources
                            .iter()
                            .map(|part| {
                                json!({
                                    "subresource": part.name,
                                    "responseKind": {"group": part.group, "version": part.version, "kind": part.kind},
                                    "verbs": part.verbs,
                                })
                            })
                            .collect();
                    }
                    resource
                })
                .collect();
            json!({"version": version.version, "resources": resources, "freshness": "Current"})
        })
        .collect();
    let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
    json!({"metadata": metadata, "versions": versions})
}

fn api_group(group: &str, versions: &[&GroupVersion]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": version.api_version(), "version": version.version}))
        .collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn resource_list(version: &GroupVersion) -> Value {
    let mut resources = Vec::new();
    for entry in &version.entries {
        let mut resource = json!({
            "name": entry.plural,
            "singularName": entry.singular,
            "namespaced": entry.namespaced,
            "kind": entry.kind,
            "verbs": entry.verbs,
        });
        add_names(&mut resource, entry);
        if let Some(storage) = &entry.storage {
            resource["storageVersionHash"] = json!(storage_version_hash(storage));
        }
        resources.push(resource);
        for part in &entry.subresources {
            let mut resource = json!({
                "name": format!("{}/{}", entry.plural, part.name),
                "singularName": "",
                "namespaced": entry.namespaced,
                "kind": part.kind,
                "verbs": part.verbs,
            });
            if (part.group, &part.version) != (version.group, &version.version) {
                resource["group"] = json!(part.group);
                resource["version"] = json!(part.version);
            }
            resources.push(resource);
        }
    }
    json!({
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": version.api_version(),
        "resources": resources,
    })
}

/// Upstream counterpart: `discovery.StorageVersionHash`.
fn storage_version_hash(group_version_kind: &str) -> String {
    STANDARD.encode(&Sha256::digest(group_version_kind)[..8])
}

fn root_paths(all: &[GroupVersion]) -> Vec<String> {
    let mut paths: Vec<String> =
        ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
            .map(str::to_owned)
            .to_vec();
    for version in all {
        if version.group.is_empty() {
            paths.push(format!("/api/{}", version.version));
        } else {
            paths.push(format!("/apis/{}", version.group));
            paths.push(format!("/apis/{}/{}", version.group, version.version));
        }
    }
    paths.sort_unstable();
    paths.dedup();
    paths
}

/// Returns the document `/version`, indented as upstream.
fn version_text(version: &str) -> Bytes {
    let members = version_info(version).map(|(name, value)| format!("  {name:?}: {}", json!(value)));
    format!("{{\n{}\n}}", members.join(",\n")).into()
}

/// Returns the members of `/version` in upstream's order.
fn version_info(version: &str) -> [(&'static str, String); 9] {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>();
    let mut numbers = version.trim_start_matches('v').split('.').map(digits);
    [
        ("major", numbers.next().unwrap_or_default()),
        ("minor", numbers.next().unwrap_or_default()),
        ("gitVersion", version.to_owned()),
        ("gitCommit", String::new()),
        ("gitTreeState", String::new()),
        ("buildDate", "1970-01-01T00:00:00Z".to_owned()),
        ("goVersion", String::new()),
        ("compiler", "rustc".to_owned()),
        ("platform", format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH)),
    ]
}
