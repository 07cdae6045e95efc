//! API servers and informers of the tests.
#![allow(dead_code, reason = "each test uses a part")]

use std::{collections::VecDeque, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::ConfigMap;
use kcm_apiserver::{ApiServer, ApiServerConfig};
use kcm_clock::{Clock, SeededRandom, SimulatedClock, Timestamp};
use kcm_informer::{InformerConfig, Object, SharedInformer, Sources};
use kcm_testkit::{FakeApiServer, FakeResponse, RecordedRequest};
use kube_client::{Api, Client, core::params::PostParams};
use parking_lot::Mutex;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};

pub(crate) fn clock() -> Arc<dyn Clock> {
    Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH))
}

/// Client of a new API server with the namespaces `a` and `b`.
pub(crate) async fn cluster() -> Client {
    cluster_and_server().await.0
}

pub(crate) async fn cluster_and_server() -> (Client, Arc<ApiServer>) {
    let config = ApiServerConfig {
        clock: clock(),
        random: Arc::new(SeededRandom::new(1)),
        ..ApiServerConfig::default()
    };
    let server = ApiServer::new(config);
    let client = Client::new(server.service(), "default");
    for name in ["a", "b"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        create::<k8s_openapi::api::core::v1::Namespace>(&Api::all(client.clone()), namespace).await;
    }
    (client, server)
}

pub(crate) async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
}

pub(crate) fn config_map(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name, "labels": {"app": "web"}}, "data": {"key": "value"},
    })
}

/// ConfigMap as a server stores it.
pub(crate) fn stored(name: &str, version: u32) -> Value {
    let mut object = config_map("a", name);
    object["metadata"]["uid"] = format!("{name}-uid").into();
    object["metadata"]["resourceVersion"] = version.to_string().into();
    object
}

/// Responses of a [`FakeApiServer`] to lists and watches.
#[derive(Default)]
pub(crate) struct Script {
    /// Versions and objects of the lists. The last one is repeated.
    pub(crate) lists: VecDeque<(u32, Vec<Value>)>,
    /// Responses to the watches. Then watches without events.
    pub(crate) watches: VecDeque<FakeResponse>,
}

/// Server that sends the lists and watches of a script.
pub(crate) fn scripted(script: Script) -> (FakeApiServer, Arc<Mutex<Script>>) {
    let script = Arc::new(Mutex::new(script));
    let responses = Arc::clone(&script);
    let server = FakeApiServer::with_clock(clock(), move |request: &RecordedRequest| {
        let mut script = responses.lock();
        if request.uri.contains("watch=true") {
            return script.watches.pop_front().unwrap_or_else(|| FakeResponse::endless([]));
        }
        let list = script.lists.front().cloned();
        if script.lists.len() > 1 {
            script.lists.pop_front();
        }
        let (version, items) = list.unwrap();
        FakeResponse::ok(json!({
            "apiVersion": "v1", "kind": "ConfigMapList", "metadata": {"resourceVersion": version.to_string()},
            "items": items,
        }))
    });
    (server, script)
}

/// Watch whose version is expired.
pub(crate) fn expired() -> FakeResponse {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410,
        "message": "too old resource version", "metadata": {},
    });
    FakeResponse::stream([format!("{}\n", json!({"type": "ERROR", "object": status}))])
}

/// Informer that runs until the guard is dropped.
pub(crate) fn run<K: Object>(
    sources: Sources<K>,
    configure: impl FnOnce(&mut InformerConfig<K>),
) -> (SharedInformer<K>, DropGuard) {
    let mut config = InformerConfig::with_sources("tests", sources, clock(), Arc::new(SeededRandom::new(1)));
    configure(&mut config);
    let informer = SharedInformer::new(config);
    let stop = CancellationToken::new();
    let (running, stopped) = (informer.clone(), stop.clone());
    tokio::spawn(async move { running.run(stopped).await });
    (informer, stop.drop_guard())
}

/// Informer of the ConfigMaps of a scripted server. It lists, as the default watcher of kube_runtime.
pub(crate) fn run_scripted(server: &FakeApiServer) -> (SharedInformer<ConfigMap>, DropGuard) {
    let api = Api::all(Client::new(server.service(), "default"));
    let source = kcm_kube::list_watch(api, kube_client::api::ListParams::default());
    run(Sources::One(source), |config| config.streaming_lists = false)
}

pub(crate) async fn synced<K: Object>(informer: &SharedInformer<K>) {
    assert!(informer.wait_for_sync(&CancellationToken::new()).await);
}

/// Runs all tasks that can run: paused time advances only when all tasks wait.
pub(crate) async fn settle() {
    pass(Duration::from_millis(1)).await;
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Names of the objects in the store, sorted.
pub(crate) fn names<K: Object>(informer: &SharedInformer<K>) -> Vec<String> {
    let mut names: Vec<_> = informer.store().list().iter().map(|object| object.key().to_string()).collect();
    names.sort();
    names
}
