//! OpenAPI documents. They are built with the first request for them, and anew when the custom resources change.

mod schema;
mod v2;

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
};

use http::{HeaderMap, HeaderValue, header};
use kcm_apiserver::{
    ApiServer, ApiStatus,
    http::{
        documents::{Document, GroupVersion},
        response::ApiResponse,
    },
};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

/// OpenAPI documents of an API server.
pub(crate) struct OpenApi {
    server: Arc<ApiServer>,
    documents: Mutex<Arc<Documents>>,
}

/// Documents of the resources `all`.
struct Documents {
    all: Arc<[GroupVersion]>,
    v2: OnceLock<Document>,
    v2_protobuf: OnceLock<Document>,
    v3: OnceLock<V3>,
}

/// OpenAPI v3 documents.
struct V3 {
    index: Document,
    /// By group-version.
    documents: BTreeMap<String, Document>,
}

/// Documents of the group-versions without custom resources. They are the same in every server.
static BUILT_IN: Mutex<BTreeMap<String, Document>> = Mutex::new(BTreeMap::new());

impl OpenApi {
    pub(crate) fn new(server: Arc<ApiServer>) -> Self {
        let documents = Mutex::new(Documents::new(server.group_versions()));
        Self { server, documents }
    }

    /// Response to a GET of the path `path` below `/openapi`.
    pub(crate) fn get(&self, path: &[&str], headers: &HeaderMap) -> Result<ApiResponse, ApiStatus> {
        let documents = self.documents();
        let document = match path {
            ["v2"] if accepts_protobuf(headers) => documents.v2_protobuf(),
            ["v2"] => documents.v2(),
            ["v3"] => &documents.v3().index,
            ["v3", "api", version] => documents.group_version(version)?,
            ["v3", "apis", group, version] => documents.group_version(&format!("{group}/{version}"))?,
            _ => return Err(ApiStatus::unknown_path()),
        };
        Ok(document.response(headers))
    }

    fn documents(&self) -> Arc<Documents> {
        let all = self.server.group_versions();
        let mut documents = self.documents.lock();
        if !Arc::ptr_eq(&documents.all, &all) {
            *documents = Documents::new(all);
        }
        Arc::clone(&documents)
    }
}

fn accepts_protobuf(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|accepted| accepted.contains(v2::ACCEPTED))
}

impl Documents {
    fn new(all: Arc<[GroupVersion]>) -> Arc<Self> {
        let (v2, v2_protobuf, v3) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Arc::new(Self { all, v2, v2_protobuf, v3 })
    }

    fn v2(&self) -> &Document {
        self.v2.get_or_init(|| {
            let all = self.all.iter();
            let schemas = all.flat_map(|version| schemas(&patchable(version).collect::<Vec<_>>()));
            Document::new(&v2::json_document(schemas.collect()))
        })
    }

    fn v2_protobuf(&self) -> &Document {
        self.v2_protobuf.get_or_init(|| {
            let bytes = v2::protobuf_document(self.all.iter().flat_map(patchable));
            Document::of_bytes(bytes.into(), HeaderValue::from_static(v2::CONTENT_TYPE))
        })
    }

    fn v3(&self) -> &V3 {
        self.v3.get_or_init(|| {
            let build =
                |version: &GroupVersion| Document::new(&document(&patchable(version).collect::<Vec<_>>()));
            let named = |version: &GroupVersion| {
                let name = version.api_version();
                let document = if version.entries.iter().any(|entry| entry.schema.is_some()) {
                    build(version)
                } else {
                    BUILT_IN.lock().entry(name.clone()).or_insert_with(|| build(version)).clone()
                };
                (name, document)
            };
            let documents = self.all.iter().map(named).collect();
            V3 { index: Document::new(&index(&documents)), documents }
        })
    }

    fn group_version(&self, api_version: &str) -> Result<&Document, ApiStatus> {
        self.v3().documents.get(api_version).ok_or_else(ApiStatus::unknown_path)
    }
}

