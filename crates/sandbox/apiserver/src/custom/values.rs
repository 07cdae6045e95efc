//! Pruning and defaulting of custom resources.
//!
//! Upstream counterpart: the packages `pruning`, `defaulting` and `objectmeta` of
//! `apiextensions-apiserver/pkg/apiserver/schema`.

use serde_json::{Map, Value, json};

use crate::{
    strict,
    structural_schema::{Additional, Schema},
};

/// Members of an object that a schema does not describe.
const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Removes the fields of `object` that its schema does not have. Returns their paths, sorted.
pub(super) fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.object(object, Some(schema), true);
    pruner.removed.sort_unstable();
    pruner.removed
}

/// As [`prune`], of a value below an object.
pub(super) fn prune_value(value: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner { path: String::new(), removed: Vec::new() };
    pruner.value(value, Some(schema));
    pruner.removed
}

struct Pruner {
    path: String,
    removed: Vec<String>,
}

impl Pruner {
    /// Calls `visit` with the path extended by `step`.
    fn below(&mut self, step: &str, visit: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        if !self.path.is_empty() && !step.starts_with('[') {
            self.path.push('.');
        }
        self.path.push_str(step);
        visit(self);
        self.path.truncate(length);
    }

    fn remove(&mut self, name: &str) {
        self.below(name, |pruner| pruner.removed.push(pruner.path.clone()));
    }

    fn value(&mut self, value: &mut Value, schema: Option<&Schema>) {
        let preserves = schema.is_some_and(|schema| schema.preserves_unknown_fields);
        match value {
            Value::Object(_) => self.object(value, schema, false),
            Value::Array(items) => {
                let item_schema = schema.and_then(|schema| schema.items.as_deref());
                if preserves && item_schema.is_none() {
                    return;
                }
                for (index, item) in items.iter_mut().enumerate() {
                    self.below(&format!("[{index}]"), |pruner| pruner.value(item, item_schema));
                }
            }
            _ => {}
        }
    }

    /// Brings the metadata of an embedded object into normal form. Metadata of another type is left to the validation.
    fn embedded_metadata(&mut self, metadata: &mut Value) {
        // Every kind has the same metadata.
        let Ok(mut decoded) = strict::decode_value("v1", "ConfigMap", json!({"metadata": metadata})) else {
            return;
        };
        *metadata = decoded.object["metadata"].take();
        for error in &decoded.strict_errors {
            let path = error.strip_prefix("unknown field \"").and_then(|path| path.strip_suffix('"'));
            if let Some(path) = path {
                self.remove(path);
            }
        }
    }

    fn object(&mut self, value: &mut Value, schema: Option<&Schema>, is_root: bool) {
        let Value::Object(members) = value else { return };
        members.retain(|name, member| {
            let Some(schema) = schema else {
                self.remove(name);
                return false;
            };
            if (is_root || schema.is_embedded_resource) && META_FIELDS.contains(&name.as_str()) {
                if !is_root && name == "metadata" {
                    self.embedded_metadata(member);
                }
                return true;
            }
            match (schema.properties.get(name), &schema.additional) {
                (Some(schema), _) => self.below(name, |pruner| pruner.value(member, Some(schema))),
                (None, Additional::Schema(schema)) => {
                    self.below(name, |pruner| pruner.value(member, Some(schema)));
                }
                (None, _) if schema.preserves_unknown_fields => {}
                (None, Additional::Any) => self.below(name, |pruner| pruner.value(member, None)),
                (None, Additional::None) => {
                    self.remove(name);
                    return false;
                }
            }
            true
        });
    }
}

/// Removes nulls of fields that are not nullable and have no default, and sets defaults.
pub(super) fn apply_defaults(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(members) => {
            members.retain(|name, member| {
                !member.is_null()
                    || schema.member(name).is_none_or(|schema| schema.nullable || schema.default.is_some())
            });
            set_missing(members, schema);
            for (name, member) in members.iter_mut() {
                if let Some(schema) = schema.member(name) {
                    replace_null(member, schema);
                    apply_defaults(member, schema);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = &schema.items {
                for item in items {
                    replace_null(item, schema);
                    apply_defaults(item, schema);
                }
            }
        }
        _ => {}
    }
}

fn set_missing(members: &mut Map<String, Value>, schema: &Schema) {
    for (name, schema) in &schema.properties {
        if let Some(default) = &schema.default
            && !members.contains_key(name)
        {
            members.insert(name.clone(), default.clone());
        }
    }
}

fn replace_null(value: &mut Value, schema: &Schema) {
    if value.is_null()
        && !schema.nullable
        && let Some(default) = &schema.default
    {
        *value = default.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::parse(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 1},
                "note": {"type": "string", "nullable": true},
                "ports": {"type": "array", "items": {"type": "object", "properties": {
                    "name": {"type": "string"}, "protocol": {"type": "string", "default": "TCP"}}}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "nested": {"type": "object", "default": {}, "properties": {
                    "deep": {"type": "string", "default": "x"}}},
            }},
        }}))
    }

    #[test]
    fn unknown_fields_are_removed() {
        let mut object = json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"name": "x"}, "other": 1,
            "spec": {"sise": 3, "ports": [{"name": "a", "numer": 1}], "labels": {"a": "b"},
                "any": {"free": {"x": 1}, "known": {"a": "b", "c": "d"}}},
        });
        let removed = prune(&mut object, &schema());
        assert_eq!(removed, ["other", "spec.any.known.c", "spec.ports[0].numer", "spec.sise"]);
        assert_eq!(
            object["spec"],
            json!({"ports": [{"name": "a"}], "labels": {"a": "b"}, "any": {"free": {"x": 1}, "known": {"a": "b"}}})
        );
    }

    #[test]
    fn unknown_metadata_of_embedded_objects_is_removed() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {
            "template": {"type": "object", "x-kubernetes-embedded-resource": true},
        }}));
        let template =
            |metadata: Value| json!({"template": {"apiVersion": "v1", "kind": "K", "metadata": metadata}});
        let mut object =
            template(json!({"name": "x", "other": 1, "ownerReferences": [{"uid": "u", "more": 2}]}));
        assert_eq!(
            prune(&mut object, &schema),
            ["template.metadata.other", "template.metadata.ownerReferences[0].more"]
        );
        assert_eq!(object["template"]["metadata"]["name"], "x");
        assert_eq!(object["template"]["metadata"].get("other"), None);

        let mut invalid = template(json!({"labels": 1}));
        assert_eq!(prune(&mut invalid, &schema), Vec::<String>::new());
        assert_eq!(invalid, template(json!({"labels": 1})));
    }

    #[test]
    fn defaults_replace_nulls_and_missing_fields() {
        let mut object = json!({"spec": {"size": null, "note": null, "ports": [{"name": null}]}});
        apply_defaults(&mut object, &schema());
        assert_eq!(
            object["spec"],
            json!({"size": 1, "note": null, "ports": [{"protocol": "TCP"}], "nested": {"deep": "x"}})
        );
        let once = object.clone();
        apply_defaults(&mut object, &schema());
        assert_eq!(object, once);
    }
}
