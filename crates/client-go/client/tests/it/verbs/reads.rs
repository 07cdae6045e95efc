//! Get, find, list, watch.

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kcm_client::{ApiError, DeleteOptions, ListOptions, ListParams, Patch, WatchEvent, WatchOptions};
use kube_client::core::{DynamicObject, PartialObjectMeta};

use super::*;

for_each_type!(gets_and_finds, lists_pages, watches, sources_of_informers);

async fn gets_and_finds<K: Subject>() {
    let api = objects::<K>();
    assert!(api.get("web").await.unwrap_err().is_not_found());
    assert!(api.find("web").await.unwrap().is_none());
    api.create(&K::named("web")).await.unwrap();

    let everywhere = K::all(api.client());
    assert_eq!(api.get("web").await.unwrap().key(), key("web"));
    assert_eq!(everywhere.get(&key("web")).await.unwrap().key(), key("web"));
    assert_eq!(everywhere.find(&key("web")).await.unwrap().unwrap().key(), key("web"));
}

async fn lists_pages<K: Subject>() {
    let api = objects::<K>();
    for name in ["a", "b", "c"] {
        api.create(&K::named(name)).await.unwrap();
    }
    api.namespaced("kube-system").create(&K::named("other")).await.unwrap();

    let list = async |params: ListParams| names(&api.list(&params).await.unwrap().items);
    assert_eq!(list(ListParams::default()).await, ["a", "b", "c"]);
    assert_eq!(list(ListParams { limit: 2, ..ListParams::default() }).await, ["a", "b", "c"]);
    assert_eq!(list(ListParams { limit: 0, ..ListParams::default() }).await, ["a", "b", "c"]);
    assert_eq!(list(ListParams::labels("app in (a,b)")).await, ["a", "b"]);
    assert_eq!(list(ListParams::fields("metadata.name!=b")).await, ["a", "c"]);
    let cached = ListParams { resource_version: Some("0".to_owned()), ..ListParams::default() };
    assert_eq!(list(cached).await, ["a", "b", "c"]);
    let all = api.namespaced("").list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&all.items), ["a", "b", "c", "other"]);

    let params = ListParams { limit: 2, ..ListParams::default() };
    let pages: Vec<_> = api.pages(params).try_collect().await.unwrap();
    let sizes: Vec<_> =
        pages.iter().map(|page| (page.list.items.len(), page.remaining_item_count.unwrap_or(0))).collect();
    assert_eq!(sizes, [(2, 1), (1, 0)]);
    assert!(pages[1].continue_token.is_none());

    let error = api.list(&ListParams::labels("a=b=c")).await.unwrap_err();
    assert_eq!(error.code(), Some(400));
}

async fn watches<K: Subject>() {
    let api = objects::<K>();
    let params = ListParams::labels("app=web");
    let mut events = api.watch(&params, &WatchOptions::default()).await.unwrap();
    api.create(&K::named("other")).await.unwrap();
    api.create(&K::named("web")).await.unwrap();
    api.patch("web", &Patch::merge(&json!({"spec": {"replicas": 2}}))).await.unwrap();
    api.delete("web", &DeleteOptions::default()).await.unwrap();
    let mut next = async || events.try_next().await.unwrap().unwrap();
    let WatchEvent::Added(added) = next().await else { panic!() };
    let WatchEvent::Modified(modified) = next().await else { panic!() };
    let WatchEvent::Deleted(deleted) = next().await else { panic!() };
    assert_eq!(names(&[added, modified, deleted]), ["web", "web", "web"]);
}

async fn sources_of_informers<K: Subject>() {
    let api = objects::<K>();
    api.create(&K::named("web")).await.unwrap();
    api.create(&K::named("db")).await.unwrap();
    api.namespaced("kube-system").create(&K::named("web")).await.unwrap();
    let source = api.list_watch(ListParams::labels("app=web"));
    let list = source.list(&ListOptions::default()).await.unwrap();
    assert_eq!(names(&list.items), ["web"]);

    let everywhere = K::all(api.client()).list_watch(ListParams::labels("app=web"));
    assert_eq!(everywhere.list(&ListOptions::default()).await.unwrap().items.len(), 2);
    let options = WatchOptions { send_initial_events: true, ..WatchOptions::default() };
    let mut events = everywhere.watch(&options).await.unwrap();
    let mut initial = Vec::new();
    loop {
        match events.try_next().await.unwrap().unwrap() {
            WatchEvent::Added(object) => initial.push(object.key().to_string()),
            WatchEvent::Bookmark { initial_events_end: true, .. } => break,
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(initial, ["default/web", "kube-system/web"]);
}

/// An object with a label and data.
fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"a": "b"}}, "data": {"k": "v"}}))
        .unwrap()
}