fn index(documents: &BTreeMap<String, Document>) -> Value {
    let paths: Map<String, Value> = documents
        .iter()
        .map(|(api_version, document)| {
            let prefix = if api_version.contains('/') { "apis" } else { "api" };
            let hash = document.etag().to_str().unwrap_or_default().trim_matches('"');
            let url = format!("/openapi/v3/{prefix}/{api_version}?hash={hash}");
            (format!("{prefix}/{api_version}"), json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// Returns the kinds that can be patched.
fn patchable(version: &GroupVersion) -> impl Iterator<Item = Patchable<'_>> {
    let prefix = if version.group.is_empty() { "/api" } else { "/apis" };
    version.entries.iter().filter(|entry| entry.verbs.contains(&"patch")).map(move |entry| {
        let scope = if entry.namespaced { "/namespaces/{namespace}" } else { "" };
        let path = |scope: &str| format!("{prefix}/{}{scope}/{}", version.api_version(), entry.plural);
        Patchable {
            all: entry.namespaced.then(|| path("")),
            collection: path(scope),
            group: version.group,
            version: &version.version,
            kind: entry.kind,
            schema: entry.schema.as_deref(),
        }
    })
}

/// Query parameters of a patch and their types.
const PATCH_PARAMETERS: [(&str, &str); 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

/// A kind that can be patched.
struct Patchable<'a> {
    /// Path of the objects of all namespaces, for kinds with namespaces.
    all: Option<String>,
    /// Path of the objects.
    collection: String,
    group: &'static str,
    version: &'a str,
    kind: &'static str,
    /// Schema in the definition of a custom resource.
    schema: Option<&'a Value>,
}

impl Patchable<'_> {
    /// Path of an object.
    fn object_path(&self) -> String {
        format!("{}/{{name}}", self.collection)
    }

    /// Name of the schema of a custom resource: the reversed group, the version and the kind.
    fn schema_name(&self) -> String {
        let group: Vec<&str> = self.group.rsplit('.').collect();
        format!("{}.{}.{}", group.join("."), self.version, self.kind)
    }

    fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// OpenAPI v3 document of a group-version: schemas, and for each kind the operations that clients read.
///
/// `kubectl` finds a kind by the GET of its objects, and the support of server-side field validation by the parameters
/// of the PATCH. Other operations are not listed.
fn document(kinds: &[Patchable<'_>]) -> Value {
    let parameter = |(name, type_)| json!({"name": name, "in": "query", "schema": {"type": type_}});
    let parameters: Vec<Value> = PATCH_PARAMETERS.map(parameter).into();
    let mut paths = Map::new();
    for kind in kinds {
        let Patchable { all, collection, group, version, kind: name, .. } = kind;
        let operation = |action: &str, parameters: &[Value]| {
            let mut operation = json!({
                "x-kubernetes-action": action,
                "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": name},
                "responses": {"200": {"description": "OK"}},
            });
            // Go clients omit empty lists.
            if !parameters.is_empty() {
                operation["parameters"] = json!(parameters);
            }
            operation
        };
        let list = json!({"get": operation("list", &[])});
        paths.extend(all.iter().map(|all| (all.clone(), list.clone())));
        paths.insert(collection.clone(), list);
        let object = json!({"get": operation("get", &[]), "patch": operation("patch", &parameters)});
        paths.insert(kind.object_path(), object);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "components": {"schemas": schemas(kinds)},
        "paths": paths,
    })
}

/// Schemas of the kinds of a group-version and of all types that they use, by name.
fn schemas(kinds: &[Patchable<'_>]) -> Map<String, Value> {
    let api_version = kinds.first().map(Patchable::api_version).unwrap_or_default();
    let built_in =
        kinds.iter().filter(|kind| kind.schema.is_none()).map(|kind| (api_version.as_str(), kind.kind));
    let mut schemas = schema::components(built_in);
    for (kind, definition) in kinds.iter().filter_map(|kind| Some((kind, kind.schema?))) {
        // The metadata of every kind has the same schema.
        for (name, schema) in schema::components([("v1", "ConfigMap")]) {
            if name.starts_with("io.k8s.apimachinery.") {
                schemas.entry(name).or_insert(schema);
            }
        }
        let Patchable { group, version, kind: name, .. } = kind;
        let mut schema = schema::custom(definition);
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": group, "kind": name, "version": version}]);
        schemas.insert(kind.schema_name(), schema);
    }
    schemas
}
