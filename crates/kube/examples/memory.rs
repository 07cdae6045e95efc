//! Memory of a cache of 10,000 objects: `kcm_informer` beside `kube_runtime::reflector`, in one run.
//!
//! `cargo run -p kcm-kube --example memory`
//!
//! Counts the bytes of the heap, without a transport: both caches read the same objects from JSON text, one at a time.
//! `cache` is the heap after the first list. `relist` is the maximum above that while all objects are read again,
//! unchanged; it is sampled before each object.

use std::{
    alloc::System,
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kcm_clock::{RealClock, SeededRandom};
use kcm_informer::{
    InformerConfig, ListOptions, ListSink, ListWatch, ListWatchError, ListWatchErrorKind, SharedInformer,
    Transform, WatchEvent, WatchOptions, WatchStream, drop_managed_fields, shrink_to_fit,
};
use kube_client::{
    Resource,
    api::DynamicObject,
    core::{ApiResource, GroupVersionKind, PartialObjectMeta},
};
use kube_derive::CustomResource;
use kube_runtime::{
    WatchStreamExt,
    reflector::{reflector, store::Writer},
    watcher,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const OBJECTS: usize = 10_000;

#[derive(CustomResource, Debug, Clone, Deserialize, Serialize)]
#[kube(
    group = "example.org",
    version = "v1",
    kind = "Website",
    namespaced,
    status = "WebsiteStatus",
    schema = "disabled",
    crates(kube_core = "kube_client::core")
)]
#[serde(rename_all = "camelCase")]
struct WebsiteSpec {
    host: String,
    image: String,
    replicas: i32,
    paths: Vec<Path>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Path {
    prefix: String,
    backend: String,
    timeout_seconds: i32,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct WebsiteStatus {
    observed_generation: i64,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    r#type: String,
    status: String,
    reason: String,
    message: String,
    last_transition_time: String,
}

fn metadata(n: usize) -> Value {
    let fields = json!({
        "f:metadata": {"f:annotations": {"f:team": {}}, "f:labels": {"f:app": {}, "f:tier": {}}},
        "f:spec": {"f:host": {}, "f:image": {}, "f:paths": {}, "f:replicas": {}},
    });
    let status = json!({"f:status": {"f:conditions": {}, "f:observedGeneration": {}}});
    json!({
        "namespace": format!("team-{}", n % 20), "name": format!("website-{n:05}"),
        "uid": format!("6f7a1d52-0000-4000-8000-{n:012}"), "resourceVersion": format!("{}", 1_000_000 + n),
        "generation": 3, "creationTimestamp": "2026-11-01T12:00:00Z",
        "labels": {"app": format!("website-{n:05}"), "app.kubernetes.io/managed-by": "operator", "tier": "front"},
        "annotations": {"team": format!("team-{}@example.org", n % 20)},
        "finalizers": ["example.org/dns"],
        "managedFields": [
            {"manager": "kubectl", "operation": "Apply", "apiVersion": "example.org/v1", "fieldsType": "FieldsV1",
             "time": "2026-11-01T12:00:00Z", "fieldsV1": fields},
            {"manager": "operator", "operation": "Update", "apiVersion": "example.org/v1", "subresource": "status",
             "fieldsType": "FieldsV1", "time": "2026-11-01T12:00:05Z", "fieldsV1": status},
        ],
    })
}

fn website(n: usize) -> String {
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "DeploymentAvailable", "message": "All replicas are available",
            "lastTransitionTime": "2026-11-01T12:00:05Z",
        })
    };
    let path = |prefix: &str| json!({"prefix": prefix, "backend": format!("backend-{}", n % 50), "timeoutSeconds": 30});
    json!({
        "apiVersion": "example.org/v1", "kind": "Website", "metadata": metadata(n),
        "spec": {
            "host": format!("www-{n:05}.example.org"), "image": "registry.example.org/websites/site:1.24.3",
            "replicas": 3, "paths": [path("/"), path("/api"), path("/static")],
        },
        "status": {"observedGeneration": 3, "conditions": [condition("Available"), condition("Progressing")]},
    })
    .to_string()
}

fn pod(n: usize) -> String {
    let env = |name: &str| json!({"name": name, "value": format!("value of {name}")});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata(n),
        "spec": {
            "nodeName": format!("node-{}", n % 500), "serviceAccountName": "default", "restartPolicy": "Always",
            "containers": [{
                "name": "site", "image": "registry.example.org/websites/site:1.24.3",
                "env": [env("HOST"), env("PORT"), env("LOG_LEVEL")], "ports": [{"containerPort": 8080}],
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
                "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            }],
            "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1", "hostIP": "192.168.0.1",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T12:00:05Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T12:00:01Z"},
            ],
            "containerStatuses": [{
                "name": "site", "image": "site:1.24.3", "imageID": "sha256:0123456789abcdef", "ready": true,
                "restartCount": 0, "state": {"running": {"startedAt": "2026-11-01T12:00:04Z"}},
            }],
        },
    })
    .to_string()
}

