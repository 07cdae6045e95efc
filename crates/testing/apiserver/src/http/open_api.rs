//! OpenAPI v3 documents.

use serde_json::{Value, json};

/// Query parameters of a patch and their types.
pub(super) const PATCH_PARAMETERS: [(&str, &str); 4] =
    [("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string"), ("force", "boolean")];

/// A kind that can be patched.
pub(super) struct Patchable<'a> {
    pub(super) path: String,
    pub(super) group: &'static str,
    pub(super) version: &'a str,
    pub(super) kind: &'static str,
}

/// Minimal OpenAPI v3 document: a patch operation with its parameters for each kind.
///
/// It suffices for kubectl to rely on server-side field validation. Without schemas, `kubectl explain` is unsupported.
pub(super) fn document<'a>(kinds: impl Iterator<Item = Patchable<'a>>) -> Value {
    let parameter = |(name, type_)| json!({"name": name, "in": "query", "schema": {"type": type_}});
    let parameters: Vec<Value> = PATCH_PARAMETERS.map(parameter).into();
    let mut paths = serde_json::Map::new();
    for Patchable { path, group, version, kind } in kinds {
        let operation = json!({
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind},
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
        });
        paths.insert(path, json!({"patch": operation}));
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "components": {"schemas": {}},
        "paths": paths,
    })
}
