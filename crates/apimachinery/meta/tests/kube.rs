//! [`Object`] and [`Kind`] for the types that users of kube-rs have.
//!
//! `cargo test -p kcm-meta --features kube`
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kcm_meta::{ApiResource, ControllerRef, Kind, Object, ObjectKey, SetResourceVersion, StrategicMerge};
use kube_core::{DynamicObject, ResourceExt, metadata::PartialObjectMeta};
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

#[derive(CustomResource, Debug, Clone, Deserialize, Serialize)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "Website",
    namespaced,
    schema = "disabled",
    crates(kube_core = "::kube_core")
)]
struct WebsiteSpec {
    host: String,
}

fn website() -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Website",
        "metadata": {
            "namespace": "shop", "name": "web", "uid": "web-1", "resourceVersion": "7",
            "labels": {"app": "web"},
            "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": "2026-01-02T03:05:00Z",
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a-1"},
                {"apiVersion": "example.org/v1", "kind": "Shop", "name": "b", "uid": "b-1", "controller": true},
            ],
        },
        "spec": {"host": "example.org"},
    })
}

/// Reads all metadata of an object of type `K`.
fn reads_metadata<K: Object + SetResourceVersion + DeserializeOwned>() {
    let mut object: K = serde_json::from_value(website()).unwrap();
    assert_eq!(object.key(), ObjectKey::new("shop", "web"));
    assert_eq!(object.uid_str(), "web-1");
    assert_eq!(object.resource_version_str(), "7");
    assert_eq!((object.label("app"), object.label("tier")), (Some("web"), None));
    assert_eq!(object.creation_time().unwrap().to_string(), "2026-01-02T03:04:05Z");
    assert_eq!(object.deletion_timestamp().unwrap().to_string(), "2026-01-02T03:05:00Z");
    assert!(object.is_being_deleted());
    assert_eq!(
        object.controller(),
        Some(ControllerRef { api_version: "example.org/v1", kind: "Shop", name: "b", uid: "b-1" })
    );
    object.set_resource_version("8");
    assert_eq!(object.resource_version_str(), "8");
}

#[test]
fn custom_resource() {
    reads_metadata::<Website>();
}

#[test]
fn dynamic_object() {
    reads_metadata::<DynamicObject>();
}

#[test]
fn partial_object_meta() {
    reads_metadata::<PartialObjectMeta<Website>>();
    reads_metadata::<PartialObjectMeta<DynamicObject>>();
}

#[test]
fn k8s_openapi_type() {
    let mut text = website();
    text["kind"] = "ConfigMap".into();
    text["apiVersion"] = "v1".into();
    let object: ConfigMap = serde_json::from_value(text).unwrap();
    // No method is ambiguous.
    assert_eq!(
        (object.uid().unwrap(), object.resource_version().unwrap()),
        ("web-1".to_owned(), "7".to_owned())
    );
    assert_eq!((object.key(), object.uid_str()), (ObjectKey::new("shop", "web"), "web-1"));
    reads_metadata::<DynamicObject>();
}

#[test]
fn absent_metadata_is_empty() {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": "node-1"}})).unwrap();
    assert_eq!(node.key(), ObjectKey::new("", "node-1"));
    assert_eq!((node.uid_str(), node.resource_version_str(), node.label("app")), ("", "", None));
    assert_eq!((node.creation_time(), node.controller()), (None, None));
    assert!(!node.is_being_deleted());
    assert_eq!(Node::default().key(), ObjectKey::new("", ""));
}

#[test]
fn resources_of_types() {
    const WEBSITES: ApiResource = ApiResource::namespaced("example.org", "v1", "Website", "websites");
    assert_eq!(Website::resource(), WEBSITES);
    assert_eq!(PartialObjectMeta::<Website>::resource(), WEBSITES);
    assert_eq!(ConfigMap::resource(), ApiResource::namespaced("", "v1", "ConfigMap", "configmaps"));
    assert_eq!(Node::resource(), ApiResource::cluster_scoped("", "v1", "Node", "nodes"));
    assert!(PartialObjectMeta::<Website>::is_metadata_only() && !Website::is_metadata_only());
    let of_kube_rs = kube_core::ApiResource::erase::<Website>(&());
    assert_eq!(ApiResource::from_kube(of_kube_rs, true), WEBSITES);
}

#[test]
fn types_of_the_api_server_have_strategic_merge_patches() {
    fn has_strategic_merge<K: StrategicMerge>() {}
    has_strategic_merge::<ConfigMap>();
    has_strategic_merge::<Node>();
}