/// Bytes on the heap.
fn heap() -> usize {
    let stats = HEAP.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// Objects as JSON text, and the maximum of the heap while they are read.
#[derive(Clone)]
struct Objects {
    text: fn(usize) -> String,
    peak: Arc<AtomicUsize>,
}

impl Objects {
    fn read<K: DeserializeOwned>(&self, n: usize) -> Result<K, serde_json::Error> {
        self.peak.fetch_max(heap(), Ordering::Relaxed);
        serde_json::from_str(&(self.text)(n))
    }
}

#[async_trait]
impl<K: DeserializeOwned + Send + 'static> ListWatch<K> for Objects {
    async fn list_into(&self, _: &ListOptions, _: &mut dyn ListSink<K>) -> Result<String, ListWatchError> {
        Err(ListWatchError::new(ListWatchErrorKind::Unsupported, "streaming lists only"))
    }

    async fn watch(&self, _: &WatchOptions) -> Result<WatchStream<K>, ListWatchError> {
        let this = self.clone();
        let error = |error| ListWatchError::new(ListWatchErrorKind::Other, error);
        let objects = stream::iter(0..OBJECTS).map(move |n| {
            this.read(n).map(WatchEvent::Added).map_err(|failed: serde_json::Error| error(failed))
        });
        let end = WatchEvent::Bookmark { resource_version: "2000000".to_owned(), initial_events_end: true };
        Ok(objects.chain(stream::iter([Ok(end)])).chain(stream::pending()).boxed())
    }
}

/// Bytes per object.
struct Measured {
    cache: usize,
    relist: usize,
}

async fn informer<K>(objects: &Objects, transform: Option<Transform<K>>) -> Measured
where
    K: kcm_informer::Object + DeserializeOwned,
{
    let before = heap();
    let (clock, random) = (Arc::new(RealClock::new()), Arc::new(SeededRandom::new(1)));
    let config = InformerConfig::new("objects", Arc::new(objects.clone()), clock, random);
    let informer = SharedInformer::new(InformerConfig { transform, ..config });
    let stop = CancellationToken::new();
    let measure = async {
        informer.wait_for_sync(&stop).await;
        let cached = heap();
        objects.peak.store(0, Ordering::Relaxed);
        informer.relist().await;
        stop.cancel();
        measured(objects, before, cached)
    };
    let (_, measured) = tokio::join!(informer.run(stop.clone()), measure);
    measured
}

async fn kube_reflector<K>(objects: &Objects, resource: K::DynamicType, drop_fields: bool) -> Measured
where
    K: Resource<DynamicType: Eq + std::hash::Hash + Clone> + DeserializeOwned + Clone + 'static,
{
    let before = heap();
    let writer = Writer::<K>::new(resource);
    let store = writer.as_reader();
    let list = || {
        let objects = objects.clone();
        let read = stream::iter(0..OBJECTS).filter_map(move |n| std::future::ready(objects.read(n).ok()));
        let read = read.map(watcher::Event::InitApply);
        stream::iter([watcher::Event::Init])
            .chain(read)
            .chain(stream::iter([watcher::Event::InitDone]))
            .map(Ok)
    };
    let drop_fields = move |object: &mut K| {
        if drop_fields {
            object.meta_mut().managed_fields = None;
        }
    };
    let mut events = Box::pin(reflector(writer, list().chain(list()).modify(drop_fields)));
    for _ in 0..OBJECTS + 2 {
        drop(events.next().await);
    }
    let cached = heap();
    objects.peak.store(0, Ordering::Relaxed);
    while events.next().await.is_some() {}
    assert_eq!(store.len(), OBJECTS);
    measured(objects, before, cached)
}

fn measured(objects: &Objects, before: usize, cached: usize) -> Measured {
    let peak = objects.peak.load(Ordering::Relaxed);
    Measured { cache: cached.saturating_sub(before) / OBJECTS, relist: peak.saturating_sub(cached) / OBJECTS }
}

async fn compare<K>(name: &str, text: fn(usize) -> String, resource: K::DynamicType)
where
    K: Resource<DynamicType: Eq + std::hash::Hash + Clone> + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let objects = Objects { text, peak: Arc::default() };
    for drop_fields in [false, true] {
        let transform = drop_fields.then(|| Arc::new(drop_managed_fields) as Transform<K>);
        let ours = informer::<K>(&objects, transform).await;
        let shrink = Arc::new(move |object: &mut K| {
            if drop_fields {
                drop_managed_fields(object);
            }
            shrink_to_fit(object);
        });
        let shrunk = informer::<K>(&objects, Some(shrink)).await;
        let theirs = kube_reflector::<K>(&objects, resource.clone(), drop_fields).await;
        let fields = if drop_fields { "no" } else { "yes" };
        println!(
            "| {name} | {fields} | {} | {} | {} | {} | {} |",
            ours.cache, shrunk.cache, theirs.cache, ours.relist, theirs.relist
        );
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.org", "v1", "Website"));
    println!(
        "Bytes per object in a cache of {OBJECTS} objects. A Website is {} bytes of JSON, a Pod {}.\n",
        website(0).len(),
        pod(0).len()
    );
    println!(
        "| Type | managedFields | kcm_informer | with shrink_to_fit | kube_runtime | relist: kcm_informer | relist: kube_runtime |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|");
    compare::<DynamicObject>("DynamicObject", website, resource).await;
    compare::<Website>("Website (derived)", website, ()).await;
    compare::<PartialObjectMeta<Website>>("PartialObjectMeta", website, ()).await;
    compare::<Pod>("Pod (k8s-openapi)", pod, ()).await;
    Ok(())
}
