//! A custom resource.

use serde_json::{Value, json};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
pub(crate) const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/websites.example.com";
pub(crate) const WEBSITES: &str = "/apis/example.com/v1/namespaces/default/websites";

/// Definition of a kind with all features.
pub(crate) fn definition() -> Value {
    serde_saphyr::from_str(include_str!("testdata/website.yaml")).unwrap()
}

pub(crate) fn website(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Website", "metadata": {"name": name}, "spec": spec})
}
