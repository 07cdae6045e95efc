//! `kube_runtime::Controller` on informers of this project.

use std::{convert::Infallible, sync::Arc, time::Duration};

use crate::support::{cluster, config_map, create, run, settle};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kcm_informer::{Object, SharedInformer, Sources};
use kcm_kube::{list_watch, touched_objects, watcher};
use kube_client::{Api, Client, Resource, api::ListParams};
use kube_runtime::{
    Controller, WatchStreamExt,
    controller::Action,
    reflector::{self, reflector},
};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio_util::sync::DropGuard;

fn informer<K>(client: &Client) -> (SharedInformer<K>, DropGuard)
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
{
    run(Sources::One(list_watch(Api::all(client.clone()), ListParams::default())), |_| {})
}

#[tokio::test(start_paused = true)]
async fn reconciles_changes_of_primary_and_owned_objects() {
    let client = cluster().await;
    let (primary, _primary) = informer::<ConfigMap>(&client);
    let (owned, _owned) = informer::<Secret>(&client);
    let reconciled = Arc::new(Mutex::new(Vec::new()));

    let (reader, writer) = reflector::store();
    let trigger = reflector(writer, watcher(&primary)).touched_objects();
    let record = Arc::clone(&reconciled);
    let reconcile = move |object: Arc<ConfigMap>, _: Arc<()>| {
        record.lock().push(object.key().to_string());
        std::future::ready(Ok::<_, Infallible>(Action::await_change()))
    };
    let controller = Controller::for_stream(trigger, reader).owns_shared_stream(touched_objects(&owned)).run(
        reconcile,
        |_, _, _| Action::requeue(Duration::from_secs(5)),
        Arc::new(()),
    );
    let controller = tokio::spawn(controller.for_each(|_| std::future::ready(())));
    let taken = || std::mem::take(&mut *reconciled.lock());

    let owner = create(&Api::<ConfigMap>::namespaced(client.clone(), "a"), config_map("a", "web")).await;
    settle().await;
    assert_eq!(taken(), ["a/web"]);

    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": owner.uid_str(), "controller": true});
    let secret = json!({"metadata": {"namespace": "a", "name": "web", "ownerReferences": [reference]}});
    create(&Api::<Secret>::namespaced(client, "a"), secret).await;
    settle().await;
    assert_eq!(taken(), ["a/web"]);
    controller.abort();
}