#[tokio::test]
async fn metadata_only() {
    let client = client();
    let config_maps = client.api::<ConfigMap>().namespaced(NAMESPACE);
    config_maps.create(&config_map("web")).await.unwrap();

    // The type has metadata only.
    let metadata = client.api::<PartialObjectMeta<ConfigMap>>().namespaced(NAMESPACE);
    let got = metadata.get("web").await.unwrap();
    assert_eq!(got.types.as_ref().unwrap().kind, "PartialObjectMetadata");
    let list = metadata.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&list.items), ["web"]);
    let patch = Patch::merge(&json!({"metadata": {"labels": {"a": "c"}}}));
    assert_eq!(metadata.patch("web", &patch).await.unwrap().label("a"), Some("c"));

    // Any type that accepts another kind. Types of k8s-openapi do not.
    let params = ListParams { metadata_only: true, ..ListParams::default() };
    let list = config_maps.list(&params).await.unwrap();
    assert!(list.items.is_empty());
    assert_eq!(list.undecodable[0].name, "default/web");
    let config_maps_of_any_type = ApiResource::namespaced("", "v1", "ConfigMap", "configmaps");
    let whole = client.api_for::<DynamicObject>(config_maps_of_any_type.clone());
    assert_eq!(whole.list(&params).await.unwrap().items[0].data, json!({}));
    let dynamic = client.api_for::<PartialObjectMeta<DynamicObject>>(config_maps_of_any_type);
    let source = dynamic.list_watch(params);
    assert_eq!(names(&source.list(&ListOptions::default()).await.unwrap().items), ["web"]);
    let mut events = source.watch(&WatchOptions::default()).await.unwrap();
    let Some(WatchEvent::Added(added)) = events.try_next().await.unwrap() else { panic!() };
    assert_eq!(added.types.as_ref().unwrap().kind, "PartialObjectMetadata");
}

#[tokio::test]
async fn cluster_scoped() {
    let namespaces = client().api::<Namespace>();
    namespaces.create(&serde_json::from_value(json!({"metadata": {"name": "shop"}})).unwrap()).await.unwrap();
    assert_eq!(namespaces.get("shop").await.unwrap().key(), ObjectKey::new("", "shop"));
    let params = ListParams::fields("metadata.name=shop");
    assert_eq!(namespaces.list(&params).await.unwrap().items.len(), 1);
}

/// Requests that would address other objects than the caller means.
#[tokio::test]
async fn invalid_names() {
    let client = client();
    let (all, config_maps) = (client.api::<ConfigMap>(), client.api::<ConfigMap>().namespaced("shop"));
    let namespaces = client.api::<Namespace>();
    let get = async |error: Result<_, ApiError>| {
        let Err(ApiError::InvalidRequest(message)) = error else { panic!("{error:?}") };
        message.to_string()
    };
    assert_eq!(get(all.get("web").await).await, r#"invalid request for configmaps: no namespace for "web""#);
    assert_eq!(
        get(config_maps.get(&key("web")).await).await,
        r#"invalid request for configmaps: "web" is in namespace "default", not in "shop""#
    );
    assert_eq!(
        get(namespaces.get(&key("web")).await.map(|_| ConfigMap::default())).await,
        r#"invalid request for namespaces: namespace given for cluster-scoped "web""#
    );
    let delete = config_maps.delete("", &DeleteOptions::default()).await.unwrap_err();
    assert_eq!(delete.to_string(), "invalid request for configmaps: the object has no name");
    let collection =
        all.delete_collection(&ListParams::default(), &DeleteOptions::default()).await.unwrap_err();
    assert_eq!(collection.to_string(), "invalid request for configmaps: no namespace");
}
