//! Owners and objects of kinds that are not built in. Owner references are changed by merge patch.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use kcm_api::{ApiError, ObjectKey, Selector, error::reason};
use kcm_controller_ref_manager::{LiveOwner, OwnerControl, OwnerIdentity, OwnerPatch, claim};
use kcm_meta::Object;
use kube_core::{DynamicObject, Resource, metadata::PartialObjectMeta};
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
struct WebsiteSpec {}

/// API server that stores custom resources as JSON, and applies merge patches with their preconditions.
struct Server {
    owner: DynamicObject,
    objects: Mutex<BTreeMap<ObjectKey, Value>>,
    patches: Mutex<Vec<Value>>,
}

impl Server {
    fn new(objects: impl IntoIterator<Item = Value>) -> Self {
        let key = |object: &Value| ObjectKey::new("shop", object["metadata"]["name"].as_str().unwrap());
        let objects = objects.into_iter().map(|object| (key(&object), object)).collect();
        Self { owner: owner(), objects: Mutex::new(objects), patches: Mutex::default() }
    }

    /// Objects as an informer caches them.
    fn cached<K: DeserializeOwned>(&self) -> Vec<Arc<K>> {
        let objects = self.objects.lock().unwrap();
        objects.values().map(|object| Arc::new(serde_json::from_value(object.clone()).unwrap())).collect()
    }

    fn references(&self, name: &str) -> Value {
        self.objects.lock().unwrap()[&ObjectKey::new("shop", name)]["metadata"]["ownerReferences"].clone()
    }
}

#[async_trait]
impl<K: Object + Resource + DeserializeOwned> OwnerControl<K> for Server {
    fn kind(&self) -> Cow<'static, str> {
        "Website".into()
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        Ok(LiveOwner::of(&self.owner))
    }

    async fn patch(&self, object: &K, patch: &OwnerPatch) -> Result<K, ApiError> {
        let references = object.meta().owner_references.as_deref().unwrap_or_default();
        let body = patch.merge(object.resource_version_str(), references).unwrap().unwrap();
        let body: Value = serde_json::from_str(&body).unwrap();
        self.patches.lock().unwrap().push(body.clone());
        let mut objects = self.objects.lock().unwrap();
        let stored = objects.get_mut(&object.key()).unwrap();
        for precondition in ["uid", "resourceVersion"] {
            if body["metadata"][precondition] != stored["metadata"][precondition] {
                return Err(ApiError::status(409, reason::CONFLICT, format!("{precondition} differs")));
            }
        }
        json_patch::merge(stored, &body);
        stored["metadata"]["resourceVersion"] = json!("8");
        Ok(serde_json::from_value(stored.clone()).unwrap())
    }
}

fn owner() -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "example.org/v1", "kind": "Shop",
        "metadata": {"namespace": "shop", "name": "books", "uid": "books-uid"},
    }))
    .unwrap()
}

fn website(name: &str, app: &str, references: &[Value]) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Website",
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("{name}-uid"), "resourceVersion": "7",
            "labels": {"app": app}, "ownerReferences": references,
        },
        "spec": {},
    })
}

fn ours() -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": "Shop", "name": "books", "uid": "books-uid",
        "controller": true, "blockOwnerDeletion": true,
    })
}

fn other() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c-uid"})
}

fn selector(value: Value) -> Selector {
    Selector::new(Some(&serde_json::from_value(value).unwrap())).unwrap()
}

/// Adopts one object, releases one, and keeps the references of other owners of both.
async fn claims<K: Object + Resource + DeserializeOwned>() {
    let server = Server::new([
        website("adopted", "books", &[other()]),
        website("released", "toys", &[ours(), other()]),
        website("foreign", "toys", &[other()]),
    ]);
    let owner = OwnerIdentity::of_kind("example.org/v1", "Shop", &server.owner);
    let selector = selector(json!({"matchLabels": {"app": "books"}}));
    let claimed = claim(&owner, &selector, server.cached::<K>(), &server).await.into_result().unwrap();

    let claimed: Vec<_> = claimed.iter().map(|object| object.key().to_string()).collect();
    assert_eq!(claimed, ["shop/adopted"]);
    assert_eq!(server.references("adopted"), json!([other(), ours()]));
    assert_eq!(server.references("released"), json!([other()]));
    assert_eq!(server.references("foreign"), json!([other()]));
    let patches = server.patches.lock().unwrap();
    let preconditions = |patch: &Value| {
        let metadata = &patch["metadata"];
        (metadata["uid"].clone(), metadata["resourceVersion"].clone())
    };
    assert_eq!(
        patches.iter().map(preconditions).collect::<Vec<_>>(),
        [(json!("adopted-uid"), json!("7")), (json!("released-uid"), json!("7"))]
    );
}

#[tokio::test]
async fn claims_derived_custom_resources() {
    claims::<Website>().await;
}

#[tokio::test]
async fn claims_dynamic_objects() {
    claims::<DynamicObject>().await;
}

#[tokio::test]
async fn claims_objects_of_which_only_metadata_is_cached() {
    claims::<PartialObjectMeta<Website>>().await;
}

#[tokio::test]
async fn reference_that_another_client_adds_is_not_lost() {
    let server = Server::new([website("web", "books", &[])]);
    let stale = server.cached::<Website>();
    {
        let mut objects = server.objects.lock().unwrap();
        let stored = &mut objects.get_mut(&ObjectKey::new("shop", "web")).unwrap()["metadata"];
        stored["ownerReferences"] = json!([other()]);
        stored["resourceVersion"] = json!("9");
    }
    let owner = OwnerIdentity::of_kind("example.org/v1", "Shop", &server.owner);
    let error = claim(&owner, &selector(json!({})), stale, &server).await.error.unwrap();
    assert_eq!(error.to_string(), "resourceVersion differs");
    assert_eq!(server.references("web"), json!([other()]));
}

#[tokio::test]
async fn messages_name_the_kinds() {
    let mut server = Server::new([website("web", "books", &[])]);
    server.owner.metadata.uid = Some("later".to_owned());
    let owner = OwnerIdentity::of_kind("example.org/v1", "Shop", &owner());
    let claimed = claim(&owner, &selector(json!({})), server.cached::<Website>(), &server).await;
    assert_eq!(
        claimed.error.unwrap().to_string(),
        "can't adopt Website shop/web (web-uid): can't recheck DeletionTimestamp: original Shop shop/books is gone: \
         got uid later, wanted books-uid"
    );
}
