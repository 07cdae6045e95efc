//! A custom resource.

use serde_json::{Value, json};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/websites.example.com";
pub(crate) const WEBSITES: &str = "/apis/example.com/v1/namespaces/default/websites";

/// Definition of a kind with all features.
pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "websites.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "websites", "singular": "website", "kind": "Website", "shortNames": ["ws"],
                "categories": ["all"]},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
                        "labelSelectorPath": ".status.selector"},
                },
                "additionalPrinterColumns": [
                    {"name": "Host", "type": "string", "jsonPath": ".spec.host"},
                    {"name": "Replicas", "type": "integer", "jsonPath": ".spec.replicas"},
                    {"name": "Paths", "type": "string", "jsonPath": ".spec.paths[*].path", "priority": 1},
                    {"name": "Ready", "type": "string",
                        "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"},
                    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
                ],
                "schema": {"openAPIV3Schema": schema()},
            }],
        },
    })
}

fn schema() -> Value {
    let pattern = |pattern: &str| json!({"pattern": pattern});
    json!({
        "type": "object",
        "description": "A website.",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["host"],
                "properties": {
                    "host": {"type": "string", "minLength": 3, "maxLength": 30, "pattern": "^[a-z.]+$"},
                    "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 10, "default": 1},
                    "ratio": {"type": "number", "minimum": 0, "exclusiveMinimum": true, "multipleOf": 0.5},
                    "tier": {"type": "string", "enum": ["free", "paid"]},
                    "oneOf": {"type": "string", "oneOf": [pattern("^a"), pattern("^b")]},
                    "anyOf": {"type": "string", "anyOf": [pattern("^a"), pattern("^b")]},
                    "allOf": {"type": "string", "allOf": [pattern("^a"), pattern("b$")]},
                    "not": {"type": "string", "not": pattern("^a")},
                    "port": {"x-kubernetes-int-or-string": true},
                    "note": {"type": "string", "nullable": true},
                    "when": {"type": "string", "format": "date-time"},
                    "debug": {"type": "boolean"},
                    "paths": {
                        "type": "array", "minItems": 1, "maxItems": 3,
                        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["path"],
                        "items": {"type": "object", "required": ["path"], "properties": {
                            "path": {"type": "string"}, "weight": {"type": "integer"}}},
                    },
                    "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "list": {"type": "array", "items": {"type": "string"}},
                    "labels": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string"}},
                    "atomic": {"type": "object", "x-kubernetes-map-type": "atomic",
                        "additionalProperties": {"type": "string"}},
                    "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "template": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true},
                },
            },
            "status": {"type": "object", "properties": {
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
                "conditions": {"type": "array", "items": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }},
        },
    })
}

pub(crate) fn website(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": name}, "spec": spec})
}
