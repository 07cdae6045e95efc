//! Informers of the types that users of kube-rs have.
//!
//! `cargo test -p kcm-informer --features kube --test kube`
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kcm_clock::{SeededRandom, SimulatedClock, Timestamp};
use kcm_informer::{
    IndexName, Indexers, InformerConfig, ObjectKey, SharedInformer, drop_managed_fields,
    testing::{FakeSource, RecordingHandler},
};
use kube_core::{DynamicObject, Resource, metadata::PartialObjectMeta};
use kube_derive::CustomResource;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

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

const APP: IndexName = IndexName("app");

fn object(api_version: &str, kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("{name}-uid"), "labels": {"app": "web"},
            "managedFields": [{"manager": "kubectl", "operation": "Update"}],
        },
        "spec": {},
    })
}

/// Runs an informer of type `K`: its handlers, its index and its transform.
async fn follows_objects_of<K>(api_version: &str, kind: &str)
where
    K: Resource + Clone + DeserializeOwned + Send + Sync + 'static,
{
    let decode = |name: &str| serde_json::from_value::<K>(object(api_version, kind, name)).unwrap();
    let clock = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let source = FakeSource::new(clock.clone());
    source.apply(decode("a"));
    let informer = SharedInformer::new(InformerConfig {
        indexers: Indexers::new()
            .with(APP, |object: &K| Some(object.meta().labels.as_ref()?.get("app")?.as_str().into())),
        transform: Some(Arc::new(drop_managed_fields)),
        ..InformerConfig::new("objects", Arc::new(source.clone()), clock, Arc::new(SeededRandom::new(1)))
    });
    let handler = Arc::new(RecordingHandler::new());
    informer.add_handler(handler.clone());
    let cancel = CancellationToken::new();
    let scenario = async {
        let settle = || tokio::time::sleep(Duration::from_millis(1));
        assert!(informer.wait_for_sync(&cancel).await);
        source.apply(decode("a"));
        source.apply(decode("b"));
        source.delete(&ObjectKey::new("shop", "a"));
        settle().await;
        assert_eq!(
            handler.take_texts(),
            ["add shop/a@2 (initial)", "update shop/a@2->3", "add shop/b@4", "delete shop/a@5"]
        );
        let stored = informer.store().by_index(APP, "web");
        assert_eq!(stored.len(), 1);
        assert_eq!(stored[0].meta().managed_fields, None);
        assert!(source.get(&ObjectKey::new("shop", "b")).unwrap().meta().managed_fields.is_some());
        cancel.cancel();
    };
    tokio::join!(informer.run(cancel.clone()), scenario);
}

#[tokio::test(start_paused = true)]
async fn k8s_openapi_type() {
    follows_objects_of::<ConfigMap>("v1", "ConfigMap").await;
}

#[tokio::test(start_paused = true)]
async fn derived_custom_resource() {
    follows_objects_of::<Website>("example.org/v1", "Website").await;
}

#[tokio::test(start_paused = true)]
async fn dynamic_object() {
    follows_objects_of::<DynamicObject>("example.org/v1", "Website").await;
}

#[tokio::test(start_paused = true)]
async fn metadata_only() {
    follows_objects_of::<PartialObjectMeta<Website>>("meta.k8s.io/v1", "PartialObjectMetadata").await;
    follows_objects_of::<PartialObjectMeta<DynamicObject>>("meta.k8s.io/v1", "PartialObjectMetadata").await;
}
