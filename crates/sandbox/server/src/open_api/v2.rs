//! OpenAPI v2 documents.
//!
//! Upstream counterpart: `/openapi/v2`.
//!
//! The JSON document has the schemas of all kinds. The protobuf document, with gnostic's `openapi.v2` messages, is what
//! `kubectl` 1.28 requires for apply and create. It has a patch operation per kind, whose parameters indicate server-side
//! field validation, as in the OpenAPI v3 document. Its definitions are those of custom resources, without fields.

use kcm_apiserver::{json::bool_at, protobuf::Message};
use serde_json::{Map, Value, json};

use super::{PATCH_PARAMETERS, Patchable};

/// Accepted media type of the protobuf document.
pub(super) const ACCEPTED: &str = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
/// Media type of its response, as upstream.
pub(super) const CONTENT_TYPE: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Builds the JSON document from the schemas of OpenAPI v3, by name.
pub(super) fn json_document(schemas: Map<String, Value>) -> Value {
    let definitions: Map<String, Value> = schemas
        .into_iter()
        .map(|(name, mut schema)| {
            downgrade(&mut schema, true);
            (name, schema)
        })
        .collect();
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "v1"},
        "paths": {},
        "definitions": definitions,
    })
}

/// Converts a schema to OpenAPI v2: removes what v2 does not have, and what `kubectl` would misread.
///
/// Upstream counterpart: `ToStructuralOpenAPIV2`.
fn downgrade(schema: &mut Value, is_definition: bool) {
    let preserves_unknown = bool_at(schema, &["x-kubernetes-preserve-unknown-fields"]);
    let is_untyped = preserves_unknown || bool_at(schema, &["nullable"]);
    let Value::Object(members) = schema else { return };
    if is_definition && preserves_unknown {
        members.retain(|name, _| name == "x-kubernetes-group-version-kind");
        members.insert("type".to_owned(), json!("object"));
        return;
    }
    // A reference with a description: v2 has both in the same object.
    if let Some(Value::Array(mut all)) = members.remove("allOf")
        && let (Some(Value::Object(reference)), true) = (all.pop(), all.is_empty())
        && reference.contains_key("$ref")
    {
        members.extend(reference);
    }
    if let Some(name) = members.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        members.insert("$ref".to_owned(), Value::from(format!("#/definitions/{name}")));
    }
    // A number or a string, in the definitions of built-in types only.
    if is_definition && members.contains_key("oneOf") && !members.contains_key("type") {
        members.insert("type".to_owned(), json!("string"));
    }
    for name in ["oneOf", "anyOf", "not", "nullable"] {
        members.remove(name);
    }
    if is_untyped {
        members.remove("items");
        members.remove("properties");
        members.remove("type");
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        let nullable: Vec<String> = properties
            .iter()
            .filter(|(_, schema)| bool_at(schema, &["nullable"]))
            .map(|(name, _)| name.clone())
            .collect();
        for property in properties.values_mut() {
            downgrade(property, false);
        }
        if let Some(Value::Array(required)) = members.get_mut("required") {
            required.retain(|name| !nullable.iter().any(|nullable| *name == nullable.as_str()));
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(name) {
            downgrade(inner, false);
        }
    }
}

/// Builds the protobuf document.
pub(super) fn protobuf_document<'a>(kinds: impl Iterator<Item = Patchable<'a>>) -> Vec<u8> {
    let (mut paths, mut definitions) = (Message::default(), Message::default());
    for kind in kinds {
        if kind.schema.is_some() {
            let yaml =
                format!("- group: {:?}\n  version: {}\n  kind: {}\n", kind.group, kind.version, kind.kind);
            let schema = Message::default()
                .bytes(22, Message::default().bytes(1, "object"))
                .bytes(31, kinds_extension(&yaml));
            definitions =
                definitions.bytes(1, Message::default().bytes(1, kind.schema_name()).bytes(2, schema));
        }
        let path_item = Message::default().bytes(8, patch_operation(&kind));
        paths = paths.bytes(2, Message::default().bytes(1, kind.object_path()).bytes(2, path_item));
    }
    let info = Message::default().bytes(1, "Kubernetes").bytes(2, "v1");
    Message::default().bytes(1, "2.0").bytes(2, info).bytes(8, paths).bytes(9, definitions).into_vec()
}

fn patch_operation(kind: &Patchable<'_>) -> Message {
    let mut operation = Message::default();
    for (name, type_) in PATCH_PARAMETERS {
        // Nested oneofs: parametersItem.parameter → parameter.nonBodyParameter → nonBodyParameter.queryParameterSubSchema.
        let query = Message::default().bytes(2, "query").bytes(4, name).bytes(6, type_);
        let parameter = Message::default().bytes(3, query);
        operation = operation.bytes(8, Message::default().bytes(1, Message::default().bytes(2, parameter)));
    }
    let Patchable { group, version, kind, .. } = kind;
    let yaml = format!("group: {group:?}\nversion: {version}\nkind: {kind}\n");
    operation.bytes(9, Message::default()).bytes(13, kinds_extension(&yaml))
}

/// `NamedAny` with the kinds of an operation or a schema.
fn kinds_extension(yaml: &str) -> Message {
    Message::default().bytes(1, "x-kubernetes-group-version-kind").bytes(2, Message::default().bytes(2, yaml))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protobuf_document_contains_kinds_and_parameters() {
        let kind = Patchable {
            all: None,
            collection: "/apis/apps/v1/namespaces/{namespace}/deployments".to_owned(),
            group: "apps",
            version: "v1",
            kind: "Deployment",
            schema: None,
        };
        let document = protobuf_document(std::iter::once(kind));
        let has = |text: &str| document.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(has("/apis/apps/v1/namespaces/{namespace}/deployments/{name}"));
        assert!(has("group: \"apps\"\nversion: v1\nkind: Deployment\n"));
        assert!(has("fieldValidation") && has("dryRun"));
    }

    #[test]
    fn schemas_are_converted() {
        #[derive(serde::Deserialize)]
        struct Case {
            name: String,
            v3: Value,
            v2: Value,
        }

        let cases: Vec<Case> = serde_saphyr::from_str(include_str!("conversions.yaml")).unwrap();
        for Case { name, v3, v2 } in cases {
            let document = json_document([("X".to_owned(), v3)].into_iter().collect());
            assert_eq!(document["definitions"]["X"], v2, "{name}");
        }
    }
}
