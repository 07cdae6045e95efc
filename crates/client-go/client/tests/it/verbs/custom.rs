//! A custom resource.

use kcm_client::{Kind, Patch};
use kcm_controller_ref_manager::{OwnerIdentity, OwnerPatch};
use kube_client::core::ObjectMeta;
use kube_derive::CustomResource;
use serde::Deserialize;

use super::*;

pub(super) const WEBSITES: ApiResource = ApiResource::namespaced("example.com", "v1", "Website", "websites");

#[derive(CustomResource, Debug, Clone, PartialEq, Deserialize, Serialize)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    schema = "disabled",
    status = "WebsiteStatus",
    crates(kube_core = "::kube_client::core")
)]
pub(super) struct WebsiteSpec {
    pub(super) replicas: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Deserialize, Serialize)]
pub(super) struct WebsiteStatus {
    pub(super) replicas: Option<i32>,
}

pub(super) fn website<K: DeserializeOwned>(name: &str) -> K {
    serde_json::from_value(json!({
        "apiVersion": "example.com/v1", "kind": "Website",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {},
    }))
    .unwrap()
}

pub(super) fn definition() -> Value {
    let replicas = json!({"type": "integer"});
    let mut with_default = replicas.clone();
    with_default["default"] = json!(1);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "websites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "websites", "singular": "website", "kind": "Website"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                },
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"replicas": with_default}},
                    "status": {"type": "object", "properties": {"replicas": replicas}},
                }}},
            }],
        },
    })
}

#[test]
fn resource_of_the_type() {
    assert_eq!(Website::resource(), WEBSITES);
}

fn references(metadata: &ObjectMeta) -> Vec<Value> {
    metadata.owner_references.iter().flatten().map(to_json).collect()
}

/// API servers refuse strategic merge patches of custom resources. A merge patch keeps the other references, and fails
/// if there is a new one that it does not have.
#[tokio::test]
async fn adoption_by_merge_patch() {
    let api = objects::<Website>();
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other-uid"});
    let orphan: Website = changed(&website("web"), |object| {
        object["metadata"]["ownerReferences"] = json!([other]);
    });
    let orphan = api.create(&orphan).await.unwrap();
    let owner = OwnerIdentity {
        api_version: "example.com/v1".into(),
        kind: "Shop".into(),
        namespace: NAMESPACE.into(),
        name: "shop".into(),
        uid: "shop-uid".into(),
        deleting: false,
    };
    let adopt = OwnerPatch::adopt(&owner, orphan.uid_str());
    let patch = adopt.merge(orphan.resource_version_str(), &references(&orphan.metadata)).unwrap().unwrap();
    let patch = Patch::merge(patch);

    let adopted = api.patch("web", &patch).await.unwrap();
    assert_eq!(adopted.controller().unwrap().uid, "shop-uid");
    assert_eq!(references(&adopted.metadata)[0], other);
    assert!(api.patch("web", &patch).await.unwrap_err().is_conflict());

    let release = OwnerPatch::release("shop-uid", adopted.uid_str());
    let patch =
        release.merge(adopted.resource_version_str(), &references(&adopted.metadata)).unwrap().unwrap();
    let released = api.patch("web", &Patch::merge(patch)).await.unwrap();
    assert_eq!(references(&released.metadata), [other]);
}
