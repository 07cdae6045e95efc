//! A custom resource through all parts: informers of typed objects, dynamic objects and metadata, and adoption.

use std::sync::Arc;

use crate::support::{cluster, create, names, run, settle, synced};
use kcm_api::Selector;
use kcm_client::ApiClient;
use kcm_controller_ref_manager::{OwnerIdentity, claim};
use kcm_informer::{IndexName, Indexers, InformerOptions, Object, SharedInformer, drop_managed_fields};
use kcm_kube::{OwnerClient, api_client, sources};
use kcm_meta::Kind;
use kube_client::{
    Api, Client, Resource,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind, PartialObjectMeta},
};
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
    crates(kube_core = "kube_client::core")
)]
struct WebsiteSpec {
    host: String,
}

#[derive(CustomResource, Debug, Clone, Deserialize, Serialize)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "Shop",
    namespaced,
    schema = "disabled",
    crates(kube_core = "kube_client::core")
)]
struct ShopSpec {
    host: String,
}

const CONTROLLER: IndexName = IndexName("controller");

fn definition(kind: &str) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.example.org")},
        "spec": {
            "group": "example.org", "scope": "Namespaced",
            "names": {"kind": kind, "singular": singular, "plural": plural},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": {"host": {"type": "string"}}},
                }}},
            }],
        },
    })
}

/// Client of a server with the kinds `Website` and `Shop`.
async fn client() -> Client {
    let client = cluster().await;
    let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = ApiResource::from_gvk(&kind);
    let api = Api::<DynamicObject>::all_with(client.clone(), &definitions);
    for kind in ["Website", "Shop"] {
        create(&api, definition(kind)).await;
    }
    client
}

fn object(kind: &str, name: &str, references: &[Value]) -> Value {
    json!({
        "apiVersion": "example.org/v1", "kind": kind,
        "metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": references},
        "spec": {"host": format!("{name}.example.org")},
    })
}

fn other() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other-uid"})
}

fn informer<K>(client: &Client, resource: &K::DynamicType) -> (SharedInformer<K>, impl Drop + use<K>)
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let options =
        InformerOptions::new("websites.example.org").namespace("a").namespace("b").labels("app=web");
    run(sources(client, resource, &options), |config| {
        config.transform = Some(Arc::new(drop_managed_fields));
        config.indexers =
            Indexers::new().with(CONTROLLER, |object: &K| Some(object.controller()?.uid.into()));
    })
}

/// Adopts a website for a shop through an informer of `K`.
async fn adopts<K>(resource: K::DynamicType, websites_of: fn(&ApiClient) -> kcm_client::Api<K>)
where
    K: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let client = client().await;
    let websites = Api::<Website>::namespaced(client.clone(), "a");
    create(&websites, object("Website", "books", &[other()])).await;
    let shop: Shop = create(&Api::namespaced(client.clone(), "a"), object("Shop", "shop", &[])).await;

    let (informer, _running) = informer::<K>(&client, &resource);
    synced(&informer).await;
    assert_eq!(names(&informer), ["a/books"]);
    let owned = || informer.store().by_index(CONTROLLER, shop.uid_str()).len();
    assert_eq!(owned(), 0);

    let owner = OwnerIdentity::of(&shop);
    let selector = serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap();
    let selector = Selector::new(Some(&selector)).unwrap();
    let control =
        OwnerClient::with_api(websites_of(&api_client(client.clone())), Shop::resource(), shop.key());
    let claimed = claim(&owner, &selector, informer.store().list(), &control).await.into_result().unwrap();
    assert_eq!(claimed.len(), 1);
    settle().await;
    assert_eq!(owned(), 1);

    let stored = websites.get("books").await.unwrap();
    let uids: Vec<_> =
        stored.metadata.owner_references.iter().flatten().map(|reference| reference.uid.as_str()).collect();
    assert_eq!(uids, ["other-uid", shop.uid_str()]);
    assert_eq!(stored.spec.host, "books.example.org");
}

#[tokio::test(start_paused = true)]
async fn typed_objects() {
    adopts::<Website>((), ApiClient::api).await;
}

#[tokio::test(start_paused = true)]
async fn dynamic_objects() {
    adopts::<DynamicObject>(ApiResource::erase::<Website>(&()), |client| client.api_for(Website::resource()))
        .await;
}

#[tokio::test(start_paused = true)]
async fn metadata_only() {
    adopts::<PartialObjectMeta<Website>>((), ApiClient::api).await;
}
