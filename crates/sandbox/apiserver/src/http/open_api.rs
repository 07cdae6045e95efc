//! OpenAPI v3 documents.

use serde_json::{Map, Value, json};

use crate::{custom::CustomVersion, schema::open_api};

/// Query parameters of a patch and their types.
pub(super) const PATCH_PARAMETERS: [(&str, &str); 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

/// A kind that can be patched.
pub(super) struct Patchable<'a> {
    /// Path of the objects of all namespaces, for kinds with namespaces.
    pub(super) all: Option<String>,
    /// Path of the objects.
    pub(super) collection: String,
    pub(super) group: &'static str,
    pub(super) version: &'a str,
    pub(super) kind: &'static str,
    /// `None` for built-in kinds.
    pub(super) custom: Option<&'a CustomVersion>,
}

impl Patchable<'_> {
    /// Path of an object.
    pub(super) fn object_path(&self) -> String {
        format!("{}/{{name}}", self.collection)
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
pub(super) fn document(kinds: &[Patchable<'_>]) -> Value {
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
pub(super) fn schemas(kinds: &[Patchable<'_>]) -> Map<String, Value> {
    let api_version = kinds.first().map(Patchable::api_version).unwrap_or_default();
    let built_in =
        kinds.iter().filter(|kind| kind.custom.is_none()).map(|kind| (api_version.as_str(), kind.kind));
    let mut schemas = open_api::components(built_in);
    for custom in kinds.iter().filter_map(|kind| kind.custom) {
        // The metadata of every kind has the same schema.
        for (name, schema) in open_api::components([("v1", "ConfigMap")]) {
            if name.starts_with("io.k8s.apimachinery.") {
                schemas.entry(name).or_insert(schema);
            }
        }
        schemas.insert(custom.open_api_name(), custom.open_api_schema());
    }
    schemas
}
