//! kube's client and informers.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Pod},
};
use kcm_apiserver::{ApiServer, ApiServerConfig, HistoryLimits};
use kube_client::{
    Api, Client, Error, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use serde_json::json;

use crate::client::{deployment, pod};

fn client(config: ApiServerConfig) -> (Arc<ApiServer>, Client) {
    let server = ApiServer::new(config);
    let client = Client::new(server.service(), "default");
    (server, client)
}

fn config_map(name: &str, value: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"v": value}})).unwrap()
}

#[tokio::test]
async fn typed_client() {
    let (_server, client) = client(ApiServerConfig::default());
    let api: Api<Deployment> = Api::default_namespaced(client);
    let web: Deployment = serde_json::from_value(deployment("web")).unwrap();
    let created = api.create(&PostParams::default(), &web).await.unwrap();
    assert_eq!(created.metadata.generation, Some(1));
    let taken = api.create(&PostParams::default(), &web).await.unwrap_err();
    assert!(matches!(taken, Error::Api(status) if status.is_already_exists()));

    let patch = Patch::Strategic(json!({"spec": {"replicas": 5}}));
    api.patch("web", &PatchParams::default(), &patch).await.unwrap();
    assert_eq!(api.get_scale("web").await.unwrap().spec.unwrap().replicas, Some(5));
    let stale = api.replace("web", &PostParams::default(), &created).await.unwrap_err();
    assert!(matches!(stale, Error::Api(status) if status.is_conflict()));
    assert_eq!(api.list(&ListParams::default().labels("app=web")).await.unwrap().items.len(), 1);
    assert_eq!(api.list_metadata(&ListParams::default()).await.unwrap().items[0].name_any(), "web");
    api.delete("web", &DeleteParams::default()).await.unwrap();
    assert!(api.get_opt("web").await.unwrap().is_none());
}

async fn reflector_follows(config: watcher::Config, history: HistoryLimits) {
    let (_server, client) = client(ApiServerConfig { history, ..ApiServerConfig::default() });
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    for n in 0..5 {
        api.create(&PostParams::default(), &config_map(&format!("c{n}"), "old")).await.unwrap();
    }
    let (store, writer) = reflector::store();
    let stream = reflector(writer, watcher(api.clone(), config)).default_backoff();
    let following = tokio::spawn(stream.try_for_each(async |_| Ok(())));
    store.wait_until_ready().await.unwrap();
    assert_eq!(store.state().len(), 5);

    api.replace("c0", &PostParams::default(), &config_map("c0", "new")).await.unwrap();
    api.delete("c1", &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &config_map("c9", "last")).await.unwrap();
    let seen = |name: &str| store.find(|object| object.name_any() == name).is_some();
    tokio::time::timeout(Duration::from_secs(20), async {
        while !seen("c9") {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the reflector should see the last write");
    assert!(!seen("c1"));
    let changed = store.find(|object| object.name_any() == "c0").unwrap();
    assert_eq!(changed.data.as_ref().unwrap()["v"], "new");
    following.abort();
}

#[tokio::test]
async fn reflector_with_list_and_watch() {
    // Pages of two objects require continue tokens.
    reflector_follows(watcher::Config::default().page_size(2), HistoryLimits::default()).await;
}

#[tokio::test]
async fn reflector_with_streaming_list() {
    reflector_follows(watcher::Config::default().streaming_lists(), HistoryLimits::default()).await;
}

#[tokio::test]
async fn watcher_relists_after_410() {
    let history = HistoryLimits { events: 3, ..HistoryLimits::default() };
    let (_server, client) = client(ApiServerConfig { history, ..ApiServerConfig::default() });
    let api: Api<Pod> = Api::default_namespaced(client);
    let create = async |name: &str| {
        let pod: Pod = serde_json::from_value(pod(name)).unwrap();
        api.create(&PostParams::default(), &pod).await.unwrap();
    };
    let mut stream = pin!(watcher(api.clone(), watcher::Config::default()));
    create("first").await;
    let mut inits = 0;
    let mut names = Vec::new();
    // The revision of the list is evicted from the history before the watch begins.
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Init) => {
                inits += 1;
                names.clear();
            }
            Ok(watcher::Event::InitDone) if inits == 1 => {
                for n in 0..5 {
                    create(&format!("p{n}")).await;
                }
            }
            Ok(watcher::Event::InitDone) => break,
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => names.push(pod.name_any()),
            Ok(watcher::Event::Delete(_)) | Err(_) => {}
        }
    }
    assert_eq!(inits, 2);
    assert_eq!(names, ["first", "p0", "p1", "p2", "p3", "p4"]);
}
